package systemtest_test

import (
	"sync"
	"testing"
	"time"
)

const (
	// replicaPatience is for what has to happen.
	replicaPatience = time.Minute

	// standstill is for how long a goroutine that wants to run isn't let before the machine counts
	// as standing still.
	standstill = 100 * time.Millisecond
)

// watchMachine tells how long each standstill of this process was, until stop is called.
func watchMachine(tell func(time.Duration)) (stop func()) {
	const beat = 10 * time.Millisecond
	end, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(beat)
		defer tick.Stop()
		for last := time.Now(); ; {
			select {
			case <-tick.C:
			case <-end:
				return
			}
			now := time.Now()
			if late := now.Sub(last) - beat; late > standstill {
				tell(late)
			}
			last = now
		}
	}()
	return func() {
		close(end)
		<-ended
	}
}

// steadily makes a trial, which returns its failure. A trial that depends on time can fail because
// the machine doesn't let the test run. In that case steadily repeats the trial, but only a limited
// number of times.
func steadily(t *testing.T, trial func(t *testing.T) (wrong []string)) {
	t.Helper()
	for began := time.Now(); ; {
		var mu sync.Mutex // guards still
		var still time.Duration
		stop := watchMachine(func(d time.Duration) {
			mu.Lock()
			defer mu.Unlock()
			still = max(still, d)
		})
		wrong := trial(t)
		stop()
		if len(wrong) == 0 {
			return
		}
		if still == 0 || time.Since(began) > replicaPatience {
			for _, w := range wrong[:min(len(wrong), 10)] {
				t.Error(w)
			}
			t.Fatalf("%d things went wrong; the longest standstill of the machine was %v",
				len(wrong), still)
		}
		t.Logf("once more, because the machine stood still for %v: %s", still, wrong[0])
	}
}
