//go:build unix

package systemtest_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/cacheguard/cacheguard/internal/redistest"
)

// A cold key that 4,000 callers of 16 processes want is loaded once, all get that value, and Redis
// hears little of it.
func TestProcessesLoadAColdKeyOnce(t *testing.T) {
	fleets := 1
	if redistest.Full() {
		fleets = 4
	}
	for range fleets {
		withProcesses(t, 16, replicaConfig{LeaseTTL: time.Minute}, func(f *processFleet) {
			for round := range 5 {
				f.stampede(fmt.Sprintf("cold-%d", round))
			}
		})
	}
}

func (f *processFleet) stampede(key string) {
	const (
		callers         = 250
		tripsPerProcess = 3
		commandsEach    = 5
		commandsOnce    = 6
	)
	f.settle()
	if err := redistest.ResetStats(f.t.Context(), f.rdb); err != nil {
		f.Fatalf("%v", err)
	}
	// The load ends 100 ms after everybody has come, however slow the machine is.
	orders := f.get(key, callers, replicaLoad{Gate: key, Took: 100 * time.Millisecond})
	load := f.load(key, 1)
	f.gathered(key, orders...)
	f.replicas[load.Replica].open(key)
	answers := f.answers(orders...)
	f.wantValue(answers, len(f.replicas)*callers, load.Value)
	woken := f.wantPushed(key, answers)
	f.wantLoads(key, 1)

	stats, err := redistest.CommandStats(f.t.Context(), f.rdb)
	if err != nil {
		f.Fatalf("%v", err)
	}
	var commands int64
	for name, n := range stats {
		switch name {
		case "INFO", "CONFIG|RESETSTAT", "PING": // the test's own, and the subscriptions'
		default:
			commands += n
		}
	}
	if most := int64(len(f.replicas)*commandsEach + commandsOnce); commands > most {
		f.Errorf("%d commands in Redis, want at most %d: %v", commands, most, stats)
	}
	trips := make([]int, len(f.replicas))
	for _, trip := range f.all(func(r replicaReport) bool {
		return r.Kind == reportTripped && r.Key == key
	}) {
		trips[trip.Replica]++
	}
	total := 0
	for replica, n := range trips {
		total += n
		if n > tripsPerProcess {
			f.Errorf("replica %d took %d round trips, want at most %d", replica, n, tripsPerProcess)
		}
	}
	f.t.Logf("%d commands, %d round trips in %d processes, %d at most in one; the last caller was answered %v after the load",
		commands, total, len(trips), slices.Max(trips), woken)
}
