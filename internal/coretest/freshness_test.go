package coretest_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/internal/frame"
)

// reseal stores the value of a key again, with another header and tags.
func reseal(t *testing.T, store cacheguard.Store, key string, change func(*frame.Header)) {
	t.Helper()
	k := cacheguard.Key{Cache: "behave", Key: key}
	raw, _, err := store.Get(t.Context(), k, nil)
	if err != nil {
		t.Fatal(err)
	}
	h, body, err := frame.Parse(raw)
	if err != nil {
		t.Fatal(err)
	}
	g, err := store.Claim(t.Context(), k, cacheguard.ID{7}, time.Second)
	if err != nil {
		t.Fatal(err)
	}
	h.ID = g.Token
	change(&h)
	if ans, err := store.Fill(t.Context(), k, g, frame.New(h, body),
		time.Hour); ans != cacheguard.FillStored || err != nil {
		t.Fatal(ans, err)
	}
}

// If a value's load began in the same microsecond in which its tag or its cache was invalidated,
// the value is treated as older than the invalidation.
func TestTieIsAMiss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newTampered()
		c := openOn(t, store, cacheguard.Options[string]{})
		for i, invalidate := range []func() error{
			func() error { return c.InvalidateAll(t.Context()) },
			func() error { return c.InvalidateTags(t.Context(), "tag") },
		} {
			if err := c.SetEntry(t.Context(), "k",
				cacheguard.Entry[string]{Value: "old", Tags: []string{"tag"}}); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
			if err := invalidate(); err != nil {
				t.Fatal(err)
			}
			of, err := store.Generations(t.Context(), "behave", []string{"tag"})
			if err != nil {
				t.Fatal(err)
			}
			// In that microsecond, and in the next.
			for after, want := range []string{"new", "old"} {
				reseal(t, store, "k", func(h *frame.Header) { h.Stamp = of[i] + int64(after) })
				getting(t.Context(), t, c, "k", returning("new")).gives(want, nil)
				if want == "new" {
					if err := c.SetEntry(t.Context(), "k",
						cacheguard.Entry[string]{Value: "old", Tags: []string{"tag"}}); err != nil {
						t.Fatal(err)
					}
				}
			}
		}
	})
}

// A value from the future is never served, neither as fresh nor as stale.
func TestAgeBelowZero(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newTampered()
		c := openOn(t, store, cacheguard.Options[string]{
			TTL: time.Hour, StaleIfError: time.Hour, StaleWhileRevalidate: time.Hour,
		})
		for ahead, want := range map[time.Duration]string{
			200 * time.Millisecond: "old", time.Second: "new", 48 * time.Hour: "new",
		} {
			if err := c.Set(t.Context(), "k", "old"); err != nil {
				t.Fatal(err)
			}
			reseal(t, store, "k", func(h *frame.Header) { h.Created = store.Now().Add(ahead) })
			getting(t.Context(), t, c, "k", returning("new")).gives(want, nil)
		}
	})
}
