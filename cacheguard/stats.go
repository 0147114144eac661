package cacheguard

import (
	"math"
	"time"

	"github.com/cacheguard/cacheguard/internal/striped"
)

// Stats is a snapshot of a cache. Its numbers are not read at exactly the same moment.
type Stats struct {
	LocalEntries int // values in the process-local tier

	// LocalHits counts the hits of the process-local tier that were values. LocalNegativeHits
	// counts the hits that were "does not exist". Both are 0 unless the Observer is a [HitsUntold]
	// whose LocalHitsUntold returns true.
	LocalHits, LocalNegativeHits uint64

	// How many functions of loads and of Updates have not returned yet, including the functions
	// that the cache has given up.
	LoadsRunning int
	LoadsQueued  int // loads that wait for a slot of MaxLoads or Limiter
	// How many look-ups and loads new calls can join. A look-up or load is not counted if its key
	// was changed meanwhile, or if it is for one caller.
	Flights int
	Callers int // callers that wait for these flights

	// Changes counts the keys, tags and whole caches that this process has changed so far, by
	// Invalidate, MarkStale, Set, Update and their variants. Unsent is the number of changes that
	// the store does not have, or has perhaps lost. SentLate counts the changes that the store got
	// only by a repetition, each change once. After an interruption of messages, recent changes are
	// repeated, too. The change of a key that is repeated for this reason counts only if the store
	// still had a value from before the change. If messages are interrupted again soon, SentLate
	// may miss the change. See [ErrPending].
	Changes  uint64
	Unsent   int
	SentLate uint64

	// SwitchedOff is 1 while the cache's Switch is off, InShadow is 1 while the Switch is in
	// shadow.
	SwitchedOff, InShadow int

	// Compared counts the answers that were compared with the origin (Audit, ModeShadow). Wrong
	// counts the wrong answers among them. See [Difference.Wrong] and [Stats.Nines].
	Compared, Wrong uint64

	// BreakersOpen is the number of circuit breakers of the store that are open. Breakers is the
	// number of all its circuit breakers: package redisstore has two for a server, and two for
	// every 256 slots of a cluster. If the store has no circuit breakers, both are 0.
	BreakersOpen, Breakers int
}

// Nines returns the share of compared answers that were right, in nines: 3 means 99.9 percent. As
// long as no answer was wrong, Nines calculates as if one more answer had been compared and had
// been wrong. So it grows with the number of comparisons: 999 right answers are 3 nines.
func (s Stats) Nines() float64 {
	if s.Wrong == 0 {
		return math.Log10(float64(s.Compared + 1))
	}
	return math.Log10(float64(s.Compared) / float64(s.Wrong))
}

// Attacher is implemented by an [Observer] that reads the [Stats] of its caches. New calls Attach
// with the name of the cache, and Close calls detach. Several caches may have the same name. Any
// goroutine may call stats at any time, even during and after detach. A call of stats takes
// microseconds, and a little more for each key that is being loaded.
type Attacher interface {
	Attach(cache string, stats func() Stats) (detach func())
}

// HitsUntold is implemented by an [Observer] that needs no EventHit for hits of the process-local
// tier. An event would make a hit of this tier twice as slow. If LocalHitsUntold returns true,
// these hits are counted in [Stats] instead. New calls LocalHitsUntold once if the cache has a
// process-local tier.
type HitsUntold interface {
	LocalHitsUntold() bool
}

// Breakers is implemented by a [Store] that has circuit breakers.
type Breakers interface {
	// Breakers returns the number of open circuit breakers, and the number of all circuit breakers.
	Breakers() (open, all int)
}

// Deafness is implemented by a [Store] that knows why messages don't arrive.
type Deafness interface {
	// Deafness returns the error that stopped messages. since is when messages stopped arriving,
	// and last is when listening last failed. If messages arrive, or if listening has not failed
	// yet, err is nil. For a few seconds after messages have begun to arrive again, the store may
	// still return the error.
	Deafness() (since, last time.Time, err error)
}

// localHits counts hits of the process-local tier for which the Observer gets no event. The
// counters are striped: these hits are so fast that one counter for all cores would double their
// time.
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

// Stats returns the present numbers of the cache in this process.
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

// attach connects the cache with its Observer, by the optional interfaces that the Observer has.
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
