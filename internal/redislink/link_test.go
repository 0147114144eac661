package redislink

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
)

// A step of a caller who waits for as long as it takes ends after half of the timeout, or up to a
// sixteenth sooner, whatever steps began before it.
func TestStepsEndInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const half = 160 * time.Millisecond
		l := &Link{timeout: 2 * half}
		// The step before.
		for _, since := range []time.Duration{0, 0, 3, 6, 2, half, half / 16, 1, 10 * half} {
			time.Sleep(since)
			began := time.Now()
			ctx, cancel := l.limited(context.WithValue(context.Background(), name{}, since))
			if ctx.Value(name{}) != since {
				t.Errorf("the caller's value is %v; want %v", ctx.Value(name{}), since)
			}
			go func() {
				defer cancel()
				within, over := context.WithCancel(ctx) // as a dial has it
				defer over()
				<-within.Done()
				if took := time.Since(began); took > half || took < half-half/16 ||
					ctx.Err() != context.DeadlineExceeded {
					t.Errorf("a step ended after %v with %v", took, ctx.Err())
				}
			}()
		}
		synctest.Wait()
		time.Sleep(half)
	})
}

// A panic of a hook is the error of its step.
func TestPanicOfAHook(t *testing.T) {
	l := &Link{timeout: time.Hour, direct: redis.NewClient(&redis.Options{})}
	defer func() { _ = l.direct.Close() }()
	v, err := Once(t.Context(), l, func(context.Context, redis.UniversalClient) (int, error) {
		panic("boom")
	})
	if v != 0 || err == nil || !strings.Contains(err.Error(), "a hook of the client panicked: boom") {
		t.Errorf("%d, %v", v, err)
	}
}

// A step ends with its caller's context.
func TestStepsEndWithTheirCaller(t *testing.T) {
	l := &Link{timeout: time.Hour}
	caller, end := context.WithCancel(t.Context())
	ctx, cancel := l.limited(caller)
	defer cancel()
	end()
	<-ctx.Done()
}

type name struct{}
