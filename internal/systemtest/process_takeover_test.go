//go:build unix

package systemtest_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/cacheguard/cacheguard/internal/wallclock"
)

// A leader that dies is replaced when its lease is over, by one process, and no survivor notices.
func TestProcessesReplaceALeaderThatDies(t *testing.T) {
	const leaseTTL = 3 * time.Second
	t.Run("before it has renewed", func(t *testing.T) {
		withProcesses(t, 6, replicaConfig{LeaseTTL: leaseTTL}, func(f *processFleet) {
			f.replaceALeader(leaseTTL, 0)
		})
	})
	t.Run("after it has renewed", func(t *testing.T) {
		withProcesses(t, 6, replicaConfig{LeaseTTL: leaseTTL}, func(f *processFleet) {
			f.replaceALeader(leaseTTL, 1)
		})
	})
}

// replaceALeader kills a leader when it has renewed its lease so often.
func (f *processFleet) replaceALeader(leaseTTL time.Duration, renewals int) {
	const (
		callers = 20
		key     = "orphan"
		slack   = 1500 * time.Millisecond // promised are 50 ms
		// Redis cuts the time off that is less than one, also of its present.
		grain = 2 * time.Millisecond
	)
	came := time.Now()
	orders := f.get(key, callers, replicaLoad{Took: 3 * leaseTTL / 2})
	leader := f.replicas[f.load(key, 1).Replica]
	f.await("renewals", renewals, observedOf(leader.index, "renewed", key))
	leader.kill()
	killed := time.Now()

	survivors := slices.Delete(orders, leader.index, leader.index+1)
	second := f.load(key, 2)
	answers := f.answers(survivors...)
	f.wantValue(answers, len(survivors)*callers, second.Value)
	f.wantLoads(key, 2)
	f.figures(fmt.Sprintf(
		"leader SIGKILLed after %d renewals (lease %v; normal: second load begins)", renewals,
		leaseTTL), 2, second.At.Sub(killed), answers)

	// The lease was granted after its callers had been told to come, and renewed the last time
	// before the kill. When it was asked for is told with the answer.
	held := f.all(observedOf(leader.index, "lease granted", key))[0].At
	renewed := f.all(observedOf(leader.index, "renewed", key))
	if n := len(renewed); n > 0 {
		held = renewed[n-1].At
	}
	back := -min(wallclock.SetSince(came), 0)
	if early := came.Add(leaseTTL).Sub(second.At); early > grain+back {
		f.Errorf("the second load began %v before the first one's lease was over", early)
	}
	if late := second.At.Sub(killed) - leaseTTL; late > slack {
		f.Errorf("the second load began %v after the kill, more than the lease of %v and %v",
			late+leaseTTL, leaseTTL, slack)
	}
	f.t.Logf("lease %v, renewed %d times: the second load began %v after the last grant or renewal was known, %v after the kill",
		leaseTTL, len(renewed), second.At.Sub(held).Round(time.Microsecond),
		second.At.Sub(killed).Round(time.Microsecond))
}

// If a leader closes its cache, it gives up its lease. Another process loads at once, and only the
// leader's own callers notice.
func TestProcessesReplaceALeaderThatCloses(t *testing.T) {
	const (
		key     = "handed over"
		callers = 20
		slack   = 3 * time.Second
	)
	withProcesses(t, 4, replicaConfig{LeaseTTL: 20 * time.Second}, func(f *processFleet) {
		leader := f.replicas[0]
		own := leader.get(key, callers, replicaLoad{Gate: key})
		f.load(key, 1)
		var others []int
		for _, r := range f.replicas[1:] {
			others = append(others, r.get(key, callers, replicaLoad{}))
		}
		f.gathered(key, others...)
		leader.finish()

		second := f.load(key, 2)
		f.wantValue(f.answers(others...), len(others)*callers, second.Value)
		for _, a := range f.answers(own) {
			if !slices.Equal(a.Is, []string{"closed"}) {
				f.Errorf("a caller of the closed cache got %+v, want ErrClosed", a)
			}
		}
		f.wantLoads(key, 2)
		late := second.At.Sub(f.await("the end of the first load", 1, loadEndedOf(key))[0].At)
		if late > slack {
			f.Errorf("the second load began %v after the first one was given up, want at most %v",
				late, slack)
		}
		t.Logf("the second load began %v after the first one was given up",
			late.Round(time.Microsecond))
		f.figures("leader closes its cache under a load (normal: second load begins)", 2, late,
			append(f.answers(own), f.answers(others...)...))
	})
}
