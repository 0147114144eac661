package statuspage

import (
	"cmp"
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/internal/eventcount"
)

// Options configures a Page.
type Options struct {
	// Keys has the page show keys as they are. Default: it shows the beginning of their hash.
	Keys bool

	// SlowLoad has loads that take at least as long stand among what went wrong. Default 2 seconds;
	// negative: none.
	SlowLoad time.Duration
}

const defaultSlowLoad = 2 * time.Second

// Page is an Observer of any number of caches, and the handler that shows them. It is made by New,
// and safe for concurrent use.
type Page struct {
	opts    Options
	started time.Time

	views   sync.Map // of *view, the caches that are open
	watched sync.Map // *counts by the cache's name

	slow    slowest
	trouble troubles
}

var (
	_ cacheguard.Observer   = (*Page)(nil)
	_ cacheguard.Watcher    = (*Page)(nil)
	_ cacheguard.HitsUntold = (*Page)(nil)
)

// New returns a Page that shows nothing yet.
func New(opts Options) *Page {
	opts.SlowLoad = cmp.Or(opts.SlowLoad, defaultSlowLoad)
	return &Page{opts: opts, started: time.Now()}
}

// view is one cache that is open.
type view struct{ cacheguard.View }

// counts is what happened in caches of one name.
type counts struct {
	eventcount.Counters
	wrongAt atomic.Pointer[time.Time] // when an answer was found wrong last
	hot     hottest
}

// Watch has the page show a cache until detach is called. See cacheguard.Watcher.
func (p *Page) Watch(v cacheguard.View) (detach func()) {
	one := &view{v}
	p.counts(v.Cache)
	p.views.Store(one, one)
	return func() { p.views.Delete(one) }
}

// LocalHitsUntold says that hits of the process-local tier are read from Stats. See
// cacheguard.HitsUntold.
func (p *Page) LocalHitsUntold() bool { return true }

func (p *Page) counts(cache string) *counts {
	if c, ok := p.watched.Load(cache); ok {
		return c.(*counts)
	}
	c, _ := p.watched.LoadOrStore(cache, &counts{})
	return c.(*counts)
}

// Observe takes note of an event. See cacheguard.Observer.
func (p *Page) Observe(_ context.Context, e cacheguard.Event) {
	c := p.counts(e.Cache)
	c.Count(&e)
	switch e.Kind {
	case cacheguard.EventHit:
		return
	case cacheguard.EventSampled:
		c.hot.hit(e.Key)
		return
	case cacheguard.EventLoad:
		p.slow.took(slowLoad{Cache: e.Cache, Key: e.Key, Took: e.Took, At: time.Now(), Failed: e.Err != nil})
	}
	if text := p.wrong(e); text != "" {
		now := time.Now()
		if e.Kind == cacheguard.EventCompared {
			c.wrongAt.Store(&now)
		}
		p.trouble.add(trouble{At: now, Since: now, Cache: e.Cache, Key: e.Key, What: text, Why: why(e)})
	}
}
