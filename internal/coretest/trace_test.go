package coretest_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/cacheguard/memstore"
)

// tracing is an observer that follows loads: it notes the name of the replica and the number of the
// load.
type tracing struct {
	name string
	// Changes what StartLoad returns; nil: nothing.
	start func(ctx context.Context, note []byte) (context.Context, []byte)

	mu     sync.Mutex // guards what follows
	loads  int
	ended  []string
	events []cacheguard.Event
}

type tracedKey struct{}

func (o *tracing) Observe(_ context.Context, e cacheguard.Event) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.events = append(o.events, e)
}

func (o *tracing) StartLoad(
	ctx context.Context, cache, key string,
) (context.Context, []byte, func(error, bool)) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.loads++
	note := fmt.Sprintf("%s/%s/%s/%d", o.name, cache, key, o.loads)
	loadCtx, its := context.WithValue(ctx, tracedKey{}, note), []byte(note)
	if o.start != nil {
		loadCtx, its = o.start(loadCtx, its)
	}
	return loadCtx, its, func(err error, notFound bool) {
		o.mu.Lock()
		defer o.mu.Unlock()
		o.ended = append(o.ended, fmt.Sprintf("%s: %v %v", note, err, notFound))
	}
}

// notes are those of all events of a kind.
func (o *tracing) notes(kind cacheguard.EventKind) (all []string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, e := range o.events {
		if e.Kind == kind {
			all = append(all, string(e.Note))
		}
	}
	return all
}

// Every caller that waited for a load, in its process or in another one, gets the load's note, for
// every end of the load.
func TestNotesReachAllWhoWait(t *testing.T) {
	const ofLoad = "here/behave/k/1"
	failed := errors.New("no such table")
	value := func(v string, err error) cacheguard.EntryFunc[string] {
		return func(context.Context, cacheguard.Result[string]) (cacheguard.Entry[string], error) {
			return cacheguard.Entry[string]{Value: v}, err
		}
	}
	for name, c := range map[string]struct {
		load  cacheguard.EntryFunc[string]
		ended string
		alone bool // those who wait load for themselves
	}{
		"value":       {load: value("v", nil), ended: "<nil> false"},
		"large value": {load: value(strings.Repeat("v", 100<<10), nil), ended: "<nil> false"},
		"not found":   {load: value("", cacheguard.ErrNotFound), ended: "<nil> true"},
		"failure":     {load: value("", failed), ended: "no such table false"},
		"panic": {load: func(
			context.Context, cacheguard.Result[string],
		) (cacheguard.Entry[string], error) {
			panic("x")
		}, ended: "cacheguard: load panicked: x"},
		"Goexit": {load: func(
			context.Context, cacheguard.Result[string],
		) (e cacheguard.Entry[string], err error) {
			runtime.Goexit()
			return e, err
		}, ended: "cacheguard: load called runtime.Goexit false"},
		"not stored": {load: func(
			context.Context, cacheguard.Result[string],
		) (cacheguard.Entry[string], error) {
			return cacheguard.Entry[string]{Value: "v", NoStore: true}, nil
		}, ended: "<nil> false"},
		"too late": {load: func(
			ctx context.Context, _ cacheguard.Result[string],
		) (cacheguard.Entry[string], error) {
			time.Sleep(time.Minute) // in the bubble; it ignores its context
			return cacheguard.Entry[string]{Value: "v"}, nil
		}, ended: "<nil> false"},
		"too large": {
			load: value(strings.Repeat("v", 1<<20), nil), ended: "<nil> false", alone: true,
		},
		"not shared": {load: func(
			context.Context, cacheguard.Result[string],
		) (cacheguard.Entry[string], error) {
			return cacheguard.Entry[string]{Value: "v", NoShare: true}, nil
		}, ended: "<nil> false", alone: true},
	} {
		inBubble(t, name, func(t *testing.T) {
			store := memstore.New(memstore.Options{})
			defer store.Close()
			here, there := &tracing{name: "here"}, &tracing{name: "there"}
			opts := cacheguard.Options[string]{
				LeaseTTL: time.Minute, LoadTimeout: 10 * time.Second, MaxValueSize: 200 << 10,
			}
			opts.Observer = here
			a := openOn(t, store, opts)
			opts.Observer = there
			b := openOn(t, store, opts)
			gate := make(chan struct{})
			load := func(
				ctx context.Context, prev cacheguard.Result[string],
			) (cacheguard.Entry[string], error) {
				<-gate
				return c.load(ctx, prev)
			}
			var calling sync.WaitGroup
			for _, cache := range []*cacheguard.Cache[string]{a, a, b, b} {
				calling.Go(func() { _, _ = cache.GetEntry(t.Context(), "k", load) })
				synctest.Wait()
			}
			time.Sleep(time.Second) // in the bubble
			close(gate)
			calling.Wait()
			a.Close()
			b.Close()
			time.Sleep(time.Minute) // in the bubble, for loads that ignored their context

			check := func(what string, got []string, want ...string) {
				t.Helper()
				if !slices.Equal(got, want) {
					t.Errorf("%s have the notes %q, want %q", what, got, want)
				}
			}
			check("loads here", here.notes(cacheguard.EventLoad)[:1], ofLoad)
			if got := here.notes(cacheguard.EventLoaded); !slices.Contains(got, ofLoad) {
				t.Errorf("those here who began loads have the notes %q, want %q among them", got,
					ofLoad)
			}
			check("waits for the other process", there.notes(cacheguard.EventWaited), ofLoad)
			if !c.alone {
				check("those here who waited", here.notes(cacheguard.EventCoalesced), ofLoad)
				check("those there who waited", there.notes(cacheguard.EventCoalesced), ofLoad,
					ofLoad)
				for _, o := range []*tracing{here, there} {
					for _, e := range o.events {
						if e.Kind == cacheguard.EventCoalesced &&
							e.Took != time.Second+map[bool]time.Duration{
								true: 9 * time.Second,
							}[name == "too late"] {
							t.Errorf("a caller has waited for %v", e.Took)
						}
					}
				}
			}
			if len(here.ended) == 0 || !strings.HasPrefix(here.ended[0], ofLoad+": "+c.ended) {
				t.Errorf("the load was followed to %q, want %q", here.ended, c.ended)
			}
			if len(here.ended) != here.loads || len(there.ended) != there.loads {
				t.Errorf("%d of %d and %d of %d loads were followed to their ends", len(here.ended),
					here.loads, len(there.ended), there.loads)
			}
		})
	}
}

// Callers who waited for a failed refresh and got the stale value are led to it, too.
func TestNoteOfAStaleAnswer(t *testing.T) {
	inBubble(t, "", func(t *testing.T) {
		o := &tracing{name: "o"}
		c := fleetOf(t, 1,
			cacheguard.Options[int]{TTL: time.Second, StaleIfError: time.Hour, Observer: o})[0]
		load := func(n int, err error) cacheguard.LoadFunc[int] {
			return func(context.Context) (int, error) {
				time.Sleep(time.Second) // in the bubble
				return n, err
			}
		}
		_, _ = c.Get(t.Context(), "k", load(1, nil))
		time.Sleep(2 * time.Second)
		if v, err := c.Get(t.Context(), "k", load(2, errors.New("no such table"))); v != 1 ||
			err != nil {
			t.Fatalf("got %v, %v", v, err)
		}
		_, _ = c.Get(t.Context(), "k", load(3, nil)) // in the back-off
		if got := o.notes(cacheguard.EventStale); !slices.Equal(got, []string{"o/stale/k/2", ""}) {
			t.Errorf("stale answers have the notes %q", got)
		}
	})
}

// The load gets the tracer's context, unless that isn't made of its own, and whatever the tracer
// does, it is bounded.
func TestTracersContext(t *testing.T) {
	long := strings.Repeat("x", 256)
	for name, c := range map[string]struct {
		start  func(ctx context.Context, note []byte) (context.Context, []byte)
		traced bool // the load's context is the tracer's
		note   string
	}{
		"as it should be": {nil, true, "o/behave/k/1"},
		"nil": {func(context.Context, []byte) (context.Context, []byte) {
			return nil, nil
		}, false, ""},
		"another one": {func(ctx context.Context, _ []byte) (context.Context, []byte) {
			other, cancel := context.WithCancel(context.Background())
			context.AfterFunc(ctx, cancel)
			return other, nil
		}, false, ""},
		"endless": {func(ctx context.Context, note []byte) (context.Context, []byte) {
			return context.WithoutCancel(ctx), note
		}, false, "o/behave/k/1"},
		"long note": {func(ctx context.Context, note []byte) (context.Context, []byte) {
			return ctx, []byte(long)
		}, true, ""},
		"longest note": {func(ctx context.Context, note []byte) (context.Context, []byte) {
			return ctx, []byte(long[1:])
		}, true, long[1:]},
		"panic": {func(context.Context, []byte) (context.Context, []byte) {
			panic("tracer")
		}, false, ""},
	} {
		inBubble(t, name, func(t *testing.T) {
			o := &tracing{name: "o", start: c.start}
			store := memstore.New(memstore.Options{})
			defer store.Close()
			cache := openOn(t, store,
				cacheguard.Options[string]{Observer: o, LoadTimeout: time.Second})
			v, err := cache.Get(t.Context(), "k", func(ctx context.Context) (string, error) {
				if by, ok := ctx.Deadline(); !ok || time.Until(by) > time.Second {
					t.Errorf("the load has the deadline %v, %v", by, ok)
				}
				if traced := ctx.Value(tracedKey{}) != nil; traced != c.traced {
					t.Errorf("the load has the tracer's context: %v, want %v", traced, c.traced)
				}
				if _, err := cache.Get(ctx, "k", func(context.Context) (string, error) {
					return "", nil
				}); !errors.Is(err, cacheguard.ErrRecursion) {
					t.Errorf("a load that asks for its own key gets %v", err)
				}
				return "v", nil
			})
			if v != "v" || err != nil {
				t.Errorf("got %q, %v", v, err)
			}
			if got := o.notes(cacheguard.EventLoaded); !slices.Equal(got, []string{c.note}) {
				t.Errorf("the note is %q, want %q", got, c.note)
			}
		})
	}
}

// Each of several observers gets its events in order, and a failing observer doesn't disturb the
// others.
func TestObservers(t *testing.T) {
	one, two := &tracing{name: "one"}, &tracing{name: "two"}
	if o := cacheguard.Observers(nil, one, nil); o != cacheguard.Observer(one) {
		t.Errorf("of one observer comes %v", o)
	}
	if o := cacheguard.Observers(); o != nil {
		t.Errorf("of no observer comes %v", o)
	}
	silent := &tracing{name: "silent", start: func(
		ctx context.Context, _ []byte,
	) (context.Context, []byte) {
		return ctx, nil
	}}
	broken := &tracing{name: "broken", start: func(
		context.Context, []byte,
	) (context.Context, []byte) {
		panic("tracer")
	}}
	foreign := &tracing{name: "foreign", start: func(
		context.Context, []byte,
	) (context.Context, []byte) {
		return context.Background(), nil
	}}
	endless := &tracing{name: "endless", start: func(
		ctx context.Context, _ []byte,
	) (context.Context, []byte) {
		return context.WithoutCancel(ctx), nil
	}}
	wordy := &tracing{name: "wordy", start: func(
		ctx context.Context, _ []byte,
	) (context.Context, []byte) {
		return ctx, make([]byte, 256)
	}}
	inBubble(t, "", func(t *testing.T) {
		store := memstore.New(memstore.Options{})
		defer store.Close()
		all := cacheguard.Observers(observing(func(cacheguard.Event) { panic("observer") }), silent,
			broken, foreign, endless, wordy, one, two)
		c := openOn(t, store, cacheguard.Options[string]{Observer: all})
		_, err := c.Get(t.Context(), "k", func(ctx context.Context) (string, error) {
			if got := ctx.Value(tracedKey{}); got != "two/behave/k/1" {
				t.Errorf("the load is inside of %v, want the last one", got)
			}
			return "v", nil
		})
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range []*tracing{silent, foreign, endless, wordy, one, two} {
			if got := o.notes(cacheguard.EventLoaded); !slices.Equal(got,
				[]string{"one/behave/k/1"}) {
				t.Errorf("%s was told the notes %q, want the first one", o.name, got)
			}
			if len(o.ended) != 1 {
				t.Errorf("%s followed the load to %d ends", o.name, len(o.ended))
			}
		}
	})
}
