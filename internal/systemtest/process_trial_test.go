//go:build unix

package systemtest_test

import (
	"fmt"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/cacheguard/cacheguard/internal/redistest"
)

// withProcesses runs a test in a fleet of n replicas. A lease is a matter of time: it does end when
// the machine doesn't let its leader run. So a trial that fails is repeated if the machine stood
// still meanwhile, though not for ever. run reports failures to the fleet and never to t.
func withProcesses(t *testing.T, n int, config replicaConfig, run func(f *processFleet)) {
	t.Helper()
	for began, tries := time.Now(), 1; ; tries++ {
		config.Redis = redistest.Shared(t).Addr()
		f := &processFleet{
			t: t, rdb: redis.NewClient(&redis.Options{Addr: config.Redis}),
			more: make(chan struct{}),
		}
		f.try(n, config, run)
		still := f.longestStandstill()
		switch {
		case len(f.failures) == 0:
			return
		case still == 0, f.crashed, tries >= leastTries && time.Since(began) > replicaPatience:
			f.tell()
			t.Fatal(strings.Join(f.failures, "\n"))
		}
		t.Logf("once more, because the machine stood still for %v: %s", still, f.failures[0])
	}
}

// try is one trial from start to end, on a goroutine of its own that Fatalf can end.
func (f *processFleet) try(n int, config replicaConfig, run func(f *processFleet)) {
	over := make(chan struct{})
	go func() {
		defer close(over)
		defer f.rdb.Close()
		defer watchMachine(func(still time.Duration) {
			f.add(replicaReport{Kind: reportStoodStill, At: time.Now(), Replica: -1, Took: still})
		})()
		defer f.end()
		f.start(n, config)
		run(f)
	}()
	<-over
}

// Errorf has the trial fail.
func (f *processFleet) Errorf(format string, args ...any) {
	f.failures = append(f.failures, callerLines()+": "+fmt.Sprintf(format, args...))
}

// Fatalf has the trial fail and ends it.
func (f *processFleet) Fatalf(format string, args ...any) {
	f.failures = append(f.failures, callerLines()+": "+fmt.Sprintf(format, args...))
	runtime.Goexit()
}

func (f *processFleet) failed() bool { return len(f.failures) > 0 }

// callerLines is the place that reports a failure and those it was called from.
func callerLines() string {
	var pcs [16]uintptr
	frames := runtime.CallersFrames(pcs[:runtime.Callers(3, pcs[:])])
	var lines []string
	for more := true; more; {
		var frame runtime.Frame
		frame, more = frames.Next()
		if name := filepath.Base(frame.File); strings.HasPrefix(name, "process_") &&
			name != "process_trial_test.go" {
			lines = append(lines, fmt.Sprintf("%s:%d", name, frame.Line))
		}
	}
	return strings.Join(lines, " < ")
}

// longestStandstill is for how long this process, a replica that was meant to run, or Redis had to
// wait for its turn.
func (f *processFleet) longestStandstill() (longest time.Duration) {
	for _, r := range f.all(func(r replicaReport) bool {
		meant := r.Replica < 0 || f.replicas[r.Replica].stopped.IsZero() ||
			r.At.Before(f.replicas[r.Replica].stopped)
		return meant &&
			(r.Kind == reportStoodStill || r.Kind == reportTripped && r.Took > standstill)
	}) {
		longest = max(longest, r.Took)
	}
	return longest
}
