// Package knowledge is the memory of a process about keys and tags, besides their values. It
// remembers, from the process' own calls and from messages, which keys and tags were changed, which
// loads have failed, and which tags values have. The size of this memory is limited. If a fact is
// forgotten, or if two keys or tags are taken for one, the only cost is a request to the store, or
// a stale value that is not served. No answer becomes wrong. The zero value of each type is ready
// to use, and safe for concurrent use.
package knowledge

import (
	"hash/maphash"
	"sync/atomic"
)

var seed = maphash.MakeSeed()

// Changes counts the changes that a process knows of. A change is counted before the flights of its
// key are sealed. So if the count is the same as before a value was found, a flight can begin with
// this value, and every later change seals the flight.
type Changes struct {
	all atomic.Uint32
	// By the key's hash; keys can share a counter, so sometimes a stale value is not served because
	// another key was changed.
	byKey [256]atomic.Uint32
}

func (c *Changes) at(key string) *atomic.Uint32 {
	return &c.byKey[maphash.String(seed, key)%uint64(len(c.byKey))]
}

// Of counts a change of a key.
func (c *Changes) Of(key string) { c.at(key).Add(1) }

// OfAll counts a change that may affect any key.
func (c *Changes) OfAll() { c.all.Add(1) }

// Count returns a number that differs after each change of the key.
func (c *Changes) Count(key string) uint64 {
	return uint64(c.all.Load())<<32 | uint64(c.at(key).Load())
}
