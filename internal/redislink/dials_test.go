package redislink

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// A dial that panics has ended, and is reported as one that failed.
func TestDialThatPanics(t *testing.T) {
	var d dials
	dial := d.DialHook(func(context.Context, string, string) (net.Conn, error) { panic("boom") })
	func() {
		defer func() { _ = recover() }()
		_, _ = dial(t.Context(), "tcp", "a:1")
	}()
	if failed, _, made := d.last(); d.pending != 0 || failed.addr != "a:1" || made {
		t.Errorf("%d dials are under way, the last that failed is %+v", d.pending, failed)
	}
}

// A dial explains an error only while it is of use: the newest one, to that address, not long ago.
func TestDialsExplain(t *testing.T) {
	refused := &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
	late := fmt.Errorf("step: %w", context.DeadlineExceeded)
	for name, c := range map[string]struct {
		dials func(d *dials)
		err   error
		want  string
	}{
		"nothing is known": {func(*dials) {}, late, "a:1: no answer in time"},
		"refused": {
			func(d *dials) {
				d.ended("a:1", refused)
			}, late, "a:1: can't be reached: connection refused",
		},
		"a node": {
			func(d *dials) {
				d.ended("b:1", refused)
			}, late, "b:1: can't be reached: connection refused",
		},
		"one that Sentinels name": {func(d *dials) {
			d.ended(failover, errors.New("unreachable"))
		}, late,
			"the master that the Sentinels name: can't be reached: no connection"},
		"not what a Sentinel answers": {
			func(d *dials) {
				d.ended("a:1", redis.Nil)
			}, late, "a:1: can't be reached: no connection",
		},
		"mended": {func(d *dials) {
			d.ended("a:1", refused)
			d.ended("a:1", nil)
		}, late, "a:1: connected, and no answer in time"},
		"another one mended": {func(d *dials) {
			d.ended("a:1", refused)
			d.ended("b:1", nil)
		}, late, "a:1: can't be reached: connection refused"},
		"long ago": {func(d *dials) {
			d.ended("a:1", refused)
			d.failed.at = time.Now().Add(-failureCounts)
		}, late, "a:1: no answer in time"},
		"takes long": {
			func(d *dials) {
				d.began()
				d.since = time.Now().Add(-longDial * 2)
			}, late, "a:1: can't be reached: no answer to a dial yet",
		},
		"takes long beside a connection": {
			func(d *dials) {
				d.began()
				d.since = time.Now().Add(-longDial * 2)
			}, &net.OpError{Op: "read", Net: "tcp", Err: os.ErrDeadlineExceeded},
			"a:1: connected, and no answer in time",
		},
		"no Sentinels": {func(d *dials) {
			d.ended(failover,
				errors.New("redis: all sentinels specified in configuration are unreachable"))
		}, late,
			"the master that the Sentinels name: can't be reached: no Sentinel names it"},
		"no Redis": {
			func(*dials) {}, errors.New(`redis: can't parse map reply: "HTTP/1.1 400 Bad Request"`),
			"a:1: what answers is no Redis",
		},
		"unknown host": {func(d *dials) {
			d.ended("a:1", &net.DNSError{IsNotFound: true})
		}, late, "a:1: can't be reached: DNS doesn't know the host name"},
		"no TLS": {
			func(d *dials) {
				d.ended("a:1", tls.RecordHeaderError{})
			}, late, "a:1: can't be reached: it doesn't speak TLS",
		},
		"used up": {
			func(*dials) {}, fmt.Errorf("%w: %w", ErrExhausted, late), "a:1: no connection is free",
		},
		"closed": {
			func(*dials) {}, io.EOF, "a:1: the connection was closed by the other side",
		},
		"turned away": {func(d *dials) {
			d.hears(t, "ERR max number of clients reached")
		}, io.EOF, "a:1: it has too many clients (maxclients)"},
		"protected": {func(d *dials) {
			d.hears(t, "DENIED Redis is running in protected mode")
		}, io.EOF, "a:1: " + protectedMode},
		"turned away, and out of time": {
			func(d *dials) {
				d.hears(t, "WRONGPASS invalid")
			}, late, `a:1: authentication failed as user "default"`,
		},
		"let in": {func(d *dials) {
			d.hears(t, "ERR unknown command 'hello'")
		}, io.EOF, "a:1: the connection was closed by the other side"},
		"turned away long ago": {func(d *dials) {
			d.hears(t, "ERR max number of clients reached")
			d.refusedAt = time.Now().Add(-failureCounts)
		}, io.EOF, "a:1: the connection was closed by the other side"},
		"left": {func(*dials) {}, context.Canceled, "a:1: given up by who asked"},
		"silent": {
			func(*dials) {}, fmt.Errorf("%w within 1s", errSilent), "a:1: no answer in time",
		},
	} {
		t.Run(name, func(t *testing.T) {
			rdb := redis.NewClient(&redis.Options{Addr: "a:1"})
			t.Cleanup(func() { _ = rdb.Close() })
			l, err := New(rdb, time.Second)
			if err != nil {
				t.Fatal(err)
			}
			if c.dials(l.dials); l.dials.pending < 0 {
				l.dials.pending = 0
			}
			told := l.Told(c.err)
			if !strings.HasPrefix(told.Error(), c.want+" (") {
				t.Errorf("told %q; want %q", told, c.want)
			}
			if !errors.Is(told, c.err) || !NoAnswer(told) {
				t.Errorf("%v is not %v any more, or became an answer", told, c.err)
			}
			if again := l.Told(fmt.Errorf("around: %w", told)); !errors.Is(again, told) ||
				strings.Count(again.Error(), "a:1: ") > 1 {
				t.Errorf("told twice: %v", again)
			}
			if other, err := New(rdb, time.Second); err != nil || other.dials != l.dials {
				t.Errorf("another link on the client sees other dials: %v", err)
			}
		})
	}
}

// hears has a server say that to the first command of a connection.
func (d *dials) hears(t *testing.T, says string) {
	hello := redis.NewCmd(t.Context(), "hello", 3)
	answer := func(context.Context, redis.Cmder) error { return said(says) }
	see := firstWords{d}.ProcessHook(answer)
	if err := see(t.Context(), hello); err != said(says) {
		t.Errorf("the hook made %v of %q", err, says)
	}
}

type said string

func (s said) Error() string { return string(s) }
func (said) RedisError()     {}

// Who is turned away is named, and what nobody can use at night is left out.
func TestTroubleIsShort(t *testing.T) {
	for _, c := range []struct {
		options redis.Options
		err     error
		dial    error
		want    string
	}{
		{redis.Options{Username: "shop", Password: "secret"}, said("WRONGPASS invalid"), nil,
			`a:1: authentication failed as user "shop" (WRONGPASS invalid)`},
		{redis.Options{}, said("NOAUTH Authentication required."), nil,
			`a:1: authentication failed: no password was given as user "default" (NOAUTH Authentication required.)`},
		{redis.Options{CredentialsProvider: func() (string, string) { return "x", "y" }},
			said("WRONGPASS invalid"), nil,
			"a:1: authentication failed (WRONGPASS invalid)"},
		{redis.Options{},
			said("NOPERM no right script: 0123456789012345678901234567890123456789, on @user_script:12."),
			nil,
			`a:1: the Redis user lacks a right as user "default" (NOPERM no right)`},
		{redis.Options{}, context.DeadlineExceeded,
			&net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED},
			"a:1: can't be reached: connection refused (dial tcp: connection refused)"},
	} {
		c.options.Addr = "a:1"
		rdb := redis.NewClient(&c.options)
		l, err := New(rdb, time.Second)
		if err != nil {
			t.Fatal(err)
		}
		if c.dial != nil {
			l.dials.began()
			l.dials.ended("a:1", c.dial)
		}
		if got := l.Told(c.err); got.Error() != c.want || !errors.Is(got, c.err) {
			t.Errorf("got  %v\nwant %s", got, c.want)
		}
		_ = rdb.Close()
	}
}
