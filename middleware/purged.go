package middleware

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/cacheguard/cacheguard/cacheguard"
)

// purges records the latest purges of this process. If a resource was purged while its handler ran,
// the response isn't stored, and Cache-Status and observers report the purge as the reason. After
// more than mostPurges tags, all tags are forgotten. Then only this reason is missing: the loader
// knows by the store's clock which responses are out of date. purges is safe for concurrent use.
type purges struct {
	mu    sync.Mutex // guards the fields below
	count uint64
	all   uint64            // the number of the last purge of everything
	of    map[string]uint64 // the number of the last purge of each tag
}

const mostPurges = 4096

// done records a purge of these tags, or of everything if there are no tags.
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

// sending is the moment at which a request was passed to its handler: the time, and the number of
// purges before it.
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

// since reports whether one of these tags, or everything, was purged after the moment then.
func (p *purges) since(then sending, tags []string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.count == then.purges {
		return false
	}
	return p.all > then.purges ||
		slices.ContainsFunc(tags, func(tag string) bool { return p.of[tag] > then.purges })
}

// invalidate removes the responses that have at least one of these tags, or all responses if there
// are no tags.
func (c *Cache) invalidate(ctx context.Context, tags ...string) error {
	defer c.purges.done(tags)
	if len(tags) == 0 {
		return c.loads.InvalidateAll(ctx)
	}
	return c.loads.InvalidateTags(ctx, tags...)
}

// If the resource was purged while the handler ran, keeps records this as the reason why the entry
// isn't stored. keeps returns the entry to the loader in any case: the loader decides by the
// store's clock whether the waiting requests may get the entry.
func (rec *recorder) keeps(e cacheguard.Entry[*response]) cacheguard.Entry[*response] {
	if rec.why == 0 && rec.run.cache.purges.since(rec.run.sent, e.Tags) {
		rec.why = cacheguard.ReasonPurged
	}
	return e
}
