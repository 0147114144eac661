package coretest_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/cacheguard/memstore"
)

// Every change ends hit-for-miss, whether the result that made each caller load is kept or not.
func TestHitForMissEndsWithItsTag(t *testing.T) {
	for how, change := range map[string]func(context.Context, *cacheguard.Cache[string]) error{
		"all": func(ctx context.Context, c *cacheguard.Cache[string]) error {
			return c.InvalidateAll(ctx)
		},
		"tag": func(ctx context.Context, c *cacheguard.Cache[string]) error {
			return c.InvalidateTags(ctx, "tag")
		},
		"key": func(ctx context.Context, c *cacheguard.Cache[string]) error {
			return c.Invalidate(ctx, "k")
		},
		"mark": func(ctx context.Context, c *cacheguard.Cache[string]) error {
			return c.MarkStale(ctx, "k")
		},
	} {
		for name, keep := range map[string]time.Duration{"kept": time.Hour, "not kept": 0} {
			inBubble(t, how+"/"+name, func(t *testing.T) {
				c := openOn(t, cacheguard.Store(memstore.New(memstore.Options{})),
					cacheguard.Options[string]{})
				if _, err := c.GetEntry(t.Context(), "k", func(
					context.Context, cacheguard.Result[string],
				) (cacheguard.Entry[string], error) {
					return cacheguard.Entry[string]{
						Value: "mine", NoShare: true, TTL: time.Hour, Keep: keep,
						Tags: []string{"tag"},
					}, nil
				}); err != nil {
					t.Fatal(err)
				}
				must(t, change(t.Context(), c))
				o := newScriptedOrigin[string](t)
				first := getting(t.Context(), t, c, "k", o.load)
				first.waits()
				second := getting(t.Context(), t, c, "k", o.load)
				second.waits()
				o.loads(1)
				for len(o.visits) > 0 {
					o.next().gives("for all")
				}
				first.later()
				second.later()
			})
		}
	}
}

// slowGenerations is a store that takes a while to say generations.
type slowGenerations struct {
	cacheguard.Store
	took time.Duration
}

func (s *slowGenerations) Get(
	ctx context.Context, k cacheguard.Key, tags []string,
) ([]byte, cacheguard.Generations, error) {
	f, _, err := s.Store.Get(ctx, k, tags)
	return f, nil, err
}

func (s *slowGenerations) Generations(
	ctx context.Context, cache string, tags []string,
) (cacheguard.Generations, error) {
	time.Sleep(s.took)
	return s.Store.Generations(ctx, cache, tags)
}

// A value ages while its generations are read. The local tier doesn't serve it beyond its TTL.
func TestLocalTierBeyondTTL(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &slowGenerations{memstore.New(memstore.Options{}), 200 * time.Millisecond}
		other := openOn(t, cacheguard.Store(store), cacheguard.Options[int]{TTL: time.Second})
		c := openLookingFirst(t, cacheguard.Store(store),
			cacheguard.Options[int]{TTL: time.Second, Local: cacheguard.Local[int]{Entries: 10}})
		must(t, other.Set(t.Context(), "k", 1))
		set := time.Now()
		time.Sleep(100 * time.Millisecond)
		if v, err := c.Get(t.Context(), "k", returning(2)); v != 1 || err != nil {
			t.Fatal(v, err)
		}
		time.Sleep(time.Until(set.Add(1100 * time.Millisecond)))
		if r, ok := c.Local("k"); ok {
			t.Errorf("%v after it was stored for a second: %+v", time.Since(set), r)
		}
	})
}

// MarkStale between the claim of a write and its fill leaves the tags as they are.
func TestMarkOnARemnant(t *testing.T) {
	inBubble(t, "", func(t *testing.T) {
		store := memstore.New(memstore.Options{})
		c := openOn(t, cacheguard.Store(store), cacheguard.Options[string]{})
		gets(t, c, "k", tagged("one", "tag"), "one", cacheguard.StatusLoaded)
		o := newScriptedOrigin[string](t)
		update := beginCall(t, func() (string, error) { return c.Update(t.Context(), "k", o.load) })
		write := o.next()
		must(t, c.MarkStale(t.Context(), "k"))
		getting(t.Context(), t, c, "k", returning("two")).gives("two", nil)
		write.gives("three")
		update.gives("three", nil)
		getting(t.Context(), t, c, "k", returning("four")).gives("four", nil)
		must(t, c.InvalidateTags(t.Context(), "tag"))
		getting(t.Context(), t, c, "k", returning("five")).gives("five", nil)
	})
}

// cutOff is a store on which the messages of a cache's channel don't arrive while it is cut, but
// those of the process' inbox do. On redisstore this happens to a cache that is opened after the
// subscription was made, and while a new connection has subscribed to the inbox, and not yet to
// everything.
type cutOff struct {
	cacheguard.Store
	cut  atomic.Bool
	tell atomic.Pointer[func(cacheguard.Message)]
}

func (s *cutOff) Listen(cache string, tell func(cacheguard.Message)) (stop func()) {
	s.tell.Store(&tell)
	return s.Store.Listen(cache, func(m cacheguard.Message) {
		switch m.Kind {
		case cacheguard.MessageFilled, cacheguard.MessageOutcome, cacheguard.MessageReleased:
		default:
			if s.cut.Load() {
				return
			}
		}
		tell(m)
	})
}

// While the messages of a cache's channel don't arrive, a value in a message counts only if it is
// newer than the invalidations by tag that had returned.
func TestMessageWithoutTheChannel(t *testing.T) {
	for how, change := range map[string]func(ctx context.Context,
		c *cacheguard.Cache[string]) error{
		"tag": func(ctx context.Context, c *cacheguard.Cache[string]) error {
			return c.InvalidateTags(ctx, "tag")
		},
		"all": func(ctx context.Context, c *cacheguard.Cache[string]) error {
			return c.InvalidateAll(ctx)
		},
	} {
		for what, noStore := range map[string]bool{"stored": false, "not stored": true} {
			for when, before := range map[string]bool{"not yet": true, "during a break": false} {
				inBubble(t, how+"/"+what+"/"+when, func(t *testing.T) {
					memory := memstore.New(memstore.Options{})
					store := &cutOff{Store: memory}
					store.cut.Store(before)
					a := openOn(t, cacheguard.Store(memory), cacheguard.Options[string]{})
					b := openOn(t, cacheguard.Store(store), cacheguard.Options[string]{})
					o := newScriptedOrigin[entry](t)
					early := gettingEntry(t.Context(), t, a, "k", o.load)
					load := o.next()
					// Of the bubble: the invalidation is later than the load.
					time.Sleep(time.Millisecond)
					if !before {
						store.cut.Store(true)
						(*store.tell.Load())(cacheguard.Message{Kind: cacheguard.MessageLost})
					}
					must(t, change(t.Context(), a))
					late := gettingEntry(t.Context(), t, b, "k", func(
						context.Context,
					) (entry, error) {
						return entry{Value: "new"}, nil
					})
					late.waits()
					load.gives(entry{Value: "old", Tags: []string{"tag"}, NoStore: noStore})
					early.now()
					if r, err := late.later(); r.Value != "new" || err != nil {
						t.Errorf("a call that began after the invalidation got %+v, %v", r, err)
					}
				})
			}
		}
	}
}
