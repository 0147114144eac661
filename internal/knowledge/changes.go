// Package knowledge is what a process remembers of keys and tags beside their values, from what it
// did itself and from messages: that they were changed, which loads have failed, which tags values
// have. Everything here is bounded, and forgetting it, or taking two keys or tags for one, costs a
// question to the store and never a wrong answer. The zero value of each type is ready to use, and
// all are safe for concurrent use.
package knowledge

import (
	"hash/maphash"
	"sync/atomic"
)

var seed = maphash.MakeSeed()

// Changes counts the changes that a process knows of. They are counted before flights are sealed: a
// flight that begins with something in hand, and then finds the count it has from before it got
// that, is sealed by every later change.
type Changes struct {
	all   atomic.Uint32
	byKey [256]atomic.Uint32 // by the key's hash: keys share them, which costs a stale value now and then
}

func (c *Changes) at(key string) *atomic.Uint32 {
	return &c.byKey[maphash.String(seed, key)%uint64(len(c.byKey))]
}

// Of counts a change of a key.
func (c *Changes) Of(key string) { c.at(key).Add(1) }

// OfAll counts a change of any keys.
func (c *Changes) OfAll() { c.all.Add(1) }

// Count is another one after a change of the key.
func (c *Changes) Count(key string) uint64 {
	return uint64(c.all.Load())<<32 | uint64(c.at(key).Load())
}
