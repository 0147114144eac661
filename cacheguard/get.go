package cacheguard

import (
	"context"
	"errors"
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
// ctx bounds this caller only. When ctx ends, Get returns ctx's error at once. If Get is reading
// the store at that moment, it returns within the store's operation timeout. The load goes on for
// other callers, and is cancelled when the last caller has left.
//
// Get returns [ErrNotFound] if the value does not exist. If the load fails, Get returns its error.
// But if there is a stale value within its stale windows, Get returns the stale value without an
// error. If the load ran in another process, the error is a [*LoadError]. If the load panicked in
// this process, the error is a [*PanicError]. Get can also return [ErrOverloaded], [ErrClosed] or
// [ErrRecursion], and [ErrUnavailable] if the store is unavailable and OnStoreDown is FailClosed.
// Any other trouble with the store is not an error for callers.
func (c *Cache[V]) Get(ctx context.Context, key string, load LoadFunc[V]) (v V, err error) {
	// Begin would find the same value, but would spend half of its time on a Result.
	if c.plain && load != nil && c.enter(ctx) == nil && c.opts.Switch.Mode() == ModeOn &&
		c.sampler.due.Load() == 0 {
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
	for v, err = c.beginValue(ctx, key, &call); call.flight != nil; v, err = c.endValue(ctx, key,
		&call) {
		call.flight.Await(ctx.Done())
	}
	return v, err
}

var errNoLoad = errors.New("cacheguard: the load function is nil")

// GetResult is like Get, and also says how the value was found.
func (c *Cache[V]) GetResult(
	ctx context.Context, key string, load LoadFunc[V],
) (res Result[V], err error) {
	call := call[V]{load: loader[V]{value: load}}
	for err = c.begin(ctx, key, &call, &res); call.flight != nil; err = c.end(ctx, key, &call,
		&res) {
		call.flight.Await(ctx.Done())
	}
	return res, err
}

// GetEntry is like [Cache.GetResult], with another kind of load. This load sees the previous value.
// It decides whether and how long its result is kept, and which tags the result has.
func (c *Cache[V]) GetEntry(
	ctx context.Context, key string, load EntryFunc[V],
) (res Result[V], err error) {
	call := call[V]{load: loader[V]{entry: load}}
	for err = c.begin(ctx, key, &call, &res); call.flight != nil; err = c.end(ctx, key, &call,
		&res) {
		call.flight.Await(ctx.Done())
	}
	return res, err
}

// call is the state that a caller keeps on its stack while it waits for a flight.
//
// It is small because thousands of goroutines may wait at the same time. The stack of a goroutine
// has 2 KiB at first, of which 1.1 KiB can be used. If a call needs more, the runtime copies the
// stack to a new stack of 4 KiB, in memory that may never have been touched. That copy costs more
// than the rest of a waiting call. So the loop in which a caller waits is written out in Get and in
// each of its variants: a function with the loop would need stack, too. The functions begin and end
// make deeper calls, but they return before the wait, so they are not on the stack. The exceptions
// are the leader of the flight, and calls with a SoftTimeout or a desk: they wait inside begin.
type call[V any] struct {
	group group
	// The context has a token, and notOlder or the call's desk already checks the result against
	// the token.
	demands bool
	stale   *found[V] // with the group parted: the stale value that the result replaces
	load    loader[V]

	flight *flight.Flight[outcome[V]] // the flight that the caller waits for; nil: it doesn't wait
	// The result must not have been found before this time, on the flights' clock; 0: any result
	// will do.
	came uint64
	// How long after the flight was detached the caller came, for the Observer; 0: it came before.
	late time.Duration
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
				// With a desk, the owner of the desk checks the result.
				if call.demands = true; desk.From(ctx) == nil {
					return c.notOlder(ctx, key, call, after, res)
				}
			}
		}
		since = c.since(ctx, id)
	}
	if mode := c.opts.Switch.Mode(); mode != ModeOn {
		call.group = groupIn(mode, call.group)
	}
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

// beginValue is begin for Get. The Result is a variable of beginValue and not of Get, so that it
// takes no stack while Get waits.
//
//go:noinline
func (c *Cache[V]) beginValue(ctx context.Context, key string, call *call[V]) (V, error) {
	var res Result[V]
	err := c.begin(ctx, key, call, &res)
	return res.Value, err
}

// getLocal answers from the process-local tier, if it can.
func (c *Cache[V]) getLocal(
	ctx context.Context, key, id string, call *call[V], res *Result[V],
) (found bool, err error) {
	var e *kept[V]
	if *res, e = c.tier.get(id); e == nil || call.demands && res.stamp <= after(ctx).latest {
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

// lead is the path of a caller that leads a flight. The look-up runs on the caller's goroutine, so
// a hit needs no other goroutine.
//
//go:noinline
func (c *Cache[V]) lead(
	ctx context.Context, f *flight.Flight[outcome[V]], key string, call *call[V], res *Result[V],
) error {
	of := target[V]{f, key, c.key(keyID(key)), call.load}
	if call.group != reads {
		return c.leadOther(ctx, &of, call, res)
	}
	got, r, err := c.lookUp(ctx, &of, true)
	switch {
	case r != nil: // lookUp has asked for the lease instead of reading the store
		go r.work()
		return c.awaitOwn(ctx, r.misses[0], res)
	case err != nil:
	case got.good == protocol.Fresh:
		return c.serve(ctx, &of, &got, nil, got.early, res)
	case got.isOneOfSeveral(ctx):
		return c.leadSeveral(ctx, &of, &got, res)
	}
	return c.pursue(ctx, &of, &got, err, res)
}

// leadOther is lead for a flight of another group than reads.
//
//go:noinline
func (c *Cache[V]) leadOther(
	ctx context.Context, of *target[V], call *call[V], res *Result[V],
) error {
	switch call.group {
	case refreshes:
		return c.reload(ctx, of, res)
	case parted:
		return c.pursue(ctx, of, call.stale, nil, res)
	}
	return c.leadDirect(ctx, of, call.stale, res)
}

// lookUp looks for the key's value in the store. If mayLead is true, it may ask for the lease at
// once. If the answer to that request is not a value, goesOn is the run that sent the request. An
// error means that the store can't be used, or that too many reads wait.
func (c *Cache[V]) lookUp(
	ctx context.Context, of *target[V], mayLead bool,
) (got found[V], goesOn *run[V], storeErr error) {
	whole := false
	defer func() {
		// The user's code has called Goexit; the flight must land, or other callers would wait for
		// ever.
		if !whole {
			of.flight.Land(outcome[V]{err: errGoexit})
		}
	}()
	id := of.key.Key
	var before moment
	if c.tier.values != nil {
		before = c.tier.moment(id)
	}
	expected := c.presence.Of(id)
	asked, err := false, error(nil)
	if mayLead && c.presence.Lacks(expected) {
		got, goesOn, asked, err = c.leaseFirst(ctx, of)
	}
	if !asked {
		got, _, err = c.read(ctx, of.key)
	}
	switch {
	case goesOn != nil:
		c.presence.Looked(expected, false, 0)
	case err == nil:
		c.up(ctx, &c.reading)
		c.presence.Looked(expected, got.id != nil, got.keeps)
		c.tier.keep(id, before, got)
		if !got.servable() {
			c.observeMiss(ctx, of.name, got)
		}
	default:
		storeErr = c.unread(ctx, of.name, id, &got, err)
	}
	whole = true
	return got, goesOn, storeErr
}

// read returns the value that the store has under a key, and its frame. A value that was
// invalidated by a tag is treated as missing.
func (c *Cache[V]) read(ctx context.Context, k Key) (got found[V], raw []byte, err error) {
	hint, asked := c.hints.Of(k.Key), c.unsent.Now()
	raw, gens, err := c.store.Get(ctx, k, hint.Tags)
	if err == nil && !c.openWith(&got, asked, k.Key, raw, hint, gens) {
		err = c.validate(ctx, []*found[V]{&got})
	}
	return got, raw, err
}

// pursue continues the leader's path after a look-up has found got, or err.
func (c *Cache[V]) pursue(
	ctx context.Context, of *target[V], got *found[V], err error, res *Result[V],
) error {
	switch kind, failed, behind := c.atOnce(of.key.Key, got, err); kind {
	case EventHit, EventStale:
		return c.serve(ctx, of, got, failed, behind, res)
	case EventCoalesced, EventOverloaded:
		if kind == EventCoalesced {
			res.Status = StatusCoalesced
		}
		of.flight.Land(outcome[V]{res: *res, err: failed})
		c.observe(ctx, Event{Kind: kind, Key: of.name, Err: failed})
		return failed
	}
	m := c.missOfRead(of, got, err)
	if m.Solo { // the other callers load for themselves, too
		marker := *got
		of.flight.Land(outcome[V]{also: &aside[V]{unshared: true, marker: &marker}})
	}
	loads := ctx
	if c.offer(m) {
		// A load that makes this call waits for SoftTimeout at most, so it may return while the new
		// load still needs a slot.
		loads = outsideSlots(ctx)
	}
	return c.detachTo(ctx, loads, m, res)
}

// serve answers the callers of a flight with a stored value, fresh or stale. If the value is stale
// because a load failed, failed is that load's error. If behind is true, serve starts a refresh in
// the background.
func (c *Cache[V]) serve(
	ctx context.Context, of *target[V], got *found[V], failed error, behind bool, res *Result[V],
) error {
	// Before any caller has the value, because a caller may change it.
	if got.good == protocol.Fresh && c.sampler.due.Load() != 0 {
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
}

// atOnce returns what a caller gets without waiting for a load. The kinds are:
//
// EventHit is a fresh value. EventStale is a stale value that may be served now, or that is served
// because a load has failed. EventCoalesced is the error of a load that has failed in this process,
// if other processes may already try again but this process may not (see grace). EventOverloaded is
// an error: too many reads of the store wait. The caller doesn't load in that case, because a load
// would burden the origin, too. If kind is zero, the caller needs a load. If behind is true, the
// caller must start a refresh of the value in the background.
func (c *Cache[V]) atOnce(
	id string, got *found[V], storeErr error,
) (kind EventKind, failed error, behind bool) {
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
	case !got.passing && storeErr == nil:
		// After the hit-for-miss marker each caller loads for itself, even if another load has just
		// failed.
		if failed := c.failures.Recent(id); failed != nil && c.store.Listening() {
			return EventCoalesced, failed, false
		}
	}
	return 0, nil, false
}

// missOfRead makes the miss of a call for which atOnce has no answer. After the hit-for-miss
// marker, the miss is Solo and has a flight of its own. Its load asks for the lease, because the
// result may turn out to be for all callers, but the other callers don't wait for it.
func (c *Cache[V]) missOfRead(of *target[V], got *found[V], storeErr error) *miss[V] {
	m := c.missOf(of, *got, storeErr)
	if got.passing && storeErr == nil {
		m.Solo, m.flight = true, flight.Solo[outcome[V]]()
	} else {
		m.Reads = true
	}
	return m
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
	if res.NotFound { // not an error in the cache, but one for callers
		return ErrNotFound
	}
	return nil
}

var corruptLine = report.Line{Level: slog.LevelWarn, See: "values-that-cant-be-read",
	Text:  "cacheguard: store has something that is no value; it counts as a miss and is overwritten",
	Means: "one more load; this line is logged once for each cache, and each case is counted",
}

// observeMiss reports a miss. If the store had bytes that are no value, it reports that, too.
func (c *Cache[V]) observeMiss(ctx context.Context, key string, got found[V]) {
	c.observe(ctx, Event{Kind: EventMiss, Key: key})
	if got.corrupt == nil {
		return
	}
	c.observe(ctx, Event{Kind: EventCorrupt, Key: key, Err: got.corrupt})
	// Once, because there may be a million damaged values.
	if c.corruptSaid.CompareAndSwap(false, true) {
		corruptLine.Log(ctx, c.opts.Logger, "cache", c.opts.Name, "error", got.corrupt)
	}
}
