package redlock_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/cacheguard/cacheguard/cacheguard/lock"
	"github.com/cacheguard/cacheguard/cacheguard/lock/redlock"
	"github.com/cacheguard/cacheguard/internal/logtest"
	"github.com/cacheguard/cacheguard/internal/redistest"
	"github.com/cacheguard/cacheguard/internal/waittest"
)

// handover passes a lock from one locker to a waiting locker several times, and returns the median
// time of a hand-over.
func handover(t *testing.T, from, to *redlock.Locker, times int) time.Duration {
	t.Helper()
	var took []time.Duration
	for range times {
		held := get(t, from, "k")
		at := make(chan time.Time, 1)
		go func() {
			held, err := to.Lock(t.Context(), "k")
			now := time.Now()
			if err == nil {
				err = held.Unlock(t.Context())
			}
			if err != nil {
				t.Error(err)
			}
			at <- now
		}()
		pass(400 * time.Millisecond) // the waiting call has stopped sending requests
		unlocked := time.Now()
		must(t, held.Unlock(t.Context()))
		took = append(took, (<-at).Sub(unlocked))
	}
	slices.Sort(took)
	t.Logf("from Unlock to the next Lock: median %v, most %v", took[len(took)/2], took[len(took)-1])
	return took[len(took)/2]
}

// handsOver checks that half of the hand-overs take most at most. On a busy machine some of them
// take longer, so it tries again.
func handsOver(t *testing.T, from, to *redlock.Locker, most time.Duration) {
	t.Helper()
	var took time.Duration
	for range 5 {
		if took = handover(t, from, to, 7); took <= most {
			return
		}
	}
	t.Errorf("a hand-over took %v; want %v at most", took, most)
}

// handsOverSoon checks that half of the hand-overs take 10 s at most. A patient call that isn't
// woken asks after half a minute or more.
func handsOverSoon(t *testing.T, from, to *redlock.Locker) {
	t.Helper()
	if took := handover(t, from, to, 3); took > 10*time.Second {
		t.Errorf("a hand-over took %v", took)
	}
}

// patient makes a locker's waiting calls, while they get messages, ask by themselves only after a
// minute, or when the lock ends.
func patient(l *redlock.Locker) *redlock.Locker {
	l.SetMostPause(time.Minute)
	return l
}

// Messages of at least a majority of masters wake the waiting calls. Without these messages they
// would ask only once in a while.
func TestWokenByMessages(t *testing.T) {
	t.Run("all", func(t *testing.T) {
		t.Parallel()
		s := newSite(t)
		from, to := s.open(t, opts()), patient(s.open(t, opts()))
		warm(t, to)
		handsOverSoon(t, from, to)
	})
	t.Run("two masters away", func(t *testing.T) {
		t.Parallel()
		s := newSite(t)
		// A majority needs all masters that are left, and on a busy machine one takes seconds now
		// and then.
		o := leased(time.Minute)
		from, to := s.wired(t, o), patient(s.wired(t, o))
		works(t, from) // the first call would wait for the masters that are away
		works(t, to)
		s.proxies[0].Blackhole(true)
		s.servers[4].Kill()
		warm(t, to)
		handsOverSoon(t, from, to)
		s.proxies[0].Blackhole(false)
	})
}

// If no messages arrive from a majority, waiting calls poll. The log has one line for each master
// when its messages stop, and one when they arrive again.
func TestMessagesCut(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	var log logtest.Lines
	o := opts()
	o.Logger = log.Logger()
	from, to := s.open(t, o), patient(s.wired(t, o))
	warm(t, to)
	var cut []*redistest.Fault
	for _, p := range s.proxies[:3] {
		for range 20 { // waits for tries to subscribe again
			cut = append(cut, p.DropCommand(redistest.IsCommand("SUBSCRIBE"), redistest.Hangup))
		}
		p.Cut()
	}
	masters := []string{"master=0", "master=1", "master=2"}
	for _, m := range masters {
		log.AwaitSome(t, "messages of a master don't arrive", m)
	}
	handsOverSoon(t, from, to)
	for _, f := range cut {
		f.Disarm()
	}
	for _, m := range masters {
		log.AwaitSome(t, "messages of a master arrive again", m)
		// On a busy machine messages may stop once more.
		away := log.Count("messages of a master don't arrive", m)
		if n := log.Count("messages of a master arrive again", m); n > away || n < away-1 {
			t.Errorf("%s: it was said %d times that messages don't arrive, and %d times that they do",
				m, away, n)
		}
	}
	handsOverSoon(t, from, to)
}

// The rights in docs/locks.md are enough for everything. Without the rights for
// messages, waiting calls poll.
func TestRights(t *testing.T) {
	const commands = "+evalsha +eval +script|load +get +set +append +del +pexpire +pttl "
	for name, c := range map[string]struct {
		rules    string
		messages bool
	}{
		"all of them": {
			"~cgredlock:* &cgredlock:released " + commands + "+publish +subscribe +ping +hello",
			true,
		},
		"without both":   {"~cgredlock:* " + commands, false},
		"without listen": {"~cgredlock:* &cgredlock:released " + commands + "+publish", false},
		"without tell": {
			"~cgredlock:* &cgredlock:released " + commands + "+subscribe +ping", false,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t)
			for _, rdb := range s.direct {
				must(t,
					rdb.Do(t.Context(),
						append([]any{"acl", "setuser", "locker", "on", ">secret", "resetchannels"},
							fields(c.rules)...)...).Err())
			}
			open := func() *redlock.Locker {
				var masters []redis.UniversalClient
				for _, server := range s.servers {
					rdb := redis.NewClient(&redis.Options{
						Addr: server.Addr(), Username: "locker", Password: "secret",
						DisableIdentity: true,
					})
					t.Cleanup(func() { _ = rdb.Close() })
					masters = append(masters, rdb)
				}
				l, err := redlock.New(masters, opts())
				must(t, err)
				t.Cleanup(func() { must(t, l.Close()) })
				l.SetWarmTimeout(patience)
				return l
			}
			from, to := open(), open()
			if err := warmed(t, to); (err == nil) != (c.messages || name == "without tell") {
				t.Errorf("Warm: %v", err)
			}
			if name == "without listen" {
				// At once.
				says(t, warmed(t, to), "the Redis user lacks +ping +subscribe", "NOPERM")
			}
			handsOver(t, from, to, 2*time.Second)
		})
	}
}

func fields(s string) (all []any) {
	for _, f := range strings.Fields(s) {
		all = append(all, f)
	}
	return all
}

// No message on the channel does harm, whatever its content.
func TestStrangeMessages(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	from, to := s.open(t, opts()), s.open(t, opts())
	warm(t, to)
	held := get(t, from, "k")
	got := make(chan lock.Lock, 1)
	go func() {
		held, err := to.Lock(t.Context(), "k")
		if err != nil {
			t.Error(err)
		}
		got <- held
	}()
	waittest.Until(t, "it waits", func() bool { return to.Waiting("k") == 1 })
	token := s.holders(t, "k")[0]
	for _, rdb := range s.direct {
		for _, message := range []string{
			"", ":", "1", "1:", "x:" + token + "k", "1:" + token, "1:short", "-5:" + token + "k",
			"9999999999999999999:" + token + "k",
			"1000000:" + token + "k", "1:" + token + "another",
			"1:" + strings.Repeat("A", 26) + "k", strings.Repeat("z", 1<<16),
		} {
			must(t, rdb.Publish(context.Background(), prefix+":released", message).Err())
		}
	}
	pass(300 * time.Millisecond)
	select {
	case <-got:
		t.Error("two have the lock")
	default:
	}
	must(t, held.Err())
	must(t, held.Unlock(t.Context()))
	select {
	case held := <-got:
		must(t, held.Unlock(t.Context()))
	case <-time.After(patience):
		t.Error("it waits for ever")
	}
}

func TestWarm(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.proxies[0].Blackhole(true)
	s.servers[1].Kill()
	// afterWarm returns an error unless a locker is ready for requests after Warm.
	afterWarm := func() error {
		l := openOn(t, brisk(), s.clients(t, s.proxies...))
		l.SetWarmTimeout(patience / 4) // it waits for the silent master
		warm(t, l)
		for _, p := range s.proxies[2:] {
			p.ResetCounts()
		}
		held, err := l.Lock(t.Context(), "k")
		if err == nil {
			err = held.Unlock(t.Context())
		}
		for i, p := range s.proxies[2:] {
			c := p.Counts()
			if c["EVAL"] > 0 {
				t.Errorf("after Warm, master %d has no scripts, and gets %v", i+2, c)
			}
			if c["HELLO"] > 1 {
				err = errors.Join(err, fmt.Errorf("after Warm, master %d gets %v", i+2, c))
			}
		}
		return err
	}
	err := afterWarm()
	for range 2 { // on a busy machine a reply may take longer than NodeTimeout
		if err != nil {
			t.Logf("tried again: %v", err)
			err = afterWarm()
		}
	}
	must(t, err)
	s.proxies[2].Blackhole(true)
	cold := openOn(t, opts(), s.clients(t, s.proxies...))
	cold.SetWarmTimeout(redlock.WarmTimeout)
	// Longer than WarmTimeout, so that Warm's own limit ends the silent requests, and not the
	// client's.
	const timeout = 6 * time.Second
	cold.SetNodeTimeout(timeout)
	began := time.Now()
	if err := cold.Warm(t.Context()); err == nil || !strings.Contains(err.Error(), "master 2") {
		t.Errorf("Warm with two of five masters: %v", err)
	}
	if took := time.Since(began); took > redlock.WarmTimeout+timeout+soon {
		t.Errorf("Warm took %v", took)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	is(t, "Warm", cold.Warm(ctx), context.Canceled)
	must(t, cold.Close())
	is(t, "Warm after Close", cold.Warm(t.Context()), lock.ErrClosed)
	s.proxies[0].Blackhole(false)
	s.proxies[2].Blackhole(false)
}

// If its context ends first, the error of Warm names, for each master, the step for which Warm
// waited and the reason why this step isn't possible.
func TestWarmSaysWhatItWaitedFor(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	var err error
	// If a try is too slow for Warm's own limits, it proves nothing.
	for began := time.Now(); !errors.Is(err, context.Canceled) && time.Since(began) < patience; {
		l := s.wired(t, opts())
		ctx, leave := context.WithCancel(t.Context())
		var silent []*redistest.Fault
		for _, p := range s.proxies[:3] {
			for range 2 { // the connection of Warm, and the connection that stays
				silent = append(silent, p.DropCommand(redistest.IsCommand("SUBSCRIBE")))
			}
		}
		go func() {
			for _, f := range silent {
				select {
				case <-f.Struck():
				case <-ctx.Done():
				}
			}
			leave()
		}()
		err = l.Warm(ctx)
		leave()
		must(t, l.Close())
		for _, f := range silent {
			f.Disarm()
		}
	}
	is(t, "Warm", err, context.Canceled)
	says(t, err, "master 0: subscribe: no answer", "master 1: subscribe: no answer",
		"master 2: subscribe: no answer")
}

// When a master goes away, there is one log line, and one when it is back.
func TestMastersInTheLog(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	var log logtest.Lines
	o := opts()
	o.Logger = log.Logger()
	l := s.wired(t, o)
	// So that no master is too slow; a refused connection fails at once.
	l.SetNodeTimeout(3 * patience)
	warm(t, l)
	s.refuse(t, 3)
	for range 5 {
		must(t, get(t, l, "k").Unlock(t.Context()))
	}
	log.Await(t, 1, `a master can't be used" master=3`)
	must(t, s.proxies[3].Refuse(false))
	waittest.Until(t, "it is said that it is back", func() bool {
		must(t, get(t, l, "k").Unlock(t.Context()))
		return log.Count(`a master can be used again" master=3`) > 0
	})

	if log.Count("a master can") != log.Count(`a master can't be used" master=3`)+
		log.Count(`a master can be used again" master=3`) {
		t.Errorf("the log says:\n%s", &log)
	}
}
