package coretest_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/cacheguard/memstore"
)

// bulk is an origin of many keys, which the test answers one load at a time.
type bulk struct {
	t     *testing.T
	mu    sync.Mutex // guards calls
	calls [][]string
	begin chan *bulkLoad
}

type bulkLoad struct {
	keys []string
	ctx  context.Context
	end  chan func() (map[string]string, error)
}

func newBulk(t *testing.T) *bulk { return &bulk{t: t, begin: make(chan *bulkLoad, 100)} }

func (b *bulk) load(ctx context.Context, missing []string) (map[string]string, error) {
	l := &bulkLoad{slices.Clone(missing), ctx, make(chan func() (map[string]string, error))}
	b.mu.Lock()
	b.calls = append(b.calls, l.keys)
	b.mu.Unlock()
	b.begin <- l
	select {
	case end := <-l.end:
		return end()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// next returns the next load, which must have these keys.
func (b *bulk) next(keys ...string) *bulkLoad {
	b.t.Helper()
	synctest.Wait()
	select {
	case l := <-b.begin:
		if !slices.Equal(l.keys, keys) {
			b.t.Errorf("the load is of %q; want %q", l.keys, keys)
		}
		return l
	default:
		b.t.Fatalf("no load of %q has begun", keys)
		return nil
	}
}

// none tests that no further load has begun.
func (b *bulk) none() {
	b.t.Helper()
	synctest.Wait()
	select {
	case l := <-b.begin:
		b.t.Errorf("a load of %q has begun", l.keys)
	default:
	}
}

// gives makes the load return a value for each key except the keys in without. The value begins
// with its key.
func (l *bulkLoad) gives(value string, without ...string) {
	values := make(map[string]string)
	for _, key := range l.keys {
		if !slices.Contains(without, key) {
			values[key] = key + value
		}
	}
	l.end <- func() (map[string]string, error) { return values, nil }
}

func (l *bulkLoad) fails(err error) {
	l.end <- func() (map[string]string, error) { return nil, err }
}

func getMany(
	ctx context.Context, t *testing.T, c *cacheguard.Cache[string], b *bulk, keys ...string,
) *begun[map[string]string] {
	t.Helper()
	return beginCall(t, func() (map[string]string, error) { return c.GetMany(ctx, keys, b.load) })
}

// wantMany tests the results of a call of GetMany: values as "key+value", errors by key.
func wantMany(
	t *testing.T, call *begun[map[string]string], want []string, errs cacheguard.KeyErrors,
) {
	t.Helper()
	got, err := call.later()
	checkMany(t, got, err, want, errs)
}

func checkMany(
	t *testing.T, got map[string]string, err error, want []string, errs cacheguard.KeyErrors,
) {
	t.Helper()
	var values []string
	for key, v := range got {
		if !strings.HasPrefix(v, key) {
			t.Errorf("%q has the value %q", key, v)
		}
		values = append(values, v)
	}
	slices.Sort(values)
	slices.Sort(want)
	if !slices.Equal(values, want) {
		t.Errorf("got %q; want %q", values, want)
	}
	var failed cacheguard.KeyErrors
	if !errors.As(err, &failed) && (err != nil || len(errs) > 0) {
		t.Fatalf("the error is %v; want %v", err, errs)
	}
	for key := range maps.Keys(errs) {
		if !errors.Is(failed[key], errs[key]) {
			t.Errorf("%q: %v; want %v", key, failed[key], errs[key])
		}
	}
	if len(failed) != len(errs) {
		t.Errorf("the errors are %v; want %v", failed, errs)
	}
}

func manyBubble(
	t *testing.T, opts cacheguard.Options[string],
	do func(t *testing.T, store *tampered, a, b *cacheguard.Cache[string], o *bulk),
) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		store := newTampered()
		do(t, store, openOn(t, cacheguard.Store(store), opts),
			openOn(t, cacheguard.Store(store), opts), newBulk(t))
	})
}

// There is one load of all missing keys. Keys that don't exist are absent, and remembered. A
// repeated key is treated as one key.
func TestGetMany(t *testing.T) {
	manyBubble(t, cacheguard.Options[string]{}, func(
		t *testing.T, store *tampered, a, b *cacheguard.Cache[string], o *bulk,
	) {
		if err := a.Set(t.Context(), "1", "1old"); err != nil {
			t.Fatal(err)
		}
		call := getMany(t.Context(), t, a, o, "1", "2", "3", "2", "4", "1", "4")
		o.next("2", "3", "4").gives("new", "4")
		wantMany(t, call, []string{"1old", "2new", "3new"}, nil)
		for _, c := range []*cacheguard.Cache[string]{a, b} {
			wantMany(t, getMany(t.Context(), t, c, o, "1", "2", "3", "4"),
				[]string{"1old", "2new", "3new"}, nil)
			getting(t.Context(), t, c, "2", returning("unexpected")).gives("2new", nil)
			getting(t.Context(), t, c, "4", returning("unexpected")).gives("",
				cacheguard.ErrNotFound)
		}
		o.none()
		wantMany(t, getMany(t.Context(), t, a, o), nil, nil)
		if _, err := a.GetMany(t.Context(), []string{"k"}, nil); err == nil {
			t.Error("no load is no error")
		}
		time.Sleep(31 * time.Second) // NegativeTTL
		call = getMany(t.Context(), t, b, o, "3", "4")
		o.next("4").gives("born")
		wantMany(t, call, []string{"3new", "4born"}, nil)
	})
}

// GetMany shares loads with all other callers, in this process and in others. Before it waits, it
// loads the keys that no other caller loads.
func TestGetManyCoalesces(t *testing.T) {
	manyBubble(t, cacheguard.Options[string]{}, func(
		t *testing.T, store *tampered, a, b *cacheguard.Cache[string], o *bulk,
	) {
		single := newScriptedOrigin[string](t)
		here := getting(t.Context(), t, a, "here", single.load)
		hereLoad := single.next()
		there := getting(t.Context(), t, b, "there", single.load)
		thereLoad := single.next()

		first := getMany(t.Context(), t, a, o, "here", "there", "x", "y")
		load := o.next("x", "y")
		second := getMany(t.Context(), t, b, o, "x", "z", "here")
		load2 := o.next("z")
		third := getMany(t.Context(), t, a, o, "y", "there", "here")
		late := getting(t.Context(), t, a, "y", single.load)
		o.none()
		single.loads(2)

		load.gives("1")
		load2.gives("2")
		late.gives("y1", nil)
		for _, waiting := range []*begun[map[string]string]{first, second, third} {
			waiting.waits()
		}
		hereLoad.gives("here3")
		thereLoad.gives("there4")
		here.gives("here3", nil)
		there.gives("there4", nil)
		wantMany(t, first, []string{"here3", "there4", "x1", "y1"}, nil)
		wantMany(t, second, []string{"x1", "z2", "here3"}, nil)
		wantMany(t, third, []string{"y1", "there4", "here3"}, nil)
		o.none()
		single.loads(2)
	})
}

// If a load returns errors for some keys, only these keys fail. Any other error is the error of all
// keys.
func TestGetManyFails(t *testing.T) {
	boom := errors.New("boom")
	manyBubble(t, cacheguard.Options[string]{}, func(
		t *testing.T, store *tampered, a, b *cacheguard.Cache[string], o *bulk,
	) {
		call := getMany(t.Context(), t, a, o, "1", "2", "3", "4")
		load := o.next("1", "2", "3", "4")
		elsewhere := getting(t.Context(), t, b, "2", returning("unexpected"))
		elsewhere.waits()
		load.end <- func() (map[string]string, error) {
			return map[string]string{"1": "1v", "2": "2v"},
				fmt.Errorf("some: %w", cacheguard.KeyErrors{"2": boom, "4": cacheguard.ErrNotFound})
		}
		wantMany(t, call, []string{"1v"}, cacheguard.KeyErrors{"2": boom})
		if _, err := elsewhere.later(); err == nil || !strings.Contains(err.Error(), "boom") {
			t.Errorf("elsewhere: %v", err)
		}
		// For ErrorTTL newcomers share the failure.
		wantMany(t, getMany(t.Context(), t, a, o, "1", "2", "3", "4"), []string{"1v"},
			cacheguard.KeyErrors{"2": boom})
		o.none()
		time.Sleep(2 * time.Second)

		call = getMany(t.Context(), t, a, o, "1", "2", "5")
		o.next("2", "5").fails(boom)
		wantMany(t, call, []string{"1v"}, cacheguard.KeyErrors{"2": boom, "5": boom})
		time.Sleep(2 * time.Second)

		call = getMany(t.Context(), t, a, o, "5", "6")
		o.next("5", "6").end <- func() (map[string]string, error) { panic("in the load") }
		_, err := call.later()
		var p *cacheguard.PanicError
		if !errors.As(err, &p) || p.Value != "in the load" {
			t.Errorf("after a panic: %v", err)
		}
		time.Sleep(2 * time.Second)
		call = getMany(t.Context(), t, b, o, "5", "6")
		o.next("5", "6").gives("w")
		wantMany(t, call, []string{"5w", "6w"}, nil)
	})
}

// A caller that leaves gets what it has; the load goes on for those who wait, and ends with the
// last one.
func TestGetManyLeaves(t *testing.T) {
	manyBubble(t, cacheguard.Options[string]{}, func(
		t *testing.T, store *tampered, a, b *cacheguard.Cache[string], o *bulk,
	) {
		if err := a.Set(t.Context(), "0", "0old"); err != nil {
			t.Fatal(err)
		}
		ctx, leave := context.WithCancel(t.Context())
		call := getMany(ctx, t, a, o, "0", "1", "2")
		load := o.next("1", "2")
		other := getting(t.Context(), t, a, "2", returning("unexpected"))
		other.waits()
		leave()
		wantMany(t, call, []string{"0old"},
			cacheguard.KeyErrors{"1": context.Canceled, "2": context.Canceled})
		if load.ctx.Err() != nil {
			t.Error("the load is cancelled although somebody waits")
		}
		load.gives("v")
		other.gives("2v", nil)
		getting(t.Context(), t, b, "1", returning("unexpected")).gives("1v", nil)

		ctx, leave = context.WithCancel(t.Context())
		call = getMany(ctx, t, a, o, "3", "4")
		load = o.next("3", "4")
		leave()
		wantMany(t, call, nil, cacheguard.KeyErrors{"3": context.Canceled, "4": context.Canceled})
		synctest.Wait()
		if load.ctx.Err() == nil {
			t.Error("the load goes on although nobody waits")
		}
		for _, key := range []string{"3", "4"} {
			if !leaseFree(t, store, key) {
				t.Errorf("the lease of %s is held", key)
			}
		}
	})
}

// With a stale window no caller waits. One load refreshes all stale values.
func TestGetManyStale(t *testing.T) {
	opts := cacheguard.Options[string]{
		TTL: time.Second, Jitter: -1, StaleWhileRevalidate: time.Minute,
	}
	manyBubble(t, opts, func(
		t *testing.T, store *tampered, a, b *cacheguard.Cache[string], o *bulk,
	) {
		for _, key := range []string{"1", "2", "3"} {
			if err := a.Set(t.Context(), key, key+"old"); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(2 * time.Second)
		call := getMany(t.Context(), t, a, o, "1", "2", "4")
		call.waits() // a refreshes, and loads
		loads := map[string]*bulkLoad{}
		for range 2 {
			l := <-o.begin
			loads[fmt.Sprint(l.keys)] = l
		}
		wantMany(t, getMany(t.Context(), t, b, o, "1", "3"), []string{"1old", "3old"}, nil)
		loads["[3]"] = o.next("3") // and b what a doesn't
		for _, keys := range []string{"[1 2]", "[4]", "[3]"} {
			if loads[keys] == nil {
				t.Fatalf("no load of %s: %v", keys, loads)
			}
			loads[keys].gives("new")
		}
		wantMany(t, call, []string{"1old", "2old", "4new"}, nil)
		synctest.Wait()
		wantMany(t, getMany(t.Context(), t, b, o, "1", "2", "3", "4"),
			[]string{"1new", "2new", "3new", "4new"}, nil)
		o.none()
	})
}

// When the store is down the load is one load all the same, and stores nothing.
func TestGetManyWithoutStore(t *testing.T) {
	manyBubble(t, cacheguard.Options[string]{}, func(
		t *testing.T, store *tampered, a, b *cacheguard.Cache[string], o *bulk,
	) {
		for _, step := range []string{"GetMany", "LeaseMany"} {
			store.onto(step, func(context.Context) error { return errTampered })
			call := getMany(t.Context(), t, a, o, "1", "2")
			load := o.next("1", "2")
			joins := getting(t.Context(), t, a, "2", returning("unexpected"))
			joins.waits()
			load.gives("v", "1")
			wantMany(t, call, []string{"2v"}, nil)
			joins.gives("2v", nil)
			store.onto(step, nil)
			time.Sleep(10 * time.Second) // what may be there of leases is given up
		}
		call := getMany(t.Context(), t, a, o, "1", "2")
		o.next("1", "2").gives("w")
		wantMany(t, call, []string{"1w", "2w"}, nil)
	})
	manyBubble(t, cacheguard.Options[string]{OnStoreDown: cacheguard.FailClosed}, func(
		t *testing.T, store *tampered, a, b *cacheguard.Cache[string], o *bulk,
	) {
		for _, step := range []string{"GetMany", "LeaseMany"} {
			store.onto(step, func(context.Context) error { return errTampered })
			wantMany(t, getMany(t.Context(), t, a, o, "1", "2"), nil, cacheguard.KeyErrors{
				"1": cacheguard.ErrUnavailable, "2": cacheguard.ErrUnavailable,
			})
			store.onto(step, nil)
		}
		o.none()
	})
}

// If a key is invalidated or taken over during the load, the other keys are not affected.
func TestGetManyLosesALease(t *testing.T) {
	manyBubble(t, cacheguard.Options[string]{}, func(
		t *testing.T, store *tampered, a, b *cacheguard.Cache[string], o *bulk,
	) {
		call := getMany(t.Context(), t, a, o, "1", "2", "3")
		load := o.next("1", "2", "3")
		if err := b.Invalidate(t.Context(), "1"); err != nil {
			t.Error(err)
		}
		late := getting(t.Context(), t, a, "1", returning("1newer"))
		late.gives("1newer", nil)
		single := newScriptedOrigin[string](t)
		writer := beginCall(t, func() (string, error) {
			return b.Update(t.Context(), "2", single.load)
		})
		writing := single.next()
		time.Sleep(2 * time.Second) // a renewal finds it out
		load.gives("old")
		call.waits()
		writing.gives("2written")
		writer.gives("2written", nil)
		wantMany(t, call, []string{"1old", "2written", "3old"}, nil)
		for _, c := range []*cacheguard.Cache[string]{a, b} {
			wantMany(t, getMany(t.Context(), t, c, o, "1", "2", "3"),
				[]string{"1newer", "2written", "3old"}, nil)
		}
		o.none()
	})
}

// A load of many keys that takes longer than the leases keeps them all, takes one slot, and ends
// with LoadTimeout.
func TestGetManyTakesLong(t *testing.T) {
	manyBubble(t, cacheguard.Options[string]{MaxLoads: 1, LoadTimeout: 20 * time.Second}, func(
		t *testing.T, store *tampered, a, b *cacheguard.Cache[string], o *bulk,
	) {
		call := getMany(t.Context(), t, a, o, "1", "2")
		load := o.next("1", "2")
		elsewhere := getMany(t.Context(), t, b, o, "2", "1")
		queued := getMany(t.Context(), t, a, o, "1", "3")
		time.Sleep(10 * time.Second)
		o.none()
		load.gives("v")
		wantMany(t, call, []string{"1v", "2v"}, nil)
		wantMany(t, elsewhere, []string{"1v", "2v"}, nil)
		o.next("3")
		time.Sleep(21 * time.Second)
		wantMany(t, queued, []string{"1v"}, cacheguard.KeyErrors{"3": context.DeadlineExceeded})
	})
}

// Calls inside a load of many keys can't wait for this load.
func TestGetManyRecursion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := openOn(t, cacheguard.Store(memstore.New(memstore.Options{})),
			cacheguard.Options[string]{MaxLoads: 1})
		got, err := c.GetMany(t.Context(), []string{"1", "2"}, func(
			ctx context.Context, missing []string,
		) (map[string]string, error) {
			if _, err := c.Get(ctx, "2", returning("unexpected")); !errors.Is(err,
				cacheguard.ErrRecursion) {
				t.Errorf("Get of its own key: %v", err)
			}
			inner, err := c.GetMany(ctx, []string{"1", "3"}, func(
				_ context.Context, missing []string,
			) (map[string]string, error) {
				return map[string]string{"3": "3inner"}, nil
			})
			checkMany(t, inner, err, []string{"3inner"},
				cacheguard.KeyErrors{"1": cacheguard.ErrRecursion})
			return map[string]string{"1": "1" + inner["3"], "2": "2"}, nil
		})
		checkMany(t, got, err, []string{"13inner", "2"}, nil)
	})
}

func TestGetManyBy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := openOn(t, cacheguard.Store(memstore.New(memstore.Options{})),
			cacheguard.Options[string]{})
		key := func(id int) string { return fmt.Sprint(id % 10) }
		var asked [][]int
		load := func(_ context.Context, missing []int) (map[int]string, error) {
			asked = append(asked, missing)
			values := make(map[int]string)
			for _, id := range missing {
				if id != 3 && id != 4 {
					values[id] = fmt.Sprint("v", id)
				}
			}
			return values, cacheguard.KeyErrors{"4": errTampered}
		}
		for range 2 {
			got, err := cacheguard.GetManyBy(t.Context(), c, []int{1, 2, 3, 12, 1, 4}, key, load)
			if want := map[int]string{1: "v1", 2: "v2", 12: "v2"}; !maps.Equal(got, want) {
				t.Errorf("got %v; want %v", got, want)
			}
			var failed cacheguard.KeyErrors
			if !errors.As(err, &failed) || len(failed) != 1 || !errors.Is(err, errTampered) {
				t.Errorf("the error is %v", err)
			}
		}
		if len(asked) != 1 || !slices.Equal(asked[0], []int{1, 2, 3, 4}) {
			t.Errorf("loaded %v", asked)
		}
		if _, err := cacheguard.GetManyBy(t.Context(), c, []int{1}, nil, load); err == nil {
			t.Error("no key function is no error")
		}
		c.Close()
		if got, err := cacheguard.GetManyBy(t.Context(), c, []int{1}, key, load); !errors.Is(err,
			cacheguard.ErrClosed) || got != nil {
			t.Errorf("of a closed cache: %v, %v", got, err)
		}
	})
}

// If a batch waits for a load in another process and this load brings no result, the batch goes on
// together: with one load and one slot.
func TestGetManyTakesOver(t *testing.T) {
	var keys []string
	for i := range 100 {
		keys = append(keys, fmt.Sprint(100+i))
	}
	for name, end := range map[string]func(t *testing.T, a, b *cacheguard.Cache[string],
		load *bulkLoad, leave func()){
		"closed": func(t *testing.T, a, b *cacheguard.Cache[string], load *bulkLoad, leave func()) {
			a.Close()
		},
		"left": func(t *testing.T, a, b *cacheguard.Cache[string], load *bulkLoad, leave func()) {
			leave()
		},
		"invalidated": func(
			t *testing.T, a, b *cacheguard.Cache[string], load *bulkLoad, leave func(),
		) {
			b.Invalidate(t.Context(), keys...)
		},
		"too large": func(
			t *testing.T, a, b *cacheguard.Cache[string], load *bulkLoad, leave func(),
		) {
			load.gives(strings.Repeat("x", 10_000))
		},
	} {
		t.Run(name, func(t *testing.T) {
			manyBubble(t, cacheguard.Options[string]{MaxValueSize: 5000, MaxLoads: 1}, func(
				t *testing.T, store *tampered, a, b *cacheguard.Cache[string], o *bulk,
			) {
				ctx, leave := context.WithCancel(t.Context())
				defer leave()
				first := getMany(ctx, t, a, o, keys...)
				load := o.next(keys...)
				second := getMany(t.Context(), t, b, o, keys...)
				second.waits()
				end(t, a, b, load, leave)
				time.Sleep(100 * time.Millisecond)
				synctest.Wait()
				again := <-o.begin
				sorted := slices.Sorted(slices.Values(again.keys))
				if !slices.Equal(sorted, keys) {
					t.Errorf("the load that takes over is of %d keys", len(again.keys))
				}
				o.none()
				again.gives("v")
				var want []string
				for _, key := range keys {
					want = append(want, key+"v")
				}
				wantMany(t, second, want, nil)
				if name == "invalidated" {
					load.gives("old")
				}
				first.later()
				if name != "too large" {
					for _, key := range keys {
						if r, err := b.Peek(t.Context(), key); err != nil ||
							r.Status != cacheguard.StatusHit {
							t.Fatalf("%s is not stored: %v, %v", key, r.Status, err)
						}
					}
				}
			})
		})
	}
}

// Close ends a load of many keys, and its callers get ErrClosed.
func TestGetManyCloses(t *testing.T) {
	manyBubble(t, cacheguard.Options[string]{}, func(
		t *testing.T, store *tampered, a, b *cacheguard.Cache[string], o *bulk,
	) {
		call := getMany(t.Context(), t, a, o, "1", "2")
		o.next("1", "2")
		if err := a.Close(); err != nil {
			t.Error(err)
		}
		wantMany(t, call, nil,
			cacheguard.KeyErrors{"1": cacheguard.ErrClosed, "2": cacheguard.ErrClosed})
		for _, key := range []string{"1", "2"} {
			if !leaseFree(t, store, key) {
				t.Errorf("the lease of %s is held", key)
			}
		}
	})
}

// A stale value that GetMany has read is not for callers who come after its invalidation, although
// the flight in which it is kept for them begins only then.
func TestGetManyOffersNothingFromBeforeAChange(t *testing.T) {
	for how, invalidate := range map[string]func(context.Context, *cacheguard.Cache[string]) error{
		"key": func(ctx context.Context, c *cacheguard.Cache[string]) error {
			return c.Invalidate(ctx, "k")
		},
		"tag": func(ctx context.Context, c *cacheguard.Cache[string]) error {
			return c.InvalidateTags(ctx, "tag")
		},
		"all": func(ctx context.Context, c *cacheguard.Cache[string]) error {
			return c.InvalidateAll(ctx)
		},
	} {
		for name, opts := range map[string]cacheguard.Options[string]{
			"if error":  {TTL: time.Second, StaleIfError: time.Hour},
			"meanwhile": {TTL: time.Second, StaleIfError: time.Hour, SoftTimeout: time.Second},
		} {
			inBubble(t, how+"/"+name, func(t *testing.T) {
				var c *cacheguard.Cache[string]
				change := func() {}
				opts.Observer = observing(func(e cacheguard.Event) {
					// Read, and no flight has begun.
					if e.Kind == cacheguard.EventMiss && e.Key == "missing" {
						change()
					}
				})
				c = openOn(t, cacheguard.Store(memstore.New(memstore.Options{})), opts)
				gets(t, c, "k", tagged("old", "tag"), "old", cacheguard.StatusLoaded)
				time.Sleep(2 * time.Second)
				change = func() {
					if err := invalidate(t.Context(), c); err != nil {
						t.Error(err)
					}
				}
				boom, gate := errors.New("boom"), make(chan struct{})
				load := func(context.Context, []string) (map[string]string, error) {
					<-gate
					return nil, boom
				}
				many := beginCall(t, func() (map[string]string, error) {
					return c.GetMany(t.Context(), []string{"k", "missing"}, load)
				})
				synctest.Wait()
				late := getting(t.Context(), t, c, "k", func(context.Context) (string, error) {
					return "", boom
				})
				time.Sleep(2 * time.Second)
				close(gate)
				<-late.done
				if late.value != "" || !errors.Is(late.err, boom) {
					t.Errorf("a call that began after the invalidation got %q, %v", late.value,
						late.err)
				}
				<-many.done
			})
		}
	}
}

// A load may change the list of keys that it gets. Its values count all the same.
func TestGetManyWhoseLoadChangesItsKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := openOn(t, memstore.New(memstore.Options{}), cacheguard.Options[string]{})
		bare := func(missing []string) map[string]string {
			values := make(map[string]string)
			for i, key := range missing {
				values[key] = key + "v"
				missing[i] = strings.TrimPrefix(key, "user ")
			}
			return values
		}
		got, err := c.GetMany(t.Context(), []string{"user 1", "user 2"}, func(
			_ context.Context, missing []string,
		) (map[string]string, error) {
			return bare(missing), nil
		})
		checkMany(t, got, err, []string{"user 1v", "user 2v"}, nil)
		results, err := c.GetManyEntries(t.Context(), []string{"user 3", "user 4"}, func(
			_ context.Context, missing []string,
		) (map[string]cacheguard.Entry[string], error) {
			entries := make(map[string]cacheguard.Entry[string])
			for key, v := range bare(missing) {
				entries[key] = cacheguard.Entry[string]{Value: v}
			}
			return entries, nil
		})
		got = make(map[string]string)
		for key, r := range results {
			got[key] = r.Value
		}
		checkMany(t, got, err, []string{"user 3v", "user 4v"}, nil)
		by, err := cacheguard.GetManyBy(t.Context(), c, []int{5, 6}, func(id int) string {
			return fmt.Sprint("user ", id)
		},
			func(_ context.Context, missing []int) (map[int]string, error) {
				values := make(map[int]string)
				for i, id := range missing {
					values[id] = "v"
					missing[i] = 0
				}
				return values, nil
			})
		if len(by) != 2 || by[5] != "v" || by[6] != "v" || err != nil {
			t.Errorf("GetManyBy: %v, %v", by, err)
		}
	})
}

// TestGetManyCountsARepeatedKeyOnce looks at the events of a call that names a cold key three
// times.
func TestGetManyCountsARepeatedKeyOnce(t *testing.T) {
	for name, opts := range map[string]cacheguard.Options[string]{
		"on": {}, "off": {Switch: switched(t, cacheguard.ModeOff)},
		"shadow": {Switch: switched(t, cacheguard.ModeShadow)},
	} {
		t.Run(name, func(t *testing.T) {
			var mu sync.Mutex
			counts := map[cacheguard.EventKind]int{}
			opts.Name = "c"
			opts.Observer = observing(func(e cacheguard.Event) {
				mu.Lock()
				defer mu.Unlock()
				counts[e.Kind]++
				if e.Kind == cacheguard.EventLoad && (e.Key != "k" || e.More != 1) {
					t.Errorf("the event of the load has key %q and %d more; want the first key and 1 more",
						e.Key, e.More)
				}
			})
			c, err := cacheguard.New(memstore.New(memstore.Options{}), opts)
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			got, err := c.GetMany(t.Context(), []string{"k", "k", "other", "k"}, func(
				_ context.Context, missing []string,
			) (map[string]string, error) {
				if want := []string{"k", "other"}; !slices.Equal(missing, want) {
					t.Errorf("the load was asked for %q, want %q", missing, want)
				}
				return map[string]string{"k": "v", "other": "w"}, nil
			})
			if err != nil || got["k"] != "v" || got["other"] != "w" {
				t.Errorf("got %q and %v", got, err)
			}
			mu.Lock()
			defer mu.Unlock()
			misses := 2
			if name == "off" {
				misses = 0 // nothing was looked up
			}
			if counts[cacheguard.EventMiss] != misses || counts[cacheguard.EventLoad] != 1 ||
				counts[cacheguard.EventLoaded] != 2 {
				t.Errorf("%d misses, %d loads, %d answers by them; want %d, 1 and 2",
					counts[cacheguard.EventMiss], counts[cacheguard.EventLoad],
					counts[cacheguard.EventLoaded], misses)
			}
		})
	}
}

func switched(t *testing.T, mode cacheguard.Mode) *cacheguard.Switch {
	t.Helper()
	s := new(cacheguard.Switch)
	if err := s.Set(mode); err != nil {
		t.Fatal(err)
	}
	return s
}
