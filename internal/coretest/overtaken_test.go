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

// TestPendingChangeAndALoadElsewhere: while the store doesn't have a change of this process, a call
// that begins after the change doesn't get the result of another process' load from before it.
func TestPendingChangeAndALoadElsewhere(t *testing.T) {
	for name, change := range changesOf("k", "t", "s") {
		inBubble(t, name, func(t *testing.T) {
			store, broken := newTampered(), newTampered()
			broken.Store = store.Store // the same data
			other, c := openOn(t, store, cacheguard.Options[string]{}),
				openOn(t, broken, cacheguard.Options[string]{})
			elsewhere := newScriptedOrigin[cacheguard.Entry[string]](t)
			first := gettingEntry(t.Context(), t, other, "k", elsewhere.load)
			load := elsewhere.next()
			for _, step := range []string{"Invalidate", "MarkStale", "InvalidateTags"} {
				broken.onto(step, fails(always))
			}
			if err := change(t.Context(), c); !errors.Is(err, cacheguard.ErrPending) {
				t.Fatal(err)
			}
			second := gettingEntry(t.Context(), t, c, "k", func(
				context.Context,
			) (cacheguard.Entry[string], error) {
				return taggedTwice("new", false), nil
			})
			second.waits()
			load.gives(taggedTwice("old", false))
			if res, err := second.later(); res.Value != "new" || err != nil {
				t.Errorf("the call after the change: %q (%v), %v", res.Value, res.Status, err)
			}
			_, _ = first.later()
		})
	}
}

// TestChangeDuringALoadWhoseResultIsNotStored: a call that begins after a change doesn't get the
// result of a load from before the change, whether or not the result is stored.
func TestChangeDuringALoadWhoseResultIsNotStored(t *testing.T) {
	for name, change := range changesOf("k", "t", "s") {
		for _, noStore := range []bool{false, true} {
			inBubble(t, fmt.Sprintf("%s, NoStore: %v", name, noStore), func(t *testing.T) {
				c := openOn(t, memstore.New(memstore.Options{}), cacheguard.Options[string]{})
				origin := newScriptedOrigin[cacheguard.Entry[string]](t)
				first := gettingEntry(t.Context(), t, c, "k", origin.load)
				load := origin.next()
				must(t, change(t.Context(), c))
				second := gettingEntry(t.Context(), t, c, "k", func(
					context.Context,
				) (cacheguard.Entry[string], error) {
					return taggedTwice("new", noStore), nil
				})
				synctest.Wait()
				load.gives(taggedTwice("old", noStore))
				if res, err := second.later(); res.Value != "new" || err != nil {
					t.Errorf("the call after the change: %q (%v), %v", res.Value, res.Status, err)
				}
				_, _ = first.later()
			})
		}
	}
}

// changesOf returns the changes of a key, of a tag and of a soft tag.
func changesOf(
	key, tag, soft string,
) map[string]func(context.Context, *cacheguard.Cache[string]) error {
	return map[string]func(context.Context, *cacheguard.Cache[string]) error{
		"Invalidate": func(ctx context.Context, c *cacheguard.Cache[string]) error {
			return c.Invalidate(ctx, key)
		},
		"MarkStale": func(ctx context.Context, c *cacheguard.Cache[string]) error {
			return c.MarkStale(ctx, key)
		},
		"InvalidateTags": func(ctx context.Context, c *cacheguard.Cache[string]) error {
			return c.InvalidateTags(ctx, tag)
		},
		"MarkStaleTags": func(ctx context.Context, c *cacheguard.Cache[string]) error {
			return c.MarkStaleTags(ctx, soft)
		},
	}
}

// taggedTwice returns an entry with a tag and a soft tag.
func taggedTwice(v string, noStore bool) cacheguard.Entry[string] {
	return cacheguard.Entry[string]{
		Value: v, NoStore: noStore, Tags: []string{"t"}, SoftTags: []string{"s"},
	}
}
