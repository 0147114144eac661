package lock_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/cacheguard/cacheguard/cacheguard/lock"
)

func TestContextEndsWithItsLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for what, of := range map[string]func(lock.Lock) lock.Lock{
			"a lock of ours":   func(held lock.Lock) lock.Lock { return held },
			"a lock of others": func(held lock.Lock) lock.Lock { return foreign{held} },
		} {
			held := mustLock(t, newFake())
			under, cancel := lock.Context(t.Context(), of(held))
			defer cancel()
			synctest.Wait()
			wantErr(t, what+": the context's error", under.Err(), nil)
			lose(held)
			<-under.Done()
			wantErr(t, what+": the cause", context.Cause(under), lock.ErrLost)
			wantErr(t, what+": the context's error", under.Err(), context.Canceled)
		}
	})
}

func TestContextOfALostLock(t *testing.T) {
	held := mustLock(t, newFake())
	lose(held)
	under, cancel := lock.Context(t.Context(), held)
	defer cancel()
	if under.Err() == nil {
		t.Error("it has not ended when it begins")
	}
	wantErr(t, "the cause", context.Cause(under), lock.ErrLost)
}

// TestContextOutlivesUnlock: a Context doesn't end with Unlock. The caller ends it.
func TestContextOutlivesUnlock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		held := mustLock(t, newFake())
		under, cancel := lock.Context(t.Context(), held)
		wantErr(t, "Unlock", held.Unlock(t.Context()), nil)
		synctest.Wait()
		wantErr(t, "the context's error after Unlock", under.Err(), nil)
		cancel()
		wantErr(t, "the cause after cancel", context.Cause(under), context.Canceled)
	})
}

func TestContextHasAParent(t *testing.T) {
	mine := errors.New("mine")
	parent, end := context.WithCancelCause(context.WithValue(t.Context(), mine, "value"))
	held := mustLock(t, newFake())
	under, cancel := lock.Context(parent, held)
	defer cancel()
	if under.Value(mine) != "value" {
		t.Error("it doesn't have the values of its parent")
	}
	end(mine)
	<-under.Done()
	wantErr(t, "the cause", context.Cause(under), mine)
	wantErr(t, "Err of the lock", held.Err(), nil)
}

func TestContextCarriesItsLock(t *testing.T) {
	f := newFake()
	held := mustLock(t, f)
	under, cancel := lock.Context(t.Context(), held)
	defer cancel()
	again, err := f.Lock(under, "n")
	wantErr(t, "Lock with the context", err, nil)
	wantErr(t, "Unlock of the first hold", held.Unlock(t.Context()), nil)
	if f.released.Load() != 0 {
		t.Error("released while it is held")
	}
	wantErr(t, "Unlock of the second hold", again.Unlock(t.Context()), nil)
	if f.released.Load() != 1 {
		t.Error("not released")
	}
}
