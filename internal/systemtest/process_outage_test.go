//go:build unix

package systemtest_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/cacheguard/cacheguard/internal/redistest"
)

// An origin that fails for long under full load is tried once for each back-off by the whole fleet,
// not by each caller or each process: with a value that may be served stale the back-off grows and
// callers get that value, without one it is ErrorTTL and they get the error. Nobody waits for
// longer than a load takes, and when the origin is well again it is noticed within one back-off.
func TestProcessesLeaveAnOriginAloneThatFails(t *testing.T) {
	const (
		replicas = 4
		callers  = 25 // of each replica, each with 50 calls a second
		backoff  = 500 * time.Millisecond
		errorTTL = 300 * time.Millisecond
		took     = 50 * time.Millisecond // a load
	)
	lasts := 3 * time.Second
	if redistest.Soak() {
		lasts = time.Minute
	}
	for name, test := range map[string]struct {
		config replicaConfig
		least  func(nth int) time.Duration // pause after the nth attempt
		most   time.Duration               // of these pauses
		serves string                      // the status of the answers meanwhile, "" for errors
	}{
		"stale while revalidated": {
			replicaConfig{
				TTL: time.Second, StaleWhileRevalidate: time.Hour, Backoff: backoff, ErrorTTL: -1,
			},
			grown(backoff), 3 * backoff, "stale",
		},
		"stale if error": {
			replicaConfig{
				TTL: time.Second, StaleIfError: time.Hour, Backoff: backoff, ErrorTTL: -1,
			},
			grown(backoff), 3 * backoff, "stale",
		},
		"nothing stale": {
			replicaConfig{TTL: time.Second, ErrorTTL: errorTTL},
			func(int) time.Duration { return errorTTL }, errorTTL, "",
		},
	} {
		t.Run(name, func(t *testing.T) {
			withProcesses(t, replicas, test.config, func(f *processFleet) {
				const key = "failing"
				plan := replicaLoad{Origin: replicaOriginOf(key), Took: took}
				f.change(key)
				f.answers(f.replicas[0].get(key, 1, plan))
				f.setOrigin(key, -1)
				before := f.keepOn("outage", key, callers, plan)
				f.await("the first attempt", 1, failedOf(key))
				f.pass(lasts)
				f.await("attempts that go on", 3, failedOf(key))
				f.openAll("outage")
				sum := f.sums(before...)
				f.settle()
				attempts := f.all(failedOf(key))
				f.wantPauses(attempts, test.least, test.most)

				f.setOrigin(key, 1_000_000)
				well := time.Now()
				after := f.keepOn("well", key, 1, plan)
				normal := f.await("a load that succeeds", 1, func(r replicaReport) bool {
					return loadEndedOf(key)(r) && r.Err == "" && r.At.After(well)
				})[0].At.Sub(well)
				f.openAll("well")
				f.sums(after...)
				if most := test.most + 3*time.Second; normal > most {
					f.Errorf("the origin was asked again %v after it was well, want a back-off of %v at most",
						normal, test.most)
				}
				f.wantOutageSum(sum, test.serves, took)
				errors := 0
				for _, n := range sum.Errors {
					errors += n
				}
				f.t.Log(redistest.Figures{
					Fault: fmt.Sprintf("origin fails for %v, %s (%d calls)", lasts, name,
						sum.Calls),
					Callers: replicas * callers, Errors: errors, Loads: len(attempts),
					Longest: sum.Longest, Normal: normal,
				})
				f.t.Logf("%d attempts, with these pauses: %v", len(attempts), pausesOf(attempts))
			})
		})
	}
}

// grown is the least pause after each attempt where the back-off grows by half, up to three times,
// and is shortened by a fifth at most.
func grown(backoff time.Duration) func(nth int) time.Duration {
	return func(nth int) time.Duration {
		d := float64(backoff)
		for range nth - 1 {
			d = min(1.5*d, 3*float64(backoff))
		}
		return time.Duration(0.8 * d)
	}
}

// setOrigin gives a key's origin a version, a negative one for an origin that is down.
func (f *processFleet) setOrigin(key string, version int64) {
	if err := f.rdb.Set(f.t.Context(), replicaOriginOf(key), version, 0).Err(); err != nil {
		f.Fatalf("SET: %v", err)
	}
}

// keepOn has callers in every replica call until the gate is opened, and returns when they do.
func (f *processFleet) keepOn(gate, key string, callers int, load replicaLoad) (orders []int) {
	for _, r := range f.replicas {
		orders = append(orders,
			r.do(replicaOrder{Do: orderKeepOn, Key: key, Callers: callers, Load: load, Gate: gate}))
	}
	f.await("callers that call", len(orders), func(r replicaReport) bool {
		return r.Kind == reportEntered && slices.Contains(orders, r.Order)
	})
	return orders
}

func (f *processFleet) openAll(gate string) {
	for _, r := range f.replicas {
		r.open(gate)
	}
}

// sums returns what the callers of these orders got.
func (f *processFleet) sums(orders ...int) (total replicaSum) {
	total = replicaSum{Errors: make(map[string]int), Statuses: make(map[string]int)}
	for _, rep := range f.await("sums", len(orders), func(r replicaReport) bool {
		return r.Kind == reportSummedUp && slices.Contains(orders, r.Order)
	}) {
		total.merge(rep.Sum)
	}
	return total
}

// pass lets the calls go on for a while.
func (f *processFleet) pass(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	<-timer.C
}

// failedOf matches the ends of loads that failed.
func failedOf(key string) func(replicaReport) bool {
	return func(r replicaReport) bool { return loadEndedOf(key)(r) && r.Err != "" }
}

// pausesOf returns for how long the origin was left alone after each failed load.
func pausesOf(attempts []replicaReport) (pauses []time.Duration) {
	slices.SortFunc(attempts, func(a, b replicaReport) int { return a.At.Compare(b.At) })
	for i := 1; i < len(attempts); i++ {
		pauses = append(pauses, attempts[i].At.Sub(attempts[i-1].At).Round(time.Millisecond))
	}
	return pauses
}

// wantPauses checks that attempts were made one at a time with pauses of at least so much between
// them.
func (f *processFleet) wantPauses(
	attempts []replicaReport, least func(nth int) time.Duration, most time.Duration,
) {
	pauses := pausesOf(attempts)
	for i, pause := range pauses {
		if pause < least(i+1) {
			f.Errorf("%v after attempt %d at the origin there was another one, want %v at least; all pauses: %v",
				pause, i+1, least(i+1), pauses)
		}
		if pause > most+2*time.Second {
			f.Errorf("after attempt %d the origin was left alone for %v, want %v at most", i+1,
				pause, most)
		}
	}
}

// wantOutageSum checks what callers got while the origin failed, and that none of them stood in
// line for it.
func (f *processFleet) wantOutageSum(sum replicaSum, serves string, took time.Duration) {
	const slack = 4 * time.Second // for standstills; a line of a hundred callers would take 5 s
	if sum.Longest > took+slack {
		f.Errorf("a caller waited %v for an origin that answers within %v", sum.Longest, took)
	}
	good := sum.Statuses[serves]
	if serves == "" {
		good = sum.Errors["origin"] + sum.Errors["remote"]
	}
	early := sum.Statuses["hit"] // before the value's TTL was over
	if good+early != sum.Calls || good < sum.Calls/2 {
		f.Errorf("of %d calls %d were served as they should be, %d before the outage was felt: %v, %v",
			sum.Calls, good, early, sum.Statuses, sum.Errors)
	}
}
