package cacheguard

import (
	"math"

	"github.com/cacheguard/cacheguard/internal/striped"
)

// Stats is a snapshot of a cache. Its numbers may be of slightly different moments.
type Stats struct {
	LocalEntries int // in the process-local tier

	// Hits of the process-local tier so far, of values and of "does not exist". They are 0 unless
	// the Observer implements HitsUntold.
	LocalHits, LocalNegativeHits uint64

	LoadsRunning int // calls of load functions that have not returned, the late ones included
	LoadsQueued  int // loads that wait for a slot, or for a permit of a fleet's budget
	Flights      int // keys that are being looked up, waited for or loaded
	Callers      int // who wait for them

	// Changes counts the keys, tags and whole caches that this process has changed so far, by
	// Invalidate, MarkStale, Set, Update and their variants. Unsent is the number of changes that
	// the store does not have, or perhaps has lost. SentLate counts those that the store was told of
	// later than when they were made. See ErrPending.
	Changes  uint64
	Unsent   int
	SentLate uint64

	// 1 while the cache's Switch is off, or in shadow.
	SwitchedOff, InShadow int

	// Answers that were compared with the origin (Audit, ModeShadow), and those of them that were
	// wrong. See Difference.Wrong and Nines.
	Compared, Wrong uint64

	// Open circuit breakers of the store, and all of them: one per server, several in a cluster. Both
	// are 0 if the store has none.
	BreakersOpen, Breakers int
}

// Nines says how consistent the compared answers were, in nines: 3 means 99.9 percent. While no
// answer was wrong, it is the value that one wrong answer would give, so it grows with the number of
// comparisons: 999 right answers are 3 nines.
func (s Stats) Nines() float64 {
	if s.Wrong == 0 {
		return math.Log10(float64(s.Compared + 1))
	}
	return math.Log10(float64(s.Compared) / float64(s.Wrong))
}

// Attacher is implemented by an Observer that reads gauges of its caches. New calls Attach with the
// name of the cache, and Close calls detach. Several caches may have the same name. Any goroutine may
// call stats at any time, even during and after detach. A call of stats takes microseconds, and a
// little more for each key that is being loaded.
type Attacher interface {
	Attach(cache string, stats func() Stats) (detach func())
}

// HitsUntold is implemented by an Observer that needs no EventHit for hits of the process-local tier.
// An event would make such a hit twice as slow. If LocalHitsUntold returns true, these hits are
// counted in Stats instead. New calls it once.
type HitsUntold interface {
	LocalHitsUntold() bool
}

// Breakers is implemented by a Store that has circuit breakers.
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
