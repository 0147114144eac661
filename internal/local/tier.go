package local

import (
	"hash/maphash"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/maypok86/otter/v2"
)

// epochs is the number of epochs. If keys share an epoch, an invalidation of one key cancels
// insertions of the other keys that have begun. This is the only effect: with 1,000 invalidations a
// second and loads of 50 ms, one insertion in 80 is lost.
const epochs = 4096

// tier is a [Tier] whose entries are pointers without a type.
type tier struct {
	// All hits read now, so it is not next to fields that are written more often.
	now   atomic.Pointer[state]
	bound uint64
	weigh func(key string, e unsafe.Pointer) uint32
	seed  maphash.Seed
	_     [64]byte // a cache line

	mu     sync.Mutex // guards closed and changes of now
	closed bool

	tidying workers
	epoch   [epochs]atomic.Uint64 // epoch of the keys with this hash
}

// state has the entries, and whether they are trusted. Both change in one step, so that no reader
// sees another combination. Trust replaces the cache by an empty cache. The replacement is fast
// even if the old cache was large, and a late insertion goes into the old cache, which has no
// readers any more.
type state struct {
	otter   unsafe.Pointer // a *cache, see there
	trusted bool
	// All hits read state, and memory that is allocated next to it may be written often.
	_ [112]byte
}

// No field and no method's signature mentions cache. Otherwise the compiler would compile all of
// otter again in each package that imports cacheguard.
type cache = otter.Cache[string, entry]

// entry is stored in otter's own node. So it costs no allocation, and a hit costs no indirection.
type entry struct {
	value  unsafe.Pointer
	weight uint32
}

// Stamp identifies the last invalidation of a key before a value was requested. The zero Stamp is
// never current.
type Stamp struct{ epoch uint64 }

func (t *tier) init(entries int, weigh func(key string, e unsafe.Pointer) uint32) {
	t.bound, t.weigh, t.seed = uint64(entries), weigh, maphash.MakeSeed()
	t.now.Store(&state{otter: newCache(t)})
}

// in returns the cache of a state.
func in(s *state) *cache { return (*cache)(s.otter) }

// newCache makes an empty cache. otter.Must doesn't panic, because these options are valid.
func newCache(t *tier) unsafe.Pointer {
	return unsafe.Pointer(otter.Must(&otter.Options[string, entry]{
		MaximumWeight: t.bound,
		// Runs while otter holds a lock.
		Weigher:  func(_ string, in entry) uint32 { return in.weight },
		Executor: t.tidying.run,
	}))
}

func (t *tier) get(key string) unsafe.Pointer {
	now := t.now.Load()
	if !now.trusted {
		return nil
	}
	found, _ := in(now).GetIfPresent(key)
	return found.value
}

func (t *tier) distrusted(key string) unsafe.Pointer {
	found, _ := in(t.now.Load()).GetIfPresent(key)
	return found.value
}

// put is [Tier.Put], and with last it is [Tier.Replace].
func (t *tier) put(key string, s Stamp, e unsafe.Pointer, last bool) bool {
	weight := uint32(1)
	if t.weigh != nil {
		weight = max(1, t.weigh(key, e)) // otter never evicts an entry without weight
	}
	now := t.now.Load()
	if !now.trusted {
		return false
	}
	epoch, inserted := t.epochOf(key), false
	in(now).Compute(key, func(entry, bool) (entry, otter.ComputeOp) {
		switch {
		case last && !epoch.CompareAndSwap(s.epoch, s.epoch+1), !last && epoch.Load() != s.epoch:
			return entry{}, otter.CancelOp
		case uint64(weight) > t.bound:
			return entry{}, otter.InvalidateOp
		}
		inserted = true
		return entry{value: e, weight: weight}, otter.WriteOp
	})
	return inserted
}

func (t *tier) drop(key string) {
	t.epochOf(key).Add(1)
	in(t.now.Load()).Invalidate(key)
}

func (t *tier) distrust() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.now.Store(&state{otter: t.now.Load().otter})
}

// empty removes all entries and makes all stamps invalid.
func (t *tier) empty(trusted func(before bool) bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return
	}
	for i := range t.epoch {
		t.epoch[i].Add(1)
	}
	t.now.Store(&state{otter: newCache(t), trusted: trusted(t.now.Load().trusted)})
}

func (t *tier) len() int {
	cache := in(t.now.Load())
	cache.CleanUp()
	return cache.EstimatedSize()
}

func (t *tier) close() {
	t.mu.Lock()
	t.closed = true
	t.now.Store(&state{otter: newCache(t)})
	t.mu.Unlock()
	t.tidying.close()
}

func (t *tier) epochOf(key string) *atomic.Uint64 {
	return &t.epoch[maphash.String(t.seed, key)%epochs]
}
