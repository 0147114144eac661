package coretest_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/cacheguard/cacheguard/cacheguard"
)

// If a load reads another cache, it must not get values from before the load began. Its lease may
// be from after a change, and a result made of old values would be stored for good. So its reads
// begin after the load, for any running flights and local values of its process, even if this
// process hasn't heard of the change.

// nestedWays are the ways on which a load can ask another cache.
var nestedWays = map[string]func(ctx context.Context, c *cacheguard.Cache[int],
	load cacheguard.LoadFunc[int]) (int, error){
	"Get": func(
		ctx context.Context, c *cacheguard.Cache[int], load cacheguard.LoadFunc[int],
	) (int, error) {
		return c.Get(ctx, "part", load)
	},
	"GetMany": func(
		ctx context.Context, c *cacheguard.Cache[int], load cacheguard.LoadFunc[int],
	) (int, error) {
		got, err := c.GetMany(ctx, []string{"part"}, func(
			ctx context.Context, _ []string,
		) (map[string]int, error) {
			v, err := load(ctx)
			return map[string]int{"part": v}, err
		})
		return got["part"], err
	},
	"Refresh": func(
		ctx context.Context, c *cacheguard.Cache[int], load cacheguard.LoadFunc[int],
	) (int, error) {
		return c.Refresh(ctx, "part", load)
	},
}

// whole asks for what is made of the part.
func whole(t *testing.T, p pair, way string, load cacheguard.LoadFunc[int]) *begun[int] {
	t.Helper()
	wholes := openOn(t, cacheguard.Store(p.store), cacheguard.Options[int]{Name: "wholes"})
	return getting(t.Context(), t, wholes, "whole", func(ctx context.Context) (int, error) {
		return nestedWays[way](ctx, p.near, load)
	})
}

func TestLoadIsMadeOfWhatIsSoThen(t *testing.T) {
	for way := range nestedWays {
		for _, local := range []bool{false, true} {
			name, opened := way, func(t *testing.T) pair {
				return newPair(t, cacheguard.Options[int]{})
			}
			if !local {
				opened = func(t *testing.T) pair {
					p := newPair(t, cacheguard.Options[int]{})
					p.near = openOn(t, cacheguard.Store(p.store),
						cacheguard.Options[int]{Name: "local"})
					return p
				}
			}
			if local {
				name += " beside a local tier"
			}
			inBubble(t, name+" while it is read", func(t *testing.T) {
				p := opened(t)
				must(t, p.other.Set(t.Context(), "part", 1))
				gate := make(chan struct{})
				p.store.hold.Store(&gate)
				early := getting(t.Context(), t, p.near, "part", returning(3))
				early.waits()
				p.store.hold.Store(nil)
				p.store.late.Store(true)
				must(t, p.other.Invalidate(t.Context(), "part"))
				whole(t, p, way, returning(2)).gives(2, nil)
				close(gate)
				early.gives(1, nil)
			})
			inBubble(t, name+" while it is loaded", func(t *testing.T) {
				p := opened(t)
				o := newScriptedOrigin[int](t)
				early := beginCall(t, func() (int, error) {
					if way == "Refresh" { // those don't meet the others
						return p.near.Refresh(t.Context(), "part", o.load)
					}
					return p.near.Get(t.Context(), "part", o.load)
				})
				load := o.next()
				p.store.late.Store(true)
				must(t, p.other.Invalidate(t.Context(), "part"))
				whole(t, p, way, returning(2)).gives(2, nil)
				load.gives(1)
				if v, err := early.later(); err != nil || v != 1 && v != 2 {
					t.Errorf("the early call got %d, %v", v, err)
				}
			})
		}
		inBubble(t, way+" from the local tier", func(t *testing.T) {
			p := newPair(t, cacheguard.Options[int]{})
			must(t, p.other.Set(t.Context(), "part", 1))
			for range 2 {
				getting(t.Context(), t, p.near, "part", returning(3)).gives(1, nil)
			}
			p.store.late.Store(true)
			must(t, p.other.Invalidate(t.Context(), "part"))
			whole(t, p, way, returning(2)).gives(2, nil)
		})
	}
}

// Peek inside a load doesn't use the local tier either.
func TestPeekInsideALoad(t *testing.T) {
	for _, changed := range []bool{false, true} {
		inBubble(t, fmt.Sprintf("changed %v", changed), func(t *testing.T) {
			p := newPair(t, cacheguard.Options[int]{})
			must(t, p.other.Set(t.Context(), "part", 1))
			for range 2 {
				getting(t.Context(), t, p.near, "part", returning(3)).gives(1, nil)
			}
			p.store.late.Store(true)
			want := 1
			if changed {
				must(t, p.other.Set(t.Context(), "part", 2))
				want = 2
			}
			if res, err := p.near.Peek(t.Context(), "part"); err != nil || res.Value != 1 ||
				!res.Local {
				t.Errorf("outside of a load Peek got %+v, %v; want the local value", res, err)
			}
			wholes := openOn(t, cacheguard.Store(p.store), cacheguard.Options[int]{Name: "wholes"})
			getting(t.Context(), t, wholes, "whole", func(ctx context.Context) (int, error) {
				res, err := p.near.Peek(ctx, "part")
				if res.Local {
					t.Error("inside a load Peek got the local value")
				}
				return res.Value, err
			}).gives(want, nil)
		})
	}
}

// Inside the load of a key, Peek returns what the store has under the lease of this load.
func TestPeekInsideItsOwnLoad(t *testing.T) {
	inBubble(t, "", func(t *testing.T) {
		p := newPair(t, cacheguard.Options[int]{})
		must(t, p.other.Set(t.Context(), "part", 1))
		for range 2 {
			getting(t.Context(), t, p.near, "part", returning(3)).gives(1, nil)
		}
		p.store.late.Store(true)
		must(t, p.other.Set(t.Context(), "part", 2))
		_, err := p.near.RefreshEntry(t.Context(), "part", func(
			ctx context.Context, _ cacheguard.Result[int],
		) (cacheguard.Entry[int], error) {
			res, err := p.near.Peek(ctx, "part")
			if res.Local || res.Value != 2 {
				t.Errorf("Peek got %+v", res)
			}
			return cacheguard.Entry[int]{Value: 3}, err
		})
		must(t, err)
	})
}

// Loads that need the same share it, also one that was begun before them, as long as nothing has
// changed.
func TestLoadsShareWhatTheyAreMadeOf(t *testing.T) {
	inBubble(t, "", func(t *testing.T) {
		p := newPair(t, cacheguard.Options[int]{})
		o := newScriptedOrigin[int](t)
		early := getting(t.Context(), t, p.near, "part", o.load)
		load := o.next()
		first, second := whole(t, p, "Get", o.load), whole(t, p, "Get", o.load)
		first.waits()
		load.gives(1)
		early.gives(1, nil)
		for _, w := range []*begun[int]{first, second} {
			if v, err := w.later(); v != 1 || err != nil {
				t.Errorf("a load made of it brings %d, %v", v, err)
			}
		}
		if n := o.count.Load(); n != 1 {
			t.Errorf("%d loads", n)
		}
	})
}

// Also when the store could not be read once, and nobody has asked it since.
func TestLoadIsMadeOfWhatIsSoAfterTheStoreWasDown(t *testing.T) {
	for _, strong := range []bool{false, true} {
		name := "plain"
		if strong {
			name = "strong"
		}
		inBubble(t, name, func(t *testing.T) {
			p := strongPair(t, cacheguard.Options[int]{})
			if !strong {
				p.near = openOn(t, cacheguard.Store(p.store), cacheguard.Options[int]{})
			}
			p.store.down.Store(true)
			o := newScriptedOrigin[int](t)
			early := getting(t.Context(), t, p.near, "part", o.load)
			load := o.next()
			p.store.down.Store(false)
			p.store.late.Store(true)
			must(t, p.other.Invalidate(t.Context(), "part"))
			whole(t, p, "Get", returning(2)).gives(2, nil)
			load.gives(1)
			early.gives(1, nil)
		})
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
