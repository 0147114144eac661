package cacheguard

import (
	"math"

	"github.com/cacheguard/cacheguard/internal/striped"
)

// Stats is what a cache looks like at a moment. Numbers that belong to one load or one caller may
// be of slightly different moments.
type Stats struct {
	LocalEntries int // in the process-local tier

	// Hits of the process-local tier so far, of values and of "does not exist". They are counted
	// here only for an Observer that is not told of each (HitsUntold), and are 0 else.
	LocalHits, LocalNegativeHits uint64

	LoadsRunning int // calls of load functions that have not returned, the late ones included
	LoadsQueued  int // loads that wait for a slot, or for a permit of a fleet's budget
	Flights      int // keys that are being looked up, waited for or loaded
	Callers      int // who wait for them

	// Changes is how many keys this process has changed so far (Invalidate, MarkStale, Set and
	// their like), and tags, and how often the whole cache; a key once for each time. Unsent are
	// those that the store has not been told of, or perhaps has forgotten, and SentLate those that
	// it was told of later than when they were made. See ErrPending.
	Changes  uint64
	Unsent   int
	SentLate uint64

	// 1 if a Switch has taken the cache out of the path of its calls, in one way or the other.
	SwitchedOff, InShadow int

	// Answers that were compared with the origin (Audit, ModeShadow), and how many of them were
	// wrong: see Difference.Wrong and Nines.
	Compared, Wrong uint64

	// Circuit breakers of the store that are open, and how many there are: one for a server,
	// several for a cluster. Both are 0 if the store has none.
	BreakersOpen, Breakers int
}

// Nines is how consistent the answers that were compared have been, in nines: 3 is 99.9 percent. As
// long as none was wrong, it is what it would be if the next one were, so that it grows with what
// is known: 999 right ones are 3 nines.
func (s Stats) Nines() float64 {
	if s.Wrong == 0 {
		return math.Log10(float64(s.Compared + 1))
	}
	return math.Log10(float64(s.Compared) / float64(s.Wrong))
}

// Attacher is what an Observer implements, too, that reads gauges of the caches it observes. New
// calls Attach with the name of the cache, and Close calls detach; several caches may have one
// name. stats may be called at any time, also during detach and after it, by any goroutine; it
// takes microseconds, and a little for each key that is being loaded.
type Attacher interface {
	Attach(cache string, stats func() Stats) (detach func())
}

// HitsUntold is what an Observer implements, too, that can do without an EventHit for each hit of
// the process-local tier, which an event would make twice as slow. It reports whether that is so;
// New asks once. They are counted in Stats then.
type HitsUntold interface {
	LocalHitsUntold() bool
}

// Breakers is what a Store implements, too, if it has circuit breakers.
type Breakers interface {
	// Breakers returns how many are open, and how many there are.
	Breakers() (open, all int)
}

// localHits counts hits of the process-local tier that the observer is not told of. They are so
// fast that one counter for all would make them twice as slow.
type localHits struct{ striped.Counters }

const (
	ofValue = iota
	ofNothing
)

func (u *localHits) add(notFound bool) {
	if notFound {
		u.Add(ofNothing)
		return
	}
	u.Add(ofValue)
}

// Stats returns gauges of the cache in this process.
func (c *Cache[V]) Stats() (s Stats) {
	s.LocalEntries = c.tier.values.Len()
	if c.localHits != nil {
		s.LocalHits, s.LocalNegativeHits = c.localHits.Sum(ofValue), c.localHits.Sum(ofNothing)
	}
	s.LoadsRunning, s.LoadsQueued = int(c.loads.running.Load()), int(c.loads.queued.Load())
	for i := range c.flights {
		flights, callers := c.flights[i].Count()
		s.Flights += flights
		s.Callers += callers
	}
	s.Changes, s.Unsent, s.SentLate = c.changes.Load(), c.unsent.Count(), c.sentLate.Load()
	s.Compared, s.Wrong = c.comparisons.compared.Load(), c.comparisons.wrong.Load()
	switch c.opts.Switch.Mode() {
	case ModeOff:
		s.SwitchedOff = 1
	case ModeShadow:
		s.InShadow = 1
	}
	if b, ok := c.store.(Breakers); ok {
		s.BreakersOpen, s.Breakers = b.Breakers()
	}
	return s
}

// attach makes the cache and its observer known to each other.
func (c *Cache[V]) attach() {
	c.detachObserver, c.detachWatcher = func() {}, func() {}
	c.tracer, _ = c.opts.Observer.(LoadTracer)
	if o, ok := c.opts.Observer.(HitsUntold); ok && c.tier.values != nil && o.LocalHitsUntold() {
		c.localHits = &localHits{}
	}
	if a, ok := c.opts.Observer.(Attacher); ok {
		if detach := a.Attach(c.opts.Name, c.Stats); detach != nil {
			c.detachObserver = detach
		}
	}
	if w, ok := c.opts.Observer.(Watcher); ok {
		c.watch(w)
	}
}
