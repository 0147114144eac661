//go:build unix

package systemtest_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/cacheguard/cacheguard/internal/redistest"
)

// However an Invalidate in one process falls on a slow load in another one: what the load has read
// before it is not in Redis afterwards, and calls that begin in the invalidating process after it
// don't get it.
func TestProcessesInvalidateDuringALoad(t *testing.T) {
	tries := 20
	if redistest.Full() {
		tries = 100
	}
	withProcesses(t, 3, replicaConfig{}, func(f *processFleet) {
		for n := 0; n < tries && !f.failed(); n++ {
			f.invalidateDuringALoad(n)
		}
	})
}

func (f *processFleet) invalidateDuringALoad(try int) {
	const callers = 3
	loading, invalidating := f.replicas[0], f.replicas[1]
	key := fmt.Sprintf("moving-%d", try)
	slow := replicaLoad{
		Origin: replicaOriginOf(key), Gate: key,
		Took: time.Duration(try%5) * 500 * time.Microsecond,
	}
	quick := replicaLoad{Origin: replicaOriginOf(key)}

	old := f.change(key)
	before := []int{loading.get(key, 1, slow)} // only of one caller is it known that it has joined
	f.load(key, 1)
	if waiting := try % 3; waiting > 0 { // with waiters in one of the other processes, or without
		before = append(before, f.replicas[waiting].get(key, callers, quick))
		f.gathered(key, before...)
	}
	f.change(key)
	// The load ends before, while or after its key is invalidated, or when it was loaded anew.
	var after int
	invalidate := func() {
		after = invalidating.do(replicaOrder{
			Do: orderInvalidate, Key: key, Callers: callers, Load: quick,
		})
	}
	switch try % 4 {
	case 0:
		loading.open(key)
		f.answers(before...)
		invalidate()
	case 1:
		loading.open(key)
		invalidate()
	case 2:
		invalidate()
		loading.open(key)
	case 3:
		invalidate()
		f.answers(after)
		loading.open(key)
	}
	for _, a := range f.answers(after) {
		if a.Err != "" || a.Value.Version <= old {
			f.Errorf("try %d: a call that began after Invalidate got %+v, %q", try, a.Value, a.Err)
		}
	}
	for _, a := range f.answers(before...) {
		if a.Err != "" || a.Value.Version < old {
			f.Errorf("try %d: a call that began before Invalidate got %+v, %q", try, a.Value, a.Err)
		}
	}
	// No load is left. Whoever reads now reads what is in Redis.
	for _, r := range f.replicas {
		peek := f.answers(r.do(replicaOrder{Do: orderPeek, Key: key}))[0]
		if peek.Err != "" || peek.Status != "hit" || peek.Value.Version <= old {
			f.Errorf("try %d: in Redis is %+v, a %s, %q", try, peek.Value, peek.Status, peek.Err)
		}
	}
}

// As soon as a process has heard of an Invalidate, its callers don't join a load that began before.
func TestProcessesLeaveALoadThatWasInvalidatedElsewhere(t *testing.T) {
	// If the older load renewed its lease while the newer one has it, its caller would follow the
	// newer load.
	withProcesses(t, 3, replicaConfig{LeaseTTL: 5 * time.Minute}, func(f *processFleet) {
		for n := 0; n < 10 && !f.failed(); n++ {
			f.leaveALoad(fmt.Sprintf("left-%d", n))
		}
	})
}

func (f *processFleet) leaveALoad(key string) {
	const callers = 3
	loading, invalidating := f.replicas[0], f.replicas[1]
	f.change(key)
	before := loading.get(key, 1, replicaLoad{Origin: replicaOriginOf(key), Gate: key})
	older := f.load(key, 1)
	current := f.change(key)
	f.carriedOut(invalidating.do(replicaOrder{Do: orderInvalidate, Key: key}))
	f.await("the message", 1, func(r replicaReport) bool {
		return r.Kind == reportHeard && r.What == "changed" && r.Key == key &&
			r.Replica == loading.index
	})

	after := f.answers(loading.get(key, callers, replicaLoad{Origin: replicaOriginOf(key)}))
	newer := f.load(key, 2)
	f.wantValue(after, callers, newer.Value)
	if newer.Value.Version != current {
		f.Errorf("the newer load read version %d, want %d", newer.Value.Version, current)
	}

	loading.open(key)
	// Who has waited from before gets it, and nobody else.
	f.wantValue(f.answers(before), 1, older.Value)
	for _, r := range f.replicas {
		f.wantValue(f.answers(r.get(key, 1, replicaLoad{})), 1, newer.Value)
	}
	f.wantLoads(key, 2)
	if n := len(f.all(observedOf(loading.index, "fill refused", key))); n != 1 {
		f.Errorf("%d fills were refused, want 1", n)
	}
}
