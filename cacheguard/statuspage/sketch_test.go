package statuspage

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cacheguard/cacheguard/cacheguard"
)

// If the share of a key is larger than the share of one counter, the key is found among any number
// of other keys. The found keys are in order, and keys that are no longer hit are forgotten.
func TestHottest(t *testing.T) {
	var h hottest
	hits := func(names ...string) {
		for i := range 20_000 {
			for n, name := range names {
				if rand.N(100) < 20/(n+1) {
					h.hit(name)
				}
			}
			h.hit(fmt.Sprint("once ", i))
		}
	}
	hits("first", "second")
	if top := h.top(); top[0].Key != "first" || top[1].Key != "second" || top[0].Share < 0.1 ||
		top[0].Share > 0.25 {
		t.Errorf("found %v", top)
	}
	hits("third")
	hits("third")
	if top := h.top(); top[0].Key != "third" || len(h.count) > counters || len(top) != mostHot {
		t.Errorf("later %v, of %d", top, len(h.count))
	}
}

// The key with the fewest hits makes room for a new one, also if it is the empty key.
func TestHottestForgetsTheEmptyKey(t *testing.T) {
	for range 100 { // in which the counters are looked at in different orders
		var h hottest
		h.hit("")
		for i := 1; i < counters; i++ {
			h.hit(fmt.Sprint(i))
			h.hit(fmt.Sprint(i))
		}
		h.hit("new")
		if _, stays := h.count[""]; stays || h.count["new"] != 2 {
			t.Fatalf("the empty key stays: %v; the new one has %d", stays, h.count["new"])
		}
	}
}

// The slowest loads of the last minutes are kept, each key once, and older ones go.
func TestSlowest(t *testing.T) {
	var s slowest
	now := time.Now()
	for i := range 1000 {
		s.took(slowLoad{
			Cache: "a", Key: fmt.Sprint(i % 100),
			Took: time.Duration(i%100+i/500) * time.Millisecond, At: now,
		})
	}
	top := s.top(now)
	if len(top) != mostSlow || top[0].Key != "99" || top[0].Took != 100*time.Millisecond ||
		top[mostSlow-1].Key != fmt.Sprint(100-mostSlow) {
		t.Errorf("found %v", top)
	}
	later := now.Add(window)
	s.took(slowLoad{Cache: "a", Key: "99", Took: time.Second, At: later})
	if top := s.top(later); len(top) != mostSlow || top[0].Took != time.Second ||
		top[1].Key != "98" {
		t.Errorf("after one window %v", top)
	}
	again := later.Add(time.Second)
	// The second one isn't nearly as slow.
	for _, took := range []time.Duration{600 * time.Millisecond, 400 * time.Millisecond} {
		s.took(slowLoad{Cache: "a", Key: "99", Took: took, At: again})
		if top := s.top(again); top[0].Took != time.Second || !top[0].At.Equal(later) ||
			!top[0].Last.Equal(later.Add(time.Second)) {
			t.Errorf("after another load of %v: %+v", took, top[0])
		}
		again = again.Add(time.Second)
	}
	if top := s.top(later.Add(window)); len(top) != 1 {
		t.Errorf("after two windows %v", top)
	}
	if top := s.top(later.Add(3 * window)); len(top) != 0 {
		t.Errorf("long after %v", top)
	}
}

// The same trouble is one line, also where two alternate, and the last ones are kept.
func TestTroubles(t *testing.T) {
	var all troubles
	began := time.Now()
	for i := range 100 {
		for n := range 3 {
			at := began.Add(time.Duration(n) * time.Second)
			all.add(trouble{
				At: at, Since: at, Cache: "a", Keys: []string{fmt.Sprint(n)}, What: "load failed",
				Why: fmt.Sprint(i),
			})
			all.add(trouble{
				At: at, Since: at, Cache: "a", Keys: []string{fmt.Sprint(min(n, 1))},
				What: "slow load", Why: fmt.Sprint(i),
			})
		}
	}
	last := all.last()
	if len(last) != mostNoted || last[0].Why != "99" || last[0].What != "slow load" ||
		last[1].What != "load failed" ||
		last[mostNoted-1].Why != fmt.Sprint(100-mostNoted/2) {
		t.Fatalf("kept %+v", last)
	}
	if !slices.Equal(last[0].Keys, []string{"1", "0"}) ||
		!slices.Equal(last[1].Keys, []string{"2", "1", "0"}) {
		t.Errorf("keys %q, %q", last[0].Keys, last[1].Keys)
	}
	for _, one := range last {
		if one.Times != 3 || !one.Since.Equal(began) || !one.At.Equal(began.Add(2*time.Second)) {
			t.Errorf("kept %+v", one)
		}
	}
}

// located is an error of a store that knows its server and its cause.
type located struct{ text string }

func (e located) Error() string           { return e.text }
func (e located) Where() (string, string) { return "redis:6379", "connection refused" }

// Errors of the store with one cause are one problem, whatever else their texts say. An error of a
// load keeps its text.
func TestWhy(t *testing.T) {
	for _, text := range []string{
		"dial tcp: connection refused", "not asked, because: connection refused",
	} {
		err := fmt.Errorf("key: %w", located{text})
		if got := why(cacheguard.Event{
			Kind: cacheguard.EventStoreError, Err: err,
		}); got != "redis:6379: connection refused" {
			t.Errorf("of the store: %q", got)
		}
		if got := why(cacheguard.Event{Kind: cacheguard.EventLoad, Err: err}); got != err.Error() {
			t.Errorf("of a load: %q", got)
		}
	}
}

// This test lists for every kind of event whether it is trouble. A new kind must be added.
func TestTroubleKinds(t *testing.T) {
	want := map[cacheguard.EventKind]bool{
		cacheguard.EventStoreError: true, cacheguard.EventFillUnknown: true,
		cacheguard.EventCorrupt: true, cacheguard.EventLeaseLost: true,
		cacheguard.EventLoadLate: true, cacheguard.EventOverloaded: true,
	}
	p := New(Options{})
	for kind := cacheguard.EventKind(1); kind <= cacheguard.EventSampled; kind++ {
		if got := p.wrong(cacheguard.Event{Kind: kind}); (got != "") != want[kind] {
			t.Errorf("%v is trouble: %q", kind, got)
		}
	}
	failed := errors.New("failed")
	for want, e := range map[string]cacheguard.Event{
		"wrong answer": {Kind: cacheguard.EventCompared, Differs: cacheguard.DiffersMissed},
		"load failed":  {Kind: cacheguard.EventLoad, Took: time.Hour, Err: failed},
		"slow load":    {Kind: cacheguard.EventLoad, Took: defaultSlowLoad},
		"not stored":   {Kind: cacheguard.EventNotStored, Err: failed},
	} {
		if got := p.wrong(e); got != want {
			t.Errorf("%+v is %q; want %q", e, got, want)
		}
	}
	for _, e := range []cacheguard.Event{
		{Kind: cacheguard.EventCompared, Differs: cacheguard.DiffersMeanwhile},
		{Kind: cacheguard.EventLoad, Took: defaultSlowLoad - 1},
		{Kind: cacheguard.EventLoad, Err: cacheguard.ErrClosed},
	} {
		if got := p.wrong(e); got != "" {
			t.Errorf("%+v is %q", e, got)
		}
	}
	if got := New(Options{SlowLoad: -1}).wrong(cacheguard.Event{
		Kind: cacheguard.EventLoad, Took: time.Hour,
	}); got != "" {
		t.Errorf("no load is slow, and one is %q", got)
	}
}

// If no answer of a cache was compared, its consistency is not known.
func TestNothingCompared(t *testing.T) {
	for _, compared := range []uint64{0, 10} {
		c := cacheState{Compared: compared}
		c.finish()
		if said, err := json.Marshal(c); err != nil ||
			strings.Contains(string(said), `"nines":null`) != (compared == 0) {
			t.Errorf("of %d compared it says %s (%v)", compared, said, err)
		}
	}
}
