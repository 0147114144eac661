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

// Answer is what one caller of a stampede got.
type Answer[V any] struct {
	Replica int // which it asked
	Result  cacheguard.Result[V]
	Err     error
	Took    time.Duration
}

// Answers are those of all callers, replica by replica.
type Answers[V any] []Answer[V]

// Err is nil if every caller got a value, else what went wrong: how many callers failed, and the
// first one's error, which it wraps.
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
	return fmt.Errorf("guardtest: %d of %d callers failed, the first with: %w", failed, len(a), first)
}

// Count is how many callers got a value with this status. Callers that got an error have none.
func (a Answers[V]) Count(status cacheguard.Status) int {
	n := 0
	for _, answer := range a {
		if answer.Err == nil && answer.Result.Status == status {
			n++
		}
	}
	return n
}

// errImpatient is the cause of a stampede's context when its callers took too long.
var errImpatient = errors.New("guardtest: stampede took too long")

// Stampede has so many callers on each replica ask for a key at the same moment, and returns what
// they got. Whether they meet one load depends on how long that takes: give it time with
// Fault.Takes, which in a synctest bubble makes it certain, for there no time passes as long as a
// caller is on its way.
//
// ctx is the context of every caller. If it has no deadline they have a minute, and the test fails
// with tb.Fatalf if that is not enough. It belongs on the test's goroutine.
func (f *Fleet[V]) Stampede(ctx context.Context, key string, callersPerReplica int, load cacheguard.LoadFunc[V]) Answers[V] {
	f.tb.Helper()
	if callersPerReplica < 1 {
		f.tb.Fatalf("guardtest: Stampede: %d callers on each replica; at least 1 is needed", callersPerReplica)
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
		f.tb.Fatalf("guardtest: Stampede: %d of %d callers had no answer for %q within %v", late, len(answers), key, patience)
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

// Together calls call(0) to call(n-1) on goroutines of their own, all at the same moment, and
// returns when they have returned: n requests to a handler, for instance. If they don't within a
// minute it fails the test with tb.Fatalf, so it belongs on the test's goroutine. call must not use
// tb.Fatalf or tb.FailNow.
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

// grace is what calls have to notice that their context has ended.
const grace = 5 * time.Second

// together waits until ctx has ended and not much longer.
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
		tb.Fatalf("guardtest: %d of %d calls have not returned after %v", int64(n)-returned.Load(), n, time.Since(began).Round(time.Millisecond))
	}
}
