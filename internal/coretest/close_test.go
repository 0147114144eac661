package coretest_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/cacheguard/memstore"
	"github.com/cacheguard/cacheguard/internal/logtest"
)

// TestClose tests that Close ends all work of a cache: loads, callers that wait for them, and
// callers that wait for a slot or for a load in another process. Their keys are free at once, and
// other processes don't notice the Close.
func TestClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New(memstore.Options{})
		opts := cacheguard.Options[string]{MaxLoads: 1}
		closing, other := openOn(t, store, opts), openOn(t, store, opts)
		o, elsewhere := newScriptedOrigin[string](t), newScriptedOrigin[string](t)
		held := getting(t.Context(), t, other, "held", elsewhere.load)
		heldLoad := elsewhere.next()

		calls := map[string]*begun[string]{}
		calls["follower"] = getting(t.Context(), t, closing, "held", o.load)
		calls["follower"].waits()
		calls["leader"] = getting(t.Context(), t, closing, "k", o.load)
		load := o.next()
		calls["joiner"] = getting(t.Context(), t, closing, "k", o.load)
		calls["queued"] = getting(t.Context(), t, closing, "queued", o.load)
		calls["writer"] = beginCall(t, func() (string, error) {
			return closing.Update(t.Context(), "written", o.load)
		})
		write := o.next()
		calls["joiner"].waits()
		o.idle()

		began := time.Now()
		if err := closing.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
		if took := time.Since(began); took > 0 {
			t.Errorf("Close took %v", took)
		}
		for name, call := range calls {
			if _, err := call.now(); !errors.Is(err, cacheguard.ErrClosed) {
				t.Errorf("the %s got %v; want %v", name, err, cacheguard.ErrClosed)
			}
		}
		if cause := context.Cause(load.ctx); cause != cacheguard.ErrClosed {
			t.Errorf("the cause of the load's context is %v", cause)
		}
		if !write.cancelled() {
			t.Error("the write was not cancelled")
		}
		for _, key := range []string{"k", "queued", "written"} {
			if !leaseFree(t, store, key) {
				t.Errorf("the lease of %q is held", key)
			}
		}
		heldLoad.gives("v")
		held.gives("v", nil)
		o.loads(2)
	})
}

// TestCloseIsNoFailure: a process that waits for the load of one that is closed takes it over.
func TestCloseIsNoFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New(memstore.Options{})
		closing, other := openOn(t, store, cacheguard.Options[string]{}),
			openOn(t, store, cacheguard.Options[string]{})
		o := newScriptedOrigin[string](t)
		leader := getting(t.Context(), t, closing, "k", o.load)
		o.next()
		waiter := getting(t.Context(), t, other, "k", o.load)
		waiter.waits()
		closing.Close()
		leader.gives("", cacheguard.ErrClosed)
		o.next().gives("v")
		waiter.gives("v", nil)
	})
}

// TestInnerCacheIsClosedFirst: a load that asks another cache of its process, which has been
// closed, has not failed. Its own callers get the error, or a stale value, and other processes
// load.
func TestInnerCacheIsClosedFirst(t *testing.T) {
	for way, get := range map[string]func(ctx context.Context, c *cacheguard.Cache[string],
		load cacheguard.LoadFunc[string]) (string, error){
		"Get": func(
			ctx context.Context, c *cacheguard.Cache[string], load cacheguard.LoadFunc[string],
		) (string, error) {
			return c.Get(ctx, "k", load)
		},
		"GetMany": func(
			ctx context.Context, c *cacheguard.Cache[string], load cacheguard.LoadFunc[string],
		) (string, error) {
			got, err := c.GetMany(ctx, []string{"k"}, func(
				ctx context.Context, _ []string,
			) (map[string]string, error) {
				v, err := load(ctx)
				return map[string]string{"k": v}, err
			})
			return got["k"], err
		},
	} {
		for _, stale := range []bool{false, true} {
			inBubble(t, fmt.Sprintf("%s, stale: %v", way, stale), func(t *testing.T) {
				store := memstore.New(memstore.Options{})
				opts := cacheguard.Options[string]{TTL: time.Minute, StaleIfError: time.Hour}
				outer, other := openOn(t, store, opts), openOn(t, store, opts)
				inner := openOn(t, store, cacheguard.Options[string]{Name: "inner"})
				if stale {
					if err := outer.Set(t.Context(), "k", "old"); err != nil {
						t.Fatal(err)
					}
					time.Sleep(2 * time.Minute) // on the fake clock, after the TTL
				}
				o, elsewhere := newScriptedOrigin[string](t), newScriptedOrigin[string](t)
				loads := 0
				call := func() *begun[string] {
					return beginCall(t, func() (string, error) {
						return get(t.Context(), outer, func(ctx context.Context) (string, error) {
							loads++
							v, err := inner.Get(ctx, "part", o.load)
							if err != nil {
								return "", fmt.Errorf("the part: %w", err)
							}
							return v, nil
						})
					})
				}
				leader := call()
				o.next()
				waiter := beginCall(t, func() (string, error) {
					return get(t.Context(), other, elsewhere.load)
				})
				waiter.waits()
				if err := inner.Close(); err != nil {
					t.Errorf("Close: %v", err)
				}
				want, wantErr := "", cacheguard.ErrClosed
				if stale {
					want, wantErr = "old", nil
				}
				leader.gives(want, wantErr)
				call().gives(want, wantErr) // doesn't load, because the load has just ended
				if loads != 1 {
					t.Errorf("%d loads in the process whose inner cache is closed", loads)
				}
				elsewhere.next().gives("new")
				waiter.gives("new", nil)
			})
		}
	}
}

func TestClosedCache(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newTampered()
		c := openOn(t, store, cacheguard.Options[string]{})
		if err := c.Set(t.Context(), "k", "v"); err != nil {
			t.Fatal(err)
		}
		claims := store.steps("Claim")
		for range 2 {
			if err := c.Close(); err != nil {
				t.Errorf("Close: %v", err)
			}
		}
		if err := c.Shutdown(t.Context()); err != nil {
			t.Errorf("Shutdown: %v", err)
		}
		load := func(context.Context) (string, error) { t.Error("it loads"); return "", nil }
		for name, call := range map[string]func() error{
			"Get":       func() error { _, err := c.Get(t.Context(), "k", load); return err },
			"GetResult": func() error { _, err := c.GetResult(t.Context(), "k", load); return err },
			"GetEntry": func() error {
				_, err := c.GetEntry(t.Context(), "k", func(
					context.Context, cacheguard.Result[string],
				) (e cacheguard.Entry[string], err error) {
					t.Error("it loads")
					return e, nil
				})
				return err
			},
			"Refresh":    func() error { _, err := c.Refresh(t.Context(), "k", load); return err },
			"Peek":       func() error { _, err := c.Peek(t.Context(), "k"); return err },
			"Set":        func() error { return c.Set(t.Context(), "k", "w") },
			"Invalidate": func() error { return c.Invalidate(t.Context(), "k") },
			"Update":     func() error { _, err := c.Update(t.Context(), "k", load); return err },
		} {
			if err := call(); !errors.Is(err, cacheguard.ErrClosed) {
				t.Errorf("%s: %v; want %v", name, err, cacheguard.ErrClosed)
			}
		}
		if n := store.steps("Get") + store.steps("Lease") + store.steps("Invalidate") +
			store.steps("Claim") - claims; n > 0 {
			t.Errorf("a closed cache asked the store %d times", n)
		}
	})
}

// TestCloseDuringTheLookUp has a call that began just before Close.
func TestCloseDuringTheLookUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newTampered()
		c := openLookingFirst(t, store, cacheguard.Options[string]{})
		looking := make(chan struct{})
		store.onto("Get", func(context.Context) error { <-looking; return nil })
		leader, joiner := getting(t.Context(), t, c, "k", returning("v")),
			getting(t.Context(), t, c, "k", returning("v"))
		leader.waits()
		c.Close()
		close(looking)
		leader.gives("", cacheguard.ErrClosed)
		joiner.gives("", cacheguard.ErrClosed)
	})
}

// TestCloseAndAStubbornLoad: callers get their answer at once. Close waits for a moment, and logs
// the load that it leaves behind.
func TestCloseAndAStubbornLoad(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New(memstore.Options{})
		var log logtest.Lines
		c := openOn(t, store, cacheguard.Options[string]{Logger: log.Logger()})
		o := newScriptedOrigin[string](t)
		leader := getting(t.Context(), t, c, "k", o.stubborn)
		load := o.next()
		closing := beginCall(t, func() (struct{}, error) { return struct{}{}, c.Close() })
		leader.gives("", cacheguard.ErrClosed)
		if !leaseFree(t, store, "k") {
			t.Error("the lease is held")
		}
		closing.waits()
		closing.later()
		if closing.took > time.Second {
			t.Errorf("Close took %v", closing.took)
		}
		if !strings.Contains(log.String(), "ignores its context") {
			t.Errorf("the log says nothing of it: %q", log.String())
		}
		load.gives("late")
	})
}

// A load that has returned isn't said to ignore its context, even if an Observer holds up its
// goroutine.
func TestCloseAndAStubbornObserver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log logtest.Lines
		held := make(chan struct{})
		c := openOn(t, memstore.New(memstore.Options{}), cacheguard.Options[string]{
			Logger: log.Logger(),
			Observer: observing(func(e cacheguard.Event) {
				if e.Kind == cacheguard.EventLoad {
					<-held
				}
			}),
		})
		leader := getting(t.Context(), t, c, "k",
			func(context.Context) (string, error) { return "v", nil })
		leader.waits()
		c.Close()
		if log.String() != "" {
			t.Errorf("the log says %q", log.String())
		}
		close(held)
	})
}

// TestCloseWaitsForLoadsThatStop: Close waits for loads that obey their context, so that no code of
// the program runs after Close.
func TestCloseWaitsForLoadsThatStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log logtest.Lines
		c := openOn(t, memstore.New(memstore.Options{}),
			cacheguard.Options[string]{Logger: log.Logger()})
		stopped := false
		leader := getting(t.Context(), t, c, "k", func(ctx context.Context) (string, error) {
			<-ctx.Done()
			<-time.After(100 * time.Millisecond)
			stopped = true
			return "", ctx.Err()
		})
		leader.waits()
		c.Close()
		if !stopped {
			t.Error("Close did not wait for it")
		}
		if log.String() != "" {
			t.Errorf("the log says %q", log.String())
		}
	})
}

// TestCloseInsideALoad: a Close that is called inside a load can't wait for this load.
func TestCloseInsideALoad(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := openOn(t, memstore.New(memstore.Options{}), cacheguard.Options[string]{})
		call := getting(t.Context(), t, c, "k", func(context.Context) (string, error) {
			return "v", c.Close()
		})
		if _, err := call.later(); !errors.Is(err, cacheguard.ErrClosed) ||
			call.took > time.Second {
			t.Errorf("Get: %v after %v; want %v", err, call.took, cacheguard.ErrClosed)
		}
		<-time.After(time.Second) // Close is still there for a moment
	})
}

// TestCloseUnderLoad tests the same with many real goroutines.
func TestCloseUnderLoad(t *testing.T) {
	others := goleak.IgnoreCurrent()
	store := memstore.New(memstore.Options{})
	opts := cacheguard.Options[string]{
		Name: "behave", MaxLoads: 4, Logger: slog.New(slog.DiscardHandler),
	}
	closing, err := cacheguard.New(store, opts)
	if err != nil {
		t.Fatal(err)
	}
	other, err := cacheguard.New(store, opts)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	var all sync.WaitGroup
	started := make(chan struct{}, 1000)
	for i := range 200 {
		key := string(rune('a' + i%10))
		all.Go(func() {
			_, err := closing.Get(context.Background(), key, func(
				ctx context.Context,
			) (string, error) {
				started <- struct{}{}
				<-ctx.Done()
				return "", ctx.Err()
			})
			if !errors.Is(err, cacheguard.ErrClosed) {
				t.Errorf("Get: %v; want %v", err, cacheguard.ErrClosed)
			}
		})
	}
	for range 4 {
		<-started
	}
	closing.Close()
	all.Wait()
	for i := range 10 {
		if v, err := other.Get(t.Context(), string(rune('a'+i)), returning("v")); v != "v" ||
			err != nil {
			t.Errorf("Get in the other process: %q, %v", v, err)
		}
	}
	other.Close()
	goleak.VerifyNone(t, others)
}

// A Refresh that joined a background refresh gets ErrClosed at Close.
func TestCloseEndsARefreshThatJoined(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &gatedLease{Store: memstore.New(memstore.Options{})}
		c := openOn(t, cacheguard.Store(store), cacheguard.Options[int]{
			Name: "edge", TTL: time.Second, StaleWhileRevalidate: time.Hour,
		})
		if err := c.Set(t.Context(), "k", 1); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Second)
		// Another process refreshes.
		if _, err := store.Store.Lease(t.Context(), cacheguard.Key{Cache: "edge", Key: "k"},
			cacheguard.LeaseAsk{
				Token: cacheguard.ID{1}, TTL: time.Minute,
				Seen: seenOf(t, store.Store, "edge", "k"),
			}); err != nil {
			t.Fatal(err)
		}
		gate := make(chan struct{})
		store.gate.Store(&gate)
		if v, err := c.Get(t.Context(), "k", returning(2)); v != 1 || err != nil {
			t.Fatal(v, err)
		}
		synctest.Wait() // the background refresh asks for the lease
		r := beginCall(t, func() (int, error) { return c.Refresh(t.Context(), "k", returning(3)) })
		synctest.Wait()
		go c.Close()
		synctest.Wait()
		close(gate)
		if _, err := r.later(); !errors.Is(err, cacheguard.ErrClosed) {
			t.Errorf("Refresh returned %v; want ErrClosed", err)
		}
	})
}

// deadConclude fails the first tries to end a lease.
type deadConclude struct {
	cacheguard.Store
	left atomic.Int32
}

func (s *deadConclude) Conclude(
	ctx context.Context, k cacheguard.Key, g cacheguard.Grant, o cacheguard.Outcome,
	keep, backoff time.Duration,
) error {
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
		_, err := closing.Get(t.Context(), "k", func(context.Context) (string, error) {
			return "", errors.New("no database")
		})
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
		if v, err := f.process().Get(t.Context(), "k", (&origin{value: "v"}).load); v != "v" ||
			err != nil || time.Since(start) > time.Second {
			t.Errorf("got %q, %v after %v", v, err, time.Since(start))
		}
	})
}

// TestWritesWhileACacheCloses: if the claim of a write gets no answer, the invalidation that makes
// up for it is repeated in the background. While the cache closes, nothing is repeated, so the
// write itself sends the invalidation. That is also so if another change is pending, whose last
// repetition is over.
func TestWritesWhileACacheCloses(t *testing.T) {
	type write func(ctx context.Context, c *cacheguard.Cache[string], proceed <-chan struct{}) error
	for name, w := range map[string]struct {
		do   write
		late bool // it writes to the origin after its caller has been answered
	}{
		"Set of a large value": {do: func(
			ctx context.Context, c *cacheguard.Cache[string], _ <-chan struct{},
		) error {
			return setTooLarge(ctx, c)
		}},
		"Set": {do: func(
			ctx context.Context, c *cacheguard.Cache[string], _ <-chan struct{},
		) error {
			return c.Set(ctx, "k", "new")
		}},
		"Update": {do: func(
			ctx context.Context, c *cacheguard.Cache[string], _ <-chan struct{},
		) error {
			_, err := c.Update(ctx, "k", returning("new"))
			return err
		}},
		"late Update": {do: func(
			ctx context.Context, c *cacheguard.Cache[string], proceed <-chan struct{},
		) error {
			_, err := c.Update(ctx, "k", func(context.Context) (string, error) {
				<-proceed
				return "new", nil
			})
			return err
		}, late: true},
	} {
		for _, pending := range []bool{false, true} {
			inBubble(t, fmt.Sprintf("%s, pending: %v", name, pending), func(t *testing.T) {
				store := newTampered()
				opts := cacheguard.Options[string]{MaxValueSize: 100}
				c, other := openOn(t, store, opts), openOn(t, store, opts)
				if pending {
					store.onto("Invalidate", fails(always))
					if err := c.Invalidate(t.Context(), "another"); !errors.Is(err,
						cacheguard.ErrPending) {
						t.Fatal(err)
					}
				}
				proceed := make(chan struct{})
				oldAndSilent := func() {
					must(t, other.Set(t.Context(), "k", "old"))
					store.onto("Claim", func(context.Context) error {
						<-proceed
						return context.DeadlineExceeded
					})
				}
				if !w.late {
					oldAndSilent()
				}
				writing := beginCall(t, func() (struct{}, error) {
					return struct{}{}, w.do(t.Context(), c, proceed)
				})
				writing.waits()
				closing := beginCall(t, func() (struct{}, error) { return struct{}{}, c.Close() })
				closing.returned()
				time.Sleep(time.Second) // on the fake clock: the last repetition is over
				store.onto("Invalidate", nil)
				if w.late {
					_, _ = writing.later()
					oldAndSilent()
				}
				close(proceed)
				_, _ = writing.later()
				_, _ = closing.later()
				synctest.Wait()
				store.onto("Claim", nil)
				getting(t.Context(), t, other, "k", returning("new")).gives("new", nil)
			})
		}
	}
}

// After Close a load that ignores its context can no longer use the cache.
func TestStubbornLoadReadsAClosedCache(t *testing.T) {
	inBubble(t, "", func(t *testing.T) {
		c := openOn(t, cacheguard.Store(memstore.New(memstore.Options{})),
			cacheguard.Options[int]{})
		time.Sleep(time.Millisecond)
		getting(t.Context(), t, c, "other", returning(1)).gives(1, nil)
		closed, peeked := make(chan struct{}), make(chan error, 1)
		go func() {
			_, _ = c.Get(t.Context(), "k", func(ctx context.Context) (int, error) {
				<-closed
				_, err := c.Peek(context.WithoutCancel(ctx), "other")
				peeked <- err
				return 1, nil
			})
		}()
		synctest.Wait()
		go c.Close()
		synctest.Wait()
		close(closed)
		if err := <-peeked; !errors.Is(err, cacheguard.ErrClosed) {
			t.Errorf("Peek inside a load after Close: %v; want ErrClosed", err)
		}
	})
}
