package tenure

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// begun is a hold of a lock that lasts for lease, of which late has passed when its answer comes.
func begun(t *testing.T, lease, late time.Duration, change func(*Terms)) (*Keeper, *Hold) {
	t.Helper()
	k := NewKeeper()
	t.Cleanup(k.Close)
	_, leave, err := k.Enter(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer leave()
	terms := Terms{
		Name: "n", Until: time.Now().Add(lease - late), Every: lease / 3,
		Renew: func(context.Context) (time.Time, bool, error) {
			return time.Now().Add(lease), true, nil
		},
		Release: func(context.Context) error { return nil },
	}
	if change != nil {
		change(&terms)
	}
	return k, k.Begin(terms)
}

// A lock whose answers are late is renewed before it ends.
func TestRenewedBeforeItEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const lease, late = 3 * time.Second, 2500 * time.Millisecond
		_, held := begun(t, lease, late, func(terms *Terms) {
			terms.Renew = func(context.Context) (time.Time, bool, error) {
				until := time.Now().Add(lease)
				time.Sleep(lease / 30)
				return until, true, nil
			}
		})
		time.Sleep(10 * lease)
		if err := held.Err(); err != nil {
			t.Errorf("with time left to renew it: %v", err)
		}
		if err := held.Unlock(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// Unlock doesn't keep to itself that the lock was lost, also when its context has ended.
func TestUnlockSaysLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		answer := make(chan struct{})
		defer close(answer)
		_, held := begun(t, time.Second, 0, func(terms *Terms) {
			terms.Release = func(context.Context) error { <-answer; return nil }
		})
		held.Lose()
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		if err := held.Unlock(ended); !errors.Is(err, ErrLost) {
			t.Errorf("Unlock says %v of a lock that was lost", err)
		}
	})
}

// After its last Unlock a context carries nothing, also if the lock had been lost.
func TestCarriesNothingAfterUnlock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, lost := range []bool{false, true} {
			k, held := begun(t, time.Second, 0, nil)
			ctx := held.Carry(t.Context())
			again, err := k.Again(ctx, "n")
			if again == nil || err != nil {
				t.Fatalf("it carries %v, %v", again, err)
			}
			if lost {
				held.Lose()
				if _, err := k.Again(ctx, "n"); !errors.Is(err, ErrLost) {
					t.Errorf("of a lock that is lost and not unlocked: %v", err)
				}
			}
			_ = held.Unlock(t.Context())
			_ = again.Unlock(t.Context())
			if again, err := k.Again(ctx, "n"); again != nil || err != nil {
				t.Errorf("lost %v, and unlocked: it carries %v, %v", lost, again, err)
			}
		}
	})
}

// A context that can't be one doesn't keep Close waiting.
func TestNilContext(t *testing.T) {
	k := NewKeeper()
	func() {
		defer func() { _ = recover() }()
		var none context.Context
		_, _, _ = k.Enter(none)
		t.Error("it was entered")
	}()
	k.mu.Lock()
	busy := k.busy
	k.mu.Unlock()
	if busy != 0 {
		t.Fatalf("Close would wait for %d", busy)
	}
	k.Close()
}
