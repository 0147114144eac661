package redisstore

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"runtime"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/internal/logtest"
	"github.com/cacheguard/cacheguard/internal/redislink"
	"github.com/cacheguard/cacheguard/internal/redistest"
	"github.com/cacheguard/cacheguard/internal/report"
	"github.com/cacheguard/cacheguard/internal/waittest"
)

func storeThatHangs(t *testing.T) *Store { return hangs(t, slog.DiscardHandler) }

func hangs(t *testing.T, log slog.Handler) *Store {
	l, err := net.Listen("tcp", "127.0.0.1:0") // accepts connections and never answers
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	rdb := redis.NewClient(&redis.Options{Addr: l.Addr().String(), ContextTimeoutEnabled: true})
	t.Cleanup(func() { _ = rdb.Close() })
	s, err := New(rdb, Options{Logger: slog.New(log)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// asking is a log that looks at the store's breakers for each record.
type asking struct {
	slog.Handler
	store *atomic.Pointer[Store]
	asked chan int
}

func (a asking) Enabled(context.Context, slog.Level) bool { return true }

func (a asking) Handle(context.Context, slog.Record) error {
	if s := a.store.Load(); s != nil {
		open, _ := s.Breakers()
		a.asked <- open
	}
	return nil
}

func (a asking) WithAttrs([]slog.Attr) slog.Handler { return a }
func (a asking) WithGroup(string) slog.Handler      { return a }

// A handler of the log may ask how many breakers are open, also while one opens or closes.
func TestLogAsksForBreakers(t *testing.T) {
	log := asking{slog.DiscardHandler, new(atomic.Pointer[Store]), make(chan int, 100)}
	s := hangs(t, log)
	log.store.Store(s)
	b := s.health.of("x")
	done := make(chan bool, 1)
	go func() {
		for range tolerance {
			b.answered("x", io.ErrUnexpectedEOF, 0)
		}
		pastOpening(b)
		b.answered("x", nil, 0)
		done <- true
	}()
	if open := waittest.Next(t, "the record of the opening", log.asked); open != 1 {
		t.Errorf("%d are open, want 1", open)
	}
	if open := waittest.Next(t, "the record of the closing", log.asked); open != 0 {
		t.Errorf("%d are open, want 0", open)
	}
	waittest.Next(t, "the answers", done)
}

// A caller's answer may close a breaker, and the breaker may open again before its probe has run.
// Then a second probe must not run beside the first, and so on.
func TestBreakerHasOneProbe(t *testing.T) {
	s := storeThatHangs(t)
	b := s.health.of("x")
	for range 5 {
		for range tolerance {
			b.answered("x", io.ErrUnexpectedEOF, 0)
		}
		pastOpening(b)
		b.answered("x", nil, 0) // a change was answered
		if b.open.Load() {
			t.Fatal("open")
		}
	}
	for range tolerance {
		b.answered("x", io.ErrUnexpectedEOF, 0)
	}
	waittest.Until(t, "the ended probes return, and one is left", func() bool {
		stacks := make([]byte, 1<<20)
		stacks = stacks[:runtime.Stack(stacks, true)]
		return strings.Count(string(stacks), "redisstore.(*breaker).probe(") == 1
	})
}

// Some steps were under way when Redis hung, and end after Redis has answered the probe. Their
// failures say nothing about Redis now.
func TestOldFailuresKeepTheBreakerClosed(t *testing.T) {
	s := storeThatHangs(t)
	b := s.health.of("x")
	for range tolerance {
		b.answered("x", io.ErrUnexpectedEOF, 0)
	}
	if !b.open.Load() {
		t.Fatal("not open")
	}
	pastOpening(b)
	b.answered("x", nil, 0) // the probe
	if b.open.Load() {
		t.Fatal("open")
	}
	for range tolerance { // these steps began before that answer
		b.answered("x", io.ErrUnexpectedEOF, time.Hour)
	}
	if b.open.Load() {
		t.Error("it is open again because of steps that began before the answer")
	}
}

// pastOpening returns when some time has passed since the breaker opened, so that a step can begin
// after the opening.
func pastOpening(b *breaker) {
	for b.all.s.clock.elapsed() <= time.Duration(b.since.Load()) {
		runtime.Gosched()
	}
}

// A server that refuses the client or its user has answered, however long that took. So neither
// breaker opens, and a breaker that is open because the server was silent closes.
func TestTurnedAwayIsAnswered(t *testing.T) {
	for _, says := range []string{
		"WRONGPASS invalid username-password pair or user is disabled.",
		"NOAUTH Authentication required.",
		"NOPERM User u has no permissions to run the 'mget' command",
		"DENIED Redis is running in protected mode because protected mode is enabled",
	} {
		t.Run(says, func(t *testing.T) {
			s := storeThatHangs(t)
			for range 2 * tolerance {
				s.health.of("x").answered("x", said(says), s.opts.OpTimeout)
				s.writes.of("x").answered("x", said(says), s.opts.OpTimeout)
			}
			if open, _ := s.Breakers(); open > 0 {
				t.Errorf("%d breakers are open", open)
			}
			b := s.health.of("x")
			for range tolerance {
				b.answered("x", io.ErrUnexpectedEOF, 0)
			}
			pastOpening(b)
			if b.answered("x", said(says), 0); b.open.Load() {
				t.Error("open, with an answer")
			}
		})
	}
	for _, says := range []string{
		"LOADING Redis is loading the dataset in memory", "ERR max number of clients reached",
	} {
		s := storeThatHangs(t) // go-redis goes on trying, and callers wait for it
		for began := s.clock.elapsed(); s.clock.elapsed()-began < s.opts.OpTimeout/4; {
			runtime.Gosched()
		}
		for range tolerance {
			s.health.of("x").answered("x", said(says), s.opts.OpTimeout/4)
		}
		if open, _ := s.Breakers(); open != 1 {
			t.Errorf("%d breakers are open with a server that takes all their time to say %s, want 1",
				open, says)
		}
	}
}

// justOver is a context whose deadline has passed and which hasn't noticed it yet.
type justOver struct{ context.Context }

func (justOver) Deadline() (time.Time, bool) { return time.Now(), true }

// A caller's deadline is also the deadline of its connection, which may pass first.
func TestDeadlineOfACallerKeepsTheBreakersClosed(t *testing.T) {
	s := storeThatHangs(t)
	late := func(context.Context, redis.UniversalClient) (string, error) {
		return "", os.ErrDeadlineExceeded
	}
	for range 2 * tolerance {
		_, read := look(justOver{t.Context()}, s, "x", late)
		_, changed := change(justOver{t.Context()}, s, "x", late)
		if read == nil || changed == nil {
			t.Fatal("no error")
		}
	}
	if open, _ := s.Breakers(); open > 0 {
		t.Errorf("%d breakers are open", open)
	}
	for range 2 * tolerance {
		_, _ = change(t.Context(), s, "x", late)
	}
	if open, _ := s.Breakers(); open == 0 {
		t.Error("no breaker is open although Redis doesn't answer")
	}
}

type said string

func (s said) Error() string { return string(s) }
func (said) RedisError()     {}

func TestBreakersAreCounted(t *testing.T) {
	s := storeThatHangs(t)
	for i, bs := range []*breakers{&s.health, &s.writes} {
		if open, all := s.Breakers(); open != i || all != 2 {
			t.Errorf("%d of %d are open, want %d of 2", open, all, i)
		}
		for range tolerance {
			bs.of("x").answered("x", io.ErrUnexpectedEOF, 0)
		}
	}
	if open, _ := s.Breakers(); open != 2 {
		t.Errorf("%d are open, want 2", open)
	}
}

// Steps for many keys that are all refused don't show that Redis takes writes again, as the refusal
// of one doesn't.
func TestRefusalsAreNoSignOfWrites(t *testing.T) {
	server := redistest.Start(t)
	admin := redis.NewClient(&redis.Options{Addr: server.Addr(), ContextTimeoutEnabled: true})
	t.Cleanup(func() { _ = admin.Close() })
	if err := admin.Do(t.Context(), "ACL", "SETUSER", "reader", "on", "nopass", "~*", "&*", "+@all",
		"-eval", "-evalsha").Err(); err != nil {
		t.Fatal(err)
	}
	rdb := redis.NewClient(&redis.Options{
		Addr: server.Addr(), Username: "reader", Password: "any", ContextTimeoutEnabled: true,
	})
	t.Cleanup(func() { _ = rdb.Close() })
	s, err := New(rdb, Options{OpTimeout: time.Minute, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	keys := []cacheguard.Key{{Cache: "c", Key: "a"}, {Cache: "c", Key: "b"}}
	b := s.writes.of(s.names.value(keys[0]))
	for range tolerance {
		b.answered("x", io.ErrUnexpectedEOF, 0)
	}
	pastOpening(b)
	var each cacheguard.KeyErrors
	if err := s.Invalidate(t.Context(), keys); !errors.As(err, &each) || len(each) != 2 ||
		!redislink.Refused(each["a"]) {
		t.Errorf("Invalidate: %v", err)
	}
	if !b.open.Load() {
		t.Error("the breaker is closed, and nothing was written")
	}
}

// probing makes the breakers' probes fail with an error. The channel gets a value when a probe
// begins. When the second value has arrived, the first probe's error has been noted.
func probing(bs *breakers, err error) <-chan struct{} {
	began := make(chan struct{})
	bs.probe = func(ctx context.Context, _ redis.UniversalClient, _ string) error {
		select {
		case began <- struct{}{}:
		case <-bs.end:
		}
		return err
	}
	return began
}

// While a breaker is open, its cause may become another one. Steps that are not sent have the cause
// that the last probe has found.
func TestOpenBreakerHasTheCauseOfNow(t *testing.T) {
	s := storeThatHangs(t)
	probed := probing(&s.health, &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED})
	b := s.health.of("x")
	for range tolerance {
		b.answered("x", io.ErrUnexpectedEOF, 0)
	}
	for _, cause := range []string{
		"the connection was closed by the other side", "can't be reached: connection refused",
	} {
		if _, got := report.Where(b.refusal()); got != cause || !errors.Is(b.refusal(), errOpen) {
			t.Errorf("a step that is not sent has the cause %q, want %q", got, cause)
		}
		<-probed
		<-probed
	}
}

// If Redis turns callers away, it is not only writes that it doesn't take, and the log doesn't say
// so. This also holds if the breaker for writes was opened by an outage before.
func TestTurnedAwayIsNotSaidOfWrites(t *testing.T) {
	for says, lines := range map[string]int{
		"NOAUTH Authentication required.":                           0,
		"NOPERM User u has no permissions to run the 'set' command": 0,
		"READONLY You can't write against a read only replica.":     1,
	} {
		t.Run(says, func(t *testing.T) {
			s := storeThatHangs(t)
			var log logtest.Lines
			s.opts.Logger = log.Logger()
			probing(&s.health, io.ErrUnexpectedEOF)
			probed := probing(&s.writes, said(says))
			for _, b := range []*breaker{s.health.of("x"), s.writes.of("x")} {
				for range tolerance {
					b.answered("x", io.ErrUnexpectedEOF, 0)
				}
			}
			pastOpening(s.health.of("x"))
			s.health.of("x").answered("x", said(says), 0) // an answer: Redis isn't silent
			for range 3 {                                 // the first may have begun before that
				<-probed
			}
			if n := log.Count("takes no writes"); n != lines || !s.writes.of("x").open.Load() {
				t.Errorf("%d lines say that Redis takes no writes, want %d", n, lines)
			}
		})
	}
}

// A read that waits for its batch in vain has an error that names the server and the cause, however
// the wait has ended.
func TestBatchedReadNamesServerAndCause(t *testing.T) {
	s := storeThatHangs(t)
	gone, leave := context.WithCancel(t.Context())
	leave()
	soon, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	for name, c := range map[string]struct {
		ctx   context.Context
		limit time.Duration
		is    error
		cause string
	}{
		"the limit passes":         {t.Context(), time.Millisecond, context.DeadlineExceeded, ""},
		"the caller has left":      {gone, time.Minute, context.Canceled, "given up by who asked"},
		"the caller's time passes": {soon, time.Minute, context.DeadlineExceeded, ""},
		"the batch fails":          {t.Context(), time.Minute, nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			_, _, err := s.reads.batched(c.ctx, want{name: "x"}, c.limit)
			server, cause := report.Where(err)
			if err == nil || c.is != nil && !errors.Is(err, c.is) || server != s.link.Server() ||
				cause == "" || c.cause != "" && cause != c.cause {
				t.Errorf("%v; it names the server %q and the cause %q", err, server, cause)
			}
		})
	}
}
