// Package local is the process-local tier in front of the store: a cache of decoded values with a
// limited size that obeys invalidations. A hit is never older than an invalidation whose message
// was processed in this process, or that returned in this process.
//
// Four rules ensure this. A model checks them, cacheguard/model/localtier.pml:
//
//   - A caller that wants to insert a value takes a Stamp before it asks the store. Put inserts the
//     value only if the key was not dropped since, and it checks this and inserts in one step.
//   - Drop, which reports an invalidation, first makes the stamps invalid and then removes the
//     entry: in the other order an old value could be inserted between the two. An invalidation by
//     this process is reported when the store has done it, or has failed to.
//   - While the subscription to invalidations is down, messages are lost, and any entry may be
//     older than one of the lost invalidations. So after Distrust there are no hits and no
//     insertions; the entries may be served as stale, see Distrusted.
//   - Trust is called when the subscription is confirmed, and not before. It forgets everything and
//     makes all stamps invalid. Only then there are hits again.
//
// The caller decides whether an entry is fresh, because it has read the clock already. otter, the
// cache library used here, would read the clock again for its own expiry, which makes a hit slower
// by a quarter to a half.
package local

import (
	"fmt"
	"hash/maphash"
	"sync"
	"sync/atomic"

	"github.com/maypok86/otter/v2"
)

// epochs is the number of epochs. If keys share an epoch, an invalidation of one key cancels
// insertions of the others that are under way. Nothing else is affected: with 1,000 invalidations a
// second and loads of 50 ms, one insertion in 80 is lost.
const epochs = 4096

// Config says how much a tier can hold.
type Config[V any] struct {
	// Entries is the most that the tier holds, at least 1: the number of entries or, with Weigh,
	// their total weight.
	Entries int

	// Weigh returns the weight of an entry. Nil means that each entry weighs 1; 0 counts as 1. Put
	// calls Weigh on its caller's goroutine and without holding a lock: Weigh may use the tier, and
	// if it panics, only that Put is lost.
	Weigh func(key string, e *V) uint32
}

// Tier is a cache of decoded values in this process, with a limited size. A new tier is not trusted
// yet. It is safe for concurrent use. A nil Tier has no entries and ignores all calls.
type Tier[V any] struct {
	// All hits read now, so it is kept away from fields that are written more often.
	now   atomic.Pointer[state[V]]
	bound uint64
	weigh func(key string, e *V) uint32
	seed  maphash.Seed
	_     [64]byte // a cache line

	mu     sync.Mutex // guards closed and changes of now
	closed bool

	tidying workers
	epoch   [epochs]atomic.Uint64 // epoch of the keys with this hash
}

// state is the entries and whether to trust them. Both change in one step, so that no other
// combination can be seen. Trust replaces the cache by an empty one: that is fast whatever the old
// cache held, and a late insertion goes into the old cache, which nobody reads.
type state[V any] struct {
	cache   *cache[V]
	trusted bool
	_       [112]byte // all hits read state, and memory allocated next to it may be written often
}

type cache[V any] = otter.Cache[string, entry[V]]

// entry is stored in otter's own node, so it costs no allocation and a hit no indirection.
type entry[V any] struct {
	value  *V
	weight uint32
}

// Stamp says up to which invalidation a value is known to be valid. The zero Stamp is never
// current.
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

// newCache makes an empty cache. otter.Must doesn't panic, because these options are valid.
func (t *Tier[V]) newCache() *cache[V] {
	return otter.Must(&otter.Options[string, entry[V]]{
		MaximumWeight: t.bound,
		Weigher:       func(_ string, in entry[V]) uint32 { return in.weight }, // runs while otter holds a lock
		Executor:      t.tidying.run,
	})
}

// Get returns the key's entry, or nil if there is none or the tier is not trusted. The entry is
// shared, so it must not be changed.
func (t *Tier[V]) Get(key string) *V {
	now := t.now.Load()
	if !now.trusted {
		return nil
	}
	in, _ := now.cache.GetIfPresent(key)
	return in.value
}

// Distrusted returns the key's entry whether the tier is trusted or not, or nil. While the tier is
// not trusted, the entry may be older than an invalidation whose message was lost: it may be served
// as stale, never as fresh.
func (t *Tier[V]) Distrusted(key string) *V {
	in, _ := t.now.Load().cache.GetIfPresent(key)
	return in.value
}

// Stamp returns the stamp for a value of this key that is requested after this call.
func (t *Tier[V]) Stamp(key string) Stamp { return Stamp{t.epochOf(key).Load()} }

// Put makes e the key's entry if the tier is trusted and the key was not dropped since the stamp
// was taken, and reports whether it did. An entry that weighs more than the whole tier is not
// inserted; the entry that it would have replaced is removed. An inserted entry may be evicted at
// once, because other entries are used more. Of two entries with current stamps the last one stays.
func (t *Tier[V]) Put(key string, s Stamp, e *V) bool { return t.put(key, s, e, false) }

// Replace is Put for a value that makes all older values invalid, also those that slower readers
// are about to insert: it makes the key's stamps invalid.
func (t *Tier[V]) Replace(key string, s Stamp, e *V) bool { return t.put(key, s, e, true) }

func (t *Tier[V]) put(key string, s Stamp, e *V, last bool) bool {
	weight := uint32(1)
	if t.weigh != nil {
		weight = max(1, t.weigh(key, e)) // otter never evicts an entry without weight
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

// Drop says that what is known of the key is no longer true: its entry is removed, and nothing with
// an earlier stamp can be inserted after this.
func (t *Tier[V]) Drop(key string) {
	if t == nil {
		return
	}
	t.epochOf(key).Add(1)
	t.now.Load().cache.Invalidate(key)
}

// Distrust says that the subscription is lost: there are no hits and no insertions until Trust. An
// insertion that has begun may still complete, but only Distrusted finds it.
func (t *Tier[V]) Distrust() {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.now.Store(&state[V]{cache: t.now.Load().cache})
}

// Trust says that the subscription is confirmed: all entries are forgotten, nothing with an earlier
// stamp can be inserted after this, and from now on the tier is trusted. It does the same if the
// tier was trusted already, because the subscription may have been lost and restored without
// anybody noticing.
func (t *Tier[V]) Trust() { t.empty(func(bool) bool { return true }) }

// Forget is Drop for all keys.
func (t *Tier[V]) Forget() { t.empty(func(trusted bool) bool { return trusted }) }

// empty forgets everything and makes all stamps invalid.
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

// Len evicts excess entries and returns how many entries are left. Insertions are queued until
// otter decides what to evict, so between two calls there can be more entries. The most are what
// the queue holds, which is 128 for each CPU, rounded up to a power of two; as many again that have
// left the queue and are not decided yet; and one for each running Put.
func (t *Tier[V]) Len() int {
	if t == nil {
		return 0
	}
	cache := t.now.Load().cache
	cache.CleanUp()
	return cache.EstimatedSize()
}

// Close forgets everything for good, and waits for the goroutines of the tier.
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
