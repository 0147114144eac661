//go:build unix

package systemtest_test

import (
	"slices"
	"strings"
	"testing"
	"time"
)

// A leader that stood still past its lease can't overwrite what was loaded meanwhile: not when the
// newer value is stored already, and not when the newer load is still under way. Its own caller
// gets an answer all the same.
func TestProcessesRefuseTheFillOfALeaderThatStoodStill(t *testing.T) {
	for _, test := range []struct {
		name string
		run  func(p *pausedLeader)
	}{
		{"newer value stored", (*pausedLeader).afterNewer},
		{"newer load under way, result first", (*pausedLeader).resultDuringNewer},
		{"newer load under way, renewal first", (*pausedLeader).renewalDuringNewer},
	} {
		t.Run(test.name, func(t *testing.T) {
			withProcesses(t, 3, replicaConfig{LeaseTTL: 5 * time.Second}, func(f *processFleet) {
				test.run(f.pauseALeader())
			})
		})
	}
}

func (p *pausedLeader) afterNewer() {
	p.finishNewer()
	before := p.f.stored(p.key)
	p.slept.open(p.key)
	p.slept.resume()
	p.f.wantValue(p.f.answers(p.sleptOrder), 1, p.older.Value)
	p.wantRefused(1)
	p.wantNewer(before)
	p.f.figures("leader SIGSTOPped past its lease, result after the newer", 2, 0,
		p.f.answers(p.sleptOrder, p.nextOrder))
}

// resultDuringNewer has the older load's result race with its renewal: a result is refused and
// stays with its caller, a load that is told first has its caller follow the newer one.
func (p *pausedLeader) resultDuringNewer() {
	p.slept.open(p.key)
	p.slept.resume()
	ended := p.f.await("the end of the older load", 1, loadEndedOf(p.key))[0]
	if ended.Err == "" {
		fate := p.f.await("what became of the result", 1, func(r replicaReport) bool {
			return r.Kind == reportObserved && r.Replica == p.slept.index && r.Key == p.key &&
				slices.Contains([]string{"fill refused", "lease lost", "filled"}, r.What)
		})[0]
		p.f.t.Logf("the older load's result: %s", fate.What)
	}
	p.finishNewer()
	before := p.f.stored(p.key)
	for _, a := range p.f.answers(p.sleptOrder) {
		if a.Err != "" || (a.Value != p.older.Value && a.Value != p.newer.Value) {
			p.f.Errorf("the caller of the leader that stood still got %+v, %q", a.Value, a.Err)
		}
	}
	p.wantNewer(before)
}

func (p *pausedLeader) renewalDuringNewer() {
	p.slept.resume()
	p.f.await("the loss of the lease", 1, observedOf(p.slept.index, "lease lost", p.key))
	ended := p.f.await("the end of the older load", 1, loadEndedOf(p.key))[0]
	if !strings.Contains(ended.Err, "lease lost") {
		p.f.Errorf("the older load ended with %q, want the loss of its lease", ended.Err)
	}
	p.finishNewer()
	before := p.f.stored(p.key)
	p.f.wantValue(p.f.answers(p.sleptOrder), 1, p.newer.Value) // it has followed
	p.wantRefused(0)
	p.wantNewer(before)
	p.f.figures("leader SIGSTOPped past its lease, told so", 2, 0,
		p.f.answers(p.sleptOrder, p.nextOrder))
}

// pausedLeader is a fleet in which one process stands still in the middle of a load while another
// one, which has waited for it, has begun to load a newer version. Both loads wait for the gate
// that is named like the key.
type pausedLeader struct {
	f                     *processFleet
	key                   string
	slept, next           *replicaProcess
	sleptOrder, nextOrder int
	older, newer          replicaReport
}

const nextCallers = 5

func (f *processFleet) pauseALeader() *pausedLeader {
	const key = "paused"
	p := &pausedLeader{f: f, key: key, slept: f.replicas[0], next: f.replicas[1]}
	plan := replicaLoad{Origin: replicaOriginOf(key), Gate: key}
	f.change(key)
	p.sleptOrder = p.slept.get(key, 1, plan) // only of one caller is it known that it has joined
	p.older = f.load(key, 1)
	p.nextOrder = p.next.get(key, nextCallers, plan)
	f.gathered(key, p.nextOrder)
	p.slept.stop()
	current := f.change(key)
	// Proves that the leader stands still: it doesn't let a lease end otherwise.
	p.newer = f.load(key, 2)
	if p.newer.Replica != p.next.index || p.newer.Value.Version != current {
		f.Fatalf("the newer load is %+v", p.newer)
	}
	return p
}

// finishNewer ends the newer load.
func (p *pausedLeader) finishNewer() {
	p.next.open(p.key)
	p.f.wantValue(p.f.answers(p.nextOrder), nextCallers, p.newer.Value)
}

func (p *pausedLeader) wantRefused(n int) {
	p.f.settle()
	if refused := p.f.all(observedOf(-1, "fill refused", p.key)); len(refused) != n {
		p.f.Errorf("%d fills were refused, want %d", len(refused), n)
	}
}

// wantNewer checks that the newer value stands in Redis as it was filled, and what all processes
// read.
func (p *pausedLeader) wantNewer(before string) {
	p.f.wantLoads(p.key, 2)
	if after := p.f.stored(p.key); before == "" || after != before {
		p.f.Errorf("in Redis was %q and is %q", before, after)
	}
	if filled := p.f.all(observedOf(p.slept.index, "filled", p.key)); len(filled) > 0 {
		p.f.Errorf("the leader that stood still has filled")
	}
	for _, r := range p.f.replicas {
		p.f.wantValue(p.f.answers(r.get(p.key, 1, replicaLoad{})), 1, p.newer.Value)
	}
	p.f.wantLoads(p.key, 2)
}

// A leader that stands still for less than its lease costs nothing.
func TestProcessesWaitForALeaderThatStoodStillForAMoment(t *testing.T) {
	const (
		key      = "blink"
		callers  = 10
		leaseTTL = 6 * time.Second
	)
	withProcesses(t, 3, replicaConfig{LeaseTTL: leaseTTL}, func(f *processFleet) {
		orders := f.get(key, callers, replicaLoad{Gate: key})
		load := f.load(key, 1)
		f.gathered(key, orders...)
		leader := f.replicas[load.Replica]
		leader.stop()
		f.untilLeaseIsDownTo(key, leaseTTL/2) // a leader that runs renews it at two thirds
		leader.open(key)
		leader.resume()
		f.wantValue(f.answers(orders...), len(orders)*callers, load.Value)
		f.wantLoads(key, 1)
		if n := len(f.all(observedOf(leader.index, "filled", key))); n != 1 {
			f.Errorf("the leader filled %d times, want 1", n)
		}
	})
}

// untilLeaseIsDownTo waits until a lease has no more than this left.
func (f *processFleet) untilLeaseIsDownTo(key string, left time.Duration) {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	timeout := time.After(replicaPatience)
	for {
		now, err := f.rdb.PTTL(f.t.Context(), processLeaseName(key)).Result()
		if err != nil {
			f.Fatalf("PTTL: %v", err)
		}
		if now <= left {
			return
		}
		select {
		case <-tick.C:
		case <-timeout:
			f.Fatalf("the lease of %s still has %v", key, now)
		}
	}
}
