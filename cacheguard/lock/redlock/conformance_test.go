package redlock_test

import (
	"context"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"

	"github.com/cacheguard/cacheguard/cacheguard/lock"
	"github.com/cacheguard/cacheguard/cacheguard/lock/locktest"
	"github.com/cacheguard/cacheguard/internal/redistest"
)

// suiteLease is the suite's lease. It is short, so that tests can wait for its end. A case that it
// was too short for begins again with a longer one.
const suiteLease = 1500 * time.Millisecond

// timeoutOf returns the suite's NodeTimeout. It is larger than New allows for a lease, because a
// busy machine needs this much time. With a lease that New allows, the cases would take three times
// as long. If it were much larger, a held lock could not be set again, within a lease, on a master
// that is back: the step that the master didn't answer has to end first.
func timeoutOf(lease time.Duration) time.Duration { return lease / 3 }

func TestConformance(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	locktest.Run(t, func(t *testing.T) locktest.Fleet { return fleet(t, s, suiteLease, false) })
}

// mastersMatter are the cases whose result can depend on the state of the masters.
var mastersMatter = []string{
	"exclusion", "try: held", "wait: until", "wait: one", "state: held", "cut: the holder",
	"lost reply: Lock",
	"process: the holder", "linearizable",
}

// runSome runs the cases whose names begin with one of these names.
func runSome(t *testing.T, names []string, open func(t *testing.T) locktest.Fleet) {
	for _, c := range locktest.Cases() {
		if slices.ContainsFunc(names, func(name string) bool {
			return strings.HasPrefix(c.Name, name)
		}) {
			t.Run(c.Name, func(t *testing.T) { c.Run(t, open(t)) })
		}
	}
}

// In TestConformanceTwoAway two masters are away all the time.
func TestConformanceTwoAway(t *testing.T) {
	for _, how := range [][2]string{{"killed", "stopped"}, {"cut off", "refused"}} {
		t.Run(how[0]+" and "+how[1], func(t *testing.T) {
			t.Parallel()
			s := newSite(t)
			for i, how := range how {
				defer outages[how](t, s, 1+2*i)()
			}
			wired := how[0] == "cut off"
			runSome(t, mastersMatter, func(t *testing.T) locktest.Fleet {
				return fleet(t, s, suiteLease, wired)
			})
		})
	}
}

// In TestConformanceTwoComeAndGo one or two masters at a time go away and come back, one after
// another. The test uses all kinds of outages except those in which a master loses its data. After
// a master is back, there is one lease before the next master goes, in which held locks are set on
// it again.
func TestConformanceTwoComeAndGo(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	over := make(chan struct{})
	var lease atomic.Int64 // the longest of the suite's leases so far
	lease.Store(int64(suiteLease))
	var all sync.WaitGroup
	all.Go(func() {
		var back []func()
		defer func() {
			for _, again := range back {
				again()
			}
		}()
		for next := 0; ; {
			if len(back) < 2 {
				how := []string{"stopped", "cut off", "refused"}[next%3]
				back = append(back, outages[how](t, s, next%5))
				next++
			} else {
				back[0]()
				back = back[1:]
			}
			select {
			case <-over:
				return
			case <-time.After(time.Duration(lease.Load())):
			}
		}
	})
	defer all.Wait()
	defer close(over)
	runSome(t, []string{"exclusion", "wait: until", "wait: one", "state: held", "linearizable"},
		func(t *testing.T) locktest.Fleet {
			var open func(d time.Duration) locktest.Fleet
			open = func(d time.Duration) locktest.Fleet {
				lease.Store(max(lease.Load(), int64(d)))
				f := fleet(t, s, d, true)
				f.Longer = open
				return f
			}
			return open(suiteLease)
		})
}

// TestConformanceMiniredis uses four masters. Three of them must agree.
func TestConformanceMiniredis(t *testing.T) {
	t.Parallel()
	runSome(t, []string{"exclusion", "try", "wait", "unlock", "close", "process"}, func(
		t *testing.T,
	) locktest.Fleet {
		var addrs []string
		var servers []*miniredis.Miniredis
		for range 4 {
			server := miniredis.RunT(t)
			server.ClockTTL(true)
			servers, addrs = append(servers, server), append(addrs, server.Addr())
		}
		var open func(lease time.Duration) locktest.Fleet
		open = func(lease time.Duration) locktest.Fleet {
			f := locktest.Fleet{
				Lease: lease, Longer: open, Reentrant: true,
				Process: process{addrs, lease}.config(),
				Steal: func(name string) {
					for _, server := range servers {
						server.Del(suitePrefix + ":" + name)
					}
				},
			}
			for range 3 {
				f.Lockers = append(f.Lockers, suiteLocker(t, addrs, lease))
			}
			return f
		}
		return open(suiteLease)
	})
}

// fleet opens the lockers of three processes. The first has its own proxies, which can be cut. If
// wired is set, all of them also go through the site's proxies.
func fleet(t *testing.T, s *site, lease time.Duration, wired bool) locktest.Fleet {
	t.Helper()
	var wires []*redistest.Proxy
	var first, others []string
	for i, server := range s.servers {
		addr := server.Addr()
		if wired {
			addr = s.proxies[i].Addr()
		}
		wire := redistest.StartProxy(t, addr)
		wires, first, others = append(wires, wire), append(first, wire.Addr()), append(others, addr)
	}
	return locktest.Fleet{
		Lockers: []lock.Locker{
			suiteLocker(t, first, lease), suiteLocker(t, others, lease),
			suiteLocker(t, others, lease),
		},
		Lease: lease, Reentrant: true, Process: process{others, lease}.config(),
		Longer: func(lease time.Duration) locktest.Fleet { return fleet(t, s, lease, wired) },
		Cut: func() func() {
			for _, w := range wires {
				w.Blackhole(true)
			}
			return func() {
				for _, w := range wires {
					w.Blackhole(false)
					w.Cut()
				}
			}
		},
		LoseReply: func() {
			for _, w := range wires[:quorumOf(len(wires))] {
				w.DropReply(isAcquire, redistest.Hangup)
			}
		},
		Steal: func(name string) { s.steal(t, suitePrefix+":"+name) },
	}
}

// steal removes a lock on all masters at the same time. If some masters had the lock and others
// didn't, a holder that renews it would set it there again.
func (s *site) steal(t *testing.T, key string) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	var all sync.WaitGroup
	for _, rdb := range s.direct {
		all.Go(func() {
			if err := rdb.Del(ctx, key).Err(); err != nil {
				t.Errorf("the lock isn't removed: %v", err)
			}
		})
	}
	all.Wait()
}

func quorumOf(masters int) int { return masters/2 + 1 }

// suiteLocker returns a locker whose clients have default options.
func suiteLocker(t *testing.T, addrs []string, lease time.Duration) lock.Locker {
	t.Helper()
	l, end, err := openProcess(process{addrs, lease}.config())
	must(t, err)
	t.Cleanup(end)
	return l
}

const suitePrefix = "suite"
