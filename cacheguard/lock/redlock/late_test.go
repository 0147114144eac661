package redlock_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/cacheguard/cacheguard/cacheguard/lock"
	"github.com/cacheguard/cacheguard/cacheguard/lock/redlock"
	"github.com/cacheguard/cacheguard/internal/redistest"
	"github.com/cacheguard/cacheguard/internal/waittest"
	"github.com/cacheguard/cacheguard/internal/wallclock"
)

var (
	isAcquire = redistest.IsEval(redlock.AcquireScript)
	isRenew   = redistest.IsEval(redlock.RenewScript)
	isRelease = redistest.IsEval(redlock.ReleaseScript)
)

// A Lock gets too few votes and releases them. If this release arrives late, it doesn't remove the
// votes that the same Lock gets later.
func TestLateReleaseOfAnEarlierTry(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	holder, l := s.open(t, opts()), s.wired(t, opts())
	works(t, l)
	held := get(t, holder, "k")
	s.everywhere(t, "k")
	for _, i := range []int{3, 4} { // so a try gets these masters
		must(t, s.direct[i].Del(t.Context(), prefix+":k").Err())
	}
	late := s.proxies[4].Duplicate(redistest.All(isRelease, redistest.HasKey(prefix+":k")))
	got := make(chan lock.Lock, 1)
	go func() {
		l, err := l.Lock(t.Context(), "k")
		if err != nil {
			t.Error(err)
		}
		got <- l
	}()
	waittest.Next(t, "a try is given back", late.Struck())
	must(t, held.Unlock(t.Context()))
	mine := <-got
	if mine == nil {
		t.FailNow()
	}
	s.everywhere(t, "k")
	answer, err := late.Release(t.Context())
	must(t, err)
	if n := s.count(t, "k", 0, 1, 2, 3, 4); n != 5 {
		t.Errorf("after a late release that answered %v the lock is on %d masters; want 5", answer,
			n)
	}
	must(t, mine.Unlock(t.Context()))
	s.nothingLeft(t, "k")
}

// A request that arrives after the lock was given back leaves a ghost on its master, for one lease.
// Other callers can get the lock in spite of the ghost.
func TestLateAcquireIsAGhost(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	l := s.wired(t, brisk())
	works(t, l)
	late := s.proxies[0].HoldBack(redistest.All(isAcquire, redistest.HasKey(prefix+":k")),
		redistest.Hangup)
	must(t, get(t, l, "k").Unlock(t.Context()))
	waittest.Next(t, "a question is kept", late.Struck())
	s.nothingLeft(t, "k")
	began := time.Now()
	_, err := late.Release(t.Context())
	must(t, err)
	if n := s.count(t, "k", 0); n != 1 {
		t.Fatal("there is no ghost")
	}
	left := s.direct[0].PTTL(t.Context(), prefix+":k").Val()
	if left > brisk().Lease-min(wallclock.SetSince(began), 0) {
		t.Errorf("the ghost stays for %v; want a lease at most", left)
	}
	must(t, get(t, s.open(t, brisk()), "k").Unlock(t.Context()))
	s.nothingLeft(t, "k")
}

// If a copy of the request arrives while the lock is held, it changes nothing.
func TestSecondCopyOfAcquire(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	l := s.wired(t, opts())
	works(t, l)
	second := s.proxies[0].Duplicate(redistest.All(isAcquire, redistest.HasKey(prefix+":k")))
	held := get(t, l, "k")
	s.everywhere(t, "k")
	waittest.Next(t, "the question is carried out", second.Struck())
	must(t, s.direct[0].Append(t.Context(), prefix+":k", "whowaits").Err())
	before := s.direct[0].Get(t.Context(), prefix+":k").Val()
	must(t, s.direct[0].PExpire(t.Context(), prefix+":k", opts().Lease/2).Err())
	answer, err := second.Release(t.Context())
	must(t, err)
	if parts, ok := answer.([]any); !ok || len(parts) != 1 || parts[0] != "mine" {
		t.Errorf("a second copy is answered %v; want mine", answer)
	}
	if after := s.direct[0].Get(t.Context(), prefix+":k").Val(); after != before {
		t.Errorf("a second copy makes holder and waiters %q; want %q", after, before)
	}
	// If the claim gets the reply to this request, it counts its lease from before this request.
	if left := s.direct[0].PTTL(t.Context(), prefix+":k").Val(); left < opts().Lease*3/4 {
		t.Errorf("after a second copy the lock ends in %v; want the whole lease of %v", left,
			opts().Lease)
	}
	must(t, held.Unlock(t.Context()))
	s.nothingLeft(t, "k")
}

// A release doesn't overtake a request of the same claim that has no reply yet.
func TestReleaseDoesNotOvertake(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	o := opts()
	l := s.wired(t, o)
	l.SetNodeTimeout(patience) // the question must not be given up before it arrives
	works(t, l)
	gate := make(chan struct{})
	late := s.proxies[0].DelayCommand(redistest.All(isAcquire, redistest.HasKey(prefix+":k")), gate)
	held := get(t, l, "k")
	waittest.Next(t, "a question is late", late.Struck())
	must(t, held.Unlock(t.Context()))
	pass(100 * time.Millisecond)
	s.proxies[0].ResetCounts()
	close(gate)
	began := time.Now()
	waittest.Until(t, "the question arrives", func() bool {
		return s.proxies[0].Counts()["EVALSHA"] > 0
	})
	pass(100 * time.Millisecond)
	s.nothingLeft(t, "k")
	if took := time.Since(began); took > o.Lease/2 {
		t.Errorf("it took %v until the lock was given back; a lease is %v", took, o.Lease)
	}
}

// After a lock was given back, it is not set again on a master where it was missing.
func TestNotSetAgainAfterUnlock(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	o := leased(9 * time.Second)
	l := s.wired(t, o)
	l.SetNodeTimeout(patience) // every master carries out its release in time
	held := get(t, l, "k")
	s.everywhere(t, "k")
	must(t, s.direct[4].Del(t.Context(), prefix+":k").Err())
	gate := make(chan struct{})
	renewal := s.proxies[4].DelayReply(isRenew, gate)
	waittest.Next(t, "a master says that it has it not", renewal.Struck())
	waittest.Until(t, "the others have renewed it", func() bool {
		return s.direct[0].PTTL(t.Context(), prefix+":k").Val() > o.Lease*5/6
	})

	must(t, held.Unlock(t.Context()))
	close(gate)
	must(t, l.Close()) // waits for the releases, and for everything that might set it again
	if n := s.count(t, "k", 0, 1, 2, 3, 4); n > 0 {
		t.Errorf("%d masters have the lock", n)
	}
}

// If another holder has the lock, TryLock has given back its votes when it returns.
func TestTryLeavesNothing(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	held := get(t, s.open(t, opts()), "k")
	s.everywhere(t, "k")
	l := s.wired(t, opts())
	works(t, l)
	must(t, s.direct[3].Del(t.Context(), prefix+":k").Err())
	gate := make(chan struct{})
	late := s.proxies[3].DelayCommand(redistest.All(isRelease, redistest.HasKey(prefix+":k")), gate)
	result := make(chan error, 1)
	go func() {
		_, err := l.TryLock(t.Context(), "k")
		result <- err
	}()
	waittest.Next(t, "it gives back what it got", late.Struck())
	pass(50 * time.Millisecond)
	if len(result) > 0 {
		t.Error("it returns before that is given back")
	}
	close(gate)
	is(t, "TryLock", <-result, lock.ErrHeld)
	if n := s.count(t, "k", 3); n > 0 {
		t.Error("a master has something of a TryLock that was refused")
	}
	must(t, held.Unlock(t.Context()))
}

// A waiting Lock gives back its votes before it asks again. Otherwise its own votes would make the
// next try fail.
func TestWaitGivesBackFirst(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	l := s.wired(t, opts())
	l.SetNodeTimeout(patience) // the release must not be given up before the gate is opened
	works(t, l)
	// So the call asks again soon.
	for i, others := range []string{"another's", "another's", "a third one's"} {
		must(t, s.direct[i].Set(t.Context(), prefix+":k", others, untilTheEnd).Err())
	}
	gate := make(chan struct{})
	late := s.proxies[3].DelayCommand(redistest.All(isRelease, redistest.HasKey(prefix+":k")), gate)
	result := make(chan error, 1)
	go func() {
		next, err := l.Lock(t.Context(), "k")
		if err == nil {
			err = next.Unlock(t.Context())
		}
		result <- err
	}()
	waittest.Next(t, "it gives back what it got", late.Struck())
	s.proxies[0].ResetCounts()
	pass(100 * time.Millisecond)
	if n := s.proxies[0].Counts()["EVALSHA"]; n > 0 {
		t.Errorf("before that is given back it asks %d times more", n)
	}
	close(gate)
	waittest.Until(t, "it asks again", func() bool { return s.proxies[0].Counts()["EVALSHA"] > 0 })
	for i := range 3 {
		must(t, s.direct[i].Del(t.Context(), prefix+":k").Err())
	}
	must(t, <-result)
	s.nothingLeft(t, "k")
}

// If a majority has replied and the votes are divided, the call doesn't wait for masters that were
// away already.
func TestDividedVotesDoNotWait(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	l := s.wired(t, opts())
	l.SetNodeTimeout(15 * patience)
	works(t, l)
	s.refuse(t, 3, 4)
	waittest.Until(t, "it finds out", func() bool {
		must(t, get(t, l, "another").Unlock(t.Context()))
		return slices.Equal(l.Silent(), []int{3, 4})
	})

	for _, p := range s.proxies[3:] {
		p.Blackhole(true)
		must(t, p.Refuse(false))
	}
	must(t, s.direct[0].Set(t.Context(), prefix+":k", "another's", untilTheEnd).Err())
	// This time is much shorter than the time that the others may take.
	ctx, cancel := context.WithTimeout(t.Context(), 3*patience)
	defer cancel()
	_, err := l.TryLock(ctx, "k")
	is(t, "TryLock", err, lock.ErrHeld)
	if n := s.count(t, "k", 1, 2); n > 0 {
		t.Errorf("%d masters have something of it", n)
	}
	for _, p := range s.proxies[3:] {
		p.Blackhole(false)
	}
}

// A client of the user's own may repeat a command whose reply was lost. It still gets the reply
// "mine".
func TestClientThatRepeats(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	var masters []redis.UniversalClient
	for _, p := range s.proxies {
		c := redis.NewClient(&redis.Options{Addr: p.Addr(), MaxRetries: 3})
		t.Cleanup(func() { _ = c.Close() })
		masters = append(masters, own{c})
	}
	l, err := redlock.New(masters, opts())
	must(t, err)
	t.Cleanup(func() { must(t, l.Close()) })
	l.SetNodeTimeout(patience) // the client has to dial before it repeats a command
	works(t, l)
	for _, p := range s.proxies {
		p.DropReply(redistest.All(isAcquire, redistest.HasKey(prefix+":k")), redistest.Hangup)
	}
	held, err := l.TryLock(t.Context(), "k")
	must(t, err)
	must(t, held.Unlock(t.Context()))
	s.nothingLeft(t, "k")
}

// The locker's view of a go-redis client doesn't retry: each request is sent once to each master.
func TestViewDoesNotRepeat(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	var masters []redis.UniversalClient
	for _, p := range s.proxies {
		c := redis.NewClient(&redis.Options{Addr: p.Addr(), MaxRetries: 3})
		t.Cleanup(func() { _ = c.Close() })
		masters = append(masters, c)
	}
	l, err := redlock.New(masters, opts())
	must(t, err)
	t.Cleanup(func() { must(t, l.Close()) })
	works(t, l)
	var lost []*redistest.Fault
	for _, p := range s.proxies[:3] {
		lost = append(lost,
			p.DropReply(redistest.All(isAcquire, redistest.HasKey(prefix+":k")), redistest.Hangup))
	}
	if _, err := l.TryLock(t.Context(), "k"); err == nil || errors.Is(err, lock.ErrHeld) {
		t.Errorf("three lost replies gave %v", err)
	}
	for _, f := range lost {
		waittest.Next(t, "a reply is lost", f.Struck())
	}
	s.nothingLeft(t, "k")
}

// If a client of the user's own ignores contexts, no call waits for it.
func TestClientWithoutContexts(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	var masters []redis.UniversalClient
	for _, p := range s.proxies {
		c := redis.NewClient(&redis.Options{
			Addr: p.Addr(), ReadTimeout: 30 * time.Second, MaxRetries: -1,
		})
		t.Cleanup(func() { _ = c.Close() })
		masters = append(masters, own{c})
	}
	o := opts()
	o.NodeTimeout = 2 * time.Second
	l, err := redlock.New(masters, o)
	must(t, err)
	t.Cleanup(func() { must(t, l.Close()) })
	works(t, l)
	for _, p := range s.proxies[:3] {
		p.Blackhole(true)
	}
	began := time.Now()
	if _, err := l.Lock(t.Context(), "k"); err == nil {
		t.Error("locked by two of five")
	}
	// This is half of the time that the client takes.
	if took := time.Since(began); took > 15*time.Second {
		t.Errorf("it took %v, with a NodeTimeout of %v", took, o.NodeTimeout)
	}
	for _, p := range s.proxies[:3] {
		p.Blackhole(false)
	}
	s.nothingLeft(t, "k")
}

// A flush of the scripts does no harm at any time.
func TestScriptsFlushed(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	l := s.wired(t, brisk())
	held := get(t, l, "k")
	for range 3 {
		for _, rdb := range s.direct {
			must(t, rdb.ScriptFlush(context.Background()).Err())
		}
		pass(brisk().Lease / 2)
		must(t, held.Err())
	}
	for _, rdb := range s.direct {
		must(t, rdb.ScriptFlush(context.Background()).Err())
	}
	must(t, held.Unlock(t.Context()))
	s.nothingLeft(t, "k")
}

// A call with an ended context sends no requests.
func TestEndedContextAsksNothing(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	l := openOn(t, opts(), s.clients(t, s.proxies...))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := l.Lock(ctx, "k")
	is(t, "Lock", err, context.Canceled)
	_, err = l.TryLock(ctx, "k")
	is(t, "TryLock", err, context.Canceled)
	for i, p := range s.proxies {
		if n := len(p.Counts()); n > 0 {
			t.Errorf("master %d got %v", i, p.Counts())
		}
	}
}
