package redisstore_test

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/internal/childproc"
	"github.com/cacheguard/cacheguard/internal/redistest"
	"github.com/cacheguard/cacheguard/internal/waittest"
)

// The log alone, and an error alone, name the server and the cause. If go-redis repeats a dial, the
// step itself knows only that its time is over.
func TestTroubleIsTold(t *testing.T) {
	t.Parallel()
	nobody := func(t *testing.T) string {
		port, err := childproc.ReservePort()
		must(t, err)
		t.Cleanup(port.Release)
		return port.Addr()
	}
	for name, c := range map[string]struct {
		options func(t *testing.T) redis.Options
		cause   string
		writes  bool // only writes fail: the log has no line about reads and messages
		changes bool // an error of a change names the cause, too
	}{
		"wrong port": {
			func(t *testing.T) redis.Options { return redis.Options{Addr: nobody(t)} },
			"can't be reached: connection refused", false, true,
		},
		"unknown host": {
			func(t *testing.T) redis.Options {
				// A name server of the machine may be slow, or not be there.
				dial := func(_ context.Context, network, _ string) (net.Conn, error) {
					return nil, &net.OpError{
						Op: "dial", Net: network, Err: &net.DNSError{
							Err: "no such host", Name: "redis.invalid", IsNotFound: true,
						},
					}
				}
				return redis.Options{Addr: "redis.invalid:6379", Dialer: dial}
			},
			"can't be reached: DNS doesn't know the host name", false, true,
		},
		"no TLS there": {
			func(t *testing.T) redis.Options {
				return redis.Options{
					Addr:      redistest.Start(t).Addr(),
					TLSConfig: &tls.Config{ServerName: "localhost"},
				}
			},
			"can't be reached: ", false, true,
		},
		"wrong password": {
			func(t *testing.T) redis.Options {
				return redis.Options{
					Addr: redistest.Start(t).Addr(), Username: "who", Password: "wrong-password",
				}
			},
			"authentication failed", false, true,
		},
		"black hole": {
			func(t *testing.T) redis.Options {
				proxy := newProxy(t, redistest.Start(t).Addr())
				proxy.Blackhole(true)
				return redis.Options{Addr: proxy.Addr()}
			},
			"connected, and no answer in time", false, true,
		},
		"missing right": {
			func(t *testing.T) redis.Options {
				return *newUser(t, newClient(t, redistest.Start(t).Addr()), "-evalsha",
					"-eval").Options()
			},
			"the Redis user lacks a right", false, true,
		},
		"full memory": {
			func(t *testing.T) redis.Options {
				return redis.Options{
					Addr: redistest.Start(t, "--maxmemory", "1", "--maxmemory-policy",
						"noeviction").Addr(),
				}
			},
			"its memory is full (maxmemory)", true, false, // removals still work
		},
		"a replica": {
			func(t *testing.T) redis.Options {
				host, port, err := net.SplitHostPort(nobody(t))
				must(t, err)
				return redis.Options{Addr: redistest.Start(t, "--replicaof", host, port).Addr()}
			},
			// go-redis tries again; if it does so until its time is over, nobody knows why.
			"it is read-only: a replica", true, false,
		},
	} {
		for _, careful := range []bool{true, false} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				opts := c.options(t)
				opts.ContextTimeoutEnabled = careful
				r := newReplica(t, opts.Addr, "cg", func(s *site) {
					s.redis = opts
					if !c.writes && name != "missing right" && name != "wrong password" {
						s.store.OpTimeout = 5 * shortOp // the server doesn't answer at once
					}
				})
				const key = "a-secret-key"
				o := newOrigin("v")
				for i := range 5 { // until the breaker is open, and one more call
					r.get(t, fmt.Sprint(key, i), o.load).is(t, "v")
				}
				r.log.AwaitSome(t, "server="+opts.Addr, c.cause, "means=",
					"see=docs/operations.md#")
				if !c.writes && r.log.Count("store can't be used for reading", c.cause) != 1 {
					t.Errorf("no line, or more than one, says that and why the cache can't read:\n%s",
						r.log.With())
				}
				if !c.writes && name != "missing right" {
					r.log.AwaitSome(t, "messages don't arrive", "server="+opts.Addr, c.cause)
				}
				// On a busy machine the last step may have failed for another reason.
				waittest.Until(t, "a read says the server and the cause", func() bool {
					_, _, err := r.store.Get(t.Context(),
						cacheguard.Key{Cache: "test", Key: key}, nil)
					if c.writes {
						return err == nil
					}
					return err != nil && strings.Contains(err.Error(), opts.Addr) &&
						strings.Contains(err.Error(), c.cause)
				})
				err := r.cache.Invalidate(t.Context(), key)
				if c.changes &&
					(err == nil || !strings.Contains(err.Error(), opts.Addr) ||
						!strings.Contains(err.Error(), c.cause)) {
					t.Errorf("the error of a change is %v; want %s and %q in it", err, opts.Addr,
						c.cause)
				}
				if lines := r.log.With(key); len(lines) > 0 {
					t.Errorf("the log has a key: %s", lines)
				}
				if lines := r.log.With("wrong-password"); len(lines) > 0 ||
					err != nil && strings.Contains(err.Error(), "wrong-password") {
					t.Errorf("the password is told: %s, %v", lines, err)
				}
			})
		}
	}
}
