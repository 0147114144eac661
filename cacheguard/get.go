package cacheguard

import (
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
	if c.bare && load != nil && c.enter(ctx) == nil { // get would find the same, and spend half of its time on a Result
		if e, _ := c.near.fresh(keyID(key)); e != nil && chainOf(ctx) == nil {
			if c.untold != nil {
				c.untold.add(e.res.NotFound)
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

// GetResult is Get that says how the value was found.
func (c *Cache[V]) GetResult(ctx context.Context, key string, load LoadFunc[V]) (Result[V], error) {
	if load == nil {
		return Result[V]{}, errors.New("cacheguard: the load function is nil")
	}
	return c.get(ctx, key, loader[V]{value: load})
}

// GetEntry is GetResult for a load that decides how long its result is kept, and whether.
func (c *Cache[V]) GetEntry(ctx context.Context, key string, load EntryFunc[V]) (Result[V], error) {
	if load == nil {
		return Result[V]{}, errors.New("cacheguard: the load function is nil")
	}
	return c.get(ctx, key, loader[V]{entry: load})
}

// get is the read path: look into the process-local tier; join the key's flight; its leader looks the value up; if it
// is fresh, return it; if it is stale but good enough for now, return it and refresh it behind the caller's back; else
// pursue it by lease and load, or by waiting for who has them, until somebody has the result for all.
//
// It has few values on its stack, for the reason that await gives.
func (c *Cache[V]) get(ctx context.Context, key string, load loader[V]) (Result[V], error) {
	if err := c.enter(ctx); err != nil {
		return Result[V]{}, err
	}
	id := keyID(key)
	since := c.since(ctx, id)
	if c.near != nil {
		if res, e := c.near.get(id); e != nil && since == 0 {
			return c.hitNear(ctx, key, id, load, res, e)
		}
		c.store.Listening() // without messages the tier is of no use
	}
	if c.opts.StrongReads {
		return c.getStrong(ctx, key, id, load, since)
	}
	f, leads := c.reads.JoinSince(id, c.opts.MaxWaiters, since)
	if f == nil {
		return c.turnAway(ctx, key, id)
	}
	if leads {
		return c.look(ctx, f, key, c.key(id), load)
	}
	return c.await(ctx, f, key, id, load)
}

// hitNear answers from the process-local tier.
func (c *Cache[V]) hitNear(ctx context.Context, key, id string, load loader[V], res Result[V], e *kept[V]) (Result[V], error) {
	if got, early := e.early(res, c.opts.EarlyRefresh); early {
		c.refreshBehind(ctx, key, c.key(id), load, got)
	}
	return c.hit(ctx, key, res)
}

// look is the read path of the caller that leads the flight. The look-up runs on its own goroutine: a hit costs no other.
func (c *Cache[V]) look(ctx context.Context, f *flight.Flight[outcome[V]], key string, k Key, load loader[V]) (Result[V], error) {
	id := k.Key
	got, err := c.lookUp(ctx, f, key, k)
	if errors.Is(err, ErrOverloaded) && got.good == useNone { // too many ask the store: no reason to ask the origin
		c.observe(ctx, Event{Kind: EventOverloaded, Key: key, Err: err})
		f.Land(outcome[V]{err: err})
		return Result[V]{}, err
	}
	if got.good == useFresh {
		f.Land(outcome[V]{res: got.res})
		if got.early {
			c.refreshBehind(ctx, key, k, load, got)
		}
		return c.hit(ctx, key, got.res)
	}
	if got.passing && err == nil { // who gets the lease may find something to be shared, the others don't wait for that
		marker := got
		f.Land(outcome[V]{also: &aside[V]{unshared: true, marker: &marker}})
		p := &pursuit[V]{name: key, key: k, load: load, unshared: true}
		p.saw(got)
		return c.detach(ctx, flight.Solo[outcome[V]](), p)
	}
	if got.good != useNone && err == nil {
		held, failed := c.restraint.find(id, got.id)
		if failed != nil || got.good == useMeanwhile && c.opts.SoftTimeout == 0 {
			got.res.Err = failed
			f.Land(outcome[V]{res: got.res})
			if !held {
				c.refreshBehind(ctx, key, k, load, got)
			}
			return c.stale(ctx, key, got.res)
		}
		if c.opts.SoftTimeout > 0 {
			f.Hold()
			f.Offer(outcome[V]{res: got.res, also: &aside[V]{at: time.Now()}}, time.Now().Add(got.keeps))
			ctx = outsideSlots(ctx) // a load that reads this waits for SoftTimeout at most, and the work goes on without it
		}
	} else if failed := c.failures.recent(id); failed != nil && err == nil && c.store.Listening() {
		f.Land(outcome[V]{res: Result[V]{Status: StatusCoalesced}, err: failed})
		c.observe(ctx, Event{Kind: EventCoalesced, Key: key, Err: failed})
		return Result[V]{Status: StatusCoalesced}, failed
	}
	p := &pursuit[V]{name: key, key: k, load: load, storeErr: err, reads: true}
	p.saw(got)
	return c.detach(ctx, f, p)
}

// lookUp reads what the store has. The error means that the store can't be used; if only this caller's time is over,
// that is not the store's fault nor the others' problem: it is as if nothing were there, and who asks for the lease
// looks again.
func (c *Cache[V]) lookUp(ctx context.Context, f *flight.Flight[outcome[V]], key string, k Key) (got found[V], storeErr error) {
	whole := false
	defer func() {
		if !whole { // Goexit in a codec, an observer or a function of the local tier ends this goroutine, not the key
			f.Land(outcome[V]{err: errGoexit})
		}
	}()
	stamp := c.near.stamp(k.Key)
	got, err := c.read(ctx, k)
	switch {
	case err == nil:
		c.up(ctx, &c.reading)
		c.near.keep(k.Key, stamp, got)
		if got.good == useNone {
			c.missed(ctx, key, got)
		}
	case errors.Is(err, ErrOverloaded):
		storeErr = err
	case !over(ctx):
		c.down(ctx, &c.reading, key, err)
		storeErr = err
	}
	if storeErr != nil {
		got = c.near.last(k.Key)
	}
	whole = true
	return got, storeErr
}

// over reports whether ctx has ended, also if its timer is a moment late.
func over(ctx context.Context) bool {
	by, ok := ctx.Deadline()
	return ctx.Err() != nil || (ok && !time.Now().Before(by))
}

// enter checks what every call checks first.
func (c *Cache[V]) enter(ctx context.Context) error {
	if !c.changes(ctx) {
		return ErrClosed // but Shutdown lets running loads finish, and what they ask for is part of them
	}
	return ctx.Err()
}

// detach hands the work over to a goroutine that outlives this caller, and waits for it like everybody else.
func (c *Cache[V]) detach(ctx context.Context, f *flight.Flight[outcome[V]], p *pursuit[V]) (Result[V], error) {
	p.flight = f
	if !c.life.begin() {
		f.Land(outcome[V]{err: ErrClosed})
		return Result[V]{}, ErrClosed
	}
	work, cancel := f.Detach(ctx, errAbandoned)
	recursive := c.inside(ctx, p.key.Key)
	if recursive { // those who have joined meanwhile may wait; a load must not wait for itself
		f.Leave()
	}
	go c.work(work, cancel, f, p)
	if recursive {
		return Result[V]{}, recursion(p.name)
	}
	began := c.watch(f)
	out, err := c.leaderResult(ctx, f)
	if err != nil {
		return Result[V]{}, err
	}
	if out.unshared() && out.res.Status == StatusMiss { // by somebody else
		return c.loadUnshared(ctx, p.name, p.key.Key, p.load, out.also.marker)
	}
	c.served(ctx, EventLoaded, p.name, f, out, began)
	return answer(out.res, out.err)
}

// work is the goroutine of a flight that no longer runs on a caller's own.
func (c *Cache[V]) work(ctx context.Context, cancel context.CancelCauseFunc, f *flight.Flight[outcome[V]], p *pursuit[V]) {
	defer c.life.end()
	defer cancel(nil)
	defer func() {
		if p.handed {
			return
		}
		f.Land(outcome[V]{err: errGoexit}) // only if the user's code in here ended the goroutine
		if p.mates != nil {
			p.mates.arrive()
		}
	}()
	defer c.life.cancelOnClose(cancel)()
	c.pursue(ctx, p)
}

// leaderResult is result for the caller whose load it is, and which that load may want to do something.
func (c *Cache[V]) leaderResult(ctx context.Context, f *flight.Flight[outcome[V]]) (outcome[V], error) {
	d := desk.From(ctx)
	if d == nil {
		return c.result(ctx, f)
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
			return outcome[V]{}, d.Client().Err()
		case d.Left():
			f.Leave()
			return outcome[V]{}, context.Canceled
		}
		return f.Wait(d.Client())
	case <-f.Done():
	case <-ctx.Done():
	}
	return f.Wait(ctx)
}

// result waits for a flight to land, for SoftTimeout at most if there is a stale value to be had.
func (c *Cache[V]) result(ctx context.Context, f *flight.Flight[outcome[V]]) (outcome[V], error) {
	if c.opts.SoftTimeout <= 0 {
		return f.Wait(ctx)
	}
	return c.resultWithin(ctx, f, c.opts.SoftTimeout)
}

// resultWithin is result for a caller who has so much patience with a stale value.
func (c *Cache[V]) resultWithin(ctx context.Context, f *flight.Flight[outcome[V]], patience time.Duration) (outcome[V], error) {
	out, early, err := f.WaitAtMost(ctx, patience)
	if early {
		out.res = out.res.later(time.Since(out.also.at))
	}
	return out, err
}

// await waits for a flight that another caller leads. It is one function with few values on its stack for a reason:
// thousands of goroutines wait here, and if their stacks have to grow once more for it, the first load of a stampede begins
// twice as late.
func (c *Cache[V]) await(ctx context.Context, f *flight.Flight[outcome[V]], key, id string, load loader[V]) (Result[V], error) {
	if c.inside(ctx, id) { // the flight may be waiting for this very load
		f.Leave()
		return Result[V]{}, recursion(key)
	}
	c.urge(ctx, f)
	began := c.watch(f)
	out, err := c.result(ctx, f)
	if err != nil {
		return Result[V]{}, err
	}
	if out.unshared() {
		return c.loadUnshared(ctx, key, id, load, out.also.marker)
	}
	switch out.res.Status {
	case StatusHit:
		return c.hit(ctx, key, out.res)
	case StatusLoaded:
		out.res.Status = StatusCoalesced
	}
	c.served(ctx, EventCoalesced, key, f, out, began)
	return answer(out.res, out.err)
}

// shared is what a caller gets of a flight that another one leads: what await does once it has waited, apart from it for
// those who wait in another way. That the lines stand in both is the price of await's small stack.
func (c *Cache[V]) shared(ctx context.Context, f *flight.Flight[outcome[V]], key, id string, load loader[V], out outcome[V], began time.Time) (Result[V], error) {
	if out.unshared() {
		return c.loadUnshared(ctx, key, id, load, out.also.marker)
	}
	switch out.res.Status {
	case StatusHit:
		return c.hit(ctx, key, out.res)
	case StatusLoaded:
		out.res.Status = StatusCoalesced
	}
	c.served(ctx, EventCoalesced, key, f, out, began)
	return answer(out.res, out.err)
}

// urge has a flight's work do without a slot if a load waits for it with one in hand, perhaps the one it needs. With
// something else to be had, that load won't wait for long.
func (c *Cache[V]) urge(ctx context.Context, f *flight.Flight[outcome[V]]) {
	if insideLoad(ctx, c.opts.Limiter) && !f.Offers() {
		f.Urge()
	}
}

// hit answers with a fresh value.
func (c *Cache[V]) hit(ctx context.Context, key string, res Result[V]) (Result[V], error) {
	if res.Local && c.untold != nil {
		c.untold.add(res.NotFound)
	} else {
		c.observe(ctx, Event{Kind: EventHit, Key: key, NotFound: res.NotFound, Local: res.Local})
	}
	return answer(res, nil)
}

// stale answers with a value past its TTL.
func (c *Cache[V]) stale(ctx context.Context, key string, res Result[V]) (Result[V], error) {
	c.observe(ctx, Event{Kind: EventStale, Key: key, NotFound: res.NotFound, Err: res.Err})
	return answer(res, nil)
}

// answer is what callers see of a result: "does not exist" is an error for them.
func answer[V any](res Result[V], err error) (Result[V], error) {
	if err == nil && res.NotFound {
		err = ErrNotFound
	}
	return res, err
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

func (c *Cache[V]) turnAway(ctx context.Context, key, id string) (Result[V], error) {
	if c.inside(ctx, id) {
		return Result[V]{}, recursion(key)
	}
	err := fmt.Errorf("%w: %d callers wait for %s already", ErrOverloaded, c.opts.MaxWaiters, quoteKey(key))
	c.observe(ctx, Event{Kind: EventOverloaded, Key: key, Err: err})
	return Result[V]{}, err
}

func recursion(key string) error { return fmt.Errorf("%w: %s", ErrRecursion, quoteKey(key)) }
