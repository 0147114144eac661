package coretest_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/cacheguard/memstore"
)

// lossyValue has what JSON leaves out.
type lossyValue struct {
	Name   string
	Secret string `json:"-"`
}

// unreadable can't be decoded.
type unreadable struct{ cacheguard.JSON[lossyValue] }

func (unreadable) Decode([]byte) (v lossyValue, err error) { return v, errors.New("it can't") }

// panicky panics as it decodes.
type panicky struct{ cacheguard.JSON[lossyValue] }

func (panicky) Decode([]byte) (v lossyValue, err error) { panic("it can't") }

// stepping is a store that says how long its steps take at most.
type stepping struct {
	*memstore.Store
	most time.Duration
}

func (s stepping) StepTimeout() time.Duration { return s.most }

// A store that can't be compared, because of what it embeds, is as good as any other.
func TestStoreThatCantBeCompared(t *testing.T) {
	type uncomparable struct {
		cacheguard.Store
		_ func()
	}
	type wrapped struct{ cacheguard.Store }
	for _, store := range []cacheguard.Store{
		uncomparable{Store: newTampered()}, wrapped{uncomparable{Store: newTampered()}},
	} {
		c := openOn(t, store, cacheguard.Options[string]{})
		if v, err := c.Get(t.Context(), "k", returning("v")); v != "v" || err != nil {
			t.Errorf("got %q, %v", v, err)
		}
	}
}

// TestWarnings are said once, and keeps still about what is as it should be.
func TestWarnings(t *testing.T) {
	type caches struct {
		store cacheguard.Store
		open  func(cacheguard.Store, cacheguard.Options[lossyValue]) *cacheguard.Cache[lossyValue]
	}
	fill := func(
		t *testing.T, c *cacheguard.Cache[lossyValue], key string, v lossyValue, took time.Duration,
	) {
		t.Helper()
		_, err := c.Get(t.Context(), key, func(context.Context) (lossyValue, error) {
			<-time.After(took)
			return v, nil
		})
		if err != nil {
			t.Error(err)
		}
	}
	for name, c := range map[string]struct {
		do   func(t *testing.T, c caches)
		says string
	}{
		"pattern": {func(t *testing.T, all caches) {
			c := all.open(all.store, cacheguard.Options[lossyValue]{})
			for range 3 {
				must(t, c.Invalidate(t.Context(), "user:1", "user:1:*"))
			}
		}, "a key with * in it"},
		"pattern that is marked": {func(t *testing.T, all caches) {
			must(t,
				all.open(all.store, cacheguard.Options[lossyValue]{}).MarkStale(t.Context(),
					"user:*:posts"))
		}, "a key with * in it"},
		"pattern of tags": {func(t *testing.T, all caches) {
			c := all.open(all.store, cacheguard.Options[lossyValue]{})
			for range 3 {
				must(t, c.InvalidateTags(t.Context(), "user:1", "user:1:*"))
			}
		}, "a tag with * in it"},
		"short life": {func(t *testing.T, all caches) {
			c := all.open(all.store, cacheguard.Options[lossyValue]{TTL: time.Second})
			for _, key := range []string{"a", "b"} {
				fill(t, c, key, lossyValue{}, 2*time.Second)
			}
		}, "fresh for less time than its load took"},
		"lost field": {func(t *testing.T, all caches) {
			c := all.open(all.store, cacheguard.Options[lossyValue]{})
			for _, key := range []string{"a", "b"} {
				fill(t, c, key, lossyValue{"n", "s"}, 0)
			}
		}, "part=Secret"},
		"lost field that is Set": {func(t *testing.T, all caches) {
			must(t,
				all.open(all.store, cacheguard.Options[lossyValue]{}).Set(t.Context(), "k",
					lossyValue{"n", "s"}))
		}, "part=Secret"},
		"lost field, later": {func(t *testing.T, all caches) {
			c := all.open(all.store, cacheguard.Options[lossyValue]{})
			for _, key := range []string{"a", "b", "c"} {
				fill(t, c, key, lossyValue{"n", ""}, 0)
			}
			fill(t, c, "d", lossyValue{"n", "s"}, 0)
		}, ""},
		// Which is not looked at, nor does it count.
		"lost field of a large value": {func(t *testing.T, all caches) {
			c := all.open(all.store, cacheguard.Options[lossyValue]{})
			for _, key := range []string{"a", "b", "c"} {
				fill(t, c, key, lossyValue{strings.Repeat("n", 64<<10), "s"}, 0)
			}
		}, ""},
		"lost field after large ones": {func(t *testing.T, all caches) {
			c := all.open(all.store, cacheguard.Options[lossyValue]{})
			for _, key := range []string{"a", "b", "c"} {
				fill(t, c, key, lossyValue{strings.Repeat("n", 64<<10), "s"}, 0)
			}
			fill(t, c, "d", lossyValue{"n", "s"}, 0)
		}, "part=Secret"},
		"unreadable": {func(t *testing.T, all caches) {
			fill(t, all.open(all.store, cacheguard.Options[lossyValue]{Codec: unreadable{}}), "a",
				lossyValue{}, 0)
		}, "can't decode what it has encoded"},
		"panicky": {func(t *testing.T, all caches) {
			fill(t, all.open(all.store, cacheguard.Options[lossyValue]{Codec: panicky{}}), "a",
				lossyValue{}, 0)
		}, ""},
		"short lease": {func(t *testing.T, all caches) {
			all.open(stepping{all.store.(*memstore.Store), time.Second},
				cacheguard.Options[lossyValue]{LeaseTTL: time.Second - 1})
		}, "LeaseTTL is below what a step"},
		"lease": {func(t *testing.T, all caches) {
			all.open(stepping{all.store.(*memstore.Store), time.Second},
				cacheguard.Options[lossyValue]{LeaseTTL: time.Second})
		}, ""},
		"one name": {func(t *testing.T, all caches) {
			for range 2 {
				all.open(all.store, cacheguard.Options[lossyValue]{TTL: time.Minute})
			}
			all.open(memstore.New(memstore.Options{}),
				cacheguard.Options[lossyValue]{TTL: time.Hour})
			all.open(all.store, cacheguard.Options[lossyValue]{TTL: time.Hour, Name: "another"})
		}, ""},
		"one name, other TTL": {func(t *testing.T, all caches) {
			for _, ttl := range []time.Duration{time.Minute, time.Hour} {
				all.open(all.store, cacheguard.Options[lossyValue]{TTL: ttl})
			}
		}, "option=TTL first=1m0s second=1h0m0s"},
		"one name, one after the other": {func(t *testing.T, all caches) {
			for _, ttl := range []time.Duration{time.Minute, time.Hour} {
				must(t, all.open(all.store, cacheguard.Options[lossyValue]{TTL: ttl}).Close())
			}
		}, ""},
		"one name, other type": {func(t *testing.T, all caches) {
			openOn(t, all.store, cacheguard.Options[string]{Name: "doubts"})
			all.open(all.store, cacheguard.Options[lossyValue]{})
		}, `option="the type of values" first=string second=coretest_test.lossyValue`},
	} {
		inBubble(t, name, func(t *testing.T) {
			var log bytes.Buffer
			logger := slog.New(slog.NewTextHandler(&log, nil))
			open := func(
				store cacheguard.Store, opts cacheguard.Options[lossyValue],
			) *cacheguard.Cache[lossyValue] {
				if opts.Logger = logger; opts.Name == "" {
					opts.Name = "doubts"
				}
				return openOn(t, store, opts)
			}
			c.do(t, caches{memstore.New(memstore.Options{}), open})
			want := 1
			if c.says == "" {
				want = 0
			}
			if n := strings.Count(log.String(), "\n"); n != want ||
				!strings.Contains(log.String(), c.says) {
				t.Errorf("it said %q; want %d line with %q", log.String(), want, c.says)
			}
			if strings.Contains(log.String(), "user:") {
				t.Error("the log has a key")
			}
		})
	}
}
