// Package striped counts what happens so often, on so many goroutines, that they would wait for
// each other's counting.
package striped

import (
	"sync/atomic"
	"unsafe"
)

// Most is how many a Counters has.
const Most = 4

// Counters is a few counters, each in many slots. Each goroutine has a slot by where its stack is,
// so that goroutines that run at the same time seldom write to one cache line. A slot drawn at
// random for each count would as often as not be one that another processor wrote last. The zero
// Counters is ready to use and safe for concurrent use.
type Counters struct {
	slots [slots]slot
}

const slots = 64

// slot is two cache lines long: processors fetch them in pairs.
type slot struct {
	n [Most]atomic.Uint64
	_ [128 - 8*Most]byte
}

// Add adds one to a counter, below Most.
func (c *Counters) Add(counter uint8) {
	var here byte
	at := uint64(uintptr(unsafe.Pointer(&here))) >> 11 // the smallest stack has 2 KiB
	c.slots[at*0x9e3779b97f4a7c15>>58].n[counter%Most].Add(1)
}

// Sum returns a counter. What is being added meanwhile may be in it or not.
func (c *Counters) Sum(counter uint8) (sum uint64) {
	for i := range c.slots {
		sum += c.slots[i].n[counter].Load()
	}
	return sum
}
