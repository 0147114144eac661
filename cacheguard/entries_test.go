package cacheguard_test

import (
	"context"
	"errors"
	"slices"
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
		// Jitter is for what many entries have in common, not for what a load says of one.
		c := openOn(t, store, cacheguard.Options[string]{TTL: time.Hour, Jitter: 0.9})
		call := gettingEntry(t.Context(), t, c, "k", returning(entry{Value: "v", TTL: 2 * time.Second}))
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
		c := openOn(t, memstore.New(memstore.Options{}), cacheguard.Options[string]{TTL: time.Hour, Jitter: 0.5})
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

// TestNoStore gives it to those who wait, in all processes, and keeps nothing.
func TestNoStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New(memstore.Options{})
		here, there := openOn(t, store, cacheguard.Options[string]{}), openOn(t, store, cacheguard.Options[string]{})
		o := newScriptedOrigin[entry](t)
		leader := gettingEntry(t.Context(), t, here, "k", o.load)
		load := o.next()
		joiner, waiter := gettingEntry(t.Context(), t, here, "k", o.load), gettingEntry(t.Context(), t, there, "k", o.load)
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

// TestNoShare has everybody who waits load for themselves, at the same time: nobody sees what
// another one got.
func TestNoShare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New(memstore.Options{})
		here, there := openOn(t, store, cacheguard.Options[string]{}), openOn(t, store, cacheguard.Options[string]{})
		slow := func(name string) cacheguard.LoadFunc[entry] {
			return func(ctx context.Context) (entry, error) {
				if ctx.Value(contextKey{}) != name {
					t.Errorf("the load of %s has the context of %v", name, ctx.Value(contextKey{}))
				}
				<-time.After(time.Second)
				return entry{Value: name, NoShare: true}, nil
			}
		}
		calls := map[string]*begun[cacheguard.Result[string]]{}
		for name, c := range map[string]*cacheguard.Cache[string]{"a": here, "b": here, "c": here, "d": there, "e": there, "f": there} {
			ctx := context.WithValue(t.Context(), contextKey{}, name)
			calls[name] = gettingEntry(ctx, t, c, "k", slow(name))
		}
		for name, call := range calls {
			if r, err := call.later(); r.Value != name || err != nil || r.Status != cacheguard.StatusLoaded {
				t.Errorf("%s got %+v, %v", name, r, err)
			}
			if call.took > 3*time.Second { // the leader's load, that of the other process, those of its callers
				t.Errorf("%s got it after %v: one load after another", name, call.took)
			}
		}
		if r, err := there.Peek(t.Context(), "k"); r.Status != cacheguard.StatusMiss || err != nil {
			t.Errorf("Peek: %+v, %v", r, err)
		}
	})
}

// TestNoShareKeepsToTheBounds: those who load for themselves are loads like others.
func TestNoShareKeepsToTheBounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := openOn(t, memstore.New(memstore.Options{}), cacheguard.Options[string]{MaxLoads: 2, LoadTimeout: 10 * time.Second})
		o := newScriptedOrigin[entry](t)
		leader := gettingEntry(t.Context(), t, c, "k", o.load)
		first := o.next()
		var others []*begun[cacheguard.Result[string]]
		for range 5 {
			others = append(others, gettingEntry(t.Context(), t, c, "k", o.load))
		}
		ctx, leave := context.WithCancelCause(t.Context())
		leaver := gettingEntry(ctx, t, c, "k", o.load)
		leaver.waits()
		first.gives(entry{Value: "v", NoShare: true})
		leader.now()
		o.loads(1 + 2)
		leave(errors.New("of no concern to the cache"))
		if _, err := leaver.now(); err != context.Canceled {
			t.Errorf("the one who left got %v; want %v", err, context.Canceled)
		}
		var running []*scriptedLoad[entry]
		for range others {
			synctest.Wait()
			for len(o.visits) > 0 {
				running = append(running, o.next())
			}
			running = slices.DeleteFunc(running, func(load *scriptedLoad[entry]) bool { return load.ctx.Err() != nil })
			if n := len(running); n == 0 || n > 2 {
				t.Fatalf("%d loads at the same time", n)
			}
			running[0].gives(entry{Value: "v", NoShare: true})
			running = running[1:]
		}
		for _, call := range others {
			if r, err := call.now(); r.Value != "v" || err != nil {
				t.Errorf("a caller got %+v, %v", r, err)
			}
		}
		late := gettingEntry(t.Context(), t, c, "k", o.load)
		o.next().gives(entry{Value: "v", NoShare: true})
		late.now()
		slotsAreFree(t, c, 2)
	})
}

// TestUnsharedLoadFails for its own caller.
func TestUnsharedLoadFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := openOn(t, memstore.New(memstore.Options{}), cacheguard.Options[string]{})
		o := newScriptedOrigin[entry](t)
		leader := gettingEntry(t.Context(), t, c, "k", o.load)
		first := o.next()
		calls := map[string]*begun[cacheguard.Result[string]]{}
		for name, load := range map[string]cacheguard.LoadFunc[entry]{
			"failed":    failingWith[entry](errOrigin),
			"panicked":  func(context.Context) (entry, error) { panic(errOrigin) },
			"not found": failingWith[entry](cacheguard.ErrNotFound),
			"fine":      returning(entry{Value: "v"}),
		} {
			calls[name] = gettingEntry(t.Context(), t, c, "k", load)
			calls[name].waits()
		}
		first.gives(entry{Value: "mine", NoShare: true})
		if r, err := leader.now(); r.Value != "mine" || err != nil {
			t.Errorf("the leader got %+v, %v", r, err)
		}
		for name, want := range map[string]error{"failed": errOrigin, "panicked": errOrigin, "not found": cacheguard.ErrNotFound} {
			if r, err := calls[name].now(); r.Value != "" || !errors.Is(err, want) {
				t.Errorf("%s: %+v, %v; want %v", name, r, err, want)
			}
		}
		if r, err := calls["fine"].now(); r.Value != "v" || err != nil {
			t.Errorf("fine: %+v, %v", r, err)
		}
	})
}

// storeStale puts a value into the store that is past its TTL and still there.
func storeStale(t *testing.T, store *memstore.Store, key, value string, null bool) {
	t.Helper()
	h := frame.Header{ID: [16]byte{9}, Null: null, Created: store.Now().Add(-time.Minute), Soft: time.Second, IfError: time.Hour, Stamp: store.Now().UnixMicro()}
	h.Codec = 0
	body := []byte(value)
	if null {
		body = nil
	}
	put(t, store, key, frame.New(h, body))
}

// put has these bytes stand as the value of a key of the cache "behave". To count, a frame needs a
// stamp that is later than the generation of the cache.
func put(t *testing.T, store cacheguard.Store, key string, f []byte) {
	t.Helper()
	k := cacheguard.Key{Cache: "behave", Key: key}
	g, err := store.Claim(t.Context(), k, cacheguard.ID{8}, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	if answer, err := store.Fill(t.Context(), k, g, f, time.Hour); err != nil || answer != cacheguard.FillStored {
		t.Fatalf("Fill: %v, %v", answer, err)
	}
}

// TestNotModified begins a new lifetime for what was there before.
func TestNotModified(t *testing.T) {
	opts := cacheguard.Options[string]{Codec: poisonous{}} // without a name, like the frame of storeStale
	revalidate := func(t *testing.T, want cacheguard.Result[string], e entry, err error) cacheguard.EntryFunc[string] {
		return func(_ context.Context, prev cacheguard.Result[string]) (entry, error) {
			if prev.Shown() != want {
				t.Errorf("the load sees %+v; want %+v", prev, want)
			}
			return e, err
		}
	}
	inBubble(t, "with a value", func(t *testing.T) {
		store := memstore.New(memstore.Options{})
		c := openOn(t, store, opts)
		storeStale(t, store, "k", "old", false)
		prev := cacheguard.Result[string]{Value: "old", Status: cacheguard.StatusStale, Age: time.Minute, FreshFor: -59 * time.Second, UsableFor: time.Hour - 59*time.Second}
		r, err := c.GetEntry(t.Context(), "k", revalidate(t, prev, entry{NotModified: true, TTL: 3 * time.Second}, nil))
		if r.Value != "old" || r.FreshFor != 3*time.Second || err != nil {
			t.Errorf("GetEntry: %+v, %v", r, err)
		}
		if r, err := c.Peek(t.Context(), "k"); r.Value != "old" || r.Status != cacheguard.StatusHit || err != nil {
			t.Errorf("Peek: %+v, %v", r, err)
		}
	})
	inBubble(t, "with nothing", func(t *testing.T) {
		store := memstore.New(memstore.Options{})
		c := openOn(t, store, opts)
		r, err := c.GetEntry(t.Context(), "k", revalidate(t, cacheguard.Result[string]{}, entry{Value: "ignored", NotModified: true}, nil))
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
		prev := cacheguard.Result[string]{NotFound: true, Status: cacheguard.StatusStale, Age: time.Minute, FreshFor: -59 * time.Second, UsableFor: time.Hour - 59*time.Second}
		r, err := c.GetEntry(t.Context(), "k", revalidate(t, prev, entry{NotModified: true}, nil))
		if !r.NotFound || !errors.Is(err, cacheguard.ErrNotFound) || r.FreshFor != 30*time.Second {
			t.Errorf("GetEntry: %+v, %v; want it not found for NegativeTTL", r, err)
		}
	})
	inBubble(t, "gone since", func(t *testing.T) {
		store := memstore.New(memstore.Options{})
		c := openOn(t, store, opts)
		storeStale(t, store, "k", "old", false)
		r, err := c.GetEntry(t.Context(), "k", func(context.Context, cacheguard.Result[string]) (entry, error) {
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
		if r, err := c.GetEntry(t.Context(), "k", revalidate(t, cacheguard.Result[string]{}, entry{Value: "v"}, nil)); r.Value != "v" || err != nil {
			t.Errorf("GetEntry: %+v, %v", r, err)
		}
	})
}

// TestInvalidEntryTTL is an error, whatever it is the TTL of, and not a value that is kept for some
// other time.
func TestInvalidEntryTTL(t *testing.T) {
	for name, ttl := range map[string]time.Duration{"negative": -time.Second, "tiny": time.Nanosecond, "huge": 1<<63 - 1} {
		for what, says := range map[string]error{"value": nil, "not found": cacheguard.ErrNotFound} {
			inBubble(t, name+"/"+what, func(t *testing.T) {
				store := memstore.New(memstore.Options{})
				c := openOn(t, store, cacheguard.Options[string]{ErrorTTL: -1})
				call := gettingEntry(t.Context(), t, c, "k", func(context.Context) (entry, error) {
					return entry{Value: "v", TTL: ttl}, says
				})
				if r, err := call.now(); r.Value != "" || err == nil || !strings.Contains(err.Error(), "TTL") {
					t.Errorf("GetEntry: %+v, %v; want an error that says why", r, err)
				}
				if r, err := c.Peek(t.Context(), "k"); r.Status != cacheguard.StatusMiss || err != nil {
					t.Errorf("Peek: %+v, %v", r, err)
				}
				getting(t.Context(), t, c, "k", returning("v")).gives("v", nil)
			})
		}
	}
}
