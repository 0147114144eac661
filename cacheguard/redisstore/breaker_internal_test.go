package redisstore

import (
	"errors"
	"io"
	"log/slog"
	"net"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/internal/redislink"
	"github.com/cacheguard/cacheguard/internal/redistest"
)

func storeThatHangs(t *testing.T) *Store {
	l, err := net.Listen("tcp", "127.0.0.1:0") // accepts connections and never answers
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	rdb := redis.NewClient(&redis.Options{Addr: l.Addr().String(), ContextTimeoutEnabled: true})
	t.Cleanup(func() { _ = rdb.Close() })
	s, err := New(rdb, Options{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
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
	n := 0
	for range 1000 { // the ended probes need a moment to return
		stacks := make([]byte, 1<<20)
		stacks = stacks[:runtime.Stack(stacks, true)]
		if n = strings.Count(string(stacks), "redisstore.(*breaker).probe("); n == 1 {
			return
		}
		runtime.Gosched()
	}
	t.Errorf("%d probes of one breaker", n)
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
		b.answered("x", io.ErrUnexpectedEOF, 250*time.Millisecond)
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
	for _, says := range []string{"LOADING Redis is loading the dataset in memory", "ERR max number of clients reached"} {
		s := storeThatHangs(t) // go-redis goes on trying, and callers wait for it
		for began := s.clock.elapsed(); s.clock.elapsed()-began < s.opts.OpTimeout/4; {
			runtime.Gosched()
		}
		for range tolerance {
			s.health.of("x").answered("x", said(says), s.opts.OpTimeout/4)
		}
		if open, _ := s.Breakers(); open != 1 {
			t.Errorf("%d breakers are open with a server that takes all their time to say %s, want 1", open, says)
		}
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
	if err := admin.Do(t.Context(), "ACL", "SETUSER", "reader", "on", "nopass", "~*", "&*", "+@all", "-eval", "-evalsha").Err(); err != nil {
		t.Fatal(err)
	}
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr(), Username: "reader", Password: "any", ContextTimeoutEnabled: true})
	t.Cleanup(func() { _ = rdb.Close() })
	s, err := New(rdb, Options{Logger: slog.New(slog.DiscardHandler)})
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
	if err := s.Invalidate(t.Context(), keys); !errors.As(err, &each) || len(each) != 2 || !redislink.Refused(each["a"]) {
		t.Errorf("Invalidate: %v", err)
	}
	if !b.open.Load() {
		t.Error("the breaker is closed, and nothing was written")
	}
}
