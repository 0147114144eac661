//go:build unix

package systemtest_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// A load that takes four times its lease is one load: its leader renews the lease.
func TestProcessesWaitForALoadLongerThanItsLease(t *testing.T) {
	const (
		key      = "long"
		callers  = 10
		leaseTTL = 2 * time.Second
		took     = 8500 * time.Millisecond
	)
	withProcesses(t, 4, replicaConfig{LeaseTTL: leaseTTL}, func(f *processFleet) {
		orders := f.get(key, callers, replicaLoad{Took: took})
		load := f.load(key, 1)
		f.wantValue(f.answers(orders...), len(orders)*callers, load.Value)
		f.wantLoads(key, 1)
		renewals := f.all(observedOf(-1, "renewed", key))
		if least := int(took / leaseTTL); len(renewals) < least {
			f.Errorf("%d renewals in %v with a lease of %v, want at least %d", len(renewals), took,
				leaseTTL, least)
		}
		if n := len(f.all(observedOf(load.Replica, "filled", key))); n != 1 {
			f.Errorf("the leader filled %d times, want 1", n)
		}
		t.Logf("%d renewals", len(renewals))
	})
}

// A load that never returns holds its key for LoadTimeout and no longer: then its callers in every
// process get an error, another process can load, and a result that comes after all changes
// nothing.
func TestProcessesGiveUpALoadThatNeverReturns(t *testing.T) {
	const (
		key         = "hung"
		callers     = 5
		loadTimeout = 5 * time.Second
		slack       = 2 * time.Second
	)
	config := replicaConfig{
		LeaseTTL: 3 * time.Second, LoadTimeout: loadTimeout, ErrorTTL: -1,
	}
	withProcesses(t, 4, config, func(f *processFleet) {
		// The others come when the first one loads already, so that it is known who hangs.
		hung := f.replicas[0]
		orders := []int{hung.get(key, callers, replicaLoad{Gate: key, Deaf: true})}
		load := f.load(key, 1)
		for _, r := range f.replicas[1:] {
			orders = append(orders, r.get(key, callers, replicaLoad{Gate: key, Deaf: true}))
		}
		var latest time.Duration
		for _, rep := range f.await("answers", len(orders), func(r replicaReport) bool {
			return r.Kind == reportAnswered
		}) {
			for _, a := range rep.Answers {
				late := a.Ended.Sub(load.At) - loadTimeout
				latest = max(latest, late)
				switch {
				case rep.Replica == hung.index && !slices.Contains(a.Is, "deadline"),
					rep.Replica != hung.index && !strings.Contains(a.Text, "LoadTimeout"):
					f.Errorf("a caller of replica %d got %+v, want LoadTimeout's error",
						rep.Replica, a)
				case late < -slack || late > slack:
					f.Errorf("a caller of replica %d got its error %v after LoadTimeout, want within %v",
						rep.Replica, late, slack)
				}
			}
		}
		f.wantLoads(key, 1)
		t.Logf("the last error came %v after LoadTimeout", latest.Round(time.Microsecond))
		f.figures(fmt.Sprintf("load never returns (LoadTimeout %v)", loadTimeout), 1, 0,
			f.answers(orders...))

		next := f.replicas[1].get(key, callers, replicaLoad{})
		second := f.load(key, 2)
		f.wantValue(f.answers(next), callers, second.Value)
		stored := f.stored(key)

		hung.open(key)
		f.await("the return of the load that hung", 1, observedOf(hung.index, "load late", key))
		for _, r := range f.replicas {
			f.wantValue(f.answers(r.get(key, 1, replicaLoad{})), 1, second.Value)
		}
		f.wantLoads(key, 2)
		if now := f.stored(key); now != stored {
			f.Errorf("in Redis was %q and is %q", stored, now)
		}
	})
}
