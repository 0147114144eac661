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

// Options configures a [Page].
type Options struct {
	// Keys shows keys, quoted and cut to 300 bytes. Default: the page shows the beginning of each
	// key's hash.
	Keys bool

	// SlowLoad is the duration from which a load is listed among the problems. Default 2 seconds.
	// Negative: slow loads are not listed.
	SlowLoad time.Duration
}

const defaultSlowLoad = 2 * time.Second

// Page is an observer of any number of caches, and the handler that shows them. Make it with [New].
// It is safe for concurrent use.
type Page struct {
	opts    Options
	started time.Time

	caches *eventcount.Caches[*noted]
	views  sync.Map // of *view, the caches that are open

	slow    slowest
	trouble troubles
}

var (
	_ cacheguard.Observer   = (*Page)(nil)
	_ cacheguard.Watcher    = (*Page)(nil)
	_ cacheguard.HitsUntold = (*Page)(nil)
)

// New returns a Page without caches.
func New(opts Options) *Page {
	opts.SlowLoad = cmp.Or(opts.SlowLoad, defaultSlowLoad)
	return &Page{
		opts: opts, started: time.Now(),
		caches: eventcount.NewCaches(
			func(cache string) string { return cache },
			func(string) *noted { return new(noted) },
		),
	}
}

// view is one open cache.
type view struct{ cacheguard.View }

// noted is what the page notes about all caches of one name, besides their counts.
type noted struct {
	wrongAt atomic.Pointer[time.Time] // when an answer was last found to be wrong
	hot     hottest
}

// Watch adds a cache to the page. After detach the page shows this cache as closed, unless another
// cache of the same name is open. See [cacheguard.Watcher].
func (p *Page) Watch(v cacheguard.View) (detach func()) {
	one := &view{v}
	leave := p.caches.Attach(v.Cache, v.Stats)
	p.views.Store(one, one)
	return func() {
		p.views.Delete(one)
		leave()
	}
}

// LocalHitsUntold returns true, because the page needs no events for hits of the process-local
// tier. It reads their number from Stats. See [cacheguard.HitsUntold].
func (p *Page) LocalHitsUntold() bool { return true }

// Observe counts an event and records the parts of it that the page shows. See
// [cacheguard.Observer].
func (p *Page) Observe(_ context.Context, e cacheguard.Event) {
	c := p.caches.Of(e.Cache)
	c.Count(&e)
	switch e.Kind {
	case cacheguard.EventHit:
		return
	case cacheguard.EventSampled:
		c.More.hot.hit(e.Key)
		return
	case cacheguard.EventLoad:
		p.slow.took(slowLoad{
			Cache: e.Cache, Key: e.Key, More: e.More, Took: e.Took, At: time.Now(),
			Failed: e.Err != nil && !eventcount.GivenUp(e.Err),
		})
	}
	if text := p.wrong(e); text != "" {
		now := time.Now()
		if e.Kind == cacheguard.EventCompared {
			c.More.wrongAt.Store(&now)
		}
		p.trouble.add(trouble{
			At: now, Since: now, Cache: e.Cache, Keys: keys(e), What: text, Why: why(e),
		})
	}
}
