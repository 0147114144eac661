//go:build unix

package systemtest_test

import (
	"errors"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/cacheguard/cacheguard/internal/redistest"
)

// get has callers of the replica get a key and returns the number of the order.
func (r *replicaProcess) get(key string, callers int, load replicaLoad) int {
	return r.do(replicaOrder{Do: orderGet, Key: key, Callers: callers, Load: load})
}

// get has callers of every replica get a key at once.
func (f *processFleet) get(key string, callers int, load replicaLoad) (orders []int) {
	for _, r := range f.replicas {
		orders = append(orders, r.get(key, callers, load))
	}
	return orders
}

// open opens a replica's gate and doesn't wait until it has.
func (r *replicaProcess) open(gate string) {
	r.do(replicaOrder{Do: orderOpen, Gate: gate})
}

// answers returns what the callers of these orders got, when all have returned.
func (f *processFleet) answers(orders ...int) (answers []replicaAnswer) {
	for _, rep := range f.await("answers", len(orders), func(r replicaReport) bool {
		return r.Kind == reportAnswered && slices.Contains(orders, r.Order)
	}) {
		answers = append(answers, rep.Answers...)
	}
	return answers
}

// carriedOut returns when these orders, which have no answers, are carried out.
func (f *processFleet) carriedOut(orders ...int) {
	for _, rep := range f.await("orders that are carried out", len(orders), func(
		r replicaReport,
	) bool {
		return r.Kind == reportDone && slices.Contains(orders, r.Order)
	}) {
		if rep.Err != "" {
			f.Errorf("replica %d: %s", rep.Replica, rep.Err)
		}
	}
}

// gathered returns when all callers of these orders wait: their flights have been told who has the
// lease, and a caller that is counted has only to take a seat.
func (f *processFleet) gathered(key string, orders ...int) {
	f.await("callers that call", len(orders), func(r replicaReport) bool {
		return r.Kind == reportEntered && slices.Contains(orders, r.Order)
	})
	asked := make(map[int]bool)
	f.await("processes that have asked for the lease", len(orders), func(r replicaReport) bool {
		first := r.Kind == reportTripped && r.Key == key && r.What == "evalsha" && !asked[r.Replica]
		if first {
			asked[r.Replica] = true
		}
		return first
	})
}

// loads returns the loads of a key that have begun, in the order of their reports.
func (f *processFleet) loads(key string) []replicaReport { return f.all(loadBeganOf(key)) }

// load waits for the nth load of a key to begin, counted from 1.
func (f *processFleet) load(key string, nth int) replicaReport {
	return f.await("a load", nth, loadBeganOf(key))[nth-1]
}

func loadBeganOf(key string) func(replicaReport) bool {
	return func(r replicaReport) bool { return r.Kind == reportLoadBegan && r.Key == key }
}

func loadEndedOf(key string) func(replicaReport) bool {
	return func(r replicaReport) bool { return r.Kind == reportLoadEnded && r.Key == key }
}

// observedOf matches an event about a key, of any replica if that is negative.
func observedOf(replica int, what, key string) func(replicaReport) bool {
	return func(r replicaReport) bool {
		return r.Kind == reportObserved && r.What == what && r.Key == key &&
			(replica < 0 || r.Replica == replica)
	}
}

// wantLoads checks how often a key was loaded, once all reports are there.
func (f *processFleet) wantLoads(key string, n int) {
	f.settle()
	if began := f.loads(key); len(began) != n {
		f.Errorf("%d loads of %s, want %d", len(began), key, n)
	}
}

// wantValue checks that every caller got this value and no error.
func (f *processFleet) wantValue(answers []replicaAnswer, n int, want replicaValue) {
	if len(answers) != n {
		f.Errorf("%d answers, want %d", len(answers), n)
	}
	for i, a := range answers {
		if a.Err != "" || a.Value != want {
			f.Errorf("answer %d of %d is %+v, %q, want %+v", i, len(answers), a.Value, a.Err, want)
			return // the others say no more
		}
	}
}

// stored returns the bytes that stand in Redis under a key, "" for nothing.
func (f *processFleet) stored(key string) string {
	s, err := f.rdb.Get(f.t.Context(), processValueName(key)).Result()
	if err != nil && !errors.Is(err, redis.Nil) {
		f.Fatalf("GET: %v", err)
	}
	return s
}

// change gives the origin of a key its next version. It is told of by no message: the caller
// invalidates.
func (f *processFleet) change(key string) int64 {
	version, err := f.rdb.Incr(f.t.Context(), replicaOriginOf(key)).Result()
	if err != nil {
		f.Fatalf("INCR: %v", err)
	}
	return version
}

// replicaOriginOf is where the version of a key's origin stands.
func replicaOriginOf(key string) string { return "origin:" + key }

// figures logs what a fault cost those who called.
func (f *processFleet) figures(
	fault string, loads int, normal time.Duration, answers []replicaAnswer,
) {
	sum := redistest.Figures{Fault: fault, Loads: loads, Normal: normal}
	for _, a := range answers {
		var err error
		if a.Err != "" {
			err = errors.New(a.Err)
		}
		sum.Count(a.Ended.Sub(a.Began), err)
	}
	f.t.Log(sum)
}

// wantPushed checks that everybody was answered soon after the key's first load had ended, where
// the lease lasts much longer: by a message. It returns how soon.
func (f *processFleet) wantPushed(key string, answers []replicaAnswer) time.Duration {
	const slack = 5 * time.Second // promised are 100 ms, to fewer callers and on an idle machine
	ended := f.await("the end of the load", 1, loadEndedOf(key))[0].At
	var latest time.Duration
	for _, a := range answers {
		latest = max(latest, a.Ended.Sub(ended))
	}
	if latest > slack {
		f.Errorf("the last caller was answered %v after the load had ended, want at most %v",
			latest, slack)
	}
	return latest.Round(time.Microsecond)
}
