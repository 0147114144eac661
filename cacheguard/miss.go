package cacheguard

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/cacheguard/cacheguard/internal/desk"
	"github.com/cacheguard/cacheguard/internal/flight"
	"github.com/cacheguard/cacheguard/internal/frame"
	"github.com/cacheguard/cacheguard/internal/knowledge"
	"github.com/cacheguard/cacheguard/internal/protocol"
)

// errAbandoned cancels work that nobody waits for any more. No caller sees it.
var errAbandoned = errors.New("cacheguard: every caller has left")

// miss is the way of one flight from a look-up that found nothing to be served to a result. Its
// state machine decides what happens on it, and a run does that.
type miss[V any] struct {
	protocol.Miss
	target[V]
	sight[V]
	asked     question // for the lease
	ans       LeaseAnswer
	own       own[V]
	note      []byte // of the load whose outcome this is
	waits     waiting
	turn      *turn    // the slot in hand
	work      *work[V] // its load
	plan      plan
	rehearsed *found[V]   // in shadow: what its callers would have been answered with
	audits    bool        // it is for an audit, and for nobody else
	uncounted atomic.Bool // the run does not go on for this one any more
}

// target is what a flight is after.
type target[V any] struct {
	flight *flight.Flight[outcome[V]]
	name   string // the key as the caller gave it
	key    Key    // the key as the store sees it
	load   loader[V]
}

// sight is what was seen of the store last.
type sight[V any] struct {
	had      found[V]  // what stands there and can't be used
	at       time.Time // when it was seen
	storeErr error     // why the store can't be used
}

// question is what a miss knows of the question for the lease that it has asked last.
type question struct {
	token   ID
	sent    time.Duration   // on the run's clock
	tier    moment          // from before it was asked, for what the local tier keeps
	changed uint64          // and the count of changes
	unsent  uint64          // and the moment of what the store was told late
	asOf    uint64          // the flights' moment from before what the miss has got was asked for or begun
	hint    *knowledge.Hint // which tags a value may have
}

// own is what became of a miss' own load.
type own[V any] struct {
	out    loaded[V]
	header frame.Header // of the frame that is stored
	res    Result[V]
	stored bool
}

// plan is what is still to be done for a miss.
type plan struct {
	do       protocol.Do
	listed   bool // among what the run has to do
	landing  protocol.Landing
	deserted bool // nobody waits for this flight any more
}

// missOf makes a miss of what a look-up found, or of why the store could not be used.
func (c *Cache[V]) missOf(of *target[V], got found[V], storeErr error) *miss[V] {
	m := &miss[V]{target: *of}
	m.storeErr = storeErr
	m.Config, m.Down = c.protocol, storeErr != nil
	m.saw(got)
	m.Seen = got.use()
	return m
}

// saw notes what stands in the store and is not what this miss is after.
func (m *miss[V]) saw(got found[V]) { m.had, m.at = got, time.Now() }

// until is when what it has seen can't be used any more.
func (m *miss[V]) until() time.Time { return m.at.Add(m.had.keeps) }

// offer gives those who wait for a miss the stale value that it has seen, for when they lose
// patience, and reports whether it has one.
func (c *Cache[V]) offer(m *miss[V]) bool {
	if c.opts.SoftTimeout <= 0 || !m.had.servable() || m.storeErr != nil {
		return false
	}
	m.flight.Hold()
	m.flight.Offer(outcome[V]{res: m.had.res, also: &aside[V]{at: m.at}}, m.until())
	return true
}

// detach hands a miss over to a run that outlives this caller, and waits for its flight like
// everybody else.
func (c *Cache[V]) detach(ctx context.Context, m *miss[V], res *Result[V]) (err error) {
	recursive := c.inside(ctx, m.key.Key)
	if recursive { // those who have joined meanwhile may wait; a load must not wait for itself
		m.flight.Leave()
	}
	switch begun := c.runAll(ctx, nil, m); {
	case !begun:
		return ErrClosed
	case recursive:
		return recursion(m.name)
	}
	return c.awaitOwn(ctx, m, res)
}

// awaitOwn waits for the flight that the caller has handed over.
func (c *Cache[V]) awaitOwn(ctx context.Context, m *miss[V], res *Result[V]) (err error) {
	f := m.flight
	began := c.beganToWait(f)
	var out *outcome[V]
	if d := desk.From(ctx); d != nil {
		out, err = desk.Work(ctx, d, f)
	} else if c.opts.SoftTimeout > 0 {
		out, err = c.resultWithin(ctx, f, c.opts.SoftTimeout)
	} else {
		out, err = f.Result(ctx)
	}
	if err != nil {
		return err
	}
	return c.led(ctx, m, out, began, res)
}

// led is what a caller gets of the flight that it has led, when it has landed.
func (c *Cache[V]) led(ctx context.Context, m *miss[V], out *outcome[V], began time.Time, res *Result[V]) error {
	if out.unshared() && out.res.Status == StatusMiss { // by somebody else
		return c.loadUnshared(ctx, m.name, m.load, out.also.marker, res)
	}
	c.served(ctx, EventLoaded, m.name, m.flight, out, began)
	*res = out.res
	return res.withNotFound(out.err)
}

// loadUnshared loads for one caller whose result may be nobody else's: somebody's just was not.
// marker is what says so, if it stood in the store. It is apart from the stack of those who get a
// shared one.
//
//go:noinline
func (c *Cache[V]) loadUnshared(ctx context.Context, key string, load loader[V], marker *found[V], res *Result[V]) error {
	var got found[V]
	if marker != nil {
		got = *marker
	}
	m := c.missOf(&target[V]{flight.Solo[outcome[V]](), key, c.key(keyID(key)), load}, got, nil)
	m.Solo, m.Apart = true, true
	return c.detach(ctx, m, res)
}

// refreshBehind has a value refreshed that its callers already have: one flight for each key and
// process, and among the processes the lease, asked for without waiting, picks one. It outlives the
// caller, is bounded by LoadTimeout and the budget of loads, and ended by Close. If it fails, that
// stays in the store as a back-off for everybody.
func (c *Cache[V]) refreshBehind(ctx context.Context, of *target[V], got found[V]) {
	m := c.missOf(of, got, nil)
	if desk.MayRefresh(ctx, got.res.Value) && c.leadsRefresh(m) {
		c.runBehind(ctx, nil, m)
	}
}

// leadsRefresh reports whether a miss may refresh a value behind its callers' backs, and makes it
// the work that does.
func (c *Cache[V]) leadsRefresh(m *miss[V]) bool {
	if held, _ := c.refreshPauses.Find(m.key.Key, m.had.id); held {
		return false
	}
	f, leads := c.flights[refreshes].Join(m.key.Key, 0)
	if !leads {
		f.Leave()
		return false
	}
	f.LeadAsWork()
	m.flight, m.Behind = f, true
	return true
}

// runBehind runs misses that nobody waits for. A load that reads a stale value does not wait for
// its refresh, which therefore needs a slot of its own.
func (c *Cache[V]) runBehind(ctx context.Context, many manyFunc[V], all ...*miss[V]) (begun bool) {
	return c.runAll(context.WithValue(ctx, chainKey{}, (*link)(nil)), many, all...)
}

// runAll hands misses over to one run that outlives this caller, unless the cache is closed.
func (c *Cache[V]) runAll(ctx context.Context, many manyFunc[V], all ...*miss[V]) (begun bool) {
	if begun = c.life.Begin(); !begun {
		for _, m := range all {
			m.flight.Land(outcome[V]{err: ErrClosed})
		}
		return false
	}
	go c.newRun(ctx, many, all...).work()
	return true
}
