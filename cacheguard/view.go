package cacheguard

import (
	"cmp"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cacheguard/cacheguard/internal/report"
)

// Watcher is implemented by an [Observer] that looks into its caches, as package statuspage does.
// New calls Watch, and Close calls detach. Several caches may have the same name. A Watcher also
// gets an EventSampled for some hits, which are picked at random: at most 20 per second and cache,
// on average. So a Watcher can find the keys that are hit most without an event for every hit.
type Watcher interface {
	Watch(v View) (detach func())
}

// View has the functions by which a [Watcher] looks into a cache. Any goroutine may call them at
// any time, even during and after detach.
type View struct {
	Cache     string
	Stats     func() Stats
	Mode      func() Mode                // the mode of the cache's Switch
	Listening func() bool                // whether messages of the store arrive
	Loads     func(most int) []LoadUnder // at most this number of running loads, the oldest first
	Troubles  func() []StoreTrouble      // the troubles that have not ended
}

// StoreTrouble describes a failure of the store for one kind of use. The trouble ends when a use of
// that kind succeeds again. So if no call uses the store, the trouble stays after its cause is
// gone, and Last says when it was last seen.
type StoreTrouble struct {
	// "reading", "leases", "storing results", "changes", or "messages" of a store with Deafness.
	Use           string
	Since         time.Time // when the use first failed
	Last          time.Time // when the use last failed; no try has succeeded since
	Server, Cause string    // "" if not known
	Text          string    // the error's text, without keys

	lacks string   // the right that is missing, if the error names one
	named []string // all rights that have been missing since the beginning
}

func newTrouble(use string, err error) *StoreTrouble {
	now := time.Now()
	t := &StoreTrouble{
		Use: use, Since: now, Last: now, Text: report.Text(err), lacks: report.Lacks(err),
	}
	t.named = []string{t.lacks}
	t.Server, t.Cause = report.Where(err)
	return t
}

// follows makes t the continuation of an earlier state. It reports whether t has news for the log:
// another cause, or a missing right that wasn't named before. If two rights fail alternately, this
// is no news.
func (t *StoreTrouble) follows(before *StoreTrouble) (news bool) {
	t.Since, t.named = before.Since, before.named
	if t.lacks != "" && !slices.Contains(t.named, t.lacks) {
		t.named, news = append(slices.Clip(t.named), t.lacks), true
	}
	return news || t.Cause != before.Cause
}

// troubles returns the troubles that have not ended. The store itself reports a trouble with
// messages.
func (c *Cache[V]) troubles() []StoreTrouble {
	all := c.health.troubles()
	if d, ok := c.store.(Deafness); ok {
		if since, last, err := d.Deafness(); err != nil {
			t := newTrouble("messages", err)
			t.Since, t.Last = since, last
			all = append(all, *t)
		}
	}
	return all
}

// troubles returns the troubles of the cache's own uses of the store.
func (h *health) troubles() (all []StoreTrouble) {
	for _, t := range []*trouble{&h.reading, &h.leasing, &h.storing, &h.changing} {
		if now := t.now.Load(); now != nil {
			one := *now
			if last := time.Unix(0, t.last.Load()); last.After(one.Since) {
				one.Last = last
			}
			all = append(all, one)
		}
	}
	return all
}

// LoadUnder is a load that is running.
type LoadUnder struct {
	Key   string // the key that the caller passed
	More  int    // further keys of the same load
	Since time.Time
	// Callers of this process that wait for the load; 0 for a refresh in the background or an
	// audit.
	Callers int
	Leased  bool // the load began with a lease; the result of a load without a lease is not stored
	Audit   bool // the load is for an Audit: no caller waits for it, and its result is not stored
}

// sampledPerSecond is the number of hits per second that get an EventSampled if there is a
// [Watcher].
const sampledPerSecond = 20

// loads keeps track of the loads of one cache.
type loads struct {
	running, queued atomic.Int64   // for Stats
	all             sync.WaitGroup // the goroutines of the loads

	mu    sync.Mutex // guards under
	under map[*LoadUnder]func() (callers int)
}

// begin adds a load to the list. end removes it.
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

// oldest returns at most this number of running loads, the oldest first.
func (l *loads) oldest(most int) []LoadUnder {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := make([]*LoadUnder, 0, len(l.under))
	for one := range l.under {
		all = append(all, one)
	}
	slices.SortFunc(all, func(a, b *LoadUnder) int {
		return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.Key, b.Key))
	})
	shown := make([]LoadUnder, min(len(all), max(most, 0)))
	for i := range shown {
		shown[i] = *all[i]
		shown[i].Callers = l.under[all[i]]()
	}
	return shown
}

// watch gives a [Watcher] its view of the cache.
func (c *Cache[V]) watch(w Watcher) {
	c.watched = true
	if detach := w.Watch(View{
		Cache: c.opts.Name, Stats: c.Stats, Mode: c.opts.Switch.Mode, Listening: c.store.Listening,
		Loads: c.loads.oldest, Troubles: c.troubles,
	}); detach != nil {
		c.detachWatcher = detach
	}
}
