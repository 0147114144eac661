package guardtest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cacheguard/cacheguard/cacheguard"
)

// Answer is the result of one caller of a stampede.
type Answer[V any] struct {
	Replica int // the replica that the caller used
	Result  cacheguard.Result[V]
	Err     error
	Took    time.Duration
}

// Answers are the results of all callers, sorted by replica.
type Answers[V any] []Answer[V]

// Err returns nil if every caller got a value. Otherwise it returns an error with the number of
// callers that failed. The error wraps the error of the first of these callers.
func (a Answers[V]) Err() error {
	var first error
	failed := 0
	for _, answer := range a {
		if answer.Err != nil {
			failed++
			if first == nil {
				first = answer.Err
			}
		}
	}
	if first == nil {
		return nil
	}
	return fmt.Errorf("guardtest: %d of %d callers failed, the first with: %w", failed, len(a),
		first)
}

// Count returns how many callers got a value with this status. Callers that got an error have no
// status.
func (a Answers[V]) Count(status cacheguard.Status) int {
	n := 0
	for _, answer := range a {
		if answer.Err == nil && answer.Result.Status == status {
			n++
		}
	}
	return n
}

// errImpatient is the cause of a context whose deadline Stampede has set, because the caller's
// context had none.
var errImpatient = errors.New("guardtest: stampede took too long")

// Stampede starts callersPerReplica callers on each replica. All of them ask for the key at the
// same moment. Stampede returns their results. Whether all callers share one load depends on how
// long the load takes. To make the load take time, use [Fault.Takes]. If the load takes time in a
// synctest bubble, the callers certainly share it, because no time passes while a caller still
// runs.
//
// ctx is the context of every caller. If ctx has no deadline, the callers have a minute. If they
// don't return within the minute, the test fails with tb.Fatalf. Call Stampede only on the test's
// goroutine.
func (f *Fleet[V]) Stampede(
	ctx context.Context, key string, callersPerReplica int, load cacheguard.LoadFunc[V],
) Answers[V] {
	f.tb.Helper()
	if callersPerReplica < 1 {
		f.tb.Fatalf("guardtest: Stampede: %d callers on each replica; at least 1 is needed",
			callersPerReplica)
	}
	if load == nil {
		f.tb.Fatalf("guardtest: Stampede: the load is nil")
	}
	if _, bounded := ctx.Deadline(); !bounded {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, patience, errImpatient)
		defer cancel()
	}
	answers := make(Answers[V], len(f.replicas)*callersPerReplica)
	began := time.Now()
	together(ctx, f.tb, len(answers), func(i int) {
		a := &answers[i]
		a.Replica = i / callersPerReplica
		a.Result, a.Err = f.replicas[a.Replica].GetResult(ctx, key, load)
		a.Took = time.Since(began)
	})
	if late := answers.tooLate(); late > 0 && context.Cause(ctx) == errImpatient {
		f.tb.Fatalf("guardtest: Stampede: %d of %d callers had no answer for %q within %v", late,
			len(answers), key, patience)
	}
	return answers
}

func (a Answers[V]) tooLate() (n int) {
	for _, answer := range a {
		if errors.Is(answer.Err, context.DeadlineExceeded) {
			n++
		}
	}
	return n
}

// Together calls call(0) to call(n-1) at the same moment, each on its own goroutine, and returns
// when all of them have returned. Use it for n requests to a handler, for example. If the calls
// don't return within a minute, Together fails the test with tb.Fatalf, so use it only on the
// test's goroutine. call must not use tb.Fatalf or tb.FailNow.
func Together(tb testing.TB, n int, call func(i int)) {
	tb.Helper()
	if n < 1 {
		tb.Fatalf("guardtest: Together: %d calls; at least 1 is needed", n)
	}
	if call == nil {
		tb.Fatalf("guardtest: Together: the call is nil")
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	together(ctx, tb, n, call)
}

// grace is how long calls have to return after their context has ended.
const grace = 5 * time.Second

// together does the work of Together. After the end of ctx, it waits only for the time grace.
func together(ctx context.Context, tb testing.TB, n int, call func(i int)) {
	tb.Helper()
	start, done := make(chan struct{}), make(chan struct{})
	var ready, calls sync.WaitGroup
	var returned atomic.Int64
	ready.Add(n)
	for i := range n {
		calls.Go(func() {
			defer returned.Add(1)
			ready.Done()
			<-start
			call(i)
		})
	}
	ready.Wait()
	began := time.Now()
	close(start)
	go func() {
		defer close(done)
		calls.Wait()
	}()
	select {
	case <-done:
		return
	case <-ctx.Done():
	}
	late := time.NewTimer(grace)
	defer late.Stop()
	select {
	case <-done:
	case <-late.C:
		tb.Fatalf("guardtest: %d of %d calls have not returned after %v", int64(n)-returned.Load(),
			n, time.Since(began).Round(time.Millisecond))
	}
}
