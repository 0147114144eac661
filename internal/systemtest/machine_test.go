package systemtest_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/cacheguard/cacheguard/internal/redistest"
)

const (
	// replicaPatience is for what has to happen.
	replicaPatience = time.Minute

	// standstill is for how long a goroutine that wants to run isn't let before the machine counts
	// as standing still.
	standstill = 100 * time.Millisecond

	// leastTries is how many trials there are at least before the machine counts as too busy. One
	// trial alone can take longer than replicaPatience.
	leastTries = 3

	beat = 10 * time.Millisecond // of those who watch for standstills
)

// watchMachine tells how long each standstill of this process was, until stop is called.
func watchMachine(tell func(time.Duration)) (stop func()) {
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

// watchRedis tells how long each standstill of a Redis was, until stop is called.
func watchRedis(addr string, tell func(time.Duration)) (stop func()) {
	rdb := redis.NewClient(&redis.Options{Addr: addr})
	end, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(beat)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
			case <-end:
				return
			}
			began := time.Now()
			_ = rdb.Ping(context.Background()).Err() // however it ends, its time is what counts
			if took := time.Since(began); took > standstill {
				tell(took)
			}
		}
	}()
	return func() {
		close(end)
		<-ended
		_ = rdb.Close()
	}
}

// steadily makes a trial, which returns its failure. A trial that depends on time can fail because
// the machine doesn't let the test or the shared Redis run. In that case steadily repeats the
// trial, but not for ever.
func steadily(t *testing.T, trial func(t *testing.T) (wrong []string)) {
	t.Helper()
	for began, tries := time.Now(), 1; ; tries++ {
		var mu sync.Mutex // guards still
		var still time.Duration
		tell := func(d time.Duration) {
			mu.Lock()
			defer mu.Unlock()
			still = max(still, d)
		}
		stop, leave := watchMachine(tell), watchRedis(redistest.Shared(t).Addr(), tell)
		wrong := trial(t)
		stop()
		leave()
		if len(wrong) == 0 {
			return
		}
		if still == 0 || tries >= leastTries && time.Since(began) > replicaPatience {
			for _, w := range wrong[:min(len(wrong), 10)] {
				t.Error(w)
			}
			t.Fatalf("%d things went wrong; the longest standstill of the machine was %v",
				len(wrong), still)
		}
		t.Logf("once more, because the machine stood still for %v: %s", still, wrong[0])
	}
}
