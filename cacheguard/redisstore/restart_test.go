package redisstore_test

import (
	"testing"
	"time"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/internal/redistest"
	"github.com/cacheguard/cacheguard/internal/waittest"
)

// If scripts are flushed under a running load, they are sent again, and no caller notices.
func TestScriptFlushDuringLoad(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	f := newWired(t, server, redistest.Silence)
	o := newOrigin("v")
	letGo := o.hold()
	mine := f.first.ask(t, 3, "k", o.load)
	waittest.Next(t, "the first replica loads", o.began)
	others := f.othersAsk(t, "k", o.load)
	must(t, f.second.rdb.ScriptFlush(t.Context()).Err())
	letGo()
	mine.got(t, "v")
	others.got(t, "v")
	o.loaded(t, 1)
	f.stored(t)
	f.hits(t, "k", "v")
	figures(t, "SCRIPT FLUSH during a load", o.loads.Load(), 0,
		append(mine.answers, others.wait(t)...)...)

	// Every step that is a script finds that its script was flushed.
	flush := func() { must(t, f.second.rdb.ScriptFlush(t.Context()).Err()) }
	flush()
	must(t, f.first.cache.Set(t.Context(), "set", "v"))
	f.hits(t, "set", "v")
	flush()
	_, err := f.first.cache.Update(t.Context(), "set", newOrigin("written").load)
	must(t, err)
	f.hits(t, "set", "written")
	flush()
	must(t, f.first.cache.Invalidate(t.Context(), "set"))
	flush()
	must(t, f.first.cache.Invalidate(t.Context(), "k", "set"))
	for _, k := range []string{"k", "set"} {
		if res, err := f.third.cache.Peek(t.Context(), k); err != nil ||
			res.Status != cacheguard.StatusMiss {
			t.Errorf("%s is %v, %v after its invalidation; want a miss", k, res, err)
		}
	}
}

// If Redis comes back empty under a running load, it has lost the lease. The result is given to the
// callers and not stored, and processes that wait load once more. After that all is as before.
func TestRestartDuringLoad(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	f := newWired(t, server, redistest.Silence, func(s *site) {
		s.redis.DialerRetries = 300 // for half a minute, because the server may start slowly
	})
	o := newOrigin("v")
	letGo := o.hold()
	mine := f.first.ask(t, 3, "k", o.load)
	waittest.Next(t, "the first replica loads", o.began)
	others := f.othersAsk(t, "k", o.load)
	mine.arrived.Wait()

	must(t, server.Restart())
	back := time.Now()
	waittest.Next(t, "another replica loads", o.began) // because it found no lease
	letGo()
	mine.got(t, "v")
	others.got(t, "v")
	o.loaded(t, 2)
	if n := f.first.events.of(cacheguard.EventFilled); n != 0 {
		t.Errorf("a fill under a lost lease was reported stored")
	}
	f.hits(t, "k", "v")
	f.serves(t)
	figures(t, "Redis killed and empty again during a load", o.loads.Load(), time.Since(back),
		append(mine.answers, others.wait(t)...)...)
}

// A leader without waiters finds that its lease has gone when it stores, and the next caller loads
// again.
func TestRestartDuringLoadOfOne(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	f := newWired(t, server, redistest.Silence, func(s *site) {
		s.store.OpTimeout = max(s.store.OpTimeout, redialTime)
	})
	o := newOrigin("v")
	letGo := o.hold()
	mine := f.first.ask(t, 3, "k", o.load)
	waittest.Next(t, "the first replica loads", o.began)
	mine.arrived.Wait()
	must(t, server.Restart())
	letGo()
	mine.got(t, "v")
	if n := f.first.events.of(cacheguard.EventFillRefused); n != 1 {
		t.Errorf("%d refused fills were reported; want 1", n)
	}
	f.first.get(t, "k", o.load).is(t, "v")
	o.loaded(t, 2)
	f.hits(t, "k", "v")
	f.serves(t)
}

// serves checks that the fleet works: messages arrive everywhere, and a load serves all callers and
// is stored. If a machine is so busy that a step takes longer than OpTimeout, a failed try proves
// nothing and is repeated.
func (f *wired) serves(t *testing.T) {
	t.Helper()
	f.servesKeys(t, newPrefix)
}

// servesKeys is serves for the keys that newKey returns, each of them new.
func (f *wired) servesKeys(t *testing.T, newKey func() string) {
	t.Helper()
	for _, r := range []*replica{f.first, f.second, f.third} {
		// Warm starts the subscription. It returns an error while a node of a cluster is dead.
		_ = r.store.Warm(t.Context())
	}
	for _, leader := range []*replica{f.second, f.first} {
		waiter := f.first
		if leader == waiter {
			waiter = f.second
		}
		serveInTheEnd(t, leader, waiter, newKey)
	}
}

// serveInTheEnd repeats serve until all goes as in quiet times.
func serveInTheEnd(
	t *testing.T, leader, waiter *replica, newKey func() string,
) (woken time.Duration) {
	t.Helper()
	for began := time.Now(); time.Since(began) < patience; {
		if served, woken := serve(t, leader, waiter, newKey()); served {
			return woken
		}
	}
	t.Fatalf("no load served all: the replicas saw %v and %v, and said %q and %q",
		leader.events, waiter.events, leader.log.With(), waiter.log.With())
	return 0
}

// serve runs one load for callers in both replicas. It returns false if a step didn't go as in
// quiet times. It also returns the time from the load until the callers in the other replica had
// its result.
func serve(t *testing.T, leader, waiter *replica, key string) (served bool, woken time.Duration) {
	t.Helper()
	for _, r := range []*replica{leader, waiter} {
		waittest.Until(t, "messages arrive", r.store.Listening)
	}
	errors := func() int {
		return leader.events.of(cacheguard.EventStoreError) +
			waiter.events.of(cacheguard.EventStoreError)
	}
	before := errors()
	o := newOrigin("served")
	letGo := o.hold()
	defer letGo()
	held := waiter.store.told(cacheguard.LeaseHeld)
	mine := leader.ask(t, 2, key, o.load)
	waittest.Next(t, "the leader loads", o.began)
	others := waiter.ask(t, 2, key, o.load)
	waittest.Until(t, "the waiter waits", func() bool {
		return waiter.store.told(cacheguard.LeaseHeld) > held || errors() > before
	})
	letGo()
	ended := time.Now()
	mine.got(t, "served")
	others.got(t, "served") // by message, because the lease lasts too long
	woken = time.Since(ended)
	for _, r := range []*replica{leader, waiter} {
		a := r.get(t, key, o.load)
		if errors() > before {
			return false, 0
		}
		a.hit(t, "served")
	}
	o.loaded(t, 1)
	return true, woken
}
