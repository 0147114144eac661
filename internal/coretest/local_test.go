package coretest_test

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/cacheguard/memstore"
)

// listenStore is a store that counts reads, can hold one back, and can lose its messages.
type listenStore struct {
	cacheguard.Store
	reads atomic.Int32
	down  atomic.Bool
	hold  atomic.Pointer[chan struct{}]
	tell  func(cacheguard.Message)
	deaf  atomic.Bool
	late  atomic.Bool // messages of changes are on their way; others arrive
}

func (s *listenStore) Get(
	ctx context.Context, k cacheguard.Key, tags []string,
) ([]byte, cacheguard.Generations, error) {
	s.reads.Add(1)
	if s.down.Load() {
		return nil, nil, errors.New("no answer")
	}
	f, of, err := s.Store.Get(ctx, k, tags)
	if gate := s.hold.Load(); gate != nil {
		<-*gate
	}
	return f, of, err
}

func (s *listenStore) Lease(
	ctx context.Context, k cacheguard.Key, ask cacheguard.LeaseAsk,
) (cacheguard.LeaseAnswer, error) {
	s.reads.Add(1)
	if s.down.Load() {
		return cacheguard.LeaseAnswer{}, errors.New("no answer")
	}
	answer, err := s.Store.Lease(ctx, k, ask)
	if gate := s.hold.Load(); gate != nil {
		<-*gate
	}
	return answer, err
}

func (s *listenStore) Listen(cache string, tell func(cacheguard.Message)) func() {
	s.tell = tell
	return s.Store.Listen(cache, func(m cacheguard.Message) {
		changes := m.Kind == cacheguard.MessageChanged || m.Kind == cacheguard.MessageTags
		if !s.deaf.Load() && !(changes && s.late.Load()) {
			tell(m)
		}
	})
}

func (s *listenStore) Listening() bool { return !s.deaf.Load() && s.Store.Listening() }

// lose makes messages get lost, and tells the cache so.
func (s *listenStore) lose() {
	s.deaf.Store(true)
	s.tell(cacheguard.Message{Kind: cacheguard.MessageLost})
}

func (s *listenStore) restore() {
	s.deaf.Store(false)
	s.tell(cacheguard.Message{Kind: cacheguard.MessageRestored})
}

// pair is a cache with a local tier, on a store of its own view, and another process.
type pair struct {
	near  *cacheguard.Cache[int]
	store *listenStore
	other *cacheguard.Cache[int]
}

func newPair(t *testing.T, opts cacheguard.Options[int]) pair {
	shared := memstore.New(memstore.Options{})
	t.Cleanup(func() { _ = shared.Close() })
	opts.Name, opts.Jitter = "local", -1
	p := pair{store: &listenStore{Store: shared}}
	p.other = openOn(t, cacheguard.Store(shared), opts)
	if opts.Local.Entries == 0 {
		opts.Local.Entries = 100
	}
	p.near = openOn(t, cacheguard.Store(p.store), opts)
	return p
}

// reads tests the value of a read, and whether the read has asked the store.
func (p pair) reads(t *testing.T, want int, local bool) {
	t.Helper()
	before := p.store.reads.Load()
	res, err := p.near.GetResult(t.Context(), "k", failingWith[int](errOrigin))
	if err != nil || res.Value != want || res.Status != cacheguard.StatusHit || res.Local != local {
		t.Errorf("got %+v, %v; want %d, local %v", res, err, want, local)
	}
	if asked := p.store.reads.Load() > before; asked == local {
		t.Errorf("the store was asked: %v", asked)
	}
}

func (p pair) put(t *testing.T, v int) {
	t.Helper()
	if err := p.other.Set(t.Context(), "k", v); err != nil {
		t.Fatal(err)
	}
}

// P11: a value disappears as soon as the message of its change arrives, whoever changes it.
func TestLocalTierHearsOfChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t, cacheguard.Options[int]{})
		both := map[string]func(c *cacheguard.Cache[int], v int) error{
			"set": func(c *cacheguard.Cache[int], v int) error {
				return c.Set(t.Context(), "k", v)
			},
			"invalidate": func(c *cacheguard.Cache[int], v int) error {
				return errors.Join(c.Invalidate(t.Context(), "k"), p.other.Set(t.Context(), "k", v))
			},
			"update": func(c *cacheguard.Cache[int], v int) error {
				_, err := c.Update(t.Context(), "k", returning(v))
				return err
			},
		}
		v := 0
		p.put(t, v)
		for _, c := range []*cacheguard.Cache[int]{p.near, p.other} {
			for name, change := range both {
				v++
				if err := change(c, v); err != nil {
					t.Fatal(name, err)
				}
				p.reads(t, v, false)
				p.reads(t, v, true)
				p.reads(t, v, true)
			}
		}
		// What a load of its own returned is there at once, and what another one's did after one
		// read.
		if err := p.other.Invalidate(t.Context(), "k"); err != nil {
			t.Fatal(err)
		}
		if got, err := p.near.Get(t.Context(), "k", returning(100)); got != 100 || err != nil {
			t.Fatal(got, err)
		}
		p.reads(t, 100, true)
	})
}

// P11: quiet reads ask the store once for each local TTL, and no value outlives its own.
func TestLocalTTL(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t, cacheguard.Options[int]{
			TTL:   2500 * time.Millisecond,
			Local: cacheguard.Local[int]{Entries: 1, TTL: time.Second},
		})
		p.put(t, 1)
		began := time.Now()
		for range 1000 {
			res, err := p.near.GetResult(t.Context(), "k", returning(2))
			if err != nil || res.Age != time.Since(began) && res.Value == 1 {
				t.Fatalf("after %v: %+v, %v", time.Since(began), res, err)
			}
			if fresh := time.Since(began) < 2500*time.Millisecond; (res.Value == 1) != fresh {
				t.Fatalf("after %v: %+v", time.Since(began), res)
			}
			time.Sleep(3 * time.Millisecond)
		}
		// At 0, 1 and 2 s, and after the end at 2.5 s once more.
		if n := p.store.reads.Load(); n != 4 {
			t.Errorf("the store was asked %d times in 3 s", n)
		}
	})
}

// P11: if a key is changed while it is being read, the tier doesn't keep the value.
func TestLocalTierDoesntKeepWhatChanged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t, cacheguard.Options[int]{})
		p.put(t, 1)
		gate := make(chan struct{})
		p.store.hold.Store(&gate)
		read := gettingResult(t.Context(), t, p.near, "k", failingWith[int](errOrigin))
		synctest.Wait()
		p.put(t, 2)
		p.store.hold.Store(nil)
		close(gate)
		if res, err := read.now(); res.Value != 1 || err != nil { // it began before
			t.Errorf("got %+v, %v", res, err)
		}
		p.reads(t, 2, false)

		// The same for a load whose fill is refused.
		o := newScriptedOrigin[int](t)
		if err := p.near.Invalidate(t.Context(), "k"); err != nil {
			t.Fatal(err)
		}
		call := getting(t.Context(), t, p.near, "k", o.load)
		load := o.next()
		p.put(t, 3)
		load.gives(4)
		call.gives(4, nil)
		p.reads(t, 3, false)
	})
}

// P11: while messages may be lost the tier is not trusted, and what it had is forgotten when they
// arrive again.
func TestLocalTierWithoutMessages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t, cacheguard.Options[int]{StaleIfError: time.Minute})
		p.put(t, 1)
		p.reads(t, 1, false)
		p.reads(t, 1, true)
		p.store.lose()
		p.reads(t, 1, false)
		p.reads(t, 1, false)
		p.put(t, 2)
		p.reads(t, 2, false)

		// The store is down, too: what is there may be older than a change that nobody heard of, so
		// it is stale.
		p.store.down.Store(true)
		res, err := p.near.GetResult(t.Context(), "k", failingWith[int](errOrigin))
		if err != nil || res.Value != 1 || res.Status != cacheguard.StatusStale || !res.Degraded ||
			!res.Local || !errors.Is(res.Err, cacheguard.ErrUnavailable) {
			t.Errorf("without store and messages: %+v, %v", res, err)
		}
		// This process knows better than to use it.
		if err := p.near.Invalidate(t.Context(), "k"); err != nil {
			t.Fatal(err)
		}
		if res, err := p.near.GetResult(t.Context(), "k",
			failingWith[int](errOrigin)); !errors.Is(err, errOrigin) {
			t.Errorf("after an Invalidate of its own: %+v, %v", res, err)
		}

		time.Sleep(time.Second)
		p.put(t, 3)
		p.store.down.Store(false)
		p.store.restore()
		p.reads(t, 3, false)
		p.reads(t, 3, true)
	})
}

// TestLocalTierIsNoFallbackWithoutAWindow: a value that may be out of date is served only if the
// user has set a stale window.
func TestLocalTierIsNoFallbackWithoutAWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, window := range []time.Duration{0, time.Minute} {
			p := newPair(t, cacheguard.Options[int]{TTL: time.Minute, StaleWhileRevalidate: window})
			p.put(t, 1)
			p.reads(t, 1, false)
			p.store.lose()
			p.store.down.Store(true)
			for _, after := range []time.Duration{0, 90 * time.Second, time.Minute} {
				time.Sleep(after)
				age := map[time.Duration]time.Duration{
					0: 0, 90 * time.Second: 90 * time.Second, time.Minute: 150 * time.Second,
				}[after]
				served := window > 0 && age < 2*time.Minute
				res, err := p.near.GetResult(t.Context(), "k", returning(2))
				if err != nil || (res.Value == 1) != served ||
					(res.Status == cacheguard.StatusStale) != served {
					t.Errorf("window %v, age %v: %+v, %v", window, age, res, err)
				}
			}
		}
	})
}

// TestLocalNotFound is kept like any value.
func TestLocalNotFound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t, cacheguard.Options[int]{})
		for i := range 2 {
			res, err := p.near.GetResult(t.Context(), "k", failingWith[int](cacheguard.ErrNotFound))
			if !errors.Is(err, cacheguard.ErrNotFound) || !res.NotFound || res.Local != (i == 1) {
				t.Errorf("read %d: %+v, %v", i, res, err)
			}
		}
		if res, err := p.near.Peek(t.Context(), "k"); err != nil || !res.NotFound || !res.Local {
			t.Errorf("Peek: %+v, %v", res, err)
		}
	})
}

// TestLocalEarlyRefresh: reads that the tier answers refresh a key early as well.
func TestLocalEarlyRefresh(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t, cacheguard.Options[int]{TTL: time.Second, EarlyRefresh: 1})
		o := &versions{took: 100 * time.Millisecond}
		if _, err := p.near.Get(t.Context(), "k", o.load); err != nil {
			t.Fatal(err)
		}
		local := 0
		for range 10_000 {
			if at(t, p.near, o.load).Local {
				local++
			}
			time.Sleep(time.Millisecond)
		}
		if local < 9_900 || o.loads.Load() < 10 {
			t.Errorf("%d of 10,000 reads were local, with %d loads", local, o.loads.Load())
		}
	})
}

// TestLocalClone gives everybody a copy of his own.
func TestLocalClone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New(memstore.Options{})
		defer store.Close()
		c := openOn(t, cacheguard.Store(store), cacheguard.Options[[]int]{
			Local: cacheguard.Local[[]int]{Entries: 10, Clone: slices.Clone[[]int]},
		})
		for i := range 4 {
			res, err := c.GetResult(t.Context(), "k", returning([]int{1, 2, 3}))
			if err != nil || !slices.Equal(res.Value, []int{1, 2, 3}) || res.Local != (i > 0) {
				t.Errorf("read %d: %+v, %v", i, res, err)
			}
			clear(res.Value)
		}
	})
}

// TestLocalPanics: the user's functions of the tier can't take a call along.
func TestLocalPanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New(memstore.Options{})
		defer store.Close()
		for _, l := range []cacheguard.Local[int]{
			{Entries: 10, Clone: func(int) int { panic("clone") }},
			{Entries: 10, Weigh: func(string, int) uint32 { panic("weigh") }},
		} {
			c := openOn(t, cacheguard.Store(store), cacheguard.Options[int]{Local: l})
			for range 3 {
				if v, err := c.Get(t.Context(), "k", returning(1)); v != 1 || err != nil {
					t.Errorf("got %v, %v", v, err)
				}
			}
		}
	})
}

// TestLocalOptions that make no sense are named.
func TestLocalOptions(t *testing.T) {
	store := memstore.New(memstore.Options{})
	defer store.Close()
	for _, l := range []cacheguard.Local[int]{
		{Entries: -1}, {TTL: time.Second}, {Clone: func(i int) int { return i }},
		{Entries: 1, TTL: -1}, {Entries: 1, TTL: time.Microsecond},
	} {
		if c, err := cacheguard.New(store,
			cacheguard.Options[int]{Name: "x", Local: l}); err == nil {
			_ = c.Close()
			t.Errorf("%+v was accepted", l)
		}
	}
}

// If a value can't be copied, the tier doesn't answer with it, and no caller gets it together with
// an error.
func TestLocalTierThatCantCopy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var fails atomic.Bool
		p := newPair(t,
			cacheguard.Options[int]{Local: cacheguard.Local[int]{Entries: 10,
				Clone: func(v int) int {
					if fails.Load() {
						panic("no copy")
					}
					return v
				}}})
		p.put(t, 5)
		p.reads(t, 5, false)
		p.reads(t, 5, true)
		fails.Store(true)
		gate := make(chan struct{})
		p.store.hold.Store(&gate)
		leader := getting(t.Context(), t, p.near, "k", returning(1))
		leader.waits()
		ctx, cancel := context.WithCancel(t.Context())
		leaver := gettingResult(ctx, t, p.near, "k", returning(1))
		leaver.waits()
		cancel()
		leaver.gives(cacheguard.Result[int]{}, context.Canceled)
		close(gate)
		leader.gives(5, nil)
	})
}

// The copy that a caller got from the tier is not the one that a refresh goes on with, and stores.
func TestLocalCloneIsTheCallersOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New(memstore.Options{})
		defer store.Close()
		c := openOn(t, cacheguard.Store(store),
			cacheguard.Options[[]int]{TTL: time.Second, EarlyRefresh: 1000,
				Local: cacheguard.Local[[]int]{Entries: 10, Clone: slices.Clone[[]int]}})
		load := func(
			ctx context.Context, prev cacheguard.Result[[]int],
		) (cacheguard.Entry[[]int], error) {
			time.Sleep(100 * time.Millisecond)
			if prev.Status == cacheguard.StatusMiss {
				return cacheguard.Entry[[]int]{Value: []int{1, 2, 3}}, nil
			}
			return cacheguard.Entry[[]int]{NotModified: true}, nil
		}
		for i := range 5 {
			res, err := c.GetEntry(t.Context(), "k", load)
			if err != nil || !slices.Equal(res.Value, []int{1, 2, 3}) {
				t.Fatalf("read %d: %+v, %v", i, res, err)
			}
			if res.Local {
				clear(res.Value) // his own copy
			}
			time.Sleep(200 * time.Millisecond)
		}
	})
}

// TestCacheLocal answers from the process-local tier and from nowhere else.
func TestCacheLocal(t *testing.T) {
	fleets(t, cacheguard.Options[string]{}, func(t *testing.T, a, b *cacheguard.Cache[string]) {
		gets(t, a, "k", tagged("v"), "v", cacheguard.StatusLoaded)
		r, ok := a.Local("k")
		if local := a.Stats().LocalEntries > 0; ok != local || (r.Value == "v") != local ||
			r.Local != local {
			t.Errorf("got %+v, %v", r, ok)
		}
		if r, ok := b.Local("k"); ok {
			t.Errorf("another process has %+v", r)
		}
		a.Close()
		if r, ok := a.Local("k"); ok {
			t.Errorf("a closed one has %+v", r)
		}
	})
}

// While the store is unavailable, the local tier doesn't serve what this process has invalidated by
// tag before.
func TestLocalTierInAnOutageAfterInvalidateTags(t *testing.T) {
	inBubble(t, "", func(t *testing.T) {
		store := &listenStore{Store: memstore.New(memstore.Options{})}
		c := openOn(t, cacheguard.Store(store), cacheguard.Options[string]{
			TTL: time.Hour, StaleIfError: time.Hour,
			Local: cacheguard.Local[string]{Entries: 10, TTL: time.Hour},
		})
		time.Sleep(time.Millisecond)
		for range 2 {
			_, err := c.GetEntry(t.Context(), "k", tagged("old", "t"))
			must(t, err)
		}
		if r, ok := c.Local("k"); !ok || r.Value != "old" {
			t.Fatalf("the value isn't local: %+v, %v", r, ok)
		}
		time.Sleep(time.Second)
		must(t, c.InvalidateTags(t.Context(), "t"))
		store.down.Store(true)
		store.lose()
		if v, err := c.Get(t.Context(), "k", returning("new")); v != "new" {
			t.Errorf("%q, %v", v, err)
		}
	})
}

// The process that has loaded a value knows its stale windows. If the TTL ends while an early
// refresh waits for the lease, the load is told for how long the value may still be served.
func TestLocalEarlyRefreshIsLate(t *testing.T) {
	inBubble(t, "", func(t *testing.T) {
		store := newTampered()
		c := openOn(t, store, cacheguard.Options[int]{
			TTL: time.Minute, StaleIfError: time.Hour, EarlyRefresh: 1000,
			Local: cacheguard.Local[int]{Entries: 10},
		})
		_, err := c.Get(t.Context(), "k", func(context.Context) (int, error) {
			time.Sleep(time.Second) // EarlyRefresh is a multiple of this time
			return 1, nil
		})
		must(t, err)
		time.Sleep(time.Minute - time.Millisecond)
		slow := func(context.Context) error {
			time.Sleep(time.Second)
			return nil
		}
		store.onto("Lease", slow)
		store.onto("LeaseMany", slow)
		seen := make(chan cacheguard.Result[int], 1)
		r, err := c.GetEntry(t.Context(), "k", func(
			_ context.Context, previous cacheguard.Result[int],
		) (cacheguard.Entry[int], error) {
			seen <- previous
			return cacheguard.Entry[int]{}, errOrigin
		})
		if err != nil || r.Value != 1 || !r.Local {
			t.Fatalf("got %+v, %v; want the local value", r, err)
		}
		if previous := <-seen; previous.Value != 1 || previous.UsableFor < 59*time.Minute {
			t.Errorf("the load saw %+v; want that the value may be served for most of an hour",
				previous)
		}
	})
}
