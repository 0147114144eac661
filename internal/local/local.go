// Package local is the tier in this process, in front of the store: a bounded cache of decoded
// values that tells the truth about invalidations. A hit is never older than an invalidation whose
// message was processed here, or that returned in this process.
//
// Four rules keep it so. They are checked by a model, cacheguard/model/localtier.pml:
//
//   - Whoever wants to insert takes a Stamp before asking the store. Put inserts only if the key
//     was not dropped since, and decides that in one step with the insertion.
//   - Drop, which announces an invalidation, first makes the stamps worthless and then removes the
//     entry: a value from before could be inserted between the two otherwise. One's own
//     invalidation is announced when the store has done it, or has failed to.
//   - While the subscription to invalidations is down, messages are lost, and any entry may be
//     older than one of them. So after Distrust there are no hits and no insertions; what is there
//     may be served as stale, see Distrusted.
//   - When the subscription is confirmed, and not before, comes Trust: it forgets everything, makes
//     all stamps worthless, and only then there are hits again.
//
// Whether an entry is fresh is the caller's business: it has read the clock already, and otter, on
// which this is built, would read it once more for an expiry of its own, which makes a hit dearer
// by a quarter to a half.
package local

import (
	"fmt"
	"hash/maphash"
	"sync"
	"sync/atomic"

	"github.com/maypok86/otter/v2"
)

// epochs is how many there are. Keys that share one cost each other insertions that are under way,
// nothing else: with 1,000 invalidations a second and loads of 50 ms, one insertion in 80 is lost.
const epochs = 4096

// Config says how much a tier holds.
type Config[V any] struct {
	// Entries is the most that is held, at least 1: the number of entries or, with Weigh, their
	// total weight.
	Entries int

	// Weigh returns the weight of an entry; nil means 1 for each, and 0 counts as 1. Put calls it
	// on its own goroutine and outside of all locks: it may use the tier, and if it panics, only
	// that Put is lost.
	Weigh func(key string, e *V) uint32
}

// Tier is a bounded cache of decoded values in this process. A new one is not trusted yet. It is
// safe for concurrent use. A nil Tier has nothing and forgets what it is told.
type Tier[V any] struct {
	// now is read by all hits, so it is kept away from what is written more often.
	now   atomic.Pointer[state[V]]
	bound uint64
	weigh func(key string, e *V) uint32
	seed  maphash.Seed
	_     [64]byte // a cache line

	mu     sync.Mutex // guards closed and changes of now
	closed bool

	tidying workers
	epoch   [epochs]atomic.Uint64 // of the keys with this hash
}

// state is what is there and whether to trust it. Both change in one step, so no other order of
// things is possible than the one that was thought of. Trust starts with an empty cache: that takes
// no time, whatever there was, and an insertion that comes late ends up where nobody looks.
type state[V any] struct {
	cache   *cache[V]
	trusted bool
	_       [112]byte // all hits read this, and what is allocated next to it may be written often
}

type cache[V any] = otter.Cache[string, entry[V]]

// entry is kept inside of otter's own node: it costs no allocation and a hit no indirection.
type entry[V any] struct {
	value  *V
	weight uint32
}

// Stamp says up to which invalidation a value is known to be true. The zero Stamp is never current.
type Stamp struct{ epoch uint64 }

// New returns an empty tier that is not trusted yet.
func New[V any](cfg Config[V]) (*Tier[V], error) {
	if cfg.Entries < 1 {
		return nil, fmt.Errorf("cacheguard: a local tier for %d entries; it needs room for 1 at least", cfg.Entries)
	}
	t := &Tier[V]{bound: uint64(cfg.Entries), weigh: cfg.Weigh, seed: maphash.MakeSeed()}
	t.now.Store(&state[V]{cache: t.newCache()})
	return t, nil
}

// newCache makes an empty cache. Must doesn't panic: these options are valid.
func (t *Tier[V]) newCache() *cache[V] {
	return otter.Must(&otter.Options[string, entry[V]]{
		MaximumWeight: t.bound,
		Weigher:       func(_ string, in entry[V]) uint32 { return in.weight }, // runs under a lock of otter's
		Executor:      t.tidying.run,
	})
}

// Get returns the key's entry, or nil if there is none or the tier is not trusted. The entry
// belongs to everybody: it must not be changed.
func (t *Tier[V]) Get(key string) *V {
	now := t.now.Load()
	if !now.trusted {
		return nil
	}
	in, _ := now.cache.GetIfPresent(key)
	return in.value
}

// Distrusted returns what is there, trusted or not, or nil. While the tier is not trusted, the
// entry may be older than an invalidation whose message was lost: it may be served as stale, never
// as fresh.
func (t *Tier[V]) Distrusted(key string) *V {
	in, _ := t.now.Load().cache.GetIfPresent(key)
	return in.value
}

// Stamp returns the stamp for a value of this key that is asked for from now on.
func (t *Tier[V]) Stamp(key string) Stamp { return Stamp{t.epochOf(key).Load()} }

// Put makes e the key's entry if the tier is trusted and the key was not dropped since the stamp
// was taken, and reports whether it did. An entry that is heavier than the whole tier is not
// inserted; the one that it would have replaced is removed. What was inserted may be evicted at
// once, for others are used more. Of two with current stamps the last stays.
func (t *Tier[V]) Put(key string, s Stamp, e *V) bool { return t.put(key, s, e, false) }

// Replace is Put for a value that makes all older ones worthless, also those which slower readers
// are about to insert: with it the stamps end.
func (t *Tier[V]) Replace(key string, s Stamp, e *V) bool { return t.put(key, s, e, true) }

func (t *Tier[V]) put(key string, s Stamp, e *V, last bool) bool {
	weight := uint32(1)
	if t.weigh != nil {
		weight = max(1, t.weigh(key, e)) // otter never evicts what weighs nothing
	}
	now := t.now.Load()
	if !now.trusted {
		return false
	}
	epoch, inserted := t.epochOf(key), false
	now.cache.Compute(key, func(entry[V], bool) (entry[V], otter.ComputeOp) {
		switch {
		case last && !epoch.CompareAndSwap(s.epoch, s.epoch+1), !last && epoch.Load() != s.epoch:
			return entry[V]{}, otter.CancelOp
		case uint64(weight) > t.bound:
			return entry[V]{}, otter.InvalidateOp
		}
		inserted = true
		return entry[V]{value: e, weight: weight}, otter.WriteOp
	})
	return inserted
}

// Drop says that what is known of the key is no longer true: its entry is removed, and nothing that
// was stamped before is inserted after.
func (t *Tier[V]) Drop(key string) {
	if t == nil {
		return
	}
	t.epochOf(key).Add(1)
	t.now.Load().cache.Invalidate(key)
}

// Distrust says that the subscription is lost: no hits and no insertions until Trust. An insertion
// that has begun may still end, but only where Distrusted finds it.
func (t *Tier[V]) Distrust() {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.now.Store(&state[V]{cache: t.now.Load().cache})
}

// Trust says that the subscription is confirmed: all entries are forgotten, nothing that was
// stamped before is inserted after, and from then on the tier is trusted. It is the same when it
// was trusted already: the subscription may have been lost and found without anybody noticing.
func (t *Tier[V]) Trust() { t.empty(func(bool) bool { return true }) }

// Forget is Drop for all keys.
func (t *Tier[V]) Forget() { t.empty(func(trusted bool) bool { return trusted }) }

// empty forgets everything and makes all stamps worthless.
func (t *Tier[V]) empty(trusted func(before bool) bool) {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return
	}
	for i := range t.epoch {
		t.epoch[i].Add(1)
	}
	t.now.Store(&state[V]{cache: t.newCache(), trusted: trusted(t.now.Load().trusted)})
}

// Len returns how many entries are there, and evicts what is too much first. Insertions are queued
// for eviction to look at, so between two calls there can be more: at worst what the queue takes,
// which is 128 for each CPU, rounded up to a power of two, with as many again that have left it and
// are not judged yet, and one for each Put that is running.
func (t *Tier[V]) Len() int {
	if t == nil {
		return 0
	}
	cache := t.now.Load().cache
	cache.CleanUp()
	return cache.EstimatedSize()
}

// Close forgets everything, for good, and waits for the goroutines of the tier.
func (t *Tier[V]) Close() {
	if t == nil {
		return
	}
	t.mu.Lock()
	t.closed = true
	t.now.Store(&state[V]{cache: t.newCache()})
	t.mu.Unlock()
	t.tidying.close()
}

func (t *Tier[V]) epochOf(key string) *atomic.Uint64 {
	return &t.epoch[maphash.String(t.seed, key)%epochs]
}
