//go:build unix

package systemtest_test

import (
	"slices"
	"testing"
	"time"
)

// A load that fails is not repeated by those who wait, although nothing keeps anybody else from
// loading: all get its error at once, the error itself where it happened and its text elsewhere.
func TestProcessesShareTheErrorOfALoad(t *testing.T) {
	const (
		key     = "failing"
		callers = 50
	)
	withProcesses(t, 8, replicaConfig{ErrorTTL: -1, LeaseTTL: 20 * time.Second}, func(
		f *processFleet,
	) {
		// The load goes on for a while after the gate has opened. A caller that takes its seat only
		// after the load would load again, because the error isn't kept.
		orders := f.get(key, callers, replicaLoad{Gate: key, Took: time.Second, Fail: true})
		load := f.load(key, 1)
		f.gathered(key, orders...)
		f.replicas[load.Replica].open(key)

		failed := f.await("the failure", 1, loadEndedOf(key))[0]
		for _, rep := range f.await("answers", len(orders), func(r replicaReport) bool {
			return r.Kind == reportAnswered
		}) {
			if len(rep.Answers) != callers {
				f.Errorf("%d answers from replica %d, want %d", len(rep.Answers), rep.Replica,
					callers)
			}
			for _, a := range rep.Answers {
				local := rep.Replica == load.Replica
				switch {
				case local && (a.Err != failed.Err || !slices.Equal(a.Is, []string{"origin"})),
					!local && (a.Text != failed.Err || len(a.Is) > 0):
					f.Fatalf("a caller of replica %d got %+v, the load in replica %d failed with %q",
						rep.Replica, a, load.Replica, failed.Err)
				}
			}
		}
		woken := f.wantPushed(key, f.answers(orders...))
		f.wantLoads(key, 1)
		f.figures("load fails (normal: all have the error)", 1, woken, f.answers(orders...))
		t.Logf("the last of %d callers got its error %v after the load had failed",
			len(orders)*callers, woken)

		again := f.replicas[0].get(key, 1, replicaLoad{})
		f.wantValue(f.answers(again), 1, f.load(key, 2).Value)
	})
}

// "Does not exist" is loaded once, answers everybody for NegativeTTL, and then is loaded once more.
func TestProcessesRememberWhatDoesNotExist(t *testing.T) {
	const (
		key         = "nowhere"
		callers     = 50
		negativeTTL = 2 * time.Second
	)
	withProcesses(t, 8, replicaConfig{NegativeTTL: negativeTTL, LeaseTTL: 20 * time.Second}, func(
		f *processFleet,
	) {
		orders := f.get(key, callers,
			replicaLoad{Gate: key, Took: 50 * time.Millisecond, NotFound: true})
		load := f.load(key, 1)
		f.gathered(key, orders...)
		f.replicas[load.Replica].open(key)
		f.wantNotFound(f.answers(orders...), len(orders)*callers)
		f.wantLoads(key, 1)
		first := f.await("the end of the load", 1, loadEndedOf(key))[0]

		rounds := 0
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for timeout := time.After(replicaPatience); len(f.loads(key)) == 1; rounds++ {
			f.wantNotFound(f.answers(f.get(key, 2, replicaLoad{NotFound: true})...),
				len(f.replicas)*2)
			f.settle()
			select {
			case <-tick.C:
			case <-timeout:
				f.Fatalf("%v after the load of what does not exist there is no other one",
					replicaPatience)
			}
		}
		f.wantLoads(key, 2)
		remembered := f.loads(key)[1].At.Sub(first.At)
		if least := negativeTTL - negativeTTL/8; remembered < least {
			f.Errorf("the second load began %v after the first, want at least %v", remembered,
				least)
		}
		t.Logf("%d processes asked %d times; the second load began %v after the first",
			len(f.replicas), rounds, remembered.Round(time.Microsecond))
	})
}

func (f *processFleet) wantNotFound(answers []replicaAnswer, n int) {
	if len(answers) != n {
		f.Errorf("%d answers, want %d", len(answers), n)
	}
	for _, a := range answers {
		if !slices.Equal(a.Is, []string{"not found"}) || a.Value != (replicaValue{}) {
			f.Fatalf("an answer is %+v, want ErrNotFound and no value", a)
		}
	}
}
