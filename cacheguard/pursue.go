package cacheguard

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/cacheguard/cacheguard/internal/flight"
	"github.com/cacheguard/cacheguard/internal/frame"
)

// errAbandoned cancels work that nobody waits for any more. No caller sees it.
var errAbandoned = errors.New("cacheguard: every caller has left")

// maxRestarts is how often a pursuit begins again because what it waited for was changed or lost under it. After that
// its process loads without the lease, so that a key which is invalidated faster than it loads still answers.
const maxRestarts = 2

// pursuit is one flight's way to a result after a look-up that found none.
type pursuit[V any] struct {
	flight *flight.Flight[outcome[V]]
	name   string // the key as the caller gave it
	key    Key    // the key as the store sees it
	load   loader[V]

	seen     []byte     // the id of what stands there and can't be used
	prev     Result[V]  // and its value, if it is one
	good     use        // what that is good for
	at       time.Time  // when it was seen
	until    time.Time  // and when what it is good for ends
	reads    bool       // a stale value may be served
	behind   bool       // nobody has asked for the result: don't wait for anybody
	storeErr error      // the look-up failed
	failures int        // loads that have failed in a row before
	stamp    moment     // from before the lease was asked for, for what the local tier keeps
	tags     frame.Tags // those of prev
	asked    uint32     // and for what restrains this process

	unshared bool // the result is for one caller, who waits for nobody else's
	unleased bool // nor asks for the lease, which somebody has

	first   *LeaseAnswer // to a question that was asked for many keys; nil: ask
	there   *found[V]    // the value in that answer, if it is known to be current
	watcher *watcher     // from before it was asked; nil: none yet

	// As one of a group's:
	part   func()       // it is a part of the work no more
	away   atomic.Bool  // it goes its own way
	grant  Grant        // of the lease
	header frame.Header // of the frame that is being stored
	mates  *mates[V]    // with which it goes on, if it went its own way; nil: by itself
	handed bool         // to them
	apart  bool         // it loads without the lease

	since time.Time // when it began

	late     func() // called when a load returns after it was given up; nil for most
	restarts int
	awaited  ID // the load in another process that was waited for last

	asOf  uint64 // the flights' moment from before what it has got was asked for or begun
	note  []byte // of the load whose outcome this pursuit has got
	heard []byte // and of one in another process that was waited for
}

// saw notes what stands in the store and is not what this pursuit is after.
func (p *pursuit[V]) saw(got found[V]) {
	p.seen, p.prev, p.tags, p.good = got.id, got.res, got.tags, got.good
	p.at = time.Now()
	p.until = p.at.Add(got.keeps)
}

func (p *pursuit[V]) land(res Result[V], err error) {
	p.flight.LandAsOf(noted(res, err, p.note), p.asOf)
}

// landOwn lands the flight with what its load returned.
func (p *pursuit[V]) landOwn(res Result[V], unshared bool) {
	out := noted(res, nil, p.note)
	if unshared {
		out.also = &aside[V]{unshared: true, note: p.note}
	}
	p.flight.LandAsOf(out, p.asOf)
}

// fail lands the flight with an error, or with the stale value where there is one that may be served instead.
func (p *pursuit[V]) fail(res Result[V], err error) {
	if p.reads && p.good != useNone && time.Now().Before(p.until) {
		stale := p.prev.later(time.Since(p.at))
		stale.Err, stale.Degraded = err, res.Degraded
		p.flight.Land(noted(stale, nil, p.note)) // it was seen before the question
		return
	}
	p.land(res, err)
}

// pursue gets the result for a flight: take a slot, ask for the lease; granted, lead; held, give the slot back and
// follow; and again, until the flight has landed. ctx ends when every caller has left or the cache is closed.
func (c *Cache[V]) pursue(ctx context.Context, p *pursuit[V]) {
	if p.storeErr != nil {
		c.withoutStore(ctx, p, nil)
		return
	}
	w := p.watcher
	if w == nil {
		w = c.waits.watch(p.key.Key) // before the lease is asked for: no message may fall between
	}
	defer w.stop()
	if p.since.IsZero() {
		p.since = time.Now()
	}
	longest := 2*c.opts.LoadTimeout + c.opts.LeaseTTL
	if p.unleased {
		c.withoutLease(ctx, p)
		return
	}

	for p.restarts <= maxRestarts {
		if ctx.Err() != nil {
			p.land(Result[V]{}, context.Cause(ctx))
			return
		}
		if time.Since(p.since) > longest {
			p.fail(Result[V]{}, fmt.Errorf("cacheguard: waited %v for loads of %s in other processes: %w",
				longest, quoteKey(p.name), context.DeadlineExceeded))
			return
		}
		var ans LeaseAnswer
		if p.first != nil {
			ans, p.first = *p.first, nil
		} else if p.mates != nil {
			p.mates.comeBack(p)
			return
		} else {
			slot, err := c.slot(ctx, p)
			if err != nil {
				c.refused(ctx, p, err)
				return
			}
			w.drain()
			ask, asked := c.ask(ctx, p), time.Now()
			ans, err = c.store.Lease(context.WithoutCancel(ctx), p.key, ask)
			if err != nil {
				c.notAsked(ctx, p, ask, err)
				c.withoutStore(ctx, p, slot)
				return
			}
			c.up(ctx, &c.leasing)
			if ans.State == LeaseGranted && c.tooLate(p, ask, asked) {
				slot()
				p.restarts++
				continue
			}
			if ans.State == LeaseGranted {
				c.observe(ctx, Event{Kind: EventLeaseGranted, Key: p.name})
				p.failures = ans.Failures
				if c.lead(ctx, p, slot, ans.Grant, asked) {
					return
				}
				p.restarts++
				continue
			}
			slot() // never sleep with a slot in hand
		}
		switch ans.State {
		case LeaseValue:
			var got found[V]
			var err error
			if p.there != nil {
				got, p.there = *p.there, nil
			} else if got, err = c.openRead(context.WithoutCancel(ctx), ans.Frame); err != nil {
				c.down(ctx, &c.reading, p.name, err)
			}
			if p.behind && got.res.Status != StatusMiss { // refreshed by somebody else; who has joined meanwhile asked for a load
				c.near.keep(p.key.Key, p.stamp, got)
				if c.stepBack(ctx, p) {
					return
				}
				p.saw(got)
				continue
			}
			if c.landFound(ctx, p, got, ID{}) {
				return
			}
			p.restarts++ // it is none that can be used: ask again in spite of it
		case LeaseOutcome:
			err := c.failure(p, ans.Holder, ans.Outcome)
			c.restraint.remember(p.key.Key, p.asked, p.seen, ans.Remaining, err)
			if c.landOutcome(ctx, p, ans.Holder, ans.Outcome, c.openRead) {
				return
			}
		case LeaseHeld:
			if p.unshared {
				c.withoutLease(ctx, p)
				return
			}
			if p.behind {
				c.restraint.remember(p.key.Key, p.asked, p.seen, ans.Remaining, nil)
				if c.stepBack(ctx, p) {
					return
				}
				continue // somebody has joined who waits
			}
			if c.follow(ctx, p, w, ans) {
				return
			}
		}
	}
	c.withoutLease(ctx, p)
}

// ask makes the question for the lease.
func (c *Cache[V]) ask(ctx context.Context, p *pursuit[V]) LeaseAsk {
	p.stamp, p.asked, p.asOf = c.near.stamp(p.key.Key), c.restraint.stamp(p.key.Key), flight.Tick()
	c.observe(ctx, Event{Kind: EventLeaseAsked, Key: p.name})
	return LeaseAsk{Token: newID(), TTL: c.opts.LeaseTTL, Seen: p.seen, Awaited: p.awaited, Wait: !p.behind}
}

// tooLate reports whether a lease that was granted has ended by now, because this process stood still: another load may have
// begun. Then the lease is given back, should it still be there, and is to be asked for again.
func (c *Cache[V]) tooLate(p *pursuit[V], ask LeaseAsk, asked time.Time) bool {
	if time.Since(asked) < c.opts.LeaseTTL {
		return false
	}
	c.settle(func(ctx context.Context) error { return c.store.Release(ctx, p.key, ask.Token) })
	return true
}

// notAsked takes note that the store could not be asked for the lease. The load may hold it all the same, or take it
// later: it is given up by its token.
func (c *Cache[V]) notAsked(ctx context.Context, p *pursuit[V], ask LeaseAsk, err error) {
	c.down(ctx, &c.leasing, p.name, err)
	c.background(func(ctx context.Context) error { return c.store.Release(ctx, p.key, ask.Token) })
	p.storeErr = err
	c.restraint.remember(p.key.Key, p.asked, p.seen, pauseWithoutLeases, nil)
}

// landFound lands the flight with a value that was found: any value that is fresh, or, however short its life, the
// one of the load that was waited for.
func (c *Cache[V]) landFound(ctx context.Context, p *pursuit[V], got found[V], awaited ID) bool {
	if got.passing {
		p.saw(got)
		if p.unshared {
			return c.withoutLease(ctx, p)
		}
		p.note, p.heard = got.note, got.note
		marker := got
		p.flight.Land(outcome[V]{also: &aside[V]{unshared: true, marker: &marker, note: p.note}})
		return true
	}
	ofAwaited := !awaited.IsZero() && got.load == awaited && !got.unshared && !got.marked
	if p.reads && got.good == useMeanwhile && c.opts.SoftTimeout == 0 && !ofAwaited { // nobody waits for its refresh
		p.land(got.res, nil)
		c.refreshBehind(ctx, p.name, p.key, p.load, got)
		return true
	}
	if got.res.Status == StatusMiss || (got.res.Status == StatusStale && !ofAwaited) {
		if got.corrupt != nil {
			c.missed(ctx, p.name, got)
		}
		p.saw(got)
		return false
	}
	c.near.keep(p.key.Key, p.stamp, got)
	p.note, p.heard = got.note, got.note
	got.res.Status = StatusCoalesced
	p.land(got.res, nil)
	return true
}

// landOutcome lands the flight with what became of a load that left no value. False means: ask again. open opens the frame
// of a result that was not stored.
func (c *Cache[V]) landOutcome(ctx context.Context, p *pursuit[V], load ID, o Outcome, open func(context.Context, []byte) (found[V], error)) bool {
	p.note, p.heard = o.Note, o.Note
	switch o.Kind {
	case OutcomeFailed:
		p.fail(Result[V]{Status: StatusCoalesced}, c.failure(p, load, o))
		return true
	case OutcomeUnstored:
		got, err := open(context.WithoutCancel(ctx), o.Frame)
		if err != nil {
			p.restarts++
			return false
		}
		if got.res.Status == StatusMiss { // damaged on the way, or invalidated since
			c.missed(ctx, p.name, got)
			return c.withoutLease(ctx, p)
		}
		p.note, p.heard = got.note, got.note
		got.res.Status, got.res.FreshFor = StatusCoalesced, 0
		p.land(got.res, nil)
		return true
	case OutcomeUnshared:
		return c.withoutLease(ctx, p)
	}
	p.restarts++ // a kind that this program doesn't know
	return false
}

// failure is the error of a failed load: itself if it happened in this process, else its text.
func (c *Cache[V]) failure(p *pursuit[V], load ID, o Outcome) error {
	if o.Kind != OutcomeFailed {
		return nil
	}
	if err := c.failures.find(p.key.Key, load); err != nil {
		return err
	}
	return &LoadError{Key: p.name, Text: o.Text}
}

// withoutStore goes on when the store can't be used, as the policy says. slot may be nil.
func (c *Cache[V]) withoutStore(ctx context.Context, p *pursuit[V], slot func()) {
	serves := p.reads && p.good != useNone
	if serves || p.behind || c.opts.OnStoreDown == FailClosed {
		if slot != nil {
			slot()
		}
		if p.behind && c.stepBack(ctx, p) {
			return
		}
		if serves || c.opts.OnStoreDown == FailClosed {
			p.fail(Result[V]{Degraded: true}, fmt.Errorf("%w: %w", ErrUnavailable, p.storeErr))
			return
		}
		slot = nil
	}
	c.alone(ctx, p, slot, true)
}

// withoutLease loads for the callers of this process only although the store can be used.
func (c *Cache[V]) withoutLease(ctx context.Context, p *pursuit[V]) bool {
	if p.mates != nil {
		p.apart = true
		p.mates.comeBack(p)
		return true
	}
	return c.alone(ctx, p, nil, false)
}

// alone loads for the callers of this process only, without a lease, so it never stores what it loads: it can't know
// whether the key was invalidated meanwhile. slot may be nil. It always lands the flight.
func (c *Cache[V]) alone(ctx context.Context, p *pursuit[V], slot func(), degraded bool) bool {
	if slot == nil {
		var err error
		if slot, err = c.slot(ctx, p); err != nil {
			c.refused(ctx, p, err)
			return true
		}
	}
	loadCtx, cancel := c.loadContext(ctx)
	defer cancel()
	p.asOf = flight.Tick()
	p.prev.Degraded = true // the load is told that it will not be stored
	c.landAlone(loadCtx, p, c.wait(loadCtx, p, c.start(loadCtx, p, slot)), degraded)
	return true
}

// landAlone lands the flight of a load without a lease.
func (c *Cache[V]) landAlone(loadCtx context.Context, p *pursuit[V], out loaded[V], degraded bool) {
	p.note = out.note
	switch {
	case out.err == nil:
		res := out.result()
		res.Degraded = degraded
		p.landOwn(res, out.entry.NoShare)
	case givenUp(context.Cause(loadCtx)):
		p.land(Result[V]{Degraded: degraded}, out.err)
	default:
		p.fail(Result[V]{Degraded: degraded}, out.err)
	}
}

// givenUp reports whether this is why a load was told to stop here, which is no failure of the origin.
func givenUp(cause error) bool { return errors.Is(cause, errAbandoned) || errors.Is(cause, ErrClosed) }

// refused lands a flight that got no slot.
func (c *Cache[V]) refused(ctx context.Context, p *pursuit[V], err error) {
	if errors.Is(err, ErrOverloaded) {
		c.observe(ctx, Event{Kind: EventOverloaded, Key: p.name, Err: err})
		p.fail(Result[V]{}, err)
		return
	}
	p.land(Result[V]{}, err)
}

func (c *Cache[V]) slot(ctx context.Context, p *pursuit[V]) (release func(), err error) {
	return c.acquire(ctx, p.flight.Urged(), p.behind)
}

// acquire takes a slot of the budget. What nobody waits for leaves half of the queue to those who do.
func (c *Cache[V]) acquire(ctx context.Context, urged <-chan struct{}, behind bool) (release func(), err error) {
	share := 1.0
	if behind {
		share = 0.5
	}
	c.loads.queued.Add(1)
	defer c.loads.queued.Add(-1)
	return c.opts.Limiter.acquire(ctx, c.opts.LoadTimeout, urged, share)
}

// loadUnshared loads for one caller whose result may be nobody else's: somebody's just was not. marker is what says so, if
// it stood in the store.
func (c *Cache[V]) loadUnshared(ctx context.Context, key, id string, load loader[V], marker *found[V]) (Result[V], error) {
	p := &pursuit[V]{name: key, key: c.key(id), load: load, unshared: true, unleased: true}
	if marker != nil {
		p.saw(*marker)
	}
	return c.detach(ctx, flight.Solo[outcome[V]](), p)
}

// loadUnsharedInto is loadUnshared, with its result apart from the stack of those who get a shared one.
//
//go:noinline
func (c *Cache[V]) loadUnsharedInto(ctx context.Context, key, id string, load loader[V], marker *found[V], res *Result[V]) (err error) {
	*res, err = c.loadUnshared(ctx, key, id, load, marker)
	return err
}

// callersError is the error of a load that ran on its caller's context: if that has ended, what callers get is its error
// and not its cause.
func callersError(ctx context.Context, err error) error {
	if ctx.Err() != nil && errors.Is(err, context.Cause(ctx)) {
		return ctx.Err()
	}
	return err
}
