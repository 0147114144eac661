package cacheguard

import (
	"bytes"
	"hash/maphash"
	"maps"
	"sync"
	"sync/atomic"

	"github.com/cacheguard/cacheguard/internal/frame"
)

// invalidationLog is what this process has been told of invalidations by tag. Tags share buckets: that makes somebody ask the
// store in vain, now and then.
type invalidationLog struct {
	seed  maphash.Seed
	since atomic.Int64  // generations up to this one may have been missed
	whole atomic.Int64  // generation of the cache
	count atomic.Uint64 // of invalidations
	tags  [1024]struct {
		generation atomic.Int64
		count      atomic.Uint64 // at the last one
	}
}

// of takes note of an invalidation.
func (h *invalidationLog) of(tags []string, generation int64) {
	n := h.count.Add(1)
	if len(tags) == 0 {
		raise(&h.whole, generation)
	}
	for _, tag := range tags {
		b := &h.tags[h.bucket(tag)]
		raise(&b.generation, generation)
		for last := b.count.Load(); last < n && !b.count.CompareAndSwap(last, n); last = b.count.Load() {
		}
	}
}

func (h *invalidationLog) bucket(tag string) uint16 {
	return uint16(maphash.String(h.seed, tag) % uint64(len(h.tags)))
}

func (h *invalidationLog) buckets(tags frame.Tags) (all []uint16) {
	for _, tag := range tags.All() {
		all = append(all, h.bucket(tag))
	}
	return all
}

// after reports whether there was an invalidation of one of these tags after so many.
func (h *invalidationLog) after(count uint64, buckets []uint16) bool {
	for _, b := range buckets {
		if h.tags[b].count.Load() > count {
			return true
		}
	}
	return false
}

// passes reports whether a value with this stamp is not invalidated, as far as has been heard, and would have been heard
// of. False means: ask the store.
func (h *invalidationLog) passes(tags frame.Tags, stamp int64) bool {
	if stamp <= h.since.Load() || stamp <= h.whole.Load() {
		return false
	}
	for _, tag := range tags.All() {
		if stamp <= h.tags[h.bucket(tag)].generation.Load() {
			return false
		}
	}
	return true
}

// unsentInvalidations is the invalidations by tag of which the store could not be told. What they were for may stand there until its
// TTL is over, and this process doesn't use it.
type unsentInvalidations struct {
	mu  sync.Mutex                       // guards changes of all
	all atomic.Pointer[map[string]int64] // generations by tag, "" is the whole cache; nil: none. It is not changed, but replaced
}

// maxOwed tags are too many to remember: then it is the whole cache.
const maxOwed = 1024

func (o *unsentInvalidations) add(tags []string, generation int64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	all := make(map[string]int64)
	if old := o.all.Load(); old != nil {
		maps.Copy(all, *old)
	}
	if len(tags) == 0 || len(all)+len(tags) > maxOwed {
		all, tags = make(map[string]int64), []string{""}
	}
	for _, tag := range tags {
		all[tag] = generation
	}
	o.all.Store(&all)
}

// has reports whether a value is from before one of them.
func (o *unsentInvalidations) has(tags frame.Tags, stamp int64) bool {
	all := o.all.Load()
	if all == nil {
		return false
	}
	if stamp <= (*all)[""] {
		return true
	}
	for _, tag := range tags.All() {
		if stamp <= (*all)[tag] {
			return true
		}
	}
	return false
}

// raise sets v to n unless it is more.
func raise(v *atomic.Int64, n int64) {
	for old := v.Load(); old < n && !v.CompareAndSwap(old, n); old = v.Load() {
	}
}

// hints are which tags the values have that were seen last, so that their generations are read along with them, in one
// trip. A wrong hint costs a trip.
type hints struct {
	seed   maphash.Seed
	tagged atomic.Pointer[[1 << 14]atomic.Pointer[hint]] // by the key's hash; nil until a value has tags
}

type hint struct {
	id   string
	raw  frame.Tags
	tags []string
}

// untagged is the hint that a value has no tags, as far as is known.
var untagged = &hint{tags: []string{}}

// of returns the hint for a key.
func (h *hints) of(id string) *hint {
	if all := h.tagged.Load(); all != nil {
		hash := maphash.String(h.seed, id)
		if one := all[hash%uint64(len(all))].Load(); one != nil && one.id == id {
			return one
		}
	}
	return untagged
}

// ofMany returns the hints for many keys, and what to ask the store for.
func (h *hints) ofMany(keys []Key) (hints []*hint, asked tagSet) {
	hints, asked.all = make([]*hint, len(keys)), []string{}
	for i, k := range keys {
		hints[i] = h.of(k.Key)
		asked.add(hints[i].tags)
	}
	return hints, asked
}

// note remembers which tags the key's value has.
func (h *hints) note(id string, tags frame.Tags) {
	all := h.tagged.Load()
	if all == nil {
		if len(tags) == 0 {
			return
		}
		h.tagged.CompareAndSwap(nil, new([1 << 14]atomic.Pointer[hint]))
		all = h.tagged.Load()
	}
	place := &all[maphash.String(h.seed, id)%uint64(len(all))]
	switch one := place.Load(); {
	case len(tags) == 0:
		if one != nil && one.id == id {
			place.CompareAndSwap(one, nil)
		}
	case one == nil || one.id != id || !bytes.Equal(one.raw, tags):
		place.Store(&hint{id: id, raw: bytes.Clone(tags), tags: tags.All()})
	}
}
