package coretest_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/cacheguard/memstore"
)

// TestRecursion: recursion is an error at once, for every way in which a load can ask for its own
// key.
func TestRecursion(t *testing.T) {
	ways := map[string]func(ctx context.Context, c *cacheguard.Cache[string]) (string, error){
		"Get": func(ctx context.Context, c *cacheguard.Cache[string]) (string, error) {
			return c.Get(ctx, "k", returning("unexpected"))
		},
		"Refresh": func(ctx context.Context, c *cacheguard.Cache[string]) (string, error) {
			return c.Refresh(ctx, "k", returning("unexpected"))
		},
		"Update": func(ctx context.Context, c *cacheguard.Cache[string]) (string, error) {
			return c.Update(ctx, "k", returning("unexpected"))
		},
		"other key": func(ctx context.Context, c *cacheguard.Cache[string]) (string, error) {
			return c.Get(ctx, "other", func(ctx context.Context) (string, error) {
				return c.Get(ctx, "k", returning("unexpected"))
			})
		},
		"goroutine": func(ctx context.Context, c *cacheguard.Cache[string]) (v string, err error) {
			done := make(chan struct{})
			go func() {
				defer close(done)
				v, err = c.Get(ctx, "k", returning("unexpected"))
			}()
			<-done
			return v, err
		},
		"derived context": func(ctx context.Context, c *cacheguard.Cache[string]) (string, error) {
			ctx, cancel := context.WithCancel(context.WithValue(context.WithoutCancel(ctx),
				contextKey{}, "v"))
			defer cancel()
			return c.Get(ctx, "k", returning("unexpected"))
		},
		"after Invalidate": func(ctx context.Context, c *cacheguard.Cache[string]) (string, error) {
			if err := c.Invalidate(ctx, "k"); err != nil {
				return "", err
			}
			return c.Get(ctx, "k", func(context.Context) (string, error) {
				panic("a load inside itself")
			})
		},
	}
	starts := map[string]func(t *testing.T, c *cacheguard.Cache[string],
		load cacheguard.LoadFunc[string]) (string, error){
		"Get": func(
			t *testing.T, c *cacheguard.Cache[string], load cacheguard.LoadFunc[string],
		) (string, error) {
			return c.Get(t.Context(), "k", load)
		},
		"Refresh": func(
			t *testing.T, c *cacheguard.Cache[string], load cacheguard.LoadFunc[string],
		) (string, error) {
			return c.Refresh(t.Context(), "k", load)
		},
		"Update": func(
			t *testing.T, c *cacheguard.Cache[string], load cacheguard.LoadFunc[string],
		) (string, error) {
			return c.Update(t.Context(), "k", load)
		},
	}
	for way, back := range ways {
		for verb, start := range starts {
			inBubble(t, verb+"/"+way, func(t *testing.T) {
				panicked := make(chan error, 10)
				c := openOn(t, memstore.New(memstore.Options{}),
					cacheguard.Options[string]{MaxLoads: 1,
						Observer: observing(func(e cacheguard.Event) {
							if p := (*cacheguard.PanicError)(nil); errors.As(e.Err, &p) {
								panicked <- e.Err
							}
						})})
				outer := beginCall(t, func() (string, error) {
					return start(t, c, func(ctx context.Context) (string, error) {
						if _, err := back(ctx, c); !errors.Is(err, cacheguard.ErrRecursion) {
							t.Errorf("the load's own key: %v; want %v", err,
								cacheguard.ErrRecursion)
						}
						return "v", nil
					})
				})
				outer.gives("v", nil)
				getting(t.Context(), t, c, "next", returning("next")).gives("next", nil)
				if len(panicked) > 0 {
					t.Error("the load began again inside itself")
				}
			})
		}
	}
}

// TestRecursionIsTheLoadsError if the load has no other answer.
func TestRecursionIsTheLoadsError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := openOn(t, memstore.New(memstore.Options{}), cacheguard.Options[string]{})
		var load cacheguard.LoadFunc[string]
		load = func(ctx context.Context) (string, error) { return c.Get(ctx, "k", load) }
		getting(t.Context(), t, c, "k", load).gives("", cacheguard.ErrRecursion)
	})
}

// TestOwnKeyWhenTheLoadIsOver is no recursion: the context has outlived its load.
func TestOwnKeyWhenTheLoadIsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := openOn(t, memstore.New(memstore.Options{}), cacheguard.Options[string]{})
		var kept context.Context
		getting(t.Context(), t, c, "k", func(ctx context.Context) (string, error) {
			kept = context.WithoutCancel(ctx)
			return "v", nil
		}).gives("v", nil)
		getting(kept, t, c, "k", returning("unexpected")).gives("v", nil)
		if err := c.Invalidate(kept, "k"); err != nil {
			t.Fatal(err)
		}
		getting(kept, t, c, "k", returning("w")).gives("w", nil)
		beginCall(t, func() (string, error) {
			return c.Update(kept, "k", returning("x"))
		}).gives("x", nil)
	})
}

// TestSameKeyElsewhere: the same key in another cache, or a similar key, is not recursion.
func TestSameKeyElsewhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New(memstore.Options{})
		products := openOn(t, store, cacheguard.Options[string]{Name: "products"})
		prices := openOn(t, store, cacheguard.Options[string]{Name: "prices"})
		getting(t.Context(), t, products, "k", func(ctx context.Context) (string, error) {
			price, err := prices.Get(ctx, "k", returning("price"))
			return "product with " + price, err
		}).gives("product with price", nil)
	})
}

// TestNestedLoads need one slot between them, however deep they are.
func TestNestedLoads(t *testing.T) {
	const depth = 5
	synctest.Test(t, func(t *testing.T) {
		limiter := cacheguard.NewLimiter(1, 100)
		var caches []*cacheguard.Cache[string]
		store := memstore.New(memstore.Options{})
		for i := range 2 {
			caches = append(caches,
				openOn(t, store,
					cacheguard.Options[string]{Name: fmt.Sprint("cache ", i), Limiter: limiter}))
		}
		var load func(level int) cacheguard.LoadFunc[string]
		load = func(level int) cacheguard.LoadFunc[string] {
			return func(ctx context.Context) (string, error) {
				if level == depth {
					return "v", nil
				}
				return caches[level%2].Get(ctx, fmt.Sprint("level ", level+1), load(level+1))
			}
		}
		getting(t.Context(), t, caches[0], "level 0", load(0)).gives("v", nil)
	})
}

// TestNestedCallJoinsAQueuedLoad: it waits for a flight that somebody else has begun and that has
// no slot yet. The only slot there is belongs to the load that waits.
func TestNestedCallJoinsAQueuedLoad(t *testing.T) {
	for _, verb := range []string{"Get", "Refresh"} {
		inBubble(t, verb, func(t *testing.T) {
			c := openOn(t, memstore.New(memstore.Options{}),
				cacheguard.Options[string]{MaxLoads: 1})
			get := func(
				ctx context.Context, key string, load cacheguard.LoadFunc[string],
			) (string, error) {
				if verb == "Refresh" {
					return c.Refresh(ctx, key, load)
				}
				return c.Get(ctx, key, load)
			}
			proceed := make(chan struct{})
			outer := beginCall(t, func() (string, error) {
				return get(t.Context(), "outer", func(ctx context.Context) (string, error) {
					<-proceed
					inner, err := get(ctx, "inner", returning("unexpected"))
					return "outer of " + inner, err
				})
			})
			outer.waits()
			inner := beginCall(t, func() (string, error) {
				return get(t.Context(), "inner", returning("inner"))
			})
			inner.waits()
			close(proceed)
			outer.gives("outer of inner", nil)
			inner.gives("inner", nil)
			slotsAreFree(t, c, 1)
		})
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
