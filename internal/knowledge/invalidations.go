package knowledge

import (
	"hash/maphash"
	"sync/atomic"

	"github.com/cacheguard/cacheguard/internal/frame"
)

// Invalidations has the invalidations by tag that this process knows of. Several tags share a
// bucket, so the process sometimes asks the store unnecessarily.
type Invalidations struct {
	hears atomic.Bool   // messages arrive
	since atomic.Int64  // invalidations with generations up to this one may have been missed
	whole atomic.Int64  // generation of the cache
	count atomic.Uint64 // number of invalidations
	tags  [1024]struct {
		generation atomic.Int64
		// Value of Invalidations.count at the last invalidation in this bucket.
		count atomic.Uint64
	}
}

// Of records an invalidation of tags, or of the whole cache if there are no tags.
func (h *Invalidations) Of(tags []string, generation int64) {
	n := h.count.Add(1)
	if len(tags) == 0 {
		Raise(&h.whole, generation)
	}
	for _, tag := range tags {
		b := &h.tags[h.bucket(tag)]
		Raise(&b.generation, generation)
		for last := b.count.Load(); last < n &&
			!b.count.CompareAndSwap(last, n); last = b.count.Load() {
		}
	}
}

func (h *Invalidations) bucket(tag string) uint16 {
	return uint16(maphash.String(seed, tag) % uint64(len(h.tags)))
}

// Missed records that messages arrive from now on, and that invalidations up to this generation may
// have been missed.
func (h *Invalidations) Missed(generation int64) {
	Raise(&h.since, generation)
	h.hears.Store(true)
}

// Lost records that messages may not arrive from now on, until Missed is called. Messages about
// loads may arrive nevertheless, if they come on another channel.
func (h *Invalidations) Lost() { h.hears.Store(false) }

// Count returns the number of invalidations so far, for After.
func (h *Invalidations) Count() uint64 { return h.count.Load() }

// Buckets returns the buckets of tags, for After.
func (h *Invalidations) Buckets(tags frame.Tags) (all []uint16) {
	for _, tag := range tags.All() {
		all = append(all, h.bucket(tag))
	}
	return all
}

// After reports whether one of these tags was invalidated after Count returned count.
func (h *Invalidations) After(count uint64, buckets []uint16) bool {
	for _, b := range buckets {
		if h.tags[b].count.Load() > count {
			return true
		}
	}
	return false
}

// Passes reports whether a value with this stamp is certainly valid. It is valid if this process
// gets a message about each invalidation after the stamp, and has got none. If Passes returns
// false, the caller must ask the store.
func (h *Invalidations) Passes(tags frame.Tags, stamp int64) bool {
	if !h.hears.Load() || stamp <= h.since.Load() || stamp <= h.whole.Load() {
		return false
	}
	for _, tag := range tags.All() {
		if stamp <= h.tags[h.bucket(tag)].generation.Load() {
			return false
		}
	}
	return true
}

// Raise sets v to n unless v is larger.
func Raise(v *atomic.Int64, n int64) {
	for old := v.Load(); old < n && !v.CompareAndSwap(old, n); old = v.Load() {
	}
}
