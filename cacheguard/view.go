package cacheguard

import (
	"cmp"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cacheguard/cacheguard/internal/report"
)

// Watcher is implemented by an Observer that looks into its caches, as package statuspage does. New
// calls Watch, and Close calls detach. Several caches may have the same name. A Watcher is also told
// of some hits by EventSampled: at most 20 per second of each cache, picked at random. So it can find
// the keys that are hit most without being told of every hit.
type Watcher interface {
	Watch(v View) (detach func())
}

// View looks into a cache. Any goroutine may call its functions at any time, even during and after
// detach.
type View struct {
	Cache     string
	Stats     func() Stats
	Mode      func() Mode                // of its Switch
	Listening func() bool                // messages of its store arrive
	Loads     func(most int) []LoadUnder // so many of those that run, first the oldest
	Troubles  func() []StoreTrouble      // that last
}

// StoreTrouble is a use for which the store fails at present. It ends when that use succeeds again;
// without calls it lasts beyond the end of its cause.
type StoreTrouble struct {
	Use           string // "reading", "leases", "storing results" or "changes"
	Since         time.Time
	Server, Cause string // empty if the store doesn't know
	Text          string // of the error, without keys
}

func newTrouble(use string, err error) *StoreTrouble {
	t := &StoreTrouble{Use: use, Since: time.Now(), Text: report.Text(err)}
	t.Server, t.Cause = report.Where(err)
	return t
}

// troubles returns those that there are.
func (h *health) troubles() (all []StoreTrouble) {
	for _, t := range []*trouble{&h.reading, &h.leasing, &h.storing, &h.changing} {
		if now := t.now.Load(); now != nil {
			all = append(all, *now)
		}
	}
	return all
}

// LoadUnder is a load that is under way.
type LoadUnder struct {
	Key     string // as the call gave it
	More    int    // keys of the same load
	Since   time.Time
	Callers int  // who wait for it in this process; 0: it refreshes a value behind their backs, or is an audit's
	Leased  bool // it has leases: else its results are not stored
}

// sampledPerSecond is how many hits of a cache are told by EventSampled, if somebody watches it.
const sampledPerSecond = 20

// loads are those of one cache.
type loads struct {
	running, queued atomic.Int64   // for Stats
	all             sync.WaitGroup // the goroutines on which they run

	mu    sync.Mutex // guards under
	under map[*LoadUnder]func() (callers int)
}

// begin takes note of a load, until end is called.
func (l *loads) begin(one *LoadUnder, callers func() int) (end func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.under == nil {
		l.under = make(map[*LoadUnder]func() int)
	}
	l.under[one] = callers
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.under, one)
	}
}

// oldest returns so many of those that run.
func (l *loads) oldest(most int) []LoadUnder {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := make([]*LoadUnder, 0, len(l.under))
	for one := range l.under {
		all = append(all, one)
	}
	slices.SortFunc(all, func(a, b *LoadUnder) int { return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.Key, b.Key)) })
	shown := make([]LoadUnder, min(len(all), max(most, 0)))
	for i := range shown {
		shown[i] = *all[i]
		shown[i].Callers = l.under[all[i]]()
	}
	return shown
}

// watch lets a Watcher look into the cache.
func (c *Cache[V]) watch(w Watcher) {
	c.watched = true
	if detach := w.Watch(View{
		Cache: c.opts.Name, Stats: c.Stats, Mode: c.opts.Switch.Mode, Listening: c.store.Listening, Loads: c.loads.oldest, Troubles: c.health.troubles,
	}); detach != nil {
		c.detachWatcher = detach
	}
}
