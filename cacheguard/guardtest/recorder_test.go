package guardtest_test

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/cacheguard/guardtest"
)

func TestRecorderCounts(t *testing.T) {
	var rec guardtest.Recorder
	if rec.Count(cacheguard.EventLoad) != 0 || rec.Events() != nil || rec.String() != "no events" {
		t.Errorf("a new one has %v", &rec)
	}
	for _, e := range []cacheguard.Event{
		{Kind: cacheguard.EventMiss, Key: "a"},
		{Kind: cacheguard.EventLoad, Key: "a", Err: errDown},
		{Kind: cacheguard.EventMiss, Key: "b"},
	} {
		rec.Observe(t.Context(), e)
	}
	if n := rec.Count(cacheguard.EventMiss); n != 2 || rec.Count(cacheguard.EventHit) != 0 {
		t.Errorf("%d misses", n)
	}
	if got := rec.String(); got != "miss: 2, load: 1" {
		t.Errorf("String: %q", got)
	}
	var keys []string
	for _, e := range rec.Events(cacheguard.EventMiss, cacheguard.EventHit) {
		keys = append(keys, e.Key)
	}
	if !slices.Equal(keys, []string{"a", "b"}) || len(rec.Events()) != 3 {
		t.Errorf("events of %q, %d in all", keys, len(rec.Events()))
	}
	if loads := rec.Events(cacheguard.EventLoad); len(loads) != 1 || loads[0].Err != errDown {
		t.Errorf("loads: %+v", loads)
	}
}

// The counts are of everything, the events of the latest.
func TestRecorderIsBounded(t *testing.T) {
	const most, all = 10_000, 45_001
	var rec guardtest.Recorder
	for i := range all {
		rec.Observe(t.Context(), cacheguard.Event{Kind: cacheguard.EventHit, Key: fmt.Sprint(i)})
	}
	events := rec.Events()
	if len(events) != most || events[0].Key != fmt.Sprint(all-most) ||
		events[most-1].Key != fmt.Sprint(all-1) {
		t.Errorf("%d events, from %q to %q", len(events), events[0].Key, events[len(events)-1].Key)
	}
	if n := rec.Kept(); n > 2*most {
		t.Errorf("it keeps %d events", n)
	}
	if n := rec.Count(cacheguard.EventHit); n != all {
		t.Errorf("%d hits; want %d", n, all)
	}
}

func TestRecorderAwaits(t *testing.T) {
	const all = 1000
	var rec guardtest.Recorder
	for range all {
		go rec.Observe(t.Context(), cacheguard.Event{Kind: cacheguard.EventHit})
	}
	rec.Await(t, cacheguard.EventHit, all/2)
	rec.Await(t, cacheguard.EventHit, all)
	if n := rec.Count(cacheguard.EventHit); n != all || len(rec.Events()) != all {
		t.Errorf("%d hits, %d events", n, len(rec.Events()))
	}
}

func TestRecorderAwaitFailsClearly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var rec guardtest.Recorder
		rec.Observe(t.Context(), cacheguard.Event{Kind: cacheguard.EventHit})
		rec.Observe(t.Context(), cacheguard.Event{Kind: cacheguard.EventLoad})
		asTest(func(tb testing.TB) {
			rec.Await(tb, cacheguard.EventLoad, 2)
		}).diesWith(t, `awaited 2 of "load", saw 1 (hit: 1, load: 1) within 1m0s`)
	})
}
