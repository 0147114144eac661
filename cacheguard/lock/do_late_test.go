package lock_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cacheguard/cacheguard/cacheguard/lock"
	"github.com/cacheguard/cacheguard/internal/tenure"
)

// slow is a locker whose Unlock takes a second and then returns a given error.
type slow struct {
	keeper *tenure.Keeper
	answer error
}

func (s slow) Lock(_ context.Context, name string) (lock.Lock, error) {
	return s.keeper.Begin(tenure.Terms{Name: name, Release: func(context.Context) error {
		time.Sleep(time.Second)
		return s.answer
	}}), nil
}

func (s slow) TryLock(ctx context.Context, name string) (lock.Lock, error) {
	return s.Lock(ctx, name)
}

// Do waits for the result of Unlock even if its context has ended, because Do returns the errors of
// the work and of the lock.
func TestDoAfterItsContext(t *testing.T) {
	for _, want := range []error{nil, lock.ErrLost} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			err := lock.Do(ctx, slow{tenure.NewKeeper(), want}, "n", func(
				context.Context, lock.Lock,
			) error {
				cancel()
				return nil
			})
			if !errors.Is(err, want) || want == nil && err != nil {
				t.Errorf("work was done, the lock's answer is %v, and Do returned %v", want, err)
			}
			time.Sleep(time.Minute) // time for everything that Do has left behind to end
		})
	}
}
