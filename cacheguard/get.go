package cacheguard

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/cacheguard/cacheguard/internal/desk"
	"github.com/cacheguard/cacheguard/internal/flight"
	"github.com/cacheguard/cacheguard/internal/protocol"
	"github.com/cacheguard/cacheguard/internal/report"
)

// Get returns the value of key: from the store, or from load. load runs once for all callers of the
// fleet that ask at the same time.
//
// ctx bounds this caller only. When ctx ends, Get returns its error: at once, or, while it reads the
// store, within the store's operation timeout. The load goes on for other callers, and is cancelled
// when the last one has left.
//
// Get returns [ErrNotFound] if the value does not exist; the load's error ([*LoadError] if the load
// ran in another process, [*PanicError] if it panicked); [ErrOverloaded], [ErrClosed] or
// [ErrRecursion]; and [ErrUnavailable] if the store is unavailable and OnStoreDown is FailClosed.
// Any other trouble with the store is not an error for callers.
func (c *Cache[V]) Get(ctx context.Context, key string, load LoadFunc[V]) (v V, err error) {
	if c.plain && load != nil && c.enter(ctx) == nil && c.opts.Switch.Mode() == ModeOn && c.sampler.due.Load() == 0 { // get would find the same, and spend half of its time on a Result
		if e, _ := c.tier.fresh(keyID(key)); e != nil && linkOf(ctx) == nil {
			if c.localHits != nil {
				c.localHits.add(e.res.NotFound)
			}
			if e.res.NotFound {
				return e.res.Value, ErrNotFound
			}
			return e.res.Value, nil
		}
	}
	call := call[V]{load: loader[V]{value: load}}
	for v, err = c.beginValue(ctx, key, &call); call.flight != nil; v, err = c.endValue(ctx, key, &call) {
		call.flight.Await(ctx.Done())
	}
	return v, err
}

var errNoLoad = errors.New("cacheguard: the load function is nil")

// GetResult is like Get, and says how the value was found.
func (c *Cache[V]) GetResult(ctx context.Context, key string, load LoadFunc[V]) (res Result[V], err error) {
	call := call[V]{load: loader[V]{value: load}}
	for err = c.begin(ctx, key, &call, &res); call.flight != nil; err = c.end(ctx, key, &call, &res) {
		call.flight.Await(ctx.Done())
	}
	return res, err
}

// GetEntry is like GetResult, for a load that decides whether and how long its result is kept, and
// which tags it has.
func (c *Cache[V]) GetEntry(ctx context.Context, key string, load EntryFunc[V]) (res Result[V], err error) {
	call := call[V]{load: loader[V]{entry: load}}
	for err = c.begin(ctx, key, &call, &res); call.flight != nil; err = c.end(ctx, key, &call, &res) {
		call.flight.Await(ctx.Done())
	}
	return res, err
}

// call is what a caller keeps on its stack while it waits.
//
// Thousands of goroutines wait at the same time. A stack has 2 KiB at first, of which 1.1 can be
// used, and what doesn't fit has it copied to one of 4 KiB in memory that may never have been
// touched: that costs more than all the rest of a waiting call. So Get and its kin wait themselves,
// in the loops that they end with, and begin and end, which may go deep, are not on the stack while
// they do.
type call[V any] struct {
	group   group
	demands bool      // its context demands something not older, and somebody sees to that: see notOlder
	stale   *found[V] // with parted: what its result takes the place of
	load    loader[V]

	flight *flight.Flight[outcome[V]] // that it waits for; nil: for none
	came   uint64                     // before which nothing may have been found that it gets; 0: whenever
	late   time.Duration              // how long after the flight was detached it came, if somebody is to be told; 0: before that
}

// begin is the read path: look into the process-local tier; join the key's flight; its leader looks
// the value up; if it is fresh, return it; if it is stale but good enough for now, return it and
// refresh it behind the caller's back; else pursue it by lease and load, or by waiting for who has
// them, until somebody has the result for all.
//
//go:noinline
func (c *Cache[V]) begin(ctx context.Context, key string, call *call[V], res *Result[V]) error {
	id := keyID(key)
	if call.stale == nil {
		if call.load.value == nil && call.load.entry == nil {
			return errNoLoad
		}
		if err := c.enter(ctx); err != nil {
			return err
		}
	}
	if linkOf(ctx) != nil && !call.demands {
		if after := c.demanded(ctx); after > 0 {
			if call.demands = true; desk.From(ctx) == nil { // who has a desk sees to it
				return c.notOlder(ctx, key, call, after, res)
			}
		}
	}
	call.group = c.groupIn(c.opts.Switch.Mode(), call.group)
	since := c.since(ctx, id)
	if call.group == reads && c.tier.values != nil {
		if since == 0 {
			if found, err := c.getLocal(ctx, key, id, call, res); found {
				return err
			}
		}
		c.store.Listening() // without messages the tier is of no use
	}
	if c.opts.StrongReads {
		call.came = flight.Now()
	}
	f, leads := c.flights[call.group].JoinSince(id, c.opts.MaxWaiters, since)
	switch {
	case f == nil:
		return c.turnAway(ctx, key, id)
	case leads:
		return c.lead(ctx, f, key, call, res)
	}
	return c.await(ctx, f, key, call, res)
}

// end goes on for a caller whose flight has landed, or whose context has ended.
//
//go:noinline
func (c *Cache[V]) end(ctx context.Context, key string, call *call[V], res *Result[V]) error {
	f := call.flight
	call.flight = nil
	out, err := f.Outcome(ctx)
	if err != nil {
		return err
	}
	return c.accept(ctx, f, key, call, out, res)
}

// beginValue is begin for Get, which has no room for a Result while it waits.
//
//go:noinline
func (c *Cache[V]) beginValue(ctx context.Context, key string, call *call[V]) (V, error) {
	var res Result[V]
	err := c.begin(ctx, key, call, &res)
	return res.Value, err
}

// endValue is end for Get.
//
//go:noinline
func (c *Cache[V]) endValue(ctx context.Context, key string, call *call[V]) (V, error) {
	var res Result[V]
	err := c.end(ctx, key, call, &res)
	return res.Value, err
}

// lead is the way of the caller that leads the flight.
func (c *Cache[V]) lead(ctx context.Context, f *flight.Flight[outcome[V]], key string, call *call[V], res *Result[V]) error {
	of := target[V]{f, key, c.key(keyID(key)), call.load}
	switch call.group {
	case refreshes:
		return c.reload(ctx, &of, res)
	case parted:
		return c.pursue(ctx, &of, call.stale, nil, res)
	case direct:
		return c.leadDirect(ctx, &of, call.stale, res)
	}
	return c.leadRead(ctx, &of, res)
}

// getLocal answers from the process-local tier, if it can.
func (c *Cache[V]) getLocal(ctx context.Context, key, id string, call *call[V], res *Result[V]) (found bool, err error) {
	var e *kept[V]
	if *res, e = c.tier.get(id); e == nil || call.demands && res.stamp <= after(ctx) {
		return false, nil
	}
	if got, early := e.dueEarly(*res, c.opts.EarlyRefresh); early {
		c.refreshBehind(ctx, &target[V]{nil, key, c.key(id), call.load}, got)
	}
	if c.sampler.due.Load() != 0 {
		c.sampledLocally(ctx, key, id, call.load, e, res.Age)
	}
	return true, c.answer(ctx, key, res)
}

// leadRead is the read path of the caller that leads the flight. The look-up runs on its own
// goroutine: a hit costs no other.
//
//go:noinline
func (c *Cache[V]) leadRead(ctx context.Context, of *target[V], res *Result[V]) error {
	got, r, err := c.lookUp(ctx, of, true)
	if r != nil { // it has asked for the lease already
		go r.work()
		return c.awaitOwn(ctx, r.misses[0], res)
	}
	if got.passing && err == nil { // who gets the lease may find something to be shared, the others don't wait for that
		marker := got
		of.flight.Land(outcome[V]{also: &aside[V]{unshared: true, marker: &marker}})
		m := c.missOf(of, got, nil)
		m.Solo, m.flight = true, flight.Solo[outcome[V]]()
		return c.detach(ctx, m, res)
	}
	if err == nil && got.isOneOfSeveral(ctx) {
		stale := got
		of.flight.Land(outcome[V]{res: got.res, also: &aside[V]{several: &stale}})
		return c.ofSeveral(ctx, of.name, of.load, &stale, res)
	}
	return c.pursue(ctx, of, &got, err, res)
}

// pursue is the way of a flight's leader from what a look-up has found.
func (c *Cache[V]) pursue(ctx context.Context, of *target[V], got *found[V], err error, res *Result[V]) error {
	switch kind, failed, behind := c.atOnce(of.key.Key, got, err); kind {
	case EventHit, EventStale:
		if kind == EventHit && c.sampler.due.Load() != 0 { // first: who gets the value may change it
			c.sampled(ctx, of.name, of.key.Key, of.load, got)
		}
		*res = got.res
		res.Err = failed
		of.flight.Land(outcome[V]{res: *res})
		if behind {
			had := *got // one of several is not this caller's alone
			had.res.Err = failed
			c.refreshBehind(ctx, of, had)
		}
		return c.answer(ctx, of.name, res)
	case EventCoalesced, EventOverloaded:
		if kind == EventCoalesced {
			res.Status = StatusCoalesced
		}
		of.flight.Land(outcome[V]{res: *res, err: failed})
		c.observe(ctx, Event{Kind: kind, Key: of.name, Err: failed})
		return failed
	}
	m := c.missOf(of, *got, err)
	m.Reads = true
	if c.offer(m) {
		ctx = outsideSlots(ctx) // a load that reads this waits for SoftTimeout at most, and the work goes on without it
	}
	return c.detach(ctx, m, res)
}

// atOnce says what a caller is told who waits for no load: a fresh value; a stale one, where that
// will do or because a load has failed; the error of a load that has just failed in this process;
// that too many ask the store, which is no reason to ask the origin. Zero: there is a load to be
// had. behind: the value is to be refreshed meanwhile.
func (c *Cache[V]) atOnce(id string, got *found[V], storeErr error) (kind EventKind, failed error, behind bool) {
	switch {
	case got.good == protocol.Fresh:
		return EventHit, nil, got.early
	case got.servable() && storeErr == nil:
		held, failed := c.refreshPauses.Find(id, got.id)
		if failed != nil || got.good == protocol.Meanwhile && c.opts.SoftTimeout == 0 {
			return EventStale, failed, !held
		}
	case !got.servable() && errors.Is(storeErr, ErrOverloaded):
		return EventOverloaded, storeErr, false
	case storeErr == nil:
		if failed := c.failures.Recent(id); failed != nil && c.store.Listening() {
			return EventCoalesced, failed, false
		}
	}
	return 0, nil, false
}

// await has the caller wait for a flight that another one leads.
func (c *Cache[V]) await(ctx context.Context, f *flight.Flight[outcome[V]], key string, call *call[V], res *Result[V]) error {
	if chainOf(ctx) != nil {
		if c.inside(ctx, keyID(key)) { // the flight may be waiting for this very load
			f.Leave()
			return recursion(key)
		}
		c.urge(ctx, f)
	}
	if began := c.beganToWait(f); !began.IsZero() {
		call.late = began.Sub(f.Detached())
	}
	var out *outcome[V]
	var err error
	if c.opts.SoftTimeout > 0 {
		out, err = c.resultWithin(ctx, f, c.opts.SoftTimeout)
	} else if d := desk.From(ctx); d != nil && d.Caller != nil {
		out, err = desk.Hear(ctx, d, f)
	} else {
		call.flight = f
		return nil
	}
	if err != nil {
		return err
	}
	return c.accept(ctx, f, key, call, out, res)
}

// accept gives the caller what a flight that another one leads has landed with.
//
// With StrongReads that may not do. A flight's result is as of the moment before the question to
// the store that it comes from, or before its load began. For who joined the flight later than
// that, it may be what was so before a change that had returned when this caller came, of which its
// process hasn't heard yet. Such a caller has waited all the same, so that a burst doesn't become
// as many look-ups, and now takes part in another one: all who come while one is out share the
// next.
func (c *Cache[V]) accept(ctx context.Context, f *flight.Flight[outcome[V]], key string, call *call[V], out *outcome[V],
	res *Result[V]) error {
	if !c.tooOld(out, f, call.came) {
		var began time.Time
		if call.late > 0 {
			began = f.Detached().Add(call.late)
		}
		return c.shared(ctx, f, key, call.load, out, began, res)
	}
	// What the next one brings was found after it was begun, which was after this call.
	next, leads := c.flights[call.group].JoinNext(f, call.came)
	if call.came = 0; leads {
		return c.lead(ctx, next, key, call, res)
	}
	return c.await(ctx, next, key, call, res)
}

// tooOld reports whether what a flight has brought may be from before a change that had returned at
// that moment; 0: that doesn't matter. An error is never a value, and while the store can't be read
// there are no changes to be heard of.
func (c *Cache[V]) tooOld(out *outcome[V], f *flight.Flight[outcome[V]], came uint64) bool {
	if came == 0 || out.err != nil || out.unshared() || out.res.Degraded && c.reading.is() {
		return false
	}
	return !f.Since(came)
}

// resultWithin waits for a flight to land, for so long at most if there is a stale value to be had.
func (c *Cache[V]) resultWithin(ctx context.Context, f *flight.Flight[outcome[V]], patience time.Duration) (*outcome[V], error) {
	out, early, err := f.WaitAtMost(ctx, patience)
	if early {
		out.res = out.res.later(time.Since(out.also.at))
	}
	return &out, err
}

// shared is what a caller gets of a flight that another one leads, when it has landed.
func (c *Cache[V]) shared(ctx context.Context, f *flight.Flight[outcome[V]], key string, load loader[V], out *outcome[V],
	began time.Time, res *Result[V]) error {
	if out.unshared() {
		return c.loadUnshared(ctx, key, load, out.also.marker, res)
	}
	if several := out.several(); several != nil {
		return c.ofSeveral(ctx, key, load, several, res)
	}
	*res = out.res
	switch res.Status {
	case StatusHit:
		return c.answer(ctx, key, res)
	case StatusLoaded:
		res.Status = StatusCoalesced
	}
	if c.opts.Observer != nil {
		c.served(ctx, EventCoalesced, key, f, out, began)
	}
	return res.withNotFound(out.err)
}

// urge has a flight's work do without a slot if a load waits for it with one in hand, perhaps the
// one it needs. With something else to be had, that load won't wait for long.
func (c *Cache[V]) urge(ctx context.Context, f *flight.Flight[outcome[V]]) {
	if insideLoad(ctx, c.opts.Limiter) && !f.Offers() {
		f.Urge()
	}
}

// answer answers with a value that was at hand, fresh or stale.
func (c *Cache[V]) answer(ctx context.Context, key string, res *Result[V]) error {
	switch {
	case res.Status == StatusStale:
		c.observe(ctx, Event{Kind: EventStale, Key: key, NotFound: res.NotFound, Err: res.Err})
	case res.Local && c.localHits != nil:
		c.localHits.add(res.NotFound)
	default:
		c.observe(ctx, Event{Kind: EventHit, Key: key, NotFound: res.NotFound, Local: res.Local})
	}
	return res.withNotFound(nil)
}

// withNotFound is the error that goes with a result: "does not exist" is one for callers.
func (r *Result[V]) withNotFound(err error) error {
	if err == nil && r.NotFound {
		err = ErrNotFound
	}
	return err
}

var corruptLine = report.Line{Level: slog.LevelWarn, See: "values-that-cant-be-read",
	Text:  "cacheguard: store has something that is no value; it counts as a miss and is overwritten",
	Means: "one more load; said once for each cache, and counted each time",
}

func (c *Cache[V]) observeMiss(ctx context.Context, key string, got found[V]) {
	c.observe(ctx, Event{Kind: EventMiss, Key: key})
	if got.corrupt == nil {
		return
	}
	c.observe(ctx, Event{Kind: EventCorrupt, Key: key, Err: got.corrupt})
	if c.corruptSaid.CompareAndSwap(false, true) { // once: a million of them would be a million lines
		corruptLine.Log(ctx, c.opts.Logger, "cache", c.opts.Name, "error", got.corrupt)
	}
}

func (c *Cache[V]) turnAway(ctx context.Context, key, id string) error {
	if c.inside(ctx, id) {
		return recursion(key)
	}
	err := fmt.Errorf("%w: %d callers wait for %s already", ErrOverloaded, c.opts.MaxWaiters, quoteKey(key))
	c.observe(ctx, Event{Kind: EventOverloaded, Key: key, Err: err})
	return err
}

func recursion(key string) error { return fmt.Errorf("%w: %s", ErrRecursion, quoteKey(key)) }
