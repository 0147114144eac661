package redlock_test

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/cacheguard/cacheguard/internal/waittest"
)

// If a master didn't reply when a lock was given back, it gets the release as soon as it replies
// again, long before the lease is over.
func TestReleaseReachesAMasterThatComesBack(t *testing.T) {
	for how, away := range outages {
		if how == "killed" { // and has lost its data
			continue
		}
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			s := newSite(t)
			o := opts()
			o.NodeTimeout = 2 * time.Second // three masters must answer within it
			l := s.wired(t, o)
			warm(t, l)
			held := get(t, l, "k")
			s.everywhere(t, "k")
			back := []func(){away(t, s, 0), away(t, s, 1)}
			must(t, held.Unlock(t.Context()))
			pass(2 * o.NodeTimeout)
			for _, again := range back {
				again()
			}
			if n := s.count(t, "k", 2, 3, 4); n > 0 {
				t.Errorf("%d masters that answer have the lock", n)
			}
			began := time.Now()
			s.nothingLeft(t, "k")
			if took := time.Since(began); took > o.Lease/2 {
				t.Errorf("it took %v; the lease is %v", took, o.Lease)
			}
		})
	}
}

// working returns the approximate number of goroutines of lockers.
func working() int {
	stacks := make([]byte, 16<<20)
	stacks = stacks[:runtime.Stack(stacks, true)]
	return strings.Count(string(stacks), "tenure.(*Keeper).Go")
}

// If a master is away, locks don't need a goroutine each, and Close doesn't wait until the master
// is back.
func TestAwayMastersCostLittle(t *testing.T) {
	s := newSite(t)
	o := leased(time.Hour) // no debt is over because its lock has expired
	o.NodeTimeout = 50 * time.Millisecond
	l := s.wired(t, o)
	s.proxies[0].Blackhole(true)
	s.proxies[1].Blackhole(true)
	for i := range 300 {
		// On a busy machine a request may reach a master after its release, and then the lock stays
		// there for a lease. So each lock has its own name.
		held, err := l.Lock(t.Context(), fmt.Sprint("k", i))
		if err == nil {
			err = held.Unlock(t.Context())
		}
		if err != nil {
			t.Logf("the machine is slow: %v", err)
		}
	}
	if n := l.Debts(0); n < 100 {
		t.Errorf("%d locks are owed to a master that is away", n)
	}
	waittest.Until(t, "few goroutines are left", func() bool { return working() < 10 })
	if n := l.Debts(0); n < 100 {
		t.Errorf("%d locks are owed to a master that is away", n)
	}
	began := time.Now()
	must(t, l.Close())
	if took := time.Since(began); took > patience/2 {
		t.Errorf("Close took %v", took)
	}
	s.proxies[0].Blackhole(false)
	s.proxies[1].Blackhole(false)
}
