// Package local is the process-local tier in front of the store: a cache of decoded values with a
// limited size that obeys invalidations. If this process has handled the message of an
// invalidation, or if the invalidation was made in this process and has returned, no later hit is
// older than the invalidation.
//
// Four rules ensure this. A model checks them, cacheguard/model/localtier.pml:
//
//   - A caller that wants to insert a value takes a Stamp before it asks the store. Put inserts the
//     value only if the key was not dropped since then. The check and the insertion are one step.
//   - Drop, which reports an invalidation, first makes the stamps invalid and then removes the
//     entry. In the other order an old value could be inserted between the two steps. An
//     invalidation by this process is reported when the store has carried it out or has failed.
//   - While the subscription to invalidations is down, messages are lost, and any entry may be
//     older than one of the lost invalidations. So after Distrust there are no hits and no
//     insertions. The entries may be served as stale values, see Distrusted.
//   - Trust is called only when the subscription is confirmed. It removes all entries and makes all
//     stamps invalid. From then on there are hits again.
//
// The caller decides whether an entry is fresh, because the caller has already read the clock.
// otter, the cache library used here, would read the clock again for its own expiry, which makes a
// hit slower by a quarter to a half.
//
// A program that caches values of many types would compile otter and these rules once for each of
// them. So tier, which has the rules, keeps pointers without a type, and Tier gives them their
// type.
package local

import (
	"fmt"
	"unsafe"
)

// Config sets the size of a tier.
type Config[V any] struct {
	// Entries is the largest number of entries in the tier. With Weigh it is their largest total
	// weight. At least 1.
	Entries int

	// Weigh returns the weight of an entry. Nil means that each entry weighs 1. A weight of 0 means
	// 1. Put calls Weigh on its caller's goroutine without a lock. So Weigh may use the tier, and
	// if Weigh panics, only this Put is lost.
	Weigh func(key string, e *V) uint32
}

// Tier is a cache of decoded values in this process, with a limited size. A new tier is not trusted
// yet. It is safe for concurrent use. On a nil Tier, Drop, Distrust, Trust, Forget, Len and Close
// do nothing, and the other methods panic.
type Tier[V any] struct{ tier }

// New returns an empty tier that is not trusted yet.
func New[V any](cfg Config[V]) (*Tier[V], error) {
	if cfg.Entries < 1 {
		return nil,
			fmt.Errorf("cacheguard: a local tier for %d entries; it needs room for 1 at least",
				cfg.Entries)
	}
	t := &Tier[V]{}
	var weigh func(string, unsafe.Pointer) uint32
	if cfg.Weigh != nil {
		weigh = func(key string, e unsafe.Pointer) uint32 { return cfg.Weigh(key, (*V)(e)) }
	}
	t.init(cfg.Entries, weigh)
	return t, nil
}

// Get returns the key's entry, or nil if there is none or the tier is not trusted. The entry is
// shared, so it must not be changed.
func (t *Tier[V]) Get(key string) *V { return (*V)(t.get(key)) }

// Distrusted returns the key's entry even if the tier is not trusted, or nil if there is no entry.
// While the tier is not trusted, the entry may be older than an invalidation whose message was
// lost. So it may be served as a stale value, but never as a fresh value.
func (t *Tier[V]) Distrusted(key string) *V { return (*V)(t.distrusted(key)) }

// Stamp returns the key's current stamp. Call Stamp before you request a value for the key, and
// pass the stamp to Put with the value.
func (t *Tier[V]) Stamp(key string) Stamp { return Stamp{t.epochOf(key).Load()} }

// Put makes e the key's entry if the tier is trusted and the key was not dropped since the stamp
// was taken. It reports whether it inserted the entry. If an entry weighs more than the whole tier,
// Put doesn't insert it, but removes the entry that it would have replaced. An inserted entry may
// be evicted at once, because other entries are used more. If two entries are put with current
// stamps, the later one stays.
func (t *Tier[V]) Put(key string, s Stamp, e *V) bool {
	return t.put(key, s, unsafe.Pointer(e), false)
}

// Replace is Put for a value that makes all older values invalid. It also makes the key's stamps
// invalid, so that slower readers can't insert older values.
func (t *Tier[V]) Replace(key string, s Stamp, e *V) bool {
	return t.put(key, s, unsafe.Pointer(e), true)
}

// Drop removes the key's entry, because the key has changed. After Drop, no value with an earlier
// stamp can be inserted.
func (t *Tier[V]) Drop(key string) {
	if t != nil {
		t.drop(key)
	}
}

// Distrust is called when the subscription is lost. From then on there are no hits and no
// insertions until Trust. An insertion that has already begun may still complete, but only
// Distrusted finds its entry.
func (t *Tier[V]) Distrust() {
	if t != nil {
		t.distrust()
	}
}

// Trust is called when the subscription is confirmed. It removes all entries, and the tier is
// trusted from now on. After Trust, no value with an earlier stamp can be inserted. Trust does the
// same if the tier was already trusted, because the subscription may have been lost and restored
// unnoticed.
func (t *Tier[V]) Trust() {
	if t != nil {
		t.empty(func(bool) bool { return true })
	}
}

// Forget is Drop for all keys.
func (t *Tier[V]) Forget() {
	if t != nil {
		t.empty(func(trusted bool) bool { return trusted })
	}
}

// Len evicts excess entries and returns how many entries are left. Insertions wait in a queue until
// otter, the cache library used here, decides what to evict. So between two calls of Len the tier
// can have more entries than its limit. The queue has room for 128 insertions for each CPU, rounded
// up to a power of two. As many insertions may have left the queue and not be decided yet. So the
// excess is at most twice the length of the queue, and one more for each running Put.
func (t *Tier[V]) Len() int {
	if t == nil {
		return 0
	}
	return t.len()
}

// Close removes all entries for good, and waits for the goroutines of the tier.
func (t *Tier[V]) Close() {
	if t != nil {
		t.close()
	}
}
