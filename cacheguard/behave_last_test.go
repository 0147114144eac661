package cacheguard_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/cacheguard/memstore"
)

// A constructor's error that was ignored leaves a nil in the interface.
func TestStoreOfNothing(t *testing.T) {
	var none *memstore.Store
	if _, err := cacheguard.New(none, cacheguard.Options[string]{Name: "c"}); err == nil || !strings.Contains(err.Error(), "store is nil") {
		t.Errorf("got %v", err)
	}
}

// With a single caller allowed, recursion is still called by its name.
func TestRecursionWithOneWaiter(t *testing.T) {
	store := memstore.New(memstore.Options{})
	defer store.Close()
	c, err := cacheguard.New(store, cacheguard.Options[string]{Name: "c", MaxWaiters: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_, err = c.Get(t.Context(), "k", func(ctx context.Context) (string, error) {
		return c.Get(ctx, "k", func(context.Context) (string, error) { return "v", nil })
	})
	if !errors.Is(err, cacheguard.ErrRecursion) {
		t.Errorf("got %v", err)
	}
}

// deadConclude fails the first tries to end a lease.
type deadConclude struct {
	cacheguard.Store
	left atomic.Int32
}

func (s *deadConclude) Conclude(ctx context.Context, k cacheguard.Key, g cacheguard.Grant, o cacheguard.Outcome, keep, backoff time.Duration) error {
	if s.left.Add(-1) >= 0 {
		return errors.New("no answer")
	}
	return s.Store.Conclude(ctx, k, g, o, keep, backoff)
}

// P6: Close in a pause between two tries to end a lease tries once more.
func TestCloseEndsALeaseThatIsBeingEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, cacheguard.Options[string]{LeaseTTL: time.Minute, ErrorTTL: -1})
		store := &deadConclude{Store: f.store}
		store.left.Store(4)
		closing := f.processOn(store)
		_, err := closing.Get(t.Context(), "k", func(context.Context) (string, error) { return "", errors.New("no database") })
		if err == nil {
			t.Fatal("the load did not fail")
		}
		synctest.Wait()
		time.Sleep(25 * time.Millisecond) // two tries have failed, and the third one; it pauses
		synctest.Wait()
		store.left.Store(0)
		if err := closing.Close(); err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		if v, err := f.process().Get(t.Context(), "k", (&origin{value: "v"}).load); v != "v" || err != nil || time.Since(start) > time.Second {
			t.Errorf("got %q, %v after %v", v, err, time.Since(start))
		}
	})
}
