package local

import (
	"fmt"
	"runtime"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"go.uber.org/goleak"

	"github.com/cacheguard/cacheguard/internal/waittest"
)

func TestRoomForOneAtLeast(t *testing.T) {
	for _, n := range []int{0, -1} {
		if tier, err := New(Config[int]{Entries: n}); err == nil || tier != nil {
			t.Errorf("Entries %d: got %v, %v; want an error", n, tier, err)
		}
	}
	tier := trusted(t, Config[int]{Entries: 1})
	put(t, tier, "key", 1)
	wantGet(t, tier, "key", 1)
}

func TestNewIsNotTrusted(t *testing.T) {
	tier, err := New(Config[int]{Entries: 10})
	if err != nil {
		t.Fatal(err)
	}
	if tier.Put("key", tier.Stamp("key"), new(int)) {
		t.Error("inserted although nobody has confirmed a subscription")
	}
	wantNothing(t, tier, "key")
}

func TestPutReplaces(t *testing.T) {
	tier := trusted(t, Config[int]{Entries: 10})
	for i := range 5 { // the first three times otter does it in three ways
		put(t, tier, "key", i)
		wantGet(t, tier, "key", i)
	}
	if n := tier.Len(); n != 1 {
		t.Errorf("%d entries of one key", n)
	}
}

func TestDropRefusesWhatIsUnderWay(t *testing.T) {
	tier := trusted(t, Config[int]{Entries: 10})
	before := tier.Stamp("key")
	other := tier.Stamp(another(tier, "key"))
	put(t, tier, "key", 1)
	tier.Drop("key")
	wantNothing(t, tier, "key")
	if tier.Put("key", before, new(int)) {
		t.Error("inserted what was asked for before the drop")
	}
	wantNothing(t, tier, "key")
	if !tier.Put(another(tier, "key"), other, new(int)) {
		t.Error("the drop of one key cost another one its insertion")
	}
	put(t, tier, "key", 2)
	if tier.Put("key", before, new(int)) {
		t.Error("inserted what was asked for before the drop, over what was asked for after it")
	}
	wantGet(t, tier, "key", 2)
}

// TestDropBumpsFirst holds the lock that the removal needs. At this time the stamps must already be
// invalid.
func TestDropBumpsFirst(t *testing.T) {
	tier := trusted(t, Config[int]{Entries: 10})
	before := tier.Stamp("key")
	release := lock(tier, "key")
	var wg sync.WaitGroup
	wg.Go(func() { tier.Drop("key") })
	bumped := eventually(func() bool { return tier.Stamp("key") != before })
	release(func() {})
	wg.Wait()
	if !bumped {
		t.Error("Drop removes before it makes the stamps worthless: a value from before can come in between")
	}
}

func TestPutJudgesTheStampAfterWeighing(t *testing.T) {
	for name, meanwhile := range map[string]func(*Tier[int]){
		"drop":     func(tier *Tier[int]) { tier.Drop("key") },
		"distrust": func(tier *Tier[int]) { tier.Distrust() },
		"break":    func(tier *Tier[int]) { tier.Distrust(); tier.Trust() },
		"close":    func(tier *Tier[int]) { tier.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			var tier *Tier[int]
			tier = trusted(t, Config[int]{Entries: 10, Weigh: func(string, *int) uint32 {
				meanwhile(tier)
				return 1
			}})
			if tier.Put("key", tier.Stamp("key"), new(int)) {
				t.Error("inserted")
			}
			wantNothing(t, tier, "key")
		})
	}
}

func TestZeroStampIsNeverCurrent(t *testing.T) {
	tier := trusted(t, Config[int]{Entries: 10})
	if tier.Put("key", Stamp{}, new(int)) {
		t.Error("inserted with no stamp at all")
	}
}

func TestDistrust(t *testing.T) {
	tier := trusted(t, Config[int]{Entries: 10})
	put(t, tier, "key", 1)
	put(t, tier, "dropped", 1)
	before := tier.Stamp("new")
	if e := tier.Distrusted("key"); e == nil || *e != 1 {
		t.Errorf("Distrusted of a trusted tier: %v", e)
	}
	tier.Distrust()
	tier.Distrust()
	if e := tier.Get("key"); e != nil {
		t.Errorf("a hit in a tier that is not trusted: %d", *e)
	}
	if e := tier.Distrusted("key"); e == nil || *e != 1 {
		t.Errorf("Distrusted: %v", e)
	}
	tier.Drop("dropped") // one's own invalidations go on
	if e := tier.Distrusted("dropped"); e != nil {
		t.Errorf("dropped, and still there: %d", *e)
	}
	during := tier.Stamp("new")
	for _, s := range []Stamp{before, during} {
		if tier.Put("new", s, new(int)) {
			t.Error("inserted while not trusted")
		}
	}
	tier.Trust()
	wantNothing(t, tier, "key")
	for _, s := range []Stamp{before, during} {
		if tier.Put("new", s, new(int)) {
			t.Error("inserted what may be older than a lost message")
		}
	}
	wantNothing(t, tier, "new")
	put(t, tier, "key", 2)
	wantGet(t, tier, "key", 2)
}

// TestTrustTwice: a subscription was lost and restored unnoticed.
func TestTrustTwice(t *testing.T) {
	tier := trusted(t, Config[int]{Entries: 10})
	put(t, tier, "key", 1)
	before := tier.Stamp("new")
	tier.Trust()
	wantNothing(t, tier, "key")
	if tier.Put("new", before, new(int)) {
		t.Error("inserted what may be older than a lost message")
	}
	put(t, tier, "key", 2)
	wantGet(t, tier, "key", 2)
	tier.Drop("key")
	wantNothing(t, tier, "key")
}

// TestLateInsertion is an insertion that was decided before a break and is done after it.
func TestLateInsertion(t *testing.T) {
	tier := trusted(t, Config[int]{Entries: 10})
	decided := in(tier.now.Load())
	tier.Distrust()
	tier.Trust()
	decided.Set("key", entry{value: unsafe.Pointer(new(int)), weight: 1})
	wantNothing(t, tier, "key")
}

func TestWeighNeedsNoLuck(t *testing.T) {
	ends := map[string]func(){"panics": func() { panic("weighing") }, "exits": runtime.Goexit}
	for name, end := range ends {
		t.Run(name, func(t *testing.T) {
			bad := true
			tier := trusted(t, Config[int]{Entries: 10, Weigh: func(string, *int) uint32 {
				if bad {
					end()
				}
				return 1
			}})
			var wg sync.WaitGroup
			wg.Go(func() {
				defer func() { _ = recover() }()
				tier.Put("key", tier.Stamp("key"), new(int))
				t.Error("what Weigh did was swallowed")
			})
			wg.Wait()
			wantNothing(t, tier, "key")
			bad = false
			put(t, tier, "key", 1)
			wantGet(t, tier, "key", 1)
			tier.Drop("key")
			wantNothing(t, tier, "key")
		})
	}
}

func TestWeightlessIsBounded(t *testing.T) {
	tier := trusted(t, Config[int]{Entries: 10, Weigh: func(string, *int) uint32 { return 0 }})
	for i := range 1000 {
		put(t, tier, strconv.Itoa(i), i)
	}
	if n := tier.Len(); n > 10 {
		t.Errorf("%d entries; room is for 10", n)
	}
}

func TestTooHeavy(t *testing.T) {
	tier := trusted(t,
		Config[int]{Entries: 10, Weigh: func(_ string, e *int) uint32 { return uint32(*e) }})
	put(t, tier, "other", 1)
	put(t, tier, "key", 2)
	old := tier.Stamp("key")
	heavy := 11
	if tier.Put("key", old, &heavy) {
		t.Error("inserted what is heavier than the tier")
	}
	wantNothing(t, tier, "key") // the one it replaces is out of date
	wantGet(t, tier, "other", 1)

	tier.Drop("key")
	put(t, tier, "key", 2)
	if tier.Put("key", old, &heavy) {
		t.Error("inserted what is heavier than the tier, and late")
	}
	wantGet(t, tier, "key", 2) // the heavy one comes from before the drop: it replaces nothing
	put(t, tier, "whole", 10)
	if n := tier.Len(); n > 3 || in(tier.now.Load()).WeightedSize() > 10 {
		t.Errorf("%d entries that weigh %d", n, in(tier.now.Load()).WeightedSize())
	}
}

// TestBound inserts from several goroutines. In between there are no more entries than Len says
// there can be.
func TestBound(t *testing.T) {
	const bound, putters, each = 100, 4, 1000
	tier := trusted(t, Config[int]{Entries: bound, Weigh: func(_ string, e *int) uint32 {
		return uint32(1 + *e%3)
	}})
	cpus := 1
	for cpus < max(runtime.NumCPU(), runtime.GOMAXPROCS(0)) {
		cpus *= 2
	}
	var wg sync.WaitGroup
	for p := range putters {
		wg.Go(func() {
			for i := range each {
				key := fmt.Sprint(p, i)
				tier.Put(key, tier.Stamp(key), &i)
				tier.Get(key)
				if n := in(tier.now.Load()).EstimatedSize(); n > bound+256*cpus+1+putters {
					t.Errorf("%d entries", n)
					return
				}
			}
		})
	}
	wg.Wait()
	n := tier.Len()
	if w := in(tier.now.Load()).WeightedSize(); n == 0 || n > bound || w > bound {
		t.Errorf("%d entries that weigh %d; room is for %d", n, w, bound)
	}
}

func TestHitAllocatesNothing(t *testing.T) {
	tier := trusted(t, Config[int]{Entries: 10})
	put(t, tier, "key", 1)
	if n := testing.AllocsPerRun(1000, func() { tier.Get("key") }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestClose(t *testing.T) {
	others := goleak.IgnoreCurrent()
	tier := trusted(t, Config[int]{Entries: 10})
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			for i := range 1000 {
				key := strconv.Itoa((g + i) % 20)
				tier.Put(key, tier.Stamp(key), &i)
				tier.Get(key)
				if g == 0 && i == 500 {
					tier.Close()
				}
			}
		})
	}
	wg.Wait()
	tier.Close() // twice is fine
	tier.Trust()
	for i := range 20 {
		key := strconv.Itoa(i)
		if tier.Put(key, tier.Stamp(key), new(int)) {
			t.Error("inserted after Close")
		}
		wantNothing(t, tier, key)
	}
	tier.Drop("key")
	tier.Distrust()
	if n := tier.Len(); n != 0 {
		t.Errorf("%d entries after Close", n)
	}
	goleak.VerifyNone(t, others)
}

func TestWorkersCloseWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w workers
		gate, closed := make(chan struct{}), false
		w.run(func() { <-gate })
		go func() { w.close(); closed = true }()
		synctest.Wait()
		if closed {
			t.Error("close didn't wait")
		}
		late := false
		w.run(func() { late = true })
		if !late {
			t.Error("work that comes late isn't done")
		}
		close(gate)
		synctest.Wait()
		if !closed {
			t.Error("close waits for more than the work")
		}
	})
}

// trusted returns a tier that is.
func trusted(t testing.TB, cfg Config[int]) *Tier[int] {
	t.Helper()
	tier, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(tier.Close)
	tier.Trust()
	return tier
}

func put(t testing.TB, tier *Tier[int], key string, e int) {
	t.Helper()
	if !tier.Put(key, tier.Stamp(key), &e) {
		t.Fatalf("%q was not inserted", key)
	}
}

func wantGet(t testing.TB, tier *Tier[int], key string, want int) {
	t.Helper()
	if e := tier.Get(key); e == nil || *e != want {
		t.Errorf("Get(%q): %v; want %d", key, e, want)
	}
}

func wantNothing(t testing.TB, tier *Tier[int], key string) {
	t.Helper()
	if e := tier.Get(key); e != nil {
		t.Errorf("Get(%q): %d; want nothing", key, *e)
	}
	if e := tier.Distrusted(key); e != nil {
		t.Errorf("Distrusted(%q): %d; want nothing", key, *e)
	}
}

// another returns a key that doesn't share its epoch with this one.
func another(tier *Tier[int], key string) string {
	other := key
	for tier.epochOf(other) == tier.epochOf(key) {
		other += "'"
	}
	return other
}

// eventually is true when the condition becomes so within waittest.Patience.
func eventually(condition func() bool) bool {
	deadline := time.Now().Add(waittest.Patience)
	for ; time.Now().Before(deadline); runtime.Gosched() {
		if condition() {
			return true
		}
	}
	return condition()
}
