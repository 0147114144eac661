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

func (c *changes) of(id string) { c.byKey[maphash.String(changesSeed, id)%uint64(len(c.byKey))].Add(1) }
func (c *changes) ofAll()       { c.all.Add(1) }

// counts are all counts at one time.
type counts struct {
	all   uint32
	byKey [256]uint32
}

func (c *changes) counts() (n counts) {
	n.all = c.all.Load()
	for i := range c.byKey {
		n.byKey[i] = c.byKey[i].Load()
	}
	return n
}

// since reports whether a key may have changed since then.
func (c *changes) since(n *counts, id string) bool {
	i := maphash.String(changesSeed, id) % uint64(len(c.byKey))
	return c.all.Load() != n.all || c.byKey[i].Load() != n.byKey[i]
}
