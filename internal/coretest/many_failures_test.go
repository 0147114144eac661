package coretest_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/cacheguard/memstore"
)

// failedBatch calls GetMany with a load that fails, and returns the keys.
func failedBatch(t *testing.T, c *cacheguard.Cache[string], n int) (keys []string) {
	t.Helper()
	for i := range n {
		keys = append(keys, fmt.Sprint("k", i))
	}
	call := beginCall(t, func() (map[string]string, error) {
		return c.GetMany(t.Context(), keys, func(
			context.Context, []string,
		) (map[string]string, error) {
			return nil, errOrigin
		})
	})
	if !call.returned() || call.err == nil {
		t.Fatal("it waits, or has no error")
	}
	return keys
}

// If ErrorText ends its goroutine, the leases of a batch don't stay behind.
func TestGoexitInErrorTextOfABatch(t *testing.T) {
	for _, n := range []int{1, 2, 20} {
		inBubble(t, fmt.Sprint(n), func(t *testing.T) {
			store := newTampered()
			c := openOn(t, cacheguard.Store(store),
				cacheguard.Options[string]{ErrorTTL: -1, ErrorText: func(error) string {
					runtime.Goexit()
					return ""
				}})
			keys := failedBatch(t, c, n)
			for _, key := range keys {
				if !leaseFree(t, store, key) {
					t.Errorf("the lease of %s is held", key)
				}
			}
			if next := getting(t.Context(), t, c, keys[0], returning("v")); !next.returned() {
				t.Error("the next caller waits for a lease")
			}
		})
	}
}

// failingBatch is a store with a step for many keys that fails.
type failingBatch struct {
	*tampered
	fails string
}

func (s *failingBatch) LeaseMany(
	ctx context.Context, keys []cacheguard.Key, asks []cacheguard.LeaseAsk,
) []cacheguard.Reply[cacheguard.LeaseAnswer] {
	if s.fails == "LeaseMany" {
		return failedAll[cacheguard.LeaseAnswer](nil, len(keys), errTampered)
	}
	return s.tampered.LeaseMany(ctx, keys, asks)
}

func (s *failingBatch) FillMany(
	ctx context.Context, fills []cacheguard.FillAsk,
) []cacheguard.Reply[cacheguard.FillAnswer] {
	if s.fails == "FillMany" {
		return failedAll[cacheguard.FillAnswer](nil, len(fills), errTampered)
	}
	return s.tampered.Store.FillMany(ctx, fills)
}

// While the store is in trouble, the leases of a large batch are given back few at a time, by one
// goroutine for all of them.
func TestLeasesOfABatchAreGivenBackFewAtATime(t *testing.T) {
	const keys, most, lease = 2000, 50, 10 * time.Second
	for _, step := range []string{"LeaseMany", "FillMany", "Conclude", "Release"} {
		t.Run(step, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := &failingBatch{tampered: newTampered(), fails: step}
				c := openOn(t, cacheguard.Store(store), cacheguard.Options[string]{LeaseTTL: lease})
				var broken atomic.Bool
				var ended, running, together atomic.Int32
				end := func(context.Context) error {
					together.Store(max(together.Load(), running.Add(1)))
					time.Sleep(time.Millisecond)
					running.Add(-1)
					if broken.Load() {
						return errTampered
					}
					ended.Add(1)
					return nil
				}
				broken.Store(step == "Conclude" || step == "Release")
				store.onto("Release", end)
				store.onto("Conclude", end)
				names := make([]string, keys)
				for i := range names {
					names[i] = fmt.Sprint("k", i)
				}
				before := runtime.NumGoroutine()
				ctx, leave := context.WithCancel(t.Context())
				call := beginCall(t, func() (map[string]string, error) {
					return c.GetMany(ctx, names, func(
						ctx context.Context, missing []string,
					) (map[string]string, error) {
						if step == "Release" {
							leave()
							<-ctx.Done()
							return nil, ctx.Err()
						}
						if step == "Conclude" {
							return nil, errOrigin
						}
						all := make(map[string]string)
						for _, k := range missing {
							all[k] = k
						}
						return all, nil
					})
				})
				_, _ = call.later()
				if n := runtime.NumGoroutine() - before; n > most {
					t.Errorf("%d goroutines more than before", n)
				}
				broken.Store(false)
				time.Sleep(lease)
				synctest.Wait()
				if n := together.Load(); n > most {
					t.Errorf("%d requests at the same time", n)
				}
				if n := ended.Load(); n < keys {
					t.Errorf("%d of %d leases were given back", n, keys)
				}
				leave()
			})
		})
	}
}

// A load returns the error of a GetMany for its parts. It says nothing of the load's own keys.
func TestNestedKeyErrors(t *testing.T) {
	for _, wraps := range []bool{false, true} {
		inBubble(t, fmt.Sprint(wraps), func(t *testing.T) {
			store := newTampered()
			c := openOn(t, cacheguard.Store(store), cacheguard.Options[string]{})
			parts := openOn(t, cacheguard.Store(store), cacheguard.Options[string]{Name: "parts"})
			got, err := c.GetMany(t.Context(), []string{"a", "b", "c"}, func(
				ctx context.Context, missing []string,
			) (map[string]string, error) {
				_, err := parts.GetMany(ctx, []string{"x", "y"}, func(
					context.Context, []string,
				) (map[string]string, error) {
					return nil, errOrigin
				})
				if wraps {
					err = fmt.Errorf("the parts: %w", err)
				}
				return map[string]string{"c": "value"}, err
			})
			var failed cacheguard.KeyErrors
			if !errors.As(err, &failed) || !errors.Is(failed["a"], errOrigin) ||
				!errors.Is(failed["b"], errOrigin) || len(failed) != 2 || got["c"] != "value" {
				t.Errorf("%v, %v; want the origin's error for a and b", got, err)
			}
			time.Sleep(10 * time.Second)
			if v, err := c.Get(t.Context(), "a", returning("v")); v != "v" || err != nil {
				t.Errorf("10 s later, when the origin works: %q, %v", v, err)
			}
		})
	}
}

// If a load of several keys returns late, both its events have the error of the first key that
// failed.
func TestLateLoadOfManyReportsItsError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var seen atEnds
		c := openOn(t, cacheguard.Store(newTampered()),
			cacheguard.Options[string]{LoadTimeout: time.Second, Observer: &seen})
		_, _ = c.GetMany(t.Context(), []string{"a", "b"}, func(
			context.Context, []string,
		) (map[string]string, error) {
			<-time.After(2 * time.Second)
			return map[string]string{"a": "v"}, cacheguard.KeyErrors{"b": errOrigin}
		})
		time.Sleep(2 * time.Second) // on the bubble's clock: until the load has returned
		synctest.Wait()
		if len(seen.ends) != 2 {
			t.Fatalf("%d events; want the end of the load, and that it was late", len(seen.ends))
		}
		for _, e := range seen.ends {
			if !errors.Is(e.err, errOrigin) {
				t.Errorf("%v has the error %v; want %v", e.kind, e.err, errOrigin)
			}
		}
	})
}

// A key that is named three times counts once, also if it gets an error from the look-up.
func TestRepeatedKeyFailsOnce(t *testing.T) {
	three := []string{"k", "k", "k"}
	nothing := func(context.Context, []string) (map[string]string, error) { return nil, nil }
	counting := func(
		t *testing.T, store cacheguard.Store,
	) (*cacheguard.Cache[string], func(cacheguard.EventKind) int32) {
		var counts [64]atomic.Int32
		c := openOn(t, store,
			cacheguard.Options[string]{Observer: observing(func(e cacheguard.Event) {
				counts[e.Kind].Add(1)
			})})
		return c, func(kind cacheguard.EventKind) int32 { return counts[kind].Swap(0) }
	}
	inBubble(t, "in the grace of a back-off", func(t *testing.T) {
		c, count := counting(t, memstore.New(memstore.Options{}))
		_, _ = c.GetMany(t.Context(), three[:1], func(
			context.Context, []string,
		) (map[string]string, error) {
			return nil, errOrigin
		})
		time.Sleep(time.Second + 50*time.Millisecond)
		count(cacheguard.EventMiss)
		count(cacheguard.EventCoalesced)
		_, err := c.GetMany(t.Context(), three, nothing)
		if misses, shared := count(cacheguard.EventMiss),
			count(cacheguard.EventCoalesced); misses != 1 || shared != 1 ||
			!errors.Is(err, errOrigin) {
			t.Errorf("%d misses, %d answers of a load, %v", misses, shared, err)
		}
	})
	inBubble(t, "too many reads", func(t *testing.T) {
		store := newTampered()
		c, count := counting(t, store)
		store.onto("GetMany", func(context.Context) error { return cacheguard.ErrOverloaded })
		_, err := c.GetMany(t.Context(), three, nothing)
		if n := count(cacheguard.EventOverloaded); n != 1 ||
			!errors.Is(err, cacheguard.ErrOverloaded) {
			t.Errorf("%d times overloaded, %v", n, err)
		}
	})
}

// Stale values that come instead of leases are refreshed by one load, like those of a look-up.
func TestStaleValuesInsteadOfLeasesAreRefreshedTogether(t *testing.T) {
	inBubble(t, "", func(t *testing.T) {
		store, keys := newTampered(), []string{"a", "b", "c", "d"}
		opts := cacheguard.Options[string]{StaleWhileRevalidate: time.Hour}
		other, c := openOn(t, cacheguard.Store(store), opts),
			openOn(t, cacheguard.Store(store), opts)
		asks := make(chan struct{})
		store.onto("LeaseMany", func(context.Context) error { <-asks; return nil })
		o := newBulk(t)
		many := getMany(t.Context(), t, c, o, keys...)
		many.waits()
		for _, k := range keys {
			must(t, other.Set(t.Context(), k, k))
		}
		must(t, other.MarkStale(t.Context(), keys...))
		store.onto("LeaseMany", nil)
		close(asks)
		if got, err := many.now(); len(got) != len(keys) || err != nil {
			t.Fatal(got, err)
		}
		o.next(keys...).gives("new")
		synctest.Wait()
		o.none()
	})
}

// A load from before a change fails after a load from after the change has failed. The later load's
// error stays.
func TestLateFailureReplacesNoNewerOne(t *testing.T) {
	for _, grace := range []bool{false, true} {
		inBubble(t, fmt.Sprint(grace), func(t *testing.T) {
			c := openOn(t, cacheguard.Store(memstore.New(memstore.Options{})),
				cacheguard.Options[string]{})
			o := newScriptedOrigin[string](t)
			old := getting(t.Context(), t, c, "k", o.load)
			a := o.next()
			must(t, c.Invalidate(t.Context(), "k"))
			young := getting(t.Context(), t, c, "k", o.load)
			b := o.next()
			errNew := errors.New("new")
			b.fails(errNew)
			young.gives("", errNew)
			time.Sleep(100 * time.Millisecond)
			a.fails(errOrigin)
			old.gives("", errOrigin)
			if grace {
				time.Sleep(950 * time.Millisecond)
			}
			if v, err := getting(t.Context(), t, c, "k", returning("v")).later(); !errors.Is(err,
				errNew) {
				t.Errorf("%q, %v", v, err)
			}
			if got, err := c.GetMany(t.Context(), []string{"k"}, func(
				context.Context, []string,
			) (map[string]string, error) {
				return nil, nil
			}); !errors.Is(err, errNew) {
				t.Errorf("GetMany: %q, %v", got, err)
			}
		})
	}
}

// The error of a load is several errors, or has other keys, too. A key of which it says nothing has
// failed.
func TestSeveralErrorsWithKeyErrors(t *testing.T) {
	down := errors.New("second half: database is down")
	for name, err := range map[string]error{
		"join other": errors.Join(cacheguard.KeyErrors{"a": errOrigin}, down),
		"join KeyErrors": errors.Join(cacheguard.KeyErrors{"a": errOrigin},
			cacheguard.KeyErrors{"b": down}),
		"join nested": errors.Join(cacheguard.KeyErrors{"a": errOrigin},
			cacheguard.KeyErrors{"other": down}),
		"not found and nested": cacheguard.KeyErrors{"a": cacheguard.ErrNotFound, "other": down},
	} {
		inBubble(t, name, func(t *testing.T) {
			c := openOn(t, cacheguard.Store(memstore.New(memstore.Options{})),
				cacheguard.Options[string]{TTL: time.Hour})
			_, got := c.GetMany(t.Context(), []string{"a", "b"}, func(
				context.Context, []string,
			) (map[string]string, error) {
				return nil, err
			})
			var some cacheguard.KeyErrors
			errors.As(got, &some)
			if some["b"] == nil {
				t.Errorf("the load failed with %v, and GetMany with %v", err, got)
			}
		})
	}
}

// goexits is an Observer that ends the goroutine at an event.
type goexits struct{ kind cacheguard.EventKind }

func (g goexits) Observe(_ context.Context, e cacheguard.Event) {
	if e.Kind == g.kind {
		runtime.Goexit()
	}
}

// An Observer that ends the goroutine on which a lease should be given back doesn't keep the lease.
func TestObserverGoexitWhileLeasesEnd(t *testing.T) {
	for _, n := range []int{1, 2, 20} {
		inBubble(t, fmt.Sprint(n), func(t *testing.T) {
			store := newTampered()
			c := openOn(t, cacheguard.Store(store), cacheguard.Options[string]{
				ErrorTTL: -1, Observer: goexits{cacheguard.EventStoreError},
			})
			store.onto("Conclude", fails(n))
			keys := failedBatch(t, c, n)
			time.Sleep(500 * time.Millisecond)
			for _, key := range keys {
				if !leaseFree(t, store, key) {
					t.Errorf("the lease of %s is held 500 ms after the store works again", key)
				}
			}
		})
	}
}

// While the store hangs, Close doesn't wait for the leases of a large batch one after another.
func TestCloseDoesntWaitForThousandsOfLeases(t *testing.T) {
	for _, n := range []int{1, 2000} {
		synctest.Test(t, func(t *testing.T) {
			const took, lease = time.Second, 3 * time.Second
			store := &failingBatch{tampered: newTampered(), fails: "FillMany"}
			c := openOn(t, cacheguard.Store(store), cacheguard.Options[string]{LeaseTTL: lease})
			hang := func(context.Context) error { time.Sleep(took); return errTampered }
			store.onto("Release", hang)
			store.onto("Conclude", hang)
			store.onto("Fill", func(context.Context) error { return errTampered })
			keys := make([]string, n)
			for i := range keys {
				keys[i] = fmt.Sprint("k", i)
			}
			_, _ = c.GetMany(t.Context(), keys, func(
				_ context.Context, missing []string,
			) (map[string]string, error) {
				all := make(map[string]string)
				for _, k := range missing {
					all[k] = k
				}
				return all, nil
			})
			began := time.Now()
			c.Close()
			if d := time.Since(began); d > lease+took {
				t.Errorf("%d keys: Close took %v, with steps of %v", n, d, took)
			}
		})
	}
}
