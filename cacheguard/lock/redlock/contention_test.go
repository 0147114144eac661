package redlock_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cacheguard/cacheguard/cacheguard/lock"
	"github.com/cacheguard/cacheguard/cacheguard/lock/redlock"
	"github.com/cacheguard/cacheguard/internal/redistest"
	"github.com/cacheguard/cacheguard/internal/waittest"
)

// splitVotes lets each of two lockers get some of the masters. The other masters are away, or a
// third locker has them. late are the masters that each locker reaches only after the other locker
// has them.
func splitVotes(
	t *testing.T, late [2][]int, rest func(s *site), acquire func(l *redlock.Locker) error,
) (s *site, results []error) {
	s = newSite(t)
	rest(s)
	var lockers []*redlock.Locker
	var wires [][]*redistest.Proxy
	for range 2 {
		var w []*redistest.Proxy
		for _, server := range s.servers {
			w = append(w, redistest.StartProxy(t, server.Addr()))
		}
		wires = append(wires, w)
		l := s.open(t, opts(), w...)
		works(t, l)
		lockers = append(lockers, l)
	}
	gate := make(chan struct{})
	var kept []*redistest.Fault
	for i, late := range late {
		for _, master := range late {
			kept = append(kept,
				wires[i][master].DelayCommand(redistest.All(isAcquire,
					redistest.HasKey(prefix+":k")), gate))
		}
	}
	results = make([]error, 2)
	var all sync.WaitGroup
	for i, l := range lockers {
		all.Go(func() { results[i] = acquire(l) })
	}
	for _, f := range kept {
		waittest.Next(t, "a question is kept", f.Struck())
	}
	waittest.Until(t, "each has its votes", func() bool {
		h := s.holders(t, "k")
		owner := func(masters []int) string { // the owner on all these masters
			for _, i := range masters {
				if h[i] != h[masters[0]] {
					return ""
				}
			}
			return h[masters[0]]
		}
		first, second := owner(late[1]), owner(late[0])
		return first != "" && second != "" && first != second
	})

	close(gate)
	all.Wait()
	return s, results
}

func TestSplitVotes(t *testing.T) {
	twoEach, oneAndTwo := [2][]int{{2, 3}, {0, 1}}, [2][]int{{1, 2}, {0}}
	aThirdOnes := func(s *site) {
		must(t, s.direct[4].Set(t.Context(), prefix+":k", "a third one's", untilTheEnd).Err())
	}
	away := func(s *site) { s.servers[3].Kill(); s.servers[4].Kill() }
	t.Run("Lock", func(t *testing.T) {
		t.Parallel()
		s, results := splitVotes(t, twoEach, aThirdOnes, func(l *redlock.Locker) error {
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			held, err := l.Lock(ctx, "k")
			if err != nil {
				return err
			}
			return held.Unlock(ctx)
		})
		for _, err := range results {
			must(t, err)
		}
		waittest.Until(t, "nothing is left of theirs", func() bool {
			return slices.Equal(s.holders(t, "k"), []string{"", "", "", "", "a third one's"})
		})

	})
	try := func(t *testing.T, late [2][]int, rest func(*site)) {
		t.Parallel()
		// On a busy machine the votes may be split each time that they try again.
		for range 3 {
			_, results := splitVotes(t, late, rest, func(l *redlock.Locker) error {
				_, err := l.TryLock(t.Context(), "k")
				return err
			})
			for _, err := range results {
				if err != nil {
					is(t, "the other", err, lock.ErrHeld)
				}
			}
			if results[0] == nil && results[1] == nil {
				t.Error("both have the lock")
			}
			if t.Failed() || results[0] == nil || results[1] == nil {
				return
			}
		}
		t.Error("of two who try at once none gets the lock")
	}
	t.Run("TryLock", func(t *testing.T) { try(t, twoEach, aThirdOnes) })
	t.Run("TryLock with two masters away", func(t *testing.T) { try(t, oneAndTwo, away) })
}

// However many calls wait in one process, only one of them sends requests. They get the lock in the
// order in which they came.
func TestLineInOneProcess(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	holder, l := s.open(t, opts()), s.wired(t, opts())
	warm(t, l)
	held := get(t, holder, "k")
	const waiters = 40
	var mu sync.Mutex
	var order []int
	var all sync.WaitGroup
	for i := range waiters {
		all.Go(func() {
			held, err := l.Lock(t.Context(), "k")
			if err != nil {
				t.Error(err)
				return
			}
			mu.Lock()
			order = append(order, i)
			mu.Unlock()
			if err := held.Unlock(t.Context()); err != nil {
				t.Error(err)
			}
		})
		waittest.Until(t, "it waits", func() bool { return l.Waiting("k") == i+1 })
	}
	s.proxies[0].ResetCounts()
	pass(2500 * time.Millisecond)
	if n := s.proxies[0].Counts()["EVALSHA"]; n > 6 {
		t.Errorf("%d waiters asked a master %d times in 2.5 s", waiters, n)
	}
	must(t, held.Unlock(t.Context()))
	all.Wait()
	if !slices.IsSorted(order) || len(order) != waiters {
		t.Errorf("they had the lock in the order %v", order)
	}
	if n := l.Waiting("k"); n != 0 {
		t.Errorf("%d wait still", n)
	}
}

// A call that leaves a line doesn't delay the other calls, whether it is the first or not.
func TestLeavingALine(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	holder, l := s.open(t, opts()), s.wired(t, opts())
	held := get(t, holder, "k")
	ctxs := make([]context.CancelFunc, 4)
	results := make([]chan error, 4)
	for i := range ctxs {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		ctxs[i], results[i] = cancel, make(chan error, 1)
		go func() {
			held, err := l.Lock(ctx, "k")
			if err == nil {
				err = held.Unlock(t.Context())
			}
			results[i] <- err
		}()
		waittest.Until(t, "it waits", func() bool { return l.Waiting("k") == i+1 })
	}
	for _, i := range []int{2, 0} {
		ctxs[i]()
		is(t, "one who leaves", <-results[i], context.Canceled)
	}
	must(t, held.Unlock(t.Context()))
	must(t, <-results[1])
	must(t, <-results[3])
}

// Lockers take turns, as different processes would. A locker whose callers unlock and lock again at
// once leaves the lock to the waiting lockers. A locker with many waiting calls does so, too. On a
// busy machine a locker may miss many of its turns, so the test tries again.
func TestLockersTakeTurns(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	const enough = 240
	lockers := make([]*redlock.Locker, 3)
	for i := range lockers {
		lockers[i] = s.open(t, leased(untilTheEnd)) // a busy master may need more than 5 s
		warm(t, lockers[i])
	}
	var counts []int
	for range 5 {
		counts = turns(t, lockers, enough)
		t.Logf("the lockers had the lock %v times", counts)
		if slices.Min(counts) >= enough/8 || t.Failed() {
			return
		}
	}
	t.Errorf("of %d times the lockers had the lock %v times; want an eighth for each", enough,
		counts)
}

// turns lets callers of three lockers contend for a lock until they have had it enough times, and
// returns the number of times for each locker. The first locker has more callers.
func turns(t *testing.T, lockers []*redlock.Locker, enough int) []int {
	t.Helper()
	var mu sync.Mutex
	var total int
	counts := make([]int, len(lockers))
	over := make(chan struct{})
	var all sync.WaitGroup
	for i, callers := range []int{8, 1, 1} {
		for range callers {
			all.Go(func() {
				for {
					select {
					case <-over:
						return
					default:
					}
					held, err := lockers[i].Lock(t.Context(), "k")
					if err != nil {
						t.Error(err)
						return
					}
					mu.Lock()
					if counts[i]++; total < enough {
						if total++; total == enough {
							close(over)
						}
					}
					mu.Unlock()
					pass(2 * time.Millisecond)
					if err := held.Unlock(t.Context()); err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
	}
	all.Wait()
	return counts
}

// If many callers contend for one lock, each gets it in the end, whether messages arrive or not.
func TestManyContend(t *testing.T) {
	for _, deaf := range []bool{false, true} {
		t.Run(fmt.Sprint("deaf ", deaf), func(t *testing.T) {
			t.Parallel()
			s := newSite(t)
			var all sync.WaitGroup
			inside := make(chan lock.Lock, 1)
			for range 8 {
				l := s.open(t, leased(untilTheEnd))
				if deaf {
					l.Deaf()
				}
				all.Go(func() {
					for range 5 {
						held, err := l.Lock(t.Context(), "k")
						if err != nil {
							t.Error(err)
							return
						}
						select {
						case inside <- held:
							<-inside
						default:
							t.Error("two have the lock")
						}
						if err := held.Unlock(t.Context()); err != nil {
							t.Error(err)
						}
					}
				})
			}
			all.Wait()
			s.nothingLeft(t, "k")
		})
	}
}

// If a Lock waits in a line behind other calls, it tolerates trouble for as long as they do. A Lock
// that comes first returns an error at once.
func TestQueuedInTrouble(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	o := leased(12 * time.Second) // a busy machine must not need as long as the lease
	l := s.wired(t, o)
	l.SetNodeTimeout(o.Lease / 5) // nor as long as this for the first request
	works(t, l)
	s.nothingLeft(t, "warm")
	s.proxies[0].ResetCounts()
	held := get(t, s.open(t, opts()), "k")
	errs := make(chan error, 3)
	for i := range 3 {
		go func() {
			_, err := l.Lock(t.Context(), "k")
			errs <- err
		}()
		waittest.Until(t, "it waits", func() bool { return l.Waiting("k") == i+1 })
	}
	waittest.Until(t, "one asks", func() bool { return s.proxies[0].Counts()["EVALSHA"] > 0 })
	for _, p := range s.proxies[:3] {
		p.Blackhole(true)
	}
	began := time.Now()
	for range 3 {
		select {
		case err := <-errs:
			if err == nil || errors.Is(err, lock.ErrHeld) ||
				!strings.Contains(err.Error(), "masters answered") {
				t.Errorf("one who waited got %v", err)
			}
		case <-time.After(waittest.Patience):
			t.Fatal("some wait for ever")
		}
	}
	// Together they take a lease, and a NodeTimeout for each of four requests. One after another
	// they would take three leases.
	if took := time.Since(began); took > 5*o.Lease/2 {
		t.Errorf("all of them gave up only after %v; the lease is %v", took, o.Lease)
	}
	for _, p := range s.proxies[:3] {
		p.Blackhole(false)
	}
	must(t, held.Unlock(t.Context()))
	s.nothingLeft(t, "k")
}
