package middleware

import (
	"sync"
	"time"
)

// budget is how many resources strangers may have the fleet remember as changed. Each costs a place
// in the store's memory of invalidated tags, which has 100,000 of them for a cache: when it is full
// the oldest are forgotten, and with them whatever was stored before. Anybody can send a POST to
// /search?q=1, 2, 3 and so on; what your own services invalidate must stay.
//
// A resource that was invalidated lately has its place, and costs nothing more.
type budget struct {
	mu     sync.Mutex // guards what follows
	left   float64
	at     time.Time           // when that was
	lately map[string]struct{} // tags
	order  []string            // the same, a ring
	next   int                 // the oldest
}

const (
	changesAtOnce   = 1000 // of different resources
	changesASecond  = 1
	changesRemember = 1000
)

// takes reports whether a tag may be invalidated, and counts it.
func (b *budget) takes(tag string, now time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if _, known := b.lately[tag]; known {
		return true
	}
	if b.at.IsZero() {
		b.left = changesAtOnce
	} else {
		b.left = min(changesAtOnce, b.left+max(0, now.Sub(b.at).Seconds())*changesASecond)
	}
	b.at = now
	if b.left < 1 {
		return false
	}
	b.left--
	b.remember(tag)
	return true
}

func (b *budget) remember(tag string) {
	if b.lately == nil {
		b.lately = make(map[string]struct{})
	}
	if len(b.order) < changesRemember {
		b.order = append(b.order, tag)
	} else {
		delete(b.lately, b.order[b.next])
		b.order[b.next] = tag
		b.next = (b.next + 1) % changesRemember
	}
	b.lately[tag] = struct{}{}
}
