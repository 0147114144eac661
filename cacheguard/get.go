package cacheguard

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cacheguard/cacheguard/internal/desk"
	"github.com/cacheguard/cacheguard/internal/flight"
)

// Get returns the value of key: from the store, or from load, run once for all who ask at the same time in the whole
// fleet. ctx bounds this caller only: when it ends, Get returns its error at once, or within the store's operation
// timeout if it is just being read; the load goes on for others who wait, and is cancelled when the last one has left.
//
// It returns ErrNotFound if the origin has no such thing, the load's error (*LoadError if the load ran in another
// process, *PanicError if it panicked), ErrOverloaded, ErrClosed, ErrRecursion, and ErrUnavailable if the store can't
// be used and the cache fails closed; otherwise trouble with the store is not the caller's error.
func (c *Cache[V]) Get(ctx context.Context, key string, load LoadFunc[V]) (V, error) {
	if c.plain && load != nil && c.enter(ctx) == nil { // get would find the same, and spend half of its time on a Result
		if e, _ := c.tier.fresh(keyID(key)); e != nil && chainOf(ctx) == nil {
			if c.localHits != nil {
				c.localHits.add(e.res.NotFound)
			}
			if e.res.NotFound {
				return e.res.Value, ErrNotFound
			}
			return e.res.Value, nil
		}
	}
	r, err := c.GetResult(ctx, key, load)
	return r.Value, err
}

var errNoLoad = errors.New("cacheguard: the load function is nil")

// GetResult is Get that says how the value was found.
func (c *Cache[V]) GetResult(ctx context.Context, key string, load LoadFunc[V]) (res Result[V], err error) {
	if load == nil {
		return res, errNoLoad
	}
	err = c.get(ctx, key, loader[V]{value: load}, &res)
	return res, err
}

// GetEntry is GetResult for a load that decides how long its result is kept, and whether.
func (c *Cache[V]) GetEntry(ctx context.Context, key string, load EntryFunc[V]) (res Result[V], err error) {
	if load == nil {
		return res, errNoLoad
	}
	err = c.get(ctx, key, loader[V]{entry: load}, &res)
	return res, err
}

// get is the read path: look into the process-local tier; join the key's flight; its leader looks the value up; if it
// is fresh, return it; if it is stale but good enough for now, return it and refresh it behind the caller's back; else
// pursue it by lease and load, or by waiting for who has them, until somebody has the result for all. What it finds it
// writes into res.
//
// Thousands of goroutines wait in await at the same time, each on a stack that has to grow for what is on it. So while they
// wait there is nothing of join on theirs, and results are not copied from function to function.
func (c *Cache[V]) get(ctx context.Context, key string, load loader[V], res *Result[V]) error {
	f, id, err := c.join(ctx, key, load, res)
	if f == nil {
		return err
	}
	out, began, err := c.await(ctx, f, key, id)
	if err != nil {
		return err
	}
	return c.shared(ctx, f, key, id, load, out, began, res)
}

// join is all of get but for waiting for the flight of another caller, which it returns.
func (c *Cache[V]) join(ctx context.Context, key string, load loader[V], res *Result[V]) (_ *flight.Flight[outcome[V]], id string, err error) {
	if err := c.enter(ctx); err != nil {
		return nil, "", err
	}
	id = keyID(key)
	since := c.since(ctx, id)
	if c.tier != nil {
		if since == 0 {
			if found, err := c.getLocal(ctx, key, id, load, res); found {
				return nil, "", err
			}
		}
		c.store.Listening() // without messages the tier is of no use
	}
	if c.opts.StrongReads {
		f, err := c.takePart(ctx, &c.reads, key, id, load, since, res)
		if f != nil {
			err = c.lookInto(ctx, f, key, id, load, res)
		}
		return nil, "", err
	}
	f, leads := c.reads.JoinSince(id, c.opts.MaxWaiters, since)
	switch {
	case f == nil:
		return nil, "", c.turnAway(ctx, key, id)
	case leads:
		return nil, "", c.lookInto(ctx, f, key, id, load, res)
	}
	return f, id, nil
}

// getLocal answers from the process-local tier, if it can.
func (c *Cache[V]) getLocal(ctx context.Context, key, id string, load loader[V], res *Result[V]) (found bool, err error) {
	var e *kept[V]
	if *res, e = c.tier.get(id); e == nil {
		return false, nil
	}
	if got, early := e.early(*res, c.opts.EarlyRefresh); early {
		c.refreshBehind(ctx, key, c.key(id), load, got)
	}
	return true, c.hit(ctx, key, res)
}

// lookInto is look, with its result apart from the stack of those who don't lead.
//
//go:noinline
func (c *Cache[V]) lookInto(ctx context.Context, f *flight.Flight[outcome[V]], key, id string, load loader[V], res *Result[V]) (err error) {
	*res, err = c.look(ctx, f, key, c.key(id), load)
	return err
}

// look is the read path of the caller that leads the flight. The look-up runs on its own goroutine: a hit costs no other.
func (c *Cache[V]) look(ctx context.Context, f *flight.Flight[outcome[V]], key string, k Key, load loader[V]) (Result[V], error) {
	id := k.Key
	got, err := c.lookUp(ctx, f, key, k)
	if got.good == useFresh {
		f.Land(outcome[V]{res: got.res})
		if got.early {
			c.refreshBehind(ctx, key, k, load, got)
		}
		return got.res, c.hit(ctx, key, &got.res)
	}
	if got.passing && err == nil { // who gets the lease may find something to be shared, the others don't wait for that
		marker := got
		f.Land(outcome[V]{also: &aside[V]{unshared: true, marker: &marker}})
		m := c.missOf(key, k, load, got, nil)
		m.Solo = true
		return c.detach(ctx, flight.Solo[outcome[V]](), m)
	}
	if err == nil && got.isOneOfSeveral(ctx) {
		stale := got
		f.Land(outcome[V]{res: got.res, also: &aside[V]{several: &stale}})
		var res Result[V]
		err = c.ofSeveral(ctx, key, id, load, &stale, &res)
		return res, err
	}
	return c.pursue(ctx, f, key, k, load, got, err)
}

// pursue is the way of a flight's leader from a look-up that has found nothing fresh.
func (c *Cache[V]) pursue(ctx context.Context, f *flight.Flight[outcome[V]], key string, k Key, load loader[V], got found[V], err error) (Result[V], error) {
	switch kind, failed, behind := c.atOnce(k.Key, &got, err); kind {
	case EventStale:
		got.res.Err = failed
		f.Land(outcome[V]{res: got.res})
		if behind {
			c.refreshBehind(ctx, key, k, load, got)
		}
		return c.stale(ctx, key, got.res)
	case EventCoalesced, EventOverloaded:
		var res Result[V]
		if kind == EventCoalesced {
			res.Status = StatusCoalesced
		}
		f.Land(outcome[V]{res: res, err: failed})
		c.observe(ctx, Event{Kind: kind, Key: key, Err: failed})
		return res, failed
	}
	if got.good != useNone && err == nil && c.opts.SoftTimeout > 0 {
		f.Hold()
		f.Offer(outcome[V]{res: got.res, also: &aside[V]{at: time.Now()}}, time.Now().Add(got.keeps))
		ctx = outsideSlots(ctx) // a load that reads this waits for SoftTimeout at most, and the work goes on without it
	}
	m := c.missOf(key, k, load, got, err)
	m.Reads = true
	return c.detach(ctx, f, m)
}

// atOnce says what a caller is told who waits for no load although nothing fresh was found: a stale value, where that will do or
// because a load has failed; the error of a load that has just failed in this process; that too many ask the store, which is no
// reason to ask the origin. Zero: there is a load to be had. behind: the value is to be refreshed meanwhile.
func (c *Cache[V]) atOnce(id string, got *found[V], storeErr error) (kind EventKind, failed error, behind bool) {
	switch {
	case got.good != useNone && storeErr == nil:
		held, failed := c.refreshPauses.find(id, got.id)
		if failed != nil || got.good == useMeanwhile && c.opts.SoftTimeout == 0 {
			return EventStale, failed, !held
		}
	case got.good == useNone && errors.Is(storeErr, ErrOverloaded):
		return EventOverloaded, storeErr, false
	case storeErr == nil:
		if failed := c.failures.recent(id); failed != nil && c.store.Listening() {
			return EventCoalesced, failed, false
		}
	}
	return 0, nil, false
}

// leaderResult is result for the caller whose load it is, and which that load may want to do something.
func (c *Cache[V]) leaderResult(ctx context.Context, f *flight.Flight[outcome[V]]) (*outcome[V], error) {
	d := desk.From(ctx)
	if d == nil {
		if c.opts.SoftTimeout > 0 {
			return c.resultWithin(ctx, f, c.opts.SoftTimeout)
		}
		return f.Result(ctx)
	}
	select {
	case job := <-d.Jobs():
		// The job can't be left half done, but who asked for it can go.
		stop := context.AfterFunc(d.Client(), func() { f.Leave() })
		panics := true
		defer func() {
			switch {
			case !panics || !stop():
			case d.Left():
				f.Leave()
			default: // who waits elsewhere is told of the failed load first
				_, _ = f.Wait(d.Client())
			}
		}()
		job()
		panics = false
		switch {
		case !stop():
			return nil, d.Client().Err()
		case d.Left():
			f.Leave()
			return nil, context.Canceled
		}
		return f.Result(d.Client())
	case <-f.Done():
	case <-ctx.Done():
	}
	return f.Result(ctx)
}

// resultWithin waits for a flight to land, for so long at most if there is a stale value to be had.
func (c *Cache[V]) resultWithin(ctx context.Context, f *flight.Flight[outcome[V]], patience time.Duration) (*outcome[V], error) {
	out, early, err := f.WaitAtMost(ctx, patience)
	if early {
		out.res = out.res.later(time.Since(out.also.at))
	}
	return &out, err
}

// await waits for a flight that another caller leads, and returns what it has landed with and since when it was waited for
// that, if somebody is to be told.
func (c *Cache[V]) await(ctx context.Context, f *flight.Flight[outcome[V]], key, id string) (out *outcome[V], began time.Time, err error) {
	if c.inside(ctx, id) { // the flight may be waiting for this very load
		f.Leave()
		return nil, began, recursion(key)
	}
	c.urge(ctx, f)
	began = c.watch(f)
	if c.opts.SoftTimeout > 0 {
		out, err = c.resultWithin(ctx, f, c.opts.SoftTimeout)
	} else if d := desk.From(ctx); d != nil && d.Caller != nil {
		out, err = untilHeard(ctx, f, d)
	} else {
		out, err = f.Result(ctx)
	}
	return out, began, err
}

// untilHeard is Result for a caller who may get what it came for before the flight has landed. Until it has all of that it is a
// member, so that the work goes on for it.
func untilHeard[T any](ctx context.Context, f *flight.Flight[T], d *desk.Desk) (*T, error) {
	for {
		word, next := f.Word()
		if word != nil {
			if enough, err := hears(f, d, word); enough || err != nil {
				return nil, cmp.Or(err, context.Canceled)
			}
		}
		select {
		case <-next:
			continue
		case <-f.Done():
		case <-ctx.Done():
		}
		return f.Result(ctx)
	}
}

// hears has a caller hear a word, and reports whether it has by that what it came for: then it has left the flight, as it has
// with an error.
func hears[T any](f *flight.Flight[T], d *desk.Desk, word any) (enough bool, err error) {
	stop := context.AfterFunc(d.Client(), func() { f.Leave() })
	over := true // also by a panic
	defer func() {
		if over && stop() {
			f.Leave()
		}
	}()
	if d.Caller.Hears(word) {
		return true, nil
	}
	if over = false; !stop() {
		return false, d.Client().Err()
	}
	return false, nil
}

// shared is what a caller gets of a flight that another one leads, when it has landed.
func (c *Cache[V]) shared(ctx context.Context, f *flight.Flight[outcome[V]], key, id string, load loader[V], out *outcome[V],
	began time.Time, res *Result[V]) (err error) {
	if out.unshared() {
		return c.loadUnsharedInto(ctx, key, id, load, out.also.marker, res)
	}
	if several := out.several(); several != nil {
		return c.ofSeveral(ctx, key, id, load, several, res)
	}
	*res = out.res
	switch res.Status {
	case StatusHit:
		return c.hit(ctx, key, res)
	case StatusLoaded:
		res.Status = StatusCoalesced
	}
	if c.opts.Observer != nil {
		c.served(ctx, EventCoalesced, key, f, out, began)
	}
	return res.answer(out.err)
}

// urge has a flight's work do without a slot if a load waits for it with one in hand, perhaps the one it needs. With
// something else to be had, that load won't wait for long.
func (c *Cache[V]) urge(ctx context.Context, f *flight.Flight[outcome[V]]) {
	if insideLoad(ctx, c.opts.Limiter) && !f.Offers() {
		f.Urge()
	}
}

// hit answers with a fresh value.
func (c *Cache[V]) hit(ctx context.Context, key string, res *Result[V]) error {
	if res.Local && c.localHits != nil {
		c.localHits.add(res.NotFound)
	} else {
		c.observe(ctx, Event{Kind: EventHit, Key: key, NotFound: res.NotFound, Local: res.Local})
	}
	return res.answer(nil)
}

// stale answers with a value past its TTL.
func (c *Cache[V]) stale(ctx context.Context, key string, res Result[V]) (Result[V], error) {
	c.observe(ctx, Event{Kind: EventStale, Key: key, NotFound: res.NotFound, Err: res.Err})
	return answer(res, nil)
}

// answer is what callers see of a result: "does not exist" is an error for them.
func answer[V any](res Result[V], err error) (Result[V], error) { return res, res.answer(err) }

// answer is the error that goes with a result.
func (r *Result[V]) answer(err error) error {
	if err == nil && r.NotFound {
		err = ErrNotFound
	}
	return err
}

func (c *Cache[V]) missed(ctx context.Context, key string, got found[V]) {
	c.observe(ctx, Event{Kind: EventMiss, Key: key})
	if got.corrupt == nil {
		return
	}
	c.observe(ctx, Event{Kind: EventCorrupt, Key: key, Err: got.corrupt})
	if c.corruptSaid.CompareAndSwap(false, true) { // once: a million of them would be a million lines
		c.opts.Logger.WarnContext(ctx, "cacheguard: store has something that is no value; it counts as a miss and is overwritten",
			"cache", c.opts.Name, "key", quoteKey(key), "error", got.corrupt)
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
