package coretest_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/cacheguard/guardtest"
	"github.com/cacheguard/cacheguard/cacheguard/memstore"
)

func updating(
	ctx context.Context, t *testing.T, c *cacheguard.Cache[string],
	write cacheguard.LoadFunc[string],
) *begun[string] {
	return beginCall(t, func() (string, error) { return c.Update(ctx, "k", write) })
}

// TestUpdate has readers wait for the write, and stores what it returns. A load that began before
// it stores nothing.
func TestUpdate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New(memstore.Options{})
		here, there := openOn(t, store, cacheguard.Options[string]{}),
			openOn(t, store, cacheguard.Options[string]{})
		for _, writer := range []*cacheguard.Cache[string]{here, there} {
			if err := here.Invalidate(t.Context(), "k"); err != nil {
				t.Fatal(err)
			}
			o, w := newScriptedOrigin[string](t), newScriptedOrigin[string](t)
			early := getting(t.Context(), t, here, "k", o.load)
			load := o.next()
			update := updating(t.Context(), t, writer, w.load)
			write := w.next()
			readers := []*begun[string]{
				getting(t.Context(), t, here, "k", o.load),
				getting(t.Context(), t, there, "k", o.load),
			}
			for _, reader := range readers {
				reader.waits()
			}
			load.gives("old")
			early.gives("old", nil)
			for _, reader := range readers {
				reader.waits()
			}
			write.gives("new")
			update.gives("new", nil)
			for _, reader := range readers {
				reader.gives("new", nil)
			}
			getting(t.Context(), t, here, "k", o.load).gives("new", nil)
			o.loads(1)
			w.loads(1)
		}
	})
}

// TestSlowUpdate keeps its claim as long as it writes.
func TestSlowUpdate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New(memstore.Options{})
		here, there := openOn(t, store, cacheguard.Options[string]{}),
			openOn(t, store, cacheguard.Options[string]{})
		w := newScriptedOrigin[string](t)
		update := updating(t.Context(), t, here, w.load)
		write := w.next()
		reader := getting(t.Context(), t, there, "k", returning("unexpected"))
		<-time.After(20 * time.Second)
		reader.waits()
		write.gives("new")
		update.gives("new", nil)
		reader.gives("new", nil)
	})
}

// TestUpdateThatFails: an Update that fails leaves no value, at every step, because the value of
// the origin is not known then.
func TestUpdateThatFails(t *testing.T) {
	for name, c := range map[string]struct {
		write cacheguard.LoadFunc[string]
		want  error
	}{
		"error": {failingWith[string](errOrigin), errOrigin},
		"panic": {func(context.Context) (string, error) { panic(errOrigin) }, errOrigin},
		"timeout": {func(ctx context.Context) (string, error) {
			<-ctx.Done()
			return "", ctx.Err()
		}, context.DeadlineExceeded},
		"not found": {failingWith[string](cacheguard.ErrNotFound), cacheguard.ErrNotFound},
	} {
		inBubble(t, name, func(t *testing.T) {
			store := memstore.New(memstore.Options{})
			here, there := openOn(t, store, cacheguard.Options[string]{}),
				openOn(t, store, cacheguard.Options[string]{})
			if err := here.Set(t.Context(), "k", "old"); err != nil {
				t.Fatal(err)
			}
			update := updating(t.Context(), t, here, c.write)
			if _, err := update.later(); !errors.Is(err, c.want) {
				t.Errorf("Update: %v; want %v", err, c.want)
			}
			next := getting(t.Context(), t, there, "k", returning("new"))
			if name == "not found" {
				next.gives("", cacheguard.ErrNotFound)
			} else {
				next.gives("new", nil)
			}
		})
	}
}

// TestReadersOfAFailedUpdate: if the write fails, waiting readers load for themselves and don't get
// the write's error.
func TestReadersOfAFailedUpdate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New(memstore.Options{})
		here, there := openOn(t, store, cacheguard.Options[string]{}),
			openOn(t, store, cacheguard.Options[string]{})
		w, o := newScriptedOrigin[string](t), newScriptedOrigin[string](t)
		update := updating(t.Context(), t, here, w.load)
		write := w.next()
		readers := []*begun[string]{
			getting(t.Context(), t, here, "k", o.load), getting(t.Context(), t, there, "k", o.load),
		}
		readers[0].waits()
		readers[1].waits()
		write.fails(errOrigin)
		update.gives("", errOrigin)
		o.next().gives("v")
		for _, reader := range readers {
			reader.gives("v", nil)
		}
		o.loads(1)
	})
}

// TestWriterThatLeaves gets its own context's error at once. If its write goes on, and changes the
// origin after others have read it, what they have read is forgotten.
func TestWriterThatLeaves(t *testing.T) {
	for _, end := range []string{"cancel", "LoadTimeout", "Close"} {
		inBubble(t, end, func(t *testing.T) {
			store := memstore.New(memstore.Options{})
			here, there := openOn(t, store,
				cacheguard.Options[string]{LoadTimeout: 5 * time.Second}),
				openOn(t, store, cacheguard.Options[string]{})
			w := newScriptedOrigin[string](t)
			origin := "old"
			read := func(context.Context) (string, error) { return origin, nil }
			ctx, leave := context.WithCancelCause(t.Context())
			update := updating(ctx, t, here, func(ctx context.Context) (string, error) {
				v, err := w.stubborn(ctx)
				origin = v
				return v, err
			})
			write := w.next()
			switch end {
			case "cancel":
				leave(errors.New("of no concern to the cache"))
				if _, err := update.now(); !errors.Is(err, context.Canceled) {
					t.Errorf("Update: %v; want %v", err, context.Canceled)
				}
			case "LoadTimeout":
				if _, err := update.later(); !errors.Is(err, context.DeadlineExceeded) ||
					update.took != 5*time.Second {
					t.Errorf("Update: %v after %v; want %v", err, update.took,
						context.DeadlineExceeded)
				}
			case "Close":
				beginCall(t, func() (struct{}, error) { return struct{}{}, here.Close() })
				update.gives("", cacheguard.ErrClosed)
			}
			leave(nil)
			getting(t.Context(), t, there, "k", read).gives("old", nil)
			write.gives("new")
			synctest.Wait()
			getting(t.Context(), t, there, "k", read).gives("new", nil)
		})
	}
}

// TestTwoUpdates at once leave nothing or what the origin has, however they overlap.
func TestTwoUpdates(t *testing.T) {
	for _, order := range []string{"first writes first", "second writes first"} {
		for _, where := range []string{"one process", "two processes"} {
			inBubble(t, order+" in "+where, func(t *testing.T) {
				store := memstore.New(memstore.Options{})
				a, b := openOn(t, store, cacheguard.Options[string]{}),
					openOn(t, store, cacheguard.Options[string]{})
				if where == "one process" {
					b = a
				}
				w := newScriptedOrigin[string](t)
				var origin string
				writing := func(v string) cacheguard.LoadFunc[string] {
					return func(ctx context.Context) (string, error) {
						_, err := w.load(ctx)
						origin = v
						return v, err
					}
				}
				first := updating(t.Context(), t, a, writing("first"))
				one := w.next()
				second := updating(t.Context(), t, b, writing("second"))
				two := w.next()
				if order == "first writes first" {
					one.gives("")
					first.gives("first", nil)
					two.gives("")
					second.gives("second", nil)
				} else {
					two.gives("")
					second.gives("second", nil)
					one.gives("")
					first.gives("first", nil)
				}
				for _, c := range []*cacheguard.Cache[string]{a, b} {
					getting(t.Context(), t, c, "k", func(context.Context) (string, error) {
						return origin, nil
					}).gives(origin, nil)
				}
			})
		}
	}
}

// TestUpdateThatLosesItsClaim finishes its write, which may be half done, and what it leaves is
// removed.
func TestUpdateThatLosesItsClaim(t *testing.T) {
	for _, loss := range []string{"Invalidate", "Set", "Renew", "another load"} {
		inBubble(t, loss, func(t *testing.T) {
			store := newTampered()
			here, there := openOn(t, store, cacheguard.Options[string]{}),
				openOn(t, store.Store, cacheguard.Options[string]{})
			w := newScriptedOrigin[string](t)
			update := updating(t.Context(), t, here, w.load)
			write := w.next()
			switch loss {
			case "Invalidate":
				if err := there.Invalidate(t.Context(), "k"); err != nil {
					t.Fatal(err)
				}
				getting(t.Context(), t, there, "k", returning("old")).gives("old", nil)
			case "Set":
				if err := there.Set(t.Context(), "k", "old"); err != nil {
					t.Fatal(err)
				}
			case "Renew": // it lapses
				store.onto("Renew", fails(always))
				reader := getting(t.Context(), t, there, "k", returning("old"))
				reader.later()
				<-time.After(5 * time.Second)
			case "another load":
				o := newScriptedOrigin[string](t)
				reader := stolen(t, store, there, o.load)
				o.next().gives("old")
				reader.gives("old", nil)
			}
			if write.cancelled() {
				t.Error("the write was cancelled")
			}
			write.gives("new")
			update.gives("new", nil)
			getting(t.Context(), t, there, "k", returning("new")).gives("new", nil)
		})
	}
}

// TestUpdateWithoutAStore keeps to the policy, and never leaves an old value without a word.
func TestUpdateWithoutAStore(t *testing.T) {
	inBubble(t, "fails closed", func(t *testing.T) {
		store := newTampered()
		c := openOn(t, store, cacheguard.Options[string]{OnStoreDown: cacheguard.FailClosed})
		store.onto("Claim", fails(always))
		update := updating(t.Context(), t, c, func(context.Context) (string, error) {
			t.Error("it writes")
			return "", nil
		})
		update.gives("", cacheguard.ErrUnavailable)
	})
	inBubble(t, "fails open", func(t *testing.T) {
		store := newTampered()
		c := openOn(t, store, cacheguard.Options[string]{})
		if err := c.Set(t.Context(), "k", "old"); err != nil {
			t.Fatal(err)
		}
		store.onto("Claim", fails(always))
		updating(t.Context(), t, c, returning("new")).gives("new", nil)
		// It was invalidated at least.
		getting(t.Context(), t, c, "k", returning("newer")).gives("newer", nil)
		store.onto("Invalidate", fails(always))
		updating(t.Context(), t, c, returning("newest")).gives("newest", errTampered)
	})
	inBubble(t, "fill fails", func(t *testing.T) {
		for _, lost := range []bool{false, true} {
			store := newTampered()
			c := openOn(t, store, cacheguard.Options[string]{})
			if lost {
				store.past("Fill", fails(1))
			} else {
				store.onto("Fill", fails(1))
			}
			updating(t.Context(), t, c, returning("new")).gives("new", nil)
			if !leaseFree(t, store, "k") {
				t.Error("the claim is held")
			}
			store.onto("Fill", fails(1))
			store.onto("Invalidate", fails(1))
			claims := 0
			store.onto("Claim", func(context.Context) error {
				if claims++; claims == 2 { // that of what the write leaves
					return errTampered
				}
				return nil
			})
			updating(t.Context(), t, c, returning("new")).gives("new", errTampered)
		}
	})
}

// TestUpdateEndsOlderFlights: a call that begins after Update has returned doesn't join a load
// without the lease that read the origin before the write.
func TestUpdateEndsOlderFlights(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &noLeases{Store: memstore.New(memstore.Options{})}
		c := openOn(t, store, cacheguard.Options[string]{})
		o, w := newScriptedOrigin[string](t), newScriptedOrigin[string](t)
		update := updating(t.Context(), t, c, w.load)
		write := w.next()
		store.down.Store(true)
		early := getting(t.Context(), t, c, "k", o.load)
		load := o.next() // reads what is there before the write
		store.down.Store(false)
		write.gives("new")
		update.gives("new", nil)
		getting(t.Context(), t, c, "k", o.load).gives("new", nil)
		load.gives("old")
		early.gives("old", nil)
	})
}

// What Update stores is no load's result: observers don't count it as one.
func TestUpdateIsNoFill(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		events := &guardtest.Recorder{}
		store := newTampered()
		c := openOn(t, store, cacheguard.Options[string]{Observer: events})
		update := func() { _, _ = c.Update(t.Context(), "k", returning("v")) }
		update()
		store.onto("Fill", fails(1))
		update()
		store.onto("Fill", func(ctx context.Context) error { return c.Invalidate(ctx, "k") })
		update()
		if got := events.Events(cacheguard.EventFilled, cacheguard.EventFillUnknown,
			cacheguard.EventFillRefused); len(got) != 0 {
			t.Errorf("observers were told of %v", got)
		}
	})
}
