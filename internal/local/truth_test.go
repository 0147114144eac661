package local

import (
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/maypok86/otter/v2"
)

// world has an origin, a tier in front of it, and the versions that the tier must know by now.
type world struct {
	*Tier[int]
	origin []atomic.Int64 // the version of each key
	known  []atomic.Int64 // no hit may be older than that
	reads  atomic.Int64   // have been done
	hits   atomic.Int64   // were among them

	wire sync.Mutex // guards down
	down bool       // messages are lost
}

const keys = 3

func newWorld(t *testing.T) *world {
	return &world{
		Tier:   trusted(t, Config[int]{Entries: 100}),
		origin: make([]atomic.Int64, keys),
		known:  make([]atomic.Int64, keys),
	}
}

func key(k int) string { return "key" + strconv.Itoa(k) }

// learn records that the tier must know of this version.
func (w *world) learn(k int, version int64) {
	for {
		known := w.known[k].Load()
		if known >= version || w.known[k].CompareAndSwap(known, version) {
			return
		}
	}
}

// write changes the origin and says so, if the wire is up.
func (w *world) write(k int) {
	version := w.origin[k].Add(1)
	w.wire.Lock()
	lost := w.down
	w.wire.Unlock()
	if !lost {
		w.Drop(key(k))
		w.learn(k, version)
	}
}

// read is a hit that is new enough, or a miss that is filled.
func (w *world) read(t *testing.T, k int) {
	defer w.reads.Add(1)
	known := w.known[k].Load()
	if e := w.Get(key(k)); e != nil {
		w.hits.Add(1)
		if int64(*e) < known {
			t.Errorf("hit with version %d although %d was known before", *e, known)
		}
		return
	}
	s := w.Stamp(key(k))
	version := int(w.origin[k].Load())
	if version%2 == 0 {
		runtime.Gosched() // the way back
	}
	w.Put(key(k), s, &version)
}

// breaks loses the subscription and restores it. Every other time the loss is not noticed.
func (w *world) breaks(t *testing.T, noticed bool) {
	w.wire.Lock()
	w.down = true
	w.wire.Unlock()
	runtime.Gosched()
	if noticed {
		w.Distrust()
		for k := range keys {
			if e := w.Get(key(k)); e != nil {
				t.Errorf("hit with version %d after Distrust", *e)
			}
		}
	}
	w.wire.Lock()
	w.down = false // confirmed
	var confirmed [keys]int64
	for k := range keys {
		confirmed[k] = w.origin[k].Load()
	}
	w.wire.Unlock()
	w.Trust()
	for k := range keys {
		w.learn(k, confirmed[k])
	}
}

// run runs writers, readers and breaks at the same time until the writers have finished. Then it
// checks the values at rest.
func (w *world) run(t *testing.T, breaks int) {
	const writers, readers, writes = 2, 3, 250
	var busy, idle sync.WaitGroup
	var stop atomic.Bool
	for range writers {
		busy.Go(func() {
			for i := range writes {
				w.write(i % keys)
				for after := w.reads.Load() + int64(i%8); w.reads.Load() < after && !t.Failed(); {
					runtime.Gosched() // so that there are hits
				}
			}
		})
	}
	busy.Go(func() {
		for i := range breaks {
			w.breaks(t, i%2 == 0)
			runtime.Gosched()
		}
	})
	for r := range readers {
		idle.Go(func() {
			for i := r; !stop.Load() && !t.Failed(); i++ {
				w.read(t, i%keys)
				w.Distrusted(key(i % keys))
				if i%8 == 0 {
					runtime.Gosched() // or on one CPU the readers have it nearly all the time
				}
			}
		})
	}
	// Insertions and removals queue up for the lock that they have in common, so that they meet
	// more often.
	idle.Go(func() {
		for i := 0; !stop.Load(); i++ {
			lock(w.Tier, key(i%keys))(func() {})
			runtime.Gosched()
		}
	})
	busy.Wait()
	stop.Store(true)
	idle.Wait()
	if w.hits.Load() == 0 {
		t.Error("no hits: this test tests nothing")
	}
	for k := range keys {
		if e := w.Get(key(k)); e != nil && int64(*e) != w.origin[k].Load() {
			t.Errorf("at rest the tier has version %d; the origin has %d", *e, w.origin[k].Load())
		}
	}
}

func TestNeverOlderThanADrop(t *testing.T) { newWorld(t).run(t, 0) }

func TestNeverOlderThanABreak(t *testing.T) { newWorld(t).run(t, 50) }

// TestDropMeetsPut lets a Put wait for the lock that otter decides under, and a Drop overtake it
// there, which the lock allows. Whoever comes first, nothing from before the Drop is there after
// it.
func TestDropMeetsPut(t *testing.T) {
	tier := trusted(t, Config[int]{Entries: 10})
	for range 100 {
		s := tier.Stamp("key")
		release := lock(tier, "key")
		var wg sync.WaitGroup
		wg.Go(func() { tier.Put("key", s, new(int)) })
		for range 10 {
			runtime.Gosched()
		}
		release(func() { tier.Drop("key") })
		wg.Wait()
		if tier.Get("key") != nil {
			t.Fatal("a value from before the drop is there after it")
		}
	}
}

// TestTrustMeetsPut inserts what was asked for before a break, and looks for what was there before
// it, as long as the tier comes back.
func TestTrustMeetsPut(t *testing.T) {
	tier := trusted(t, Config[int]{Entries: 10})
	for range 100 {
		s := tier.Stamp("key")
		put(t, tier, "old", 1)
		tier.Distrust()
		var tries sync.WaitGroup
		var stop atomic.Bool
		started := make(chan struct{})
		tries.Go(func() {
			for i := 0; !stop.Load(); i++ {
				tier.Put("key", s, new(int))
				if tier.Get("old") != nil {
					t.Error("a hit from before the break is there after it")
				}
				if i == 0 {
					close(started)
				}
				runtime.Gosched()
			}
		})
		<-started
		tier.Trust()
		stop.Store(true)
		tries.Wait()
		if tier.Get("key") != nil {
			t.Fatal("a value from before the break is there after it")
		}
		if t.Failed() {
			return
		}
	}
}

// lock takes otter's lock for the key, without which there is neither insertion nor removal. As
// soon as it is released, next is done.
func lock(tier *Tier[int], key string) (release func(next func())) {
	cache, locked, gate := in(tier.now.Load()), make(chan struct{}), make(chan func())
	var wg sync.WaitGroup
	wg.Go(func() {
		var next func()
		cache.Compute(key, func(entry, bool) (entry, otter.ComputeOp) {
			close(locked)
			next = <-gate
			return entry{}, otter.CancelOp
		})
		next()
	})
	<-locked
	return func(next func()) { gate <- next; wg.Wait() }
}
