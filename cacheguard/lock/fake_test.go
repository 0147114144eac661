package lock_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"

	"go.uber.org/goleak"

	"github.com/cacheguard/cacheguard/cacheguard/lock"
	"github.com/cacheguard/cacheguard/internal/tenure"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var errSystem = errors.New("the system is in trouble")

// fake is a locker that grants every lock, and counts the releases.
type fake struct {
	keeper   *tenure.Keeper
	fails    error        // of Lock
	released atomic.Int64 // locks
	release  func() error // gives the result of Unlock, if not nil
}

func newFake() *fake { return &fake{keeper: tenure.NewKeeper()} }

func (f *fake) Lock(ctx context.Context, name string) (lock.Lock, error) {
	if f.fails != nil {
		return nil, f.fails
	}
	if again, err := f.keeper.Again(ctx, name); again != nil || err != nil {
		return again, err
	}
	return f.keeper.Begin(tenure.Terms{Name: name, Token: 1, Release: func(context.Context) error {
		f.released.Add(1)
		if f.release != nil {
			return f.release()
		}
		return nil
	}}), nil
}

func (f *fake) TryLock(ctx context.Context, name string) (lock.Lock, error) {
	return f.Lock(ctx, name)
}

// lose makes a lock lost.
func lose(held lock.Lock) { held.(*tenure.Hold).Lose() }

// foreign is a lock of another package that has no Carry.
type foreign struct{ lock.Lock }

func mustLock(t *testing.T, l lock.Locker) lock.Lock {
	t.Helper()
	held, err := l.Lock(t.Context(), "n")
	if err != nil {
		t.Fatal(err)
	}
	return held
}

func wantErr(t *testing.T, what string, got, want error) {
	t.Helper()
	if !errors.Is(got, want) || want == nil && got != nil {
		t.Errorf("%s: %v; want %v", what, got, want)
	}
}
