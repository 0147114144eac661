package coretest_test

import (
	"context"
	"os"
	"os/exec"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/cacheguard/memstore"
)

// If the very first call of a process has a token, it loads once. The test runs itself as this
// process.
func TestFirstCallWithAToken(t *testing.T) {
	const env = "CACHEGUARD_TEST_FIRST"
	if os.Getenv(env) == "" {
		for _, what := range []string{"NoStore", "off", "down"} {
			t.Run(what, func(t *testing.T) {
				cmd := exec.Command(os.Args[0], "-test.run=^TestFirstCallWithAToken$")
				cmd.Env = append(os.Environ(), env+"="+what)
				if out, err := cmd.CombinedOutput(); err != nil {
					t.Errorf("%v:\n%s", err, out)
				}
			})
		}
		return
	}
	store := newTampered()
	defer store.Close()
	opts := cacheguard.Options[string]{}
	if os.Getenv(env) == "off" {
		opts.Switch = switched(t, cacheguard.ModeOff)
	}
	c := openOn(t, cacheguard.Store(store), opts)
	token := committed(t, store, "behave")
	if os.Getenv(env) == "down" {
		for _, step := range []string{"Get", "Lease"} {
			store.onto(step, fails(always))
		}
	}
	loads := 0
	r, err := c.GetEntry(cacheguard.NotOlderThan(t.Context(), token), "k", func(
		context.Context, cacheguard.Result[string],
	) (cacheguard.Entry[string], error) {
		loads++
		return cacheguard.Entry[string]{Value: "v", NoStore: os.Getenv(env) == "NoStore"}, nil
	})
	if r.Value != "v" || err != nil || loads != 1 {
		t.Errorf("%+v, %v after %d loads; want one", r, err, loads)
	}
}

// slowClock is a store whose clock hangs.
type slowClock struct {
	cacheguard.Store
	asked atomic.Int32
	gate  chan struct{}
}

func (s *slowClock) Clock(ctx context.Context, cache string) (int64, error) {
	s.asked.Add(1)
	defer s.asked.Add(-1)
	select {
	case <-s.gate:
	case <-time.After(250 * time.Millisecond): // its operation timeout
	}
	return s.Store.Clock(ctx, cache)
}

// No request for the store's clock outlives Close.
func TestClockAfterClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &slowClock{Store: memstore.New(memstore.Options{}), gate: make(chan struct{})}
		c := openOn(t, cacheguard.Store(store), cacheguard.Options[string]{})
		ctx, cancel := context.WithTimeout(cacheguard.NotOlderThan(t.Context(),
			tokenAt(t, store.Now().Add(100*time.Millisecond))), time.Millisecond)
		defer cancel()
		_, _ = c.Get(ctx, "k", returning("v"))
		must(t, c.Close())
		synctest.Wait()
		if n := store.asked.Load(); n != 0 {
			t.Errorf("after Close %d goroutines ask the store for its clock", n)
		}
	})
}
