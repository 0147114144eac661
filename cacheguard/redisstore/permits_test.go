package redisstore_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/cacheguard/guardtest"
	"github.com/cacheguard/cacheguard/cacheguard/redisstore"
	"github.com/cacheguard/cacheguard/internal/redistest"
	"github.com/cacheguard/cacheguard/internal/waittest"
)

// The whole fleet never runs more loads at a time than its budget allows, however many keys are
// cold.
func TestFleetBudget(t *testing.T) {
	t.Parallel()
	const budget, processes, calls = 5, 4, 100
	server := redistest.Start(t)
	prefix := newPrefix()
	o := guardtest.NewOrigin(t, func(string) string { return "v" })
	o.Inject(guardtest.Fault{Takes: 5 * time.Millisecond})
	var fleet []*replica
	for range processes {
		r := newReplica(t, server.Addr(), prefix, func(s *site) {
			store := newStore(t, newClient(t, server.Addr()),
				redisstore.Options{Prefix: prefix, OpTimeout: opTimeout})
			l, err := cacheguard.NewFleetLimiter(store, "database", budget, calls)
			must(t, err)
			s.cache.Limiter = l
		})
		r.listens(t) // and has measured the clock in a quiet moment
		fleet = append(fleet, r)
	}
	// The time-out makes the test fail early if no process hears of a permit.
	ctx, cancel := context.WithTimeout(t.Context(), longLease)
	defer cancel()
	began := time.Now()
	open := o.Hold()
	var done sync.WaitGroup
	for _, r := range fleet {
		for i := range calls {
			done.Go(func() {
				if v, err := r.cache.Get(ctx, fmt.Sprint(i), o.Load(fmt.Sprint(i))); v != "v" ||
					err != nil {
					t.Errorf("got %q, %v", v, err)
				}
			})
		}
	}
	waittest.Until(t, "the whole budget is in use", func() bool { return o.Running() >= budget })
	open()
	done.Wait()
	t.Logf("%d processes, %d keys: %d loads, at most %d at a time, in %v; %v at the least",
		processes, calls, o.Loads(), o.MostRunning(),
		time.Since(began), calls/budget*5*time.Millisecond)
	if n := o.MostRunning(); n != budget {
		t.Errorf("%d loads at a time; want %d", n, budget)
	}
	if n := o.Loads(); n != calls {
		t.Errorf("%d loads of %d keys", n, calls)
	}
}

// The test covers the steps of a budget in Redis: held permits are counted, a renewal takes no
// second permit, and processes that want a permit are told when one is given back.
func TestPermits(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	admin := newClient(t, server.Addr())
	prefix := newPrefix()
	s := newStore(t, newUser(t, admin, named(prefix, "+type", "+zrem")...),
		redisstore.Options{Prefix: prefix, OpTimeout: opTimeout})
	ctx := t.Context()
	told := make(chan cacheguard.Message, 100)
	t.Cleanup(s.Listen(cacheguard.PermitsCache, func(m cacheguard.Message) {
		if m.Kind == cacheguard.MessageReleased {
			told <- m
		}
	}))
	must(t, s.Warm(ctx))
	take := func(id byte, ttl time.Duration, want bool) time.Duration {
		t.Helper()
		taken, wait, err := s.TakePermit(ctx, "b", cacheguard.ID{id}, 2, ttl)
		must(t, err)
		if taken != want {
			t.Errorf("permit %d: taken %v, want %v", id, taken, want)
		}
		return wait
	}
	giveBack := func(id byte) {
		t.Helper()
		must(t, s.ReturnPermit(ctx, "b", cacheguard.ID{id}))
	}
	take(1, time.Minute, true)
	take(1, time.Minute, true)
	take(2, time.Hour, true)
	if wait := take(3, time.Minute, false); wait <= 0 || wait > time.Minute {
		t.Errorf("the first permit is said to end in %v; want a minute at most", wait)
	}
	giveBack(3) // this permit isn't held, so nobody is told
	giveBack(1)
	waittest.Next(t, "those who want a permit are told of one", told)
	take(3, time.Millisecond, true)
	waittest.Until(t, "a permit ends by itself", func() bool {
		taken, _, err := s.TakePermit(ctx, "b", cacheguard.ID{4}, 2, time.Minute)
		must(t, err)
		return taken
	})

	giveBack(2)
	giveBack(2)
	giveBack(4)
	if len(told) > 1 {
		t.Errorf("told %d returns although nobody wanted a permit any more", len(told))
	}

	// An entry of another type under the name must not block loads.
	for _, of := range [][]any{
		{"SET", prefix + ":{b}:permits", "text"}, {"SADD", prefix + ":{b}:permits", "a"},
	} {
		must(t, admin.Do(ctx, of...).Err())
		giveBack(5)
		take(5, time.Minute, true)
		giveBack(5)
	}
}
