package coretest_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/cacheguard/memstore"
	"github.com/cacheguard/cacheguard/internal/frame"
)

type entry = cacheguard.Entry[string]

func TestEntryTTL(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New(memstore.Options{})
		// Jitter applies to the common TTL of many entries, and not to the TTL that a load sets for
		// one entry.
		c := openOn(t, store, cacheguard.Options[string]{TTL: time.Hour, Jitter: 0.9})
		call := gettingEntry(t.Context(), t, c, "k",
			returning(entry{Value: "v", TTL: 2 * time.Second}))
		if r, err := call.now(); r.Value != "v" || r.FreshFor != 2*time.Second || err != nil {
			t.Errorf("GetEntry: %+v, %v", r, err)
		}
		<-time.After(2*time.Second - time.Millisecond)
		getting(t.Context(), t, c, "k", returning("unexpected")).gives("v", nil)
		<-time.After(time.Millisecond)
		getting(t.Context(), t, c, "k", returning("w")).gives("w", nil)
	})
}

func TestJitterShortens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := openOn(t, memstore.New(memstore.Options{}),
			cacheguard.Options[string]{TTL: time.Hour, Jitter: 0.5})
		lives := map[time.Duration]bool{}
		for i := range 200 {
			r, err := gettingResult(t.Context(), t, c, string(rune('a'+i)), returning("v")).now()
			if err != nil || r.FreshFor > time.Hour || r.FreshFor < 30*time.Minute {
				t.Fatalf("it is fresh for %v, %v; want half an hour to an hour", r.FreshFor, err)
			}
			lives[r.FreshFor] = true
		}
		if len(lives) < 100 {
			t.Errorf("200 values have only %d lifetimes", len(lives))
		}
	})
}

// TestNoStore: the result goes to all waiting callers, in all processes, and is not stored.
func TestNoStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New(memstore.Options{})
		here, there := openOn(t, store, cacheguard.Options[string]{}),
			openOn(t, store, cacheguard.Options[string]{})
		o := newScriptedOrigin[entry](t)
		leader := gettingEntry(t.Context(), t, here, "k", o.load)
		load := o.next()
		joiner, waiter := gettingEntry(t.Context(), t, here, "k", o.load),
			gettingEntry(t.Context(), t, there, "k", o.load)
		joiner.waits()
		waiter.waits()
		load.gives(entry{Value: "v", NoStore: true})
		for i, call := range []*begun[cacheguard.Result[string]]{leader, joiner, waiter} {
			if r, err := call.now(); r.Value != "v" || r.FreshFor != 0 || err != nil {
				t.Errorf("caller %d got %+v, %v", i, r, err)
			}
		}
		o.loads(1)
		for _, c := range []*cacheguard.Cache[string]{here, there} {
			if r, err := c.Peek(t.Context(), "k"); r.Status != cacheguard.StatusMiss || err != nil {
				t.Errorf("Peek: %+v, %v", r, err)
			}
			newcomer := gettingEntry(t.Context(), t, c, "k", o.load)
			o.next().gives(entry{Value: "w", NoStore: true})
			if r, err := newcomer.now(); r.Value != "w" || err != nil {
				t.Errorf("a newcomer got %+v, %v", r, err)
			}
		}
	})
}

// storeStale puts a value into the store that is past its TTL and still there.
func storeStale(t *testing.T, store *memstore.Store, key, value string, null bool) {
	t.Helper()
	h := frame.Header{
		ID: [16]byte{9}, Null: null, Created: store.Now().Add(-time.Minute), Soft: time.Second,
		IfError: time.Hour, Stamp: store.Now().UnixMicro(),
	}
	h.Codec = 0
	body := []byte(value)
	if null {
		body = nil
	}
	put(t, store, key, frame.New(h, body))
}

// put stores these bytes as the value of a key of the cache "behave". To be valid, a frame needs a
// stamp that is later than the generation of the cache.
func put(t *testing.T, store cacheguard.Store, key string, f []byte) {
	t.Helper()
	k := cacheguard.Key{Cache: "behave", Key: key}
	g, err := store.Claim(t.Context(), k, cacheguard.ID{8}, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	if answer, err := store.Fill(t.Context(), k, g, f, time.Hour); err != nil ||
		answer != cacheguard.FillStored {
		t.Fatalf("Fill: %v, %v", answer, err)
	}
}

// TestNotModified: the previous value gets a new lifetime.
func TestNotModified(t *testing.T) {
	// Without a name, like the frame of storeStale.
	opts := cacheguard.Options[string]{Codec: poisonous{}}
	revalidate := func(
		t *testing.T, want cacheguard.Result[string], e entry, err error,
	) cacheguard.EntryFunc[string] {
		return func(_ context.Context, prev cacheguard.Result[string]) (entry, error) {
			if seen, _ := shown(prev, nil); seen != want {
				t.Errorf("the load sees %+v; want %+v", seen, want)
			}
			return e, err
		}
	}
	inBubble(t, "with a value", func(t *testing.T) {
		store := memstore.New(memstore.Options{})
		c := openOn(t, store, opts)
		storeStale(t, store, "k", "old", false)
		prev := cacheguard.Result[string]{
			Value: "old", Status: cacheguard.StatusStale, Age: time.Minute,
			FreshFor: -59 * time.Second, UsableFor: time.Hour - 59*time.Second,
		}
		r, err := c.GetEntry(t.Context(), "k",
			revalidate(t, prev, entry{NotModified: true, TTL: 3 * time.Second}, nil))
		if r.Value != "old" || r.FreshFor != 3*time.Second || err != nil {
			t.Errorf("GetEntry: %+v, %v", r, err)
		}
		if r, err := c.Peek(t.Context(), "k"); r.Value != "old" ||
			r.Status != cacheguard.StatusHit || err != nil {
			t.Errorf("Peek: %+v, %v", r, err)
		}
	})
	inBubble(t, "with nothing", func(t *testing.T) {
		store := memstore.New(memstore.Options{})
		c := openOn(t, store, opts)
		r, err := c.GetEntry(t.Context(), "k",
			revalidate(t, cacheguard.Result[string]{}, entry{Value: "ignored", NotModified: true},
				nil))
		if r.Value != "" || err == nil || !strings.Contains(err.Error(), "NotModified") {
			t.Errorf("GetEntry: %+v, %v; want an error that says why", r, err)
		}
		if !leaseFree(t, store, "k") {
			t.Error("the lease is held")
		}
	})
	inBubble(t, "still not found", func(t *testing.T) {
		store := memstore.New(memstore.Options{})
		c := openOn(t, store, opts)
		storeStale(t, store, "k", "", true)
		prev := cacheguard.Result[string]{
			NotFound: true, Status: cacheguard.StatusStale, Age: time.Minute,
			FreshFor: -59 * time.Second, UsableFor: time.Hour - 59*time.Second,
		}
		r, err := c.GetEntry(t.Context(), "k", revalidate(t, prev, entry{NotModified: true}, nil))
		if !r.NotFound || !errors.Is(err, cacheguard.ErrNotFound) || r.FreshFor != 30*time.Second {
			t.Errorf("GetEntry: %+v, %v; want it not found for NegativeTTL", r, err)
		}
	})
	inBubble(t, "gone since", func(t *testing.T) {
		store := memstore.New(memstore.Options{})
		c := openOn(t, store, opts)
		storeStale(t, store, "k", "old", false)
		r, err := c.GetEntry(t.Context(), "k", func(
			context.Context, cacheguard.Result[string],
		) (entry, error) {
			return entry{}, cacheguard.ErrNotFound
		})
		if r.Value != "" || !r.NotFound || !errors.Is(err, cacheguard.ErrNotFound) {
			t.Errorf("GetEntry: %+v, %v", r, err)
		}
	})
	inBubble(t, "after damage", func(t *testing.T) {
		store := memstore.New(memstore.Options{})
		c := openOn(t, store, opts)
		put(t, store, "k", []byte("damaged"))
		if r, err := c.GetEntry(t.Context(), "k",
			revalidate(t, cacheguard.Result[string]{}, entry{Value: "v"}, nil)); r.Value != "v" ||
			err != nil {
			t.Errorf("GetEntry: %+v, %v", r, err)
		}
	})
}

// TestInvalidEntryTTL: an invalid TTL is an error for every kind of entry, and the result is not
// kept for another time.
func TestInvalidEntryTTL(t *testing.T) {
	for name, ttl := range map[string]time.Duration{
		"negative": -time.Second, "tiny": time.Nanosecond, "huge": 1<<63 - 1,
	} {
		for what, says := range map[string]error{
			"value": nil, "not found": cacheguard.ErrNotFound,
		} {
			inBubble(t, name+"/"+what, func(t *testing.T) {
				store := memstore.New(memstore.Options{})
				c := openOn(t, store, cacheguard.Options[string]{ErrorTTL: -1})
				call := gettingEntry(t.Context(), t, c, "k", func(context.Context) (entry, error) {
					return entry{Value: "v", TTL: ttl}, says
				})
				if r, err := call.now(); r.Value != "" || err == nil ||
					!strings.Contains(err.Error(), "TTL") {
					t.Errorf("GetEntry: %+v, %v; want an error that says why", r, err)
				}
				if r, err := c.Peek(t.Context(), "k"); r.Status != cacheguard.StatusMiss ||
					err != nil {
					t.Errorf("Peek: %+v, %v", r, err)
				}
				getting(t.Context(), t, c, "k", returning("v")).gives("v", nil)
			})
		}
	}
}

// TestKeepShowsToTheNextLoad a value that can't be served any more, and for no longer.
func TestKeepShowsToTheNextLoad(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := openOn(t, memstore.New(memstore.Options{}), cacheguard.Options[string]{})
		set := func() {
			if err := c.Invalidate(t.Context(), "k"); err != nil {
				t.Fatal(err)
			}
			e := cacheguard.Entry[string]{
				Value: "v", TTL: time.Second, StaleIfError: time.Second, Keep: time.Minute,
			}
			if _, err := c.RefreshEntry(t.Context(), "k", func(
				context.Context, cacheguard.Result[string],
			) (cacheguard.Entry[string], error) {
				return e, nil
			}); err != nil {
				t.Fatal(err)
			}
		}
		sees := func(want cacheguard.Status, usable bool) {
			t.Helper()
			r, err := c.GetEntry(t.Context(), "k", func(
				_ context.Context, prev cacheguard.Result[string],
			) (cacheguard.Entry[string], error) {
				if prev.Status != want || (prev.Value == "v") != (want == cacheguard.StatusStale) ||
					(prev.UsableFor > 0) != usable {
					t.Errorf("the load sees %+v", prev)
				}
				return cacheguard.Entry[string]{}, errOrigin
			})
			if usable != (err == nil) || usable != (r.Value == "v") {
				t.Errorf("the call got %+v, %v", r, err)
			}
		}
		set()
		<-time.After(1500 * time.Millisecond)
		sees(cacheguard.StatusStale, true)
		set()
		<-time.After(50 * time.Second)
		sees(cacheguard.StatusStale, false)
		<-time.After(15 * time.Second)
		sees(cacheguard.StatusMiss, false)
		if _, err := c.GetEntry(t.Context(), "wrong", func(
			context.Context, cacheguard.Result[string],
		) (cacheguard.Entry[string], error) {
			return cacheguard.Entry[string]{Keep: -1}, nil
		}); err == nil || !strings.Contains(err.Error(), "Keep") {
			t.Errorf("a negative Keep: %v", err)
		}
	})
}
