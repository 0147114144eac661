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

// Get returns the value of key, from the store or from load. If several callers of the fleet ask
// for the key at the same time, load runs once for all of them.
//
// ctx bounds this caller only. When ctx ends, Get returns ctx's error at once. If Get is just
// reading the store, it returns within the store's operation timeout. The load goes on for other
// callers. It is cancelled when the last caller has left.
//
// Get returns [ErrNotFound] if the value does not exist. If the load fails, Get returns the load's
// error: a [*LoadError] if the load ran in another process, a [*PanicError] if it panicked. Get can
// also return [ErrOverloaded], [ErrClosed] or [ErrRecursion], and [ErrUnavailable] if the store is
// unavailable and OnStoreDown is FailClosed. Any other trouble with the store is not an error for
// callers.
func (c *Cache[V]) Get(ctx context.Context, key string, load LoadFunc[V]) (v V, err error) {
	if c.plain && load != nil && c.enter(ctx) == nil && c.opts.Switch.Mode() == ModeOn && c.sampler.due.Load() == 0 { // begin would find the same value, but would spend half of its time on a Result
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

// GetResult is like Get, and also says how the value was found.
func (c *Cache[V]) GetResult(ctx context.Context, key string, load LoadFunc[V]) (res Result[V], err error) {
	call := call[V]{load: loader[V]{value: load}}
	for err = c.begin(ctx, key, &call, &res); call.flight != nil; err = c.end(ctx, key, &call, &res) {
		call.flight.Await(ctx.Done())
	}
	return res, err
}

// GetEntry is like [Cache.GetResult], with another kind of load. This load sees the previous value,
// and decides whether its result is kept, for how long, and which tags the result has.
func (c *Cache[V]) GetEntry(ctx context.Context, key string, load EntryFunc[V]) (res Result[V], err error) {
	call := call[V]{load: loader[V]{entry: load}}
	for err = c.begin(ctx, key, &call, &res); call.flight != nil; err = c.end(ctx, key, &call, &res) {
		call.flight.Await(ctx.Done())
	}
	return res, err
}

// call is the state that a caller keeps on its stack while it waits for a flight.
//
// It is small because thousands of goroutines may wait at the same time. The stack of a goroutine
// has 2 KiB at first, of which 1.1 KiB can be used. If a call needs more, the runtime copies the
// stack to a new stack of 4 KiB, in memory that may never have been touched. That copy costs more
// than the rest of a waiting call. So Get and its variants wait in their own last lines, in a loop.
// The functions begin and end call deeper, but they have returned before the wait and are not on
// the stack.
type call[V any] struct {
	group   group
	demands bool      // the context has a token, and notOlder or the call's desk already checks the result against the token
	stale   *found[V] // with the group parted: the stale value that the result replaces
	load    loader[V]

	flight *flight.Flight[outcome[V]] // the flight that the caller waits for; nil: it doesn't wait
	came   uint64                     // the result must not have been found before this time, on the flights' clock; 0: any result will do
	late   time.Duration              // how long after the flight was detached the caller came, for the Observer; 0: it came before
}

// begin is the read path. First it looks into the process-local tier. Then it joins or leads the
// flight of the key. The leader looks the value up in the store. If the value is fresh, the leader
// returns it. If it is stale but may be served, the leader returns it and starts a refresh in the
// background. Otherwise the leader pursues the value: it takes the lease and loads, or waits for
// the process that has the lease. The result is for all callers of the flight.
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
	var since uint64
	if linkOf(ctx) != nil {
		if !call.demands {
			if after := c.demanded(ctx); after > 0 {
				if call.demands = true; desk.From(ctx) == nil { // with a desk, the owner of the desk checks the result
					return c.notOlder(ctx, key, call, after, res)
				}
			}
		}
		since = c.since(ctx, id)
	}
	call.group = c.groupIn(c.opts.Switch.Mode(), call.group)
	if call.group == reads && c.tier.values != nil {
		if since == 0 {
			if found, err := c.getLocal(ctx, key, id, call, res); found {
				return err
			}
		}
		c.store.Listening() // makes the store listen, because without messages the tier is not used
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

// end continues a call whose flight has landed, or whose context has ended.
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

// beginValue is begin for Get. The Result is a variable of beginValue and not of Get, so that it
// takes no stack while Get waits.
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

// lead is the path of the caller that leads the flight.
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

// leadRead is the read path of the caller that leads the flight. The look-up runs on the caller's
// goroutine, so a hit needs no other goroutine.
//
//go:noinline
func (c *Cache[V]) leadRead(ctx context.Context, of *target[V], res *Result[V]) error {
	got, r, err := c.lookUp(ctx, of, true)
	if r != nil { // lookUp has asked for the lease instead of reading the store
		go r.work()
		return c.awaitOwn(ctx, r.misses[0], res)
	}
	if got.passing && err == nil { // the load with the lease may bring a result that can be shared, but the other callers don't wait for it
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

// pursue continues the leader's path after a look-up has found got, or err.
func (c *Cache[V]) pursue(ctx context.Context, of *target[V], got *found[V], err error, res *Result[V]) error {
	switch kind, failed, behind := c.atOnce(of.key.Key, got, err); kind {
	case EventHit, EventStale:
		if kind == EventHit && c.sampler.due.Load() != 0 { // before any caller has the value, because a caller may change it
			c.sampled(ctx, of.name, of.key.Key, of.load, got)
		}
		*res = got.res
		res.Err = failed
		of.flight.Land(outcome[V]{res: *res})
		if behind {
			had := *got // a copy, because other callers may share got if it is one of several
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
		ctx = outsideSlots(ctx) // if a load makes this call, it waits for SoftTimeout at most, and may then return while the new load still needs a slot
	}
	return c.detach(ctx, m, res)
}

// atOnce returns what a caller gets without waiting for a load. The kinds are:
//
// EventHit is a fresh value. EventStale is a stale value that may be served now, or that is served
// because a load has failed. EventCoalesced is the error of a load that has just failed in this
// process. EventOverloaded is the error that too many reads of the store wait; in that case a load
// would burden the origin, too. If kind is zero, the caller needs a load. If behind is true, the
// caller must start a refresh of the value in the background.
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

// await makes the caller wait for a flight that another caller leads.
func (c *Cache[V]) await(ctx context.Context, f *flight.Flight[outcome[V]], key string, call *call[V], res *Result[V]) error {
	if chainOf(ctx) != nil {
		if c.inside(ctx, keyID(key)) { // the flight may be waiting for the load that makes this call, which would be a deadlock
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

// accept gives the caller the outcome of a flight that another caller leads.
//
// With StrongReads the outcome may be too old for this caller. A flight's result has the age of its
// request to the store, or of the beginning of its load. If the caller joined after that moment, a
// change may have returned in another process before the caller came, and the result may be from
// before that change. In this case the caller now takes part in a second flight. It has waited for
// the first flight nevertheless, so that a burst of calls shares look-ups: all callers that come
// during one flight share the next.
func (c *Cache[V]) accept(ctx context.Context, f *flight.Flight[outcome[V]], key string, call *call[V], out *outcome[V],
	res *Result[V]) error {
	if !c.tooOld(out, f, call.came) {
		var began time.Time
		if call.late > 0 {
			began = f.Detached().Add(call.late)
		}
		return c.shared(ctx, f, key, call.load, out, began, res)
	}
	// The next flight began after this call, so its result is new enough.
	next, leads := c.flights[call.group].JoinNext(f, call.came)
	if call.came = 0; leads {
		return c.lead(ctx, next, key, call, res)
	}
	return c.await(ctx, next, key, call, res)
}

// tooOld reports whether a flight's result may be from before a change that had returned when the
// caller came. If came is 0, the caller accepts any result. An error is no value and can't be too
// old. While the store can't be read, StrongReads is not in force, because this process can't learn
// of changes then.
func (c *Cache[V]) tooOld(out *outcome[V], f *flight.Flight[outcome[V]], came uint64) bool {
	if came == 0 || out.err != nil || out.unshared() || out.res.Degraded && c.reading.is() {
		return false
	}
	return !f.Since(came)
}

// resultWithin waits until a flight lands. If there is a stale value to serve, it waits for
// patience at most, and then returns the stale value.
func (c *Cache[V]) resultWithin(ctx context.Context, f *flight.Flight[outcome[V]], patience time.Duration) (*outcome[V], error) {
	out, early, err := f.WaitAtMost(ctx, patience)
	if early {
		out.res = out.res.later(time.Since(out.also.at))
	}
	return &out, err
}

// shared turns the outcome of a flight that another caller has led into the result of this call.
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

// urge lets the work of a flight go on without a slot if a load that has a slot waits for the
// flight. Otherwise the two could block each other, because the flight may be waiting for the
// load's slot. If the flight offers a stale value, urge does nothing, because the load won't wait
// for long.
func (c *Cache[V]) urge(ctx context.Context, f *flight.Flight[outcome[V]]) {
	if insideLoad(ctx, c.opts.Limiter) && !f.Offers() {
		f.Urge()
	}
}

// answer reports a call that is answered with a stored value, fresh or stale, and returns the
// call's error.
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

// withNotFound returns the error of a call with this result. "Does not exist" is not an error in
// the cache, but callers get ErrNotFound.
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

// observeMiss reports a miss. If the store had bytes that are no value, it reports that, too.
func (c *Cache[V]) observeMiss(ctx context.Context, key string, got found[V]) {
	c.observe(ctx, Event{Kind: EventMiss, Key: key})
	if got.corrupt == nil {
		return
	}
	c.observe(ctx, Event{Kind: EventCorrupt, Key: key, Err: got.corrupt})
	if c.corruptSaid.CompareAndSwap(false, true) { // once, because there may be a million damaged values
		corruptLine.Log(ctx, c.opts.Logger, "cache", c.opts.Name, "error", got.corrupt)
	}
}

// turnAway returns the error for a caller that could not join a flight, because MaxWaiters callers
// already wait. Inside a load of the same key it returns ErrRecursion, because the cause is
// recursion and ErrOverloaded would hide it.
func (c *Cache[V]) turnAway(ctx context.Context, key, id string) error {
	if c.inside(ctx, id) {
		return recursion(key)
	}
	err := fmt.Errorf("%w: %d callers wait for %s already", ErrOverloaded, c.opts.MaxWaiters, quoteKey(key))
	c.observe(ctx, Event{Kind: EventOverloaded, Key: key, Err: err})
	return err
}

func recursion(key string) error { return fmt.Errorf("%w: %s", ErrRecursion, quoteKey(key)) }
