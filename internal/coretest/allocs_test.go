//go:build !race

package coretest_test

import (
	"context"
	"crypto/rand"
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/cacheguard/memstore"
	"github.com/cacheguard/cacheguard/cacheguard/redisstore"
	"github.com/cacheguard/cacheguard/internal/redistest"
)

// The largest number of allocations of a hit. The reason is beside each number. If a change needs
// more allocations, it has to state the reason. The race detector also allocates, so these tests
// run without it.
func TestHitAllocations(t *testing.T) {
	ctx := t.Context()
	load := func(context.Context) ([]byte, error) { return []byte("value"), nil }
	open := func(store cacheguard.Store, o cacheguard.Options[[]byte]) *cacheguard.Cache[[]byte] {
		// It costs a hit nothing that isn't checked.
		o.TTL, o.Audit = time.Hour, cacheguard.Audit{PerSecond: 0.00001}
		c := openOn(t, store, o)
		for range 3 {
			if _, err := c.Get(ctx, "key", load); err != nil {
				t.Fatal(err)
			}
		}
		return c
	}
	check := func(t *testing.T, most float64, get func() (cacheguard.Result[[]byte], error)) {
		t.Helper()
		n := testing.AllocsPerRun(2000, func() {
			if r, err := get(); err != nil || r.Status != cacheguard.StatusHit {
				t.Fatalf("got %+v, %v; want a hit", r, err)
			}
		})
		t.Logf("%v allocations", n)
		if n > most {
			t.Errorf("a hit allocates %v times; want %v at most", n, most)
		}
	}
	getting := func(c *cacheguard.Cache[[]byte]) func() (cacheguard.Result[[]byte], error) {
		return func() (cacheguard.Result[[]byte], error) { return c.GetResult(ctx, "key", load) }
	}
	gettingValue := func(c *cacheguard.Cache[[]byte]) func() (cacheguard.Result[[]byte], error) {
		return func() (cacheguard.Result[[]byte], error) {
			v, err := c.Get(ctx, "key", load)
			return cacheguard.Result[[]byte]{Value: v, Status: cacheguard.StatusHit}, err
		}
	}

	store := memstore.New(memstore.Options{})
	defer store.Close()
	near := open(store,
		cacheguard.Options[[]byte]{Name: "near", Local: cacheguard.Local[[]byte]{Entries: 10}})
	t.Run("local tier", func(t *testing.T) { check(t, 0, gettingValue(near)) })
	t.Run("local tier with the result", func(t *testing.T) { check(t, 0, getting(near)) })
	// The flight, its place among the open ones, and what the store returns.
	t.Run("memory", func(t *testing.T) {
		check(t, 4, getting(open(store, cacheguard.Options[[]byte]{Name: "far"})))
	})
	t.Run("strong reads", func(t *testing.T) {
		check(t, 4,
			getting(open(store, cacheguard.Options[[]byte]{Name: "strong", StrongReads: true})))
	})
	// Tags are compared where they stand in the frame; the store's answer has their generations,
	// and grows.
	t.Run("tags", func(t *testing.T) {
		c, err := cacheguard.New(store, cacheguard.Options[[]byte]{Name: "tagged"})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		tagged := func(
			context.Context, cacheguard.Result[[]byte],
		) (cacheguard.Entry[[]byte], error) {
			return cacheguard.Entry[[]byte]{
				Value: []byte("value"), TTL: time.Hour,
				Tags: []string{"tag a", "tag b", "tag c", "tag d"},
			}, nil
		}
		get := func() (cacheguard.Result[[]byte], error) { return c.GetEntry(ctx, "key", tagged) }
		if _, err := get(); err != nil {
			t.Fatal(err)
		}
		check(t, 5, get)
	})
	// A long string shares the memory of its frame. A short one is copied.
	t.Run("string", func(t *testing.T) {
		c := openOn(t, store, cacheguard.Options[string]{Name: "strings", TTL: time.Hour})
		hit := func(length int) float64 {
			key, value := strconv.Itoa(length), strings.Repeat("v", length)
			load := func(context.Context) (string, error) { return value, nil }
			get := func() {
				if v, err := c.Get(ctx, key, load); v != value || err != nil {
					t.Fatal(len(v), err)
				}
			}
			get()
			return testing.AllocsPerRun(2000, get)
		}
		if short, long := hit(10), hit(10_000); long > 4 || short > 5 {
			t.Errorf("a hit allocates %v times for 10 bytes, %v times for 10,000; want 5 and 4 at most",
				short, long)
		}
	})
	t.Run("redis", func(t *testing.T) {
		rdb := redis.NewClient(&redis.Options{
			Addr: redistest.Shared(t).Addr(), ContextTimeoutEnabled: true,
		})
		defer rdb.Close()
		store, err := redisstore.New(rdb,
			redisstore.Options{Prefix: "allocs-" + rand.Text(), OpTimeout: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		defer store.Close()
		name := "allocs-" + rand.Text()
		if err := rdb.Set(ctx, name, "value", time.Hour).Err(); err != nil {
			t.Fatal(err)
		}
		bare := testing.AllocsPerRun(2000, func() {
			if _, err := rdb.Get(ctx, name).Bytes(); err != nil {
				t.Fatal(err)
			}
		})
		t.Logf("a bare GET allocates %v times", bare)
		// The flight and the question, which has room for the command; the second answer, of the
		// cache's generation.
		check(t, bare+3, getting(open(store, cacheguard.Options[[]byte]{})))

		// For each key its name and its value, as MGET does, and not a third time. The others are
		// for the call.
		t.Run("many", func(t *testing.T) {
			many := openOn(t, store, cacheguard.Options[[]byte]{Name: "many", TTL: time.Hour})
			keys := make([]string, 100)
			for i := range keys {
				keys[i] = strconv.Itoa(i)
				if err := many.Set(ctx, keys[i], []byte("value")); err != nil {
					t.Fatal(err)
				}
			}
			load := func(context.Context, []string) (map[string][]byte, error) {
				return nil, errors.New("not a hit")
			}
			n := testing.AllocsPerRun(200, func() {
				if got, err := many.GetMany(ctx, keys, load); err != nil || len(got) != len(keys) {
					t.Fatal(len(got), err)
				}
			})
			t.Logf("%v allocations", n)
			if most := float64(2*len(keys) + 30); n > most {
				t.Errorf("100 hits allocate %v times; want %v at most", n, most)
			}
		})
	})
}
