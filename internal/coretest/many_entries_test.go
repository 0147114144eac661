package coretest_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/cacheguard/memstore"
)

type entriesOf = map[string]cacheguard.Entry[string]

// TestGetManyEntries has each entry of a load have its own fate, and each result say what it is.
func TestGetManyEntries(t *testing.T) {
	inBubble(t, "", func(t *testing.T) {
		store := memstore.New(memstore.Options{})
		a, b := openOn(t, cacheguard.Store(store), cacheguard.Options[string]{}),
			openOn(t, cacheguard.Store(store), cacheguard.Options[string]{})
		keys := []string{
			"kept", "short", "unstored", "absent", "gone", "unmodified", "wrong", "failed", "kept",
		}
		var asked []string
		get := func(c cacheOf) (map[string]cacheguard.Result[string], error) {
			asked = nil
			return c.GetManyEntries(t.Context(), keys, func(
				_ context.Context, missing []string,
			) (entriesOf, error) {
				asked = slices.Sorted(slices.Values(missing))
				return entriesOf{
						"kept": {Value: "k"}, "short": {Value: "s", TTL: time.Second},
						"unstored":   {Value: "u", NoStore: true},
						"unmodified": {NotModified: true}, "wrong": {Tags: []string{""}},
						"gone": {TTL: time.Second}, "nobody asked": {Value: "x"},
					}, cacheguard.KeyErrors{
						"failed": errors.New("away"),
						"gone":   fmt.Errorf("it is %w", cacheguard.ErrNotFound),
					}
			})
		}
		check := func(
			found map[string]cacheguard.Result[string], err error,
			want map[string]cacheguard.Status,
		) {
			t.Helper()
			if len(found) != len(want) {
				t.Errorf("found %v; want %v", found, want)
			}
			for key, status := range want {
				if r := found[key]; r.Status != status || r.Value != key[:1] || r.NotFound {
					t.Errorf("%s: %+v; want %v", key, r, status)
				}
			}
			var failed cacheguard.KeyErrors
			if !errors.As(err, &failed) || len(failed) != 3 {
				t.Fatalf("%v; want errors of three keys", err)
			}
			for key, text := range map[string]string{
				"unmodified": "it sees no previous values", "wrong": "empty tag", "failed": "away",
			} {
				if err := failed[key]; err == nil || !strings.Contains(err.Error(), text) {
					t.Errorf("%s: %v; want an error that says %q", key, err, text)
				}
			}
		}
		found, err := get(a)
		check(found, err, map[string]cacheguard.Status{
			"kept": cacheguard.StatusLoaded, "short": cacheguard.StatusLoaded,
			"unstored": cacheguard.StatusLoaded,
		})
		time.Sleep(2 * time.Second)
		found, err = get(b)
		check(found, err, map[string]cacheguard.Status{
			"kept": cacheguard.StatusHit, "short": cacheguard.StatusLoaded,
			"unstored": cacheguard.StatusLoaded,
		})
		if want := []string{
			"failed", "short", "unmodified", "unstored", "wrong",
		}; !slices.Equal(asked, want) {
			t.Errorf("the second load was asked for %q; want %q: what does not exist is remembered for NegativeTTL",
				asked, want)
		}
	})
}

// TestWrongCallsOfEntries are those that no load or write is called for, or whose word can't be
// taken.
func TestWrongCallsOfEntries(t *testing.T) {
	inBubble(t, "", func(t *testing.T) {
		c := openOn(t, cacheguard.Store(memstore.New(memstore.Options{})),
			cacheguard.Options[string]{})
		if _, err := c.GetManyEntries(t.Context(), []string{"k"}, nil); err == nil {
			t.Error("a load that is nil is no error")
		}
		if _, err := c.UpdateEntry(t.Context(), "k", nil); err == nil {
			t.Error("a write that is nil is no error")
		}
		_, err := c.UpdateEntry(t.Context(), "k", func(
			context.Context,
		) (cacheguard.Entry[string], error) {
			return cacheguard.Entry[string]{NotModified: true}, nil
		})
		if err == nil || !strings.Contains(err.Error(), "NotModified") {
			t.Errorf("a write that says NotModified: %v", err)
		}
		r, err := c.UpdateEntry(t.Context(), "k", func(
			context.Context,
		) (cacheguard.Entry[string], error) {
			return cacheguard.Entry[string]{Value: "v", TTL: time.Second}, nil
		})
		if r.Value != "v" || r.Status != cacheguard.StatusLoaded || err != nil {
			t.Errorf("UpdateEntry: %+v, %v", r, err)
		}
		time.Sleep(time.Second)
		if r, err := c.Peek(t.Context(), "k"); r.Status != cacheguard.StatusMiss || err != nil {
			t.Errorf("after the write's TTL: %+v, %v", r, err)
		}
		must(t, c.Close())
		if _, err := c.GetManyEntries(t.Context(), []string{"k"}, func(
			context.Context, []string,
		) (entriesOf, error) {
			return nil, nil
		}); !errors.Is(err, cacheguard.ErrClosed) {
			t.Errorf("closed: %v", err)
		}
	})
}
