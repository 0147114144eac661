package middleware

import (
	"sync"
	"time"
)

// budget limits how many resources clients can invalidate by unsafe requests. For each cache, the
// store remembers 100,000 invalidated tags, and each invalidation takes one of these places. When
// all places are taken, the store forgets the oldest tags. Then all responses that were stored
// before the invalidation of these tags become invalid. Anybody can send a POST to /search?q=1, 2,
// 3 and so on. These requests must not displace the tags that your own services invalidate.
//
// If a resource was invalidated lately, it already has a place. So its next invalidation costs
// nothing.
type budget struct {
	mu     sync.Mutex // guards the fields below
	left   float64
	at     time.Time           // when left was computed
	lately map[string]struct{} // tags
	order  []string            // the tags in lately, a ring
	next   int                 // the index of the oldest
}

const (
	changesAtOnce   = 1000 // the number of different resources that can be changed at once
	changesASecond  = 1
	changesRemember = 1000
)

// takes reports whether a tag may be invalidated. If so, it takes the tag's cost from the budget.
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
