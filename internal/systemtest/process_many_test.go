//go:build unix

package systemtest_test

import (
	"fmt"
	"testing"
	"time"
)

// Four processes ask for the same 100 keys at once, half of which are there: each of the others is
// loaded once in the whole fleet, and a process takes one trip to read, one for the leases, and one
// to store what it has loaded itself.
func TestProcessesGetMany(t *testing.T) {
	const keys, cold = 100, 50
	withProcesses(t, 4, replicaConfig{LeaseTTL: 20 * time.Second}, func(f *processFleet) {
		names := make([]string, keys)
		for i := range names {
			names[i] = fmt.Sprint("many-", i)
		}
		f.answers(f.replicas[0].do(replicaOrder{Do: orderGetMany, Keys: names[cold:]}))
		f.settle()
		before := f.tripsOf()

		var orders []int
		for _, r := range f.replicas {
			orders = append(orders,
				r.do(replicaOrder{
					Do: orderGetMany, Keys: names, Load: replicaLoad{Took: 200 * time.Millisecond},
				}))
		}
		answers := f.answers(orders...)
		f.settle()
		loaded := make(map[string]replicaValue)
		leaders := make(map[int]int) // loads of what was cold, by replica
		for i, name := range names {
			all := f.loads(name)
			if len(all) != 1 {
				f.Errorf("%d loads of %s, want 1", len(all), name)
				continue
			}
			loaded[name] = all[0].Value
			if i < cold {
				leaders[all[0].Replica] = 1
			}
		}
		for i, a := range answers {
			if name := names[i%keys]; a.Err != "" || a.Value != loaded[name] {
				f.Errorf("%s is %+v, %q, want %+v", name, a.Value, a.Err, loaded[name])
				break
			}
		}
		for replica, n := range f.tripsOf() {
			n -= before[replica]
			f.t.Logf("process %d: %d trips, %d loads", replica, n, leaders[replica])
			// Messages carry the values of the loads that are waited for; with each leader a
			// question may cross them.
			if most := 2 + len(leaders) + leaders[replica]; n > most {
				f.Errorf("process %d took %d trips, want at most %d with %d leaders", replica, n,
					most, len(leaders))
			}
		}
	})
}

// tripsOf counts the round trips of each process about keys: not those that make a connection.
func (f *processFleet) tripsOf() []int {
	trips := make([]int, len(f.replicas))
	for _, trip := range f.all(func(r replicaReport) bool {
		return r.Kind == reportTripped && r.Key != ""
	}) {
		trips[trip.Replica]++
	}
	return trips
}
