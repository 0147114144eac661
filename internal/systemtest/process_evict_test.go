//go:build unix

package systemtest_test

import (
	"testing"
	"time"
)

// A leader whose lease was evicted can't store under the lease of the one that loads now, and its
// caller gets what it has loaded.
func TestProcessesRefuseTheFillOfALeaderWhoseLeaseWasEvicted(t *testing.T) {
	const (
		key     = "evicted"
		callers = 5
	)
	// The lease is so long that no renewal tells the leader before its load has ended.
	withProcesses(t, 3, replicaConfig{LeaseTTL: 5 * time.Minute}, func(f *processFleet) {
		evicted, next := f.replicas[0], f.replicas[1]
		plan := replicaLoad{Origin: replicaOriginOf(key), Gate: key}
		f.change(key)
		order := evicted.get(key, 1, plan)
		older := f.load(key, 1)
		if n, err := f.rdb.Del(t.Context(), processLeaseName(key)).Result(); n != 1 || err != nil {
			f.Fatalf("DEL of the lease: %d, %v", n, err)
		}
		f.change(key)
		nextOrder := next.get(key, callers, plan)
		newer := f.load(key, 2)

		evicted.open(key)
		f.wantValue(f.answers(order), 1, older.Value)
		f.settle()
		if n := len(f.all(observedOf(evicted.index, "fill refused", key))); n != 1 ||
			f.stored(key) != "" {
			f.Errorf("%d fills were refused, want 1; in Redis is %q", n, f.stored(key))
		}
		next.open(key)
		f.wantValue(f.answers(nextOrder), callers, newer.Value)
		f.figures("lease deleted under its leader", 2, 0, f.answers(order, nextOrder))
		for _, r := range f.replicas {
			f.wantValue(f.answers(r.get(key, 1, replicaLoad{})), 1, newer.Value)
		}
		f.wantLoads(key, 2)
	})
}
