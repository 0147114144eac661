package coretest_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/cacheguard/memstore"
)

// This file tests the age of values whose generations are read in a trip of their own, and this
// trip takes 200 ms.

// slowReads is a store whose GetMany brings no generations, so that GetMany has to read them.
type slowReads struct{ slowGenerations }

func (s *slowReads) GetMany(
	ctx context.Context, keys []cacheguard.Key, tags []string,
) ([]cacheguard.Reply[[]byte], cacheguard.Generations) {
	all, _ := s.Store.GetMany(ctx, keys, tags)
	return all, nil
}

// A value that comes instead of the lease ages during the trip, too.
func TestValueInsteadOfALeaseAges(t *testing.T) {
	const ttl = time.Second
	local := cacheguard.Local[string]{Entries: 10}
	inBubble(t, "one", func(t *testing.T) {
		store := &slowGenerations{memstore.New(memstore.Options{}), 200 * time.Millisecond}
		other := openOn(t, cacheguard.Store(store), cacheguard.Options[string]{TTL: ttl})
		c := openOn(t, cacheguard.Store(store), cacheguard.Options[string]{TTL: ttl, Local: local})
		must(t, other.SetEntry(t.Context(), "k", entry{Value: "v", Tags: []string{"tag"}}))
		set := time.Now()
		time.Sleep(100 * time.Millisecond)
		r, err := c.GetResult(t.Context(), "k", returning("new"))
		if r.Value != "v" || err != nil {
			t.Fatal(r, err)
		}
		if r.Age < time.Since(set)-time.Millisecond {
			t.Errorf("it is %v old, and was stored %v ago", r.Age, time.Since(set))
		}
		time.Sleep(time.Until(set.Add(ttl + 100*time.Millisecond)))
		if r, ok := c.Local("k"); ok {
			t.Errorf("the local tier has %+v, %v after it was stored", r, time.Since(set))
		}
	})
	inBubble(t, "many", func(t *testing.T) {
		store := newTampered()
		other := openOn(t, cacheguard.Store(store), cacheguard.Options[string]{TTL: ttl})
		c := openOn(t, cacheguard.Store(&slowGenerations{store, 200 * time.Millisecond}),
			cacheguard.Options[string]{TTL: ttl, Local: local})
		asks := make(chan struct{})
		store.past("GetMany", func(context.Context) error { <-asks; return nil })
		many := getMany(t.Context(), t, c, newBulk(t), "a", "b")
		many.waits()
		for _, k := range []string{"a", "b"} {
			must(t, other.SetEntry(t.Context(), k, entry{Value: k, Tags: []string{"tag"}}))
		}
		set := time.Now()
		close(asks)
		if got, err := many.later(); len(got) != 2 || err != nil {
			t.Fatal(got, err)
		}
		time.Sleep(time.Until(set.Add(ttl + 100*time.Millisecond)))
		for _, k := range []string{"a", "b"} {
			if r, ok := c.Local(k); ok {
				t.Errorf("the local tier has %+v, %v after it was stored", r, time.Since(set))
			}
		}
	})
}

// The previous value that a load sees has aged during all trips.
func TestPreviousValueAges(t *testing.T) {
	inBubble(t, "", func(t *testing.T) {
		store := &slowGenerations{memstore.New(memstore.Options{}), 200 * time.Millisecond}
		c := openLookingFirst(t, cacheguard.Store(store),
			cacheguard.Options[string]{TTL: time.Second})
		must(t,
			c.SetEntry(t.Context(), "k", entry{Value: "v", Tags: []string{"tag"}, Keep: time.Hour}))
		set := time.Now()
		time.Sleep(2 * time.Second)
		_, err := c.GetEntry(t.Context(), "k", func(
			_ context.Context, previous cacheguard.Result[string],
		) (entry, error) {
			if previous.Value != "v" || (previous.Age-time.Since(set)).Abs() > 2*time.Millisecond ||
				(previous.FreshFor+time.Since(set)-time.Second).Abs() > 2*time.Millisecond {
				t.Errorf("%+v, %v after it was stored for a second", previous, time.Since(set))
			}
			return entry{Value: "new"}, nil
		})
		must(t, err)
	})
}

// A value that a soft tag has made stale may be served for its whole stale window.
func TestStaleWindowAfterATripForGenerations(t *testing.T) {
	for _, many := range []bool{false, true} {
		inBubble(t, fmt.Sprint(many), func(t *testing.T) {
			const took = 200 * time.Millisecond
			store := &slowReads{slowGenerations{memstore.New(memstore.Options{}), took}}
			c := openLookingFirst(t, cacheguard.Store(store),
				cacheguard.Options[string]{TTL: time.Hour, StaleIfError: time.Second})
			must(t, c.SetEntry(t.Context(), "k", entry{Value: "old", SoftTags: []string{"soft"}}))
			time.Sleep(time.Minute)
			must(t, c.MarkStaleTags(t.Context(), "soft"))
			marked := time.Now()
			time.Sleep(850*time.Millisecond - took)
			var r cacheguard.Result[string]
			var err error
			if many {
				var all map[string]cacheguard.Result[string]
				all, err = c.GetManyEntries(t.Context(), []string{"k"}, func(
					context.Context, []string,
				) (map[string]entry, error) {
					return nil, errOrigin
				})
				r = all["k"]
			} else {
				r, err = c.GetResult(t.Context(), "k", failingWith[string](errOrigin))
			}
			if r.Value != "old" || err != nil || -r.FreshFor > time.Since(marked)+time.Millisecond {
				t.Errorf("%v after the mark, within StaleIfError of a second: %+v, %v",
					time.Since(marked), r, err)
			}
		})
	}
}

// A value whose TTL ends during the trip is no hit.
func TestTTLEndsDuringTheTripForGenerations(t *testing.T) {
	inBubble(t, "", func(t *testing.T) {
		store := &slowGenerations{memstore.New(memstore.Options{}), 200 * time.Millisecond}
		c := openLookingFirst(t, cacheguard.Store(store),
			cacheguard.Options[string]{TTL: time.Second})
		must(t, c.SetEntry(t.Context(), "k", entry{Value: "old", Tags: []string{"tag"}}))
		time.Sleep(900 * time.Millisecond)
		if r, err := c.GetResult(t.Context(), "k", returning("new")); r.Value != "new" ||
			err != nil {
			t.Errorf("TTL is a second, without stale windows: %+v, %v", r, err)
		}
	})
}

// One key of a batch gets the lease and has a stale value. Another key comes as a value whose
// generations are read. The first key's value ages during that trip, too.
func TestGrantedKeyAgesDuringTheTripOfAnother(t *testing.T) {
	for _, ifError := range []time.Duration{time.Hour, 1200 * time.Millisecond} {
		inBubble(t, fmt.Sprint(ifError), func(t *testing.T) {
			const took = 400 * time.Millisecond
			store := newTampered()
			slow := &slowGenerations{store, took}
			other := openOn(t, cacheguard.Store(store),
				cacheguard.Options[string]{TTL: time.Second, StaleIfError: ifError})
			c := openLookingFirst(t, cacheguard.Store(slow),
				cacheguard.Options[string]{TTL: time.Second, StaleIfError: ifError})
			must(t, other.Set(t.Context(), "a", "old"))
			set := time.Now()
			time.Sleep(2 * time.Second)
			asks := make(chan struct{})
			store.past("GetMany", func(context.Context) error { <-asks; return nil })
			call := beginCall(t, func() (map[string]cacheguard.Result[string], error) {
				return c.GetManyEntries(t.Context(), []string{"a", "b"}, func(
					context.Context, []string,
				) (map[string]entry, error) {
					return nil, errOrigin
				})
			})
			synctest.Wait()
			must(t, other.SetEntry(t.Context(), "b", entry{Value: "b", Tags: []string{"tag"}}))
			close(asks)
			all, _ := call.later()
			real := time.Since(set)
			a := all["a"]
			if a.Value == "old" && a.Age < real-10*time.Millisecond {
				t.Errorf("served with Age %v, but it was stored %v ago", a.Age, real)
			}
			if a.Value == "old" && real > time.Second+ifError {
				t.Errorf("served %v after it was stored, TTL %v and StaleIfError %v", real,
					time.Second, ifError)
			}
		})
	}
}
