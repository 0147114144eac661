package middleware

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/cacheguard/cacheguard/cacheguard"
)

// purges is what this process has purged lately. What a handler that ran meanwhile has made counts
// no more: nobody is served with it, and its client is told so. Forgetting a purge, of more than
// mostPurges, costs that word alone: the loader knows by the store's clock what is out of date. It
// is safe for concurrent use.
type purges struct {
	mu    sync.Mutex // guards what follows
	count uint64
	all   uint64            // the last one of everything
	of    map[string]uint64 // the last one of each tag
}

const mostPurges = 4096

// done takes note of a purge of tags, or without tags of everything.
func (p *purges) done(tags []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.count++
	if len(tags) == 0 {
		p.all = p.count
	}
	if p.of == nil || len(p.of)+len(tags) > mostPurges {
		p.of = make(map[string]uint64)
	}
	for _, tag := range tags {
		p.of[tag] = p.count
	}
}

// sending is when a request went to its handler: by the clock, and after how many purges.
type sending struct {
	at     time.Time
	purges uint64
}

func (c *Cache) sends() sending {
	p := &c.purges
	p.mu.Lock()
	defer p.mu.Unlock()
	return sending{time.Now(), p.count}
}

// since reports whether something with one of these tags was purged after that.
func (p *purges) since(then sending, tags []string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.count == then.purges {
		return false
	}
	return p.all > then.purges || slices.ContainsFunc(tags, func(tag string) bool { return p.of[tag] > then.purges })
}

// invalidate removes what has one of these tags; without tags it is everything.
func (c *Cache) invalidate(ctx context.Context, tags ...string) error {
	defer c.purges.done(tags)
	if len(tags) == 0 {
		return c.loads.InvalidateAll(ctx)
	}
	return c.loads.InvalidateTags(ctx, tags...)
}

// keeps notes why an entry is for nobody else, if it was purged while the handler ran. The store
// gets it all the same: what a purge means for those who wait for it is the loader's to know, by
// the store's clock.
func (rec *recorder) keeps(e cacheguard.Entry[*response]) cacheguard.Entry[*response] {
	if rec.why == 0 && rec.run.cache.purges.since(rec.run.sent, e.Tags) {
		rec.why = cacheguard.ReasonPurged
	}
	return e
}
