// Package striped counts very frequent events of many goroutines. At a single shared counter the
// goroutines would wait for each other.
package striped

import (
	"sync/atomic"
	"unsafe"
)

// Most is the number of counters in a Counters.
const Most = 4

// Counters has a few counters, each in many slots. The address of a goroutine's stack chooses its
// slot, so that goroutines that run at the same time seldom write to the same cache line. If each
// count used a random slot, another processor would often have written this slot last. The zero
// Counters is ready to use and safe for concurrent use.
type Counters struct {
	slots [slots]slot
}

const slots = 64

// slot is two cache lines long, because processors fetch cache lines in pairs.
type slot struct {
	n [Most]atomic.Uint64
	_ [128 - 8*Most]byte
}

// Add adds one to a counter. The counter must be below Most.
func (c *Counters) Add(counter uint8) {
	var here byte
	at := uint64(uintptr(unsafe.Pointer(&here))) >> 11 // the smallest stack has 2 KiB
	c.slots[at*0x9e3779b97f4a7c15>>58].n[counter%Most].Add(1)
}

// Sum returns the value of a counter. It may or may not include events that are counted during the
// call.
func (c *Counters) Sum(counter uint8) (sum uint64) {
	for i := range c.slots {
		sum += c.slots[i].n[counter].Load()
	}
	return sum
}
