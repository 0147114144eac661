package cacheguard

import (
	"hash/maphash"
	"sync/atomic"
)

// changes counts the changes that a process knows of. They are counted before flights are sealed: a flight that begins
// with something in hand, and then finds the count it has from before it got that, is sealed by every later change.
type changes struct {
	all   atomic.Uint32
	byKey [256]atomic.Uint32 // by the key's hash: keys share them, which costs a stale value now and then
}

var changesSeed = maphash.MakeSeed()

func (c *changes) at(id string) *atomic.Uint32 {
	return &c.byKey[maphash.String(changesSeed, id)%uint64(len(c.byKey))]
}

func (c *changes) of(id string) { c.at(id).Add(1) }
func (c *changes) ofAll()       { c.all.Add(1) }

// count is another one after a change of the key.
func (c *changes) count(id string) uint64 {
	return uint64(c.all.Load())<<32 | uint64(c.at(id).Load())
}
