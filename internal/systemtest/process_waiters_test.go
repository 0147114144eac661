//go:build unix

package systemtest_test

import (
	"testing"
	"time"
)

// Waiting processes that die or stand still affect neither the leader nor the other waiting
// processes. A process that goes on gets the value.
func TestProcessesDoNotMindWaitersThatDie(t *testing.T) {
	const (
		key     = "deserted"
		callers = 10
	)
	withProcesses(t, 6, replicaConfig{LeaseTTL: 20 * time.Second}, func(f *processFleet) {
		leader, dying, pausing, staying := f.replicas[0], f.replicas[1:4], f.replicas[4],
			f.replicas[5]
		load := replicaLoad{Gate: key}
		orders := []int{leader.get(key, callers, load)}
		began := f.load(key, 1)
		for _, r := range f.replicas[1:] {
			orders = append(orders, r.get(key, callers, load))
		}
		f.gathered(key, orders...)
		for _, r := range dying {
			r.kill()
		}
		pausing.stop()
		leader.open(key)
		answers := f.answers(orders[leader.index], orders[staying.index])
		f.wantValue(answers, 2*callers, began.Value)
		f.wantPushed(key, answers)
		if f.stored(key) == "" {
			f.Errorf("nothing is stored")
		}
		pausing.resume()
		f.wantValue(f.answers(orders[pausing.index]), callers, began.Value)
		f.wantLoads(key, 1)
		f.figures("three waiters SIGKILLed, one SIGSTOPped and continued", 1, 0,
			append(answers, f.answers(orders[pausing.index])...))
		if n := len(f.all(observedOf(leader.index, "filled", key))); n != 1 {
			f.Errorf("the leader filled %d times, want 1", n)
		}
	})
}
