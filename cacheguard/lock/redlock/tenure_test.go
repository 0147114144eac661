package redlock_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/cacheguard/cacheguard/cacheguard/lock"
	"github.com/cacheguard/cacheguard/cacheguard/lock/redlock"
	"github.com/cacheguard/cacheguard/internal/waittest"
)

// If a minority says that the holder doesn't have the lock, the lock isn't lost. It is set again on
// masters where nobody has it. On masters where another holder has it, nothing changes.
func TestMinorityDoesNotLose(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	held := get(t, s.open(t, brisk()), "k")
	s.everywhere(t, "k")
	mine := s.holders(t, "k")[2]
	must(t, s.direct[0].Del(t.Context(), prefix+":k").Err())
	must(t, s.direct[1].Set(t.Context(), prefix+":k", "another", untilTheEnd).Err())
	waittest.Until(t, "the lock is set again", func() bool {
		return slices.Equal(s.holders(t, "k"), []string{mine, "another", mine, mine, mine})
	})

	// Now this master counts: three masters have the lock.
	must(t, s.direct[2].Set(t.Context(), prefix+":k", "another", untilTheEnd).Err())
	pass(2 * brisk().Lease)
	must(t, held.Err())
	if got := s.holders(t, "k"); !slices.Equal(got,
		[]string{mine, "another", "another", mine, mine}) {
		t.Errorf("after some renewals the masters have %v", got)
	}
	must(t, held.Unlock(t.Context()))
	waittest.Until(t, "nothing of it is left", func() bool {
		return slices.Equal(s.holders(t, "k"), []string{"", "another", "another", "", ""})
	})

}

// If a majority says that the holder doesn't have the lock, the lock is lost at the next renewal,
// whether another holder has it or nobody. It is not set again.
func TestMajorityLoses(t *testing.T) {
	for how, take := range map[string]func(s *site, i int) error{
		"removed": func(s *site, i int) error {
			return s.direct[i].Del(context.Background(), prefix+":k").Err()
		},
		"another's": func(s *site, i int) error {
			return s.direct[i].Set(context.Background(), prefix+":k", "another", untilTheEnd).Err()
		},
	} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			s := newSite(t)
			o := leased(40 * time.Second)
			held := get(t, s.open(t, o), "k")
			s.everywhere(t, "k")
			began := time.Now()
			for i := range 3 {
				must(t, take(s, i))
			}
			before := s.holders(t, "k")
			waittest.Next(t, "the lock is lost", held.Lost())
			if took := time.Since(began); took > 2*o.Lease/3 {
				t.Errorf("the loss was noticed after %v; a lease is %v", took, o.Lease)
			}
			is(t, "Err", held.Err(), lock.ErrLost)
			if got := s.holders(t, "k"); !slices.Equal(got, before) {
				t.Errorf("the masters have %v after the loss, and had %v", got, before)
			}
			is(t, "Unlock", held.Unlock(t.Context()), lock.ErrLost)
			if n := s.count(t, "k", 3, 4); n > 0 {
				waittest.Until(t, "the rest is given back", func() bool {
					return s.count(t, "k", 3, 4) == 0
				})
			}
		})
	}
}

// If no renewal has noticed that the lock was lost, Unlock notices it and returns ErrLost.
func TestUnlockNoticesLoss(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	l := s.open(t, opts())
	held := get(t, l, "k")
	s.everywhere(t, "k")
	for i := range 3 {
		must(t, s.direct[i].Del(t.Context(), prefix+":k").Err())
	}
	is(t, "Unlock", held.Unlock(t.Context()), lock.ErrLost)
	s.nothingLeft(t, "k")

	held = get(t, l, "k")
	s.everywhere(t, "k")
	for i := range 2 {
		must(t, s.direct[i].Del(t.Context(), prefix+":k").Err())
	}
	must(t, held.Unlock(t.Context()))
	s.nothingLeft(t, "k")
}

// Masters come and go, so renewals get no reply from a majority. The lock isn't lost before its
// validity is over. It is lost before any master's key expires.
func TestDrift(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	o := leased(12 * time.Second)
	o.Drift = 0.5
	l := s.wired(t, o)
	works(t, l)
	began := time.Now()
	held := get(t, l, "k")
	s.everywhere(t, "k")
	for _, p := range s.proxies[:3] {
		p.Blackhole(true)
	}
	silent := time.Now()
	waittest.Next(t, "the lock is lost", held.Lost())
	lost := time.Now()
	valid := o.Lease/2 - 2*time.Millisecond
	if took := lost.Sub(began); took < valid {
		t.Errorf("the lock was lost after %v; it is valid for %v", took, valid)
	}
	// On a busy machine the lock may have been renewed before the silence.
	until := held.Until()
	if left := until.Sub(silent); left > valid {
		t.Errorf("when the masters fell silent, the lock ended in %v; it is valid for %v", left,
			valid)
	}
	if late := lost.Sub(until); late > o.Lease/4 {
		t.Errorf("the lock was lost %v after its end", late)
	}
	for i, rdb := range s.direct {
		if left := rdb.PTTL(t.Context(), prefix+":k").Val(); left < o.Lease/8 {
			t.Errorf("master %d forgets the lock %v after its holder", i, left)
		}
	}
	for _, p := range s.proxies[:3] {
		p.Blackhole(false)
	}
	is(t, "Unlock", held.Unlock(t.Context()), lock.ErrLost)
	s.nothingLeft(t, "k")
}

// A master that was restarted without its data makes a second holder possible: A has three masters,
// and one of them loses its data. This master and the two others are a majority. docs/locks.md
// describes this case. The test shows that it can happen, and that a restart that takes longer than
// the lease prevents it.
func TestRestartedEmpty(t *testing.T) {
	begin := func(
		t *testing.T, lease time.Duration,
	) (s *site, o redlock.Options, first lock.Lock, second *redlock.Locker) {
		s = newSite(t)
		o = leased(lease)
		a := s.wired(t, o)
		const timeout = 4 * time.Second
		a.SetNodeTimeout(timeout)
		works(t, a)
		second = s.open(t, o)
		second.SetNodeTimeout(patience)
		s.servers[3].Kill()
		s.servers[4].Kill()
		// It needs all masters that are left, and on a busy machine one of them may be too slow.
		waittest.Until(t, "the masters that are left give the lock", func() bool {
			var err error
			first, err = a.TryLock(t.Context(), "k")
			return err == nil
		})
		pass(timeout) // otherwise the request could still reach those masters
		for _, i := range []int{3, 4} {
			must(t, s.servers[i].Restart())
		}
		return s, o, first, second
	}
	t.Run("at once", func(t *testing.T) {
		t.Parallel()
		// The second must have the lock before the first renews it, a third of the lease later.
		s, _, first, b := begin(t, 90*time.Second)
		must(t, s.servers[2].Restart())
		var second lock.Lock
		waittest.Until(t, "the masters without data give the lock", func() bool {
			var err error
			second, err = b.TryLock(t.Context(), "k")
			return err == nil
		})
		if first.Err() != nil || second.Err() != nil {
			t.Errorf("the first holder: %v, the second: %v; this test is to show that both hold",
				first.Err(), second.Err())
		}
		waittest.Next(t, "the first notices it when it renews", first.Lost())
		must(t, second.Err())
		must(t, second.Unlock(t.Context()))
		is(t, "Unlock of the first", first.Unlock(t.Context()), lock.ErrLost)
	})
	t.Run("later than a lease", func(t *testing.T) {
		t.Parallel()
		s, o, first, b := begin(t, 10*time.Second)
		for _, p := range s.proxies { // the holder can't renew, and learns of nothing
			p.Blackhole(true)
		}
		s.servers[2].Kill()
		restarted := make(chan error, 1)
		down := time.Now()
		go func() {
			pass(o.Lease)
			restarted <- s.servers[2].Restart()
		}()
		for {
			second, err := b.TryLock(t.Context(), "k")
			if err == nil {
				if first.Err() == nil {
					t.Errorf("%v after the master went down, two hold the lock", time.Since(down))
				}
				must(t, second.Unlock(t.Context()))
				break
			}
			if errors.Is(err, lock.ErrLost) || time.Since(down) > waittest.Patience {
				t.Fatalf("nobody gets the lock: %v", err)
			}
			pass(20 * time.Millisecond)
		}
		must(t, <-restarted)
		for _, p := range s.proxies {
			p.Blackhole(false)
		}
		is(t, "Unlock of the first", first.Unlock(t.Context()), lock.ErrLost)
	})
}

// A lock that is held for long survives a restart of every master, one after another, because it is
// set again where it is missing.
func TestRollingRestart(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	held := get(t, s.open(t, brisk()), "k")
	s.everywhere(t, "k")
	mine := s.holders(t, "k")[0]
	for i, server := range s.servers {
		must(t, server.Restart())
		waittest.Until(t, "the lock is set again", func() bool {
			return s.holders(t, "k")[i] == mine
		})
	}
	must(t, held.Err())
	must(t, held.Unlock(t.Context()))
	s.nothingLeft(t, "k")
}

// A lock survives if each master is away for a while, never more than two at a time, even if there
// is no renewal in between.
func TestOthersAway(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	o := leased(20 * time.Second)
	l := s.wired(t, o)
	works(t, l)
	for _, p := range s.proxies[:2] {
		p.Blackhole(true)
	}
	var held lock.Lock
	// It needs all masters that are left, and on a busy machine one of them may be too slow.
	waittest.Until(t, "the masters that are left give the lock", func() bool {
		var err error
		held, err = l.TryLock(t.Context(), "k")
		return err == nil
	})
	pass(2 * o.NodeTimeout) // no request of it is on the way any more
	for _, p := range s.proxies[:2] {
		p.Cut()
		p.Blackhole(false)
	}
	if n := s.count(t, "k", 0, 1); n > 0 {
		t.Fatalf("%d of those that were away have the lock", n)
	}
	for _, p := range s.proxies[3:] {
		p.Blackhole(true)
	}
	pass(3 * o.Lease / 2)
	must(t, held.Err())
	if n := s.count(t, "k", 0, 1, 2); n != 3 {
		t.Errorf("%d of those that answer have the lock", n)
	}
	must(t, held.Unlock(t.Context()))
	for _, p := range s.proxies[3:] {
		p.Blackhole(false)
	}
	s.nothingLeft(t, "k")
}

// A lock ends at MaxHold.
func TestMaxHold(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	o := brisk()
	o.MaxHold = 3 * time.Second
	l := s.open(t, o)
	began := time.Now()
	held := get(t, l, "k")
	waittest.Next(t, "the lock is lost", held.Lost())
	if took := time.Since(began); took < o.MaxHold {
		t.Errorf("it was lost after %v; want MaxHold, %v", took, o.MaxHold)
	}
	must(t, get(t, l, "k").Unlock(t.Context())) // the lock is free one lease later
	is(t, "Unlock", held.Unlock(t.Context()), lock.ErrLost)
}
