package cacheguard

import (
	"context"
	"slices"
	"sync/atomic"
	"time"

	"github.com/cacheguard/cacheguard/internal/desk"
	"github.com/cacheguard/cacheguard/internal/flight"
	"github.com/cacheguard/cacheguard/internal/frame"
	"github.com/cacheguard/cacheguard/internal/knowledge"
	"github.com/cacheguard/cacheguard/internal/protocol"
)

// miss is the work for one flight from a look-up without a usable value to the result. Its state
// machine, protocol.Miss, decides what to do, and a run does it.
type miss[V any] struct {
	protocol.Miss
	target[V]
	sight[V]
	asked     question // the last request for the lease
	ans       LeaseAnswer
	ownLoad   ownLoad[V]
	note      []byte // the LoadTracer's note of the load whose outcome this is
	waits     waiting
	turn      *turn    // the slot that the miss has, if any
	work      *work[V] // the load of the miss, if one runs
	plan      plan
	rehearsed *found[V]   // in shadow mode: the value that the miss's callers would have got
	audits    bool        // an audit made the miss, and no caller waits for it
	uncounted atomic.Bool // the run no longer counts this miss among those with waiting callers
}

// target is the key that a flight must get, and the load for it.
type target[V any] struct {
	flight *flight.Flight[outcome[V]]
	name   string // the key as the caller gave it
	key    Key    // the form of the key that the store uses
	load   loader[V]
}

// sight is the value that was last seen in the store.
type sight[V any] struct {
	had      found[V]  // the stored value, if there is one
	at       time.Time // when had was read
	storeErr error     // why the store can't be used
}

// question has the token of the last request for the lease, and several moments from before the
// request. The answer is checked with these moments.
type question struct {
	token   ID
	sent    time.Duration // on the run's clock
	tier    moment        // a moment from before the request, for the local tier
	changed uint64        // the key's count of changes before the request
	// A moment from before the request; it shows which changes the store may not have had yet.
	unsent uint64
	// A time on the flights' clock, before the result was asked for or its load began.
	asOf uint64
	hint *knowledge.Hint // which tags a value may have
}

// ownLoad is how the miss' own load ended.
type ownLoad[V any] struct {
	out    loaded[V]
	header frame.Header // of the frame that is stored
	res    Result[V]
	stored bool
}

// plan has the steps that the run still has to do for a miss.
type plan struct {
	do       protocol.Do
	listed   bool // the miss is in the run's list todo
	landing  protocol.Landing
	deserted bool // no caller waits for the flight any more
}

// missOf makes a miss from what a look-up found, or from the error of the store.
func (c *Cache[V]) missOf(of *target[V], got found[V], storeErr error) *miss[V] {
	m := &miss[V]{target: *of}
	m.storeErr = storeErr
	m.Config, m.Down = c.protocol, storeErr != nil
	m.saw(got)
	m.Seen = got.use()
	return m
}

// saw notes the value that was last seen in the store.
func (m *miss[V]) saw(got found[V]) { m.had, m.at = got, time.Now() }

// servableUntil returns the time from which the seen value can't be served any more.
func (m *miss[V]) servableUntil() time.Time { return m.at.Add(m.had.keeps) }

// offer lets the miss's callers take the stale value that the miss has seen. They take it after
// SoftTimeout. offer returns false if there is no stale value to offer.
func (c *Cache[V]) offer(m *miss[V]) bool {
	if c.opts.SoftTimeout <= 0 || !m.had.servable() || m.storeErr != nil {
		return false
	}
	m.flight.Hold()
	m.flight.Offer(outcome[V]{res: m.had.res, also: &aside[V]{at: m.at}}, m.servableUntil())
	return true
}

// detach hands a miss over to a run on another goroutine and waits for the flight. So this caller
// can leave like any other.
func (c *Cache[V]) detach(ctx context.Context, m *miss[V], res *Result[V]) (err error) {
	return c.detachTo(ctx, ctx, m, res)
}

// detachTo is detach with another context for the run.
func (c *Cache[V]) detachTo(ctx, loads context.Context, m *miss[V], res *Result[V]) (err error) {
	recursive := c.inside(ctx, m.key.Key)
	// The flight goes on for callers that have joined meanwhile, but a load must not wait for
	// itself.
	if recursive {
		m.flight.Leave()
	}
	switch begun := c.runAll(loads, nil, m); {
	case !begun:
		return ErrClosed
	case recursive:
		return recursion(m.name)
	}
	return c.awaitOwn(ctx, m, res)
}

// awaitOwn waits for the flight that this caller has handed over to a run.
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

// led turns the outcome of a flight that this caller has led into the result of its call.
func (c *Cache[V]) led(
	ctx context.Context, m *miss[V], out *outcome[V], began time.Time, res *Result[V],
) error {
	// The load of another call has returned NoShare.
	if out.unshared() && out.res.Status == StatusMiss {
		return c.loadUnshared(ctx, m.name, m.load, out.also.marker, res)
	}
	c.served(ctx, EventLoaded, m.name, m.flight, out, began)
	*res = out.res
	return res.withNotFound(out.err)
}

// loadUnshared loads for one caller only, because another load of the key had a result for its own
// caller only. marker is the stored hit-for-miss marker, if there is one. The function is not
// inlined, so that it takes no stack from callers that get a shared result.
//
//go:noinline
func (c *Cache[V]) loadUnshared(
	ctx context.Context, key string, load loader[V], marker *found[V], res *Result[V],
) error {
	return c.detach(ctx, c.unsharedMiss(key, load, marker), res)
}

// unsharedMiss makes the miss of a load for one caller only.
func (c *Cache[V]) unsharedMiss(key string, load loader[V], marker *found[V]) *miss[V] {
	var got found[V]
	if marker != nil {
		got = *marker
	}
	m := c.missOf(&target[V]{flight.Solo[outcome[V]](), key, c.key(keyID(key)), load}, got, nil)
	m.Solo, m.Apart = true, true
	return m
}

// refreshBehind starts a refresh in the background of a value that callers already have. Each
// process has one flight per key for refreshes. The lease picks one of the processes, and the other
// processes don't wait for it. The refresh goes on after the caller has returned. LoadTimeout and
// the Limiter bound it, and Close ends it. If it fails, the outcome in the store makes all
// processes pause.
func (c *Cache[V]) refreshBehind(ctx context.Context, of *target[V], got found[V]) {
	m := c.missOf(of, got, nil)
	if desk.MayRefresh(ctx, got.res.Value, true) && c.leadsRefresh(m) {
		c.runBehind(ctx, nil, m)
	}
}

// refreshAllBehind is refreshBehind for values that are loaded together.
func (c *Cache[V]) refreshAllBehind(ctx context.Context, many manyFunc[V], all []*miss[V]) {
	lead := slices.DeleteFunc(all, func(m *miss[V]) bool { return !c.leadsRefresh(m) })
	if len(lead) > 0 {
		c.runBehind(ctx, many, lead...)
	}
}

// leadsRefresh reports whether a miss may refresh its value in the background, and gives the miss a
// flight for the refresh. If this process pauses, or already refreshes the key, the miss may not
// refresh it.
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

// runBehind runs misses for which no caller waits. If the call was made inside a load, runBehind
// removes that load from the context: the load doesn't wait for the refresh, so the refresh needs
// its own slot.
func (c *Cache[V]) runBehind(ctx context.Context, many manyFunc[V], all ...*miss[V]) (begun bool) {
	return c.runAll(context.WithValue(ctx, chainKey{}, (*link)(nil)), many, all...)
}

// runAll hands misses over to one run on another goroutine, unless the cache is closed.
func (c *Cache[V]) runAll(ctx context.Context, many manyFunc[V], all ...*miss[V]) (begun bool) {
	if begun = c.life.Begin(); !begun {
		for _, m := range all {
			// GetMany waits for its own flights, and a flight that was never detached can't be
			// waited for.
			m.flight.DetachTo(nothing, nothing)
			m.flight.Land(outcome[V]{err: ErrClosed})
		}
		return false
	}
	go c.newRun(ctx, many, all...).work()
	return true
}
