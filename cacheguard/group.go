package cacheguard

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cacheguard/cacheguard/internal/flight"
	"github.com/cacheguard/cacheguard/internal/frame"
)

// group is the flights of one call of GetMany, pursued together: one slot, one question for all leases, one load of all
// that was granted, one fill. What was not granted goes its own way, like the flight of a Get. The work is cancelled when
// nobody waits for any of the flights that are left in it.
type group[V any] struct {
	cache  *Cache[V]
	mates  *mates[V]
	load   func(ctx context.Context, missing []string) (map[string]V, error)
	ps     []*pursuit[V]
	cancel func()
	left   atomic.Int32 // members that somebody waits for

	urgeOnce sync.Once
	urged    chan struct{} // closed when somebody can't wait for the work to get its turn
}

// add makes a flight part of the group; the work has not begun yet.
func (g *group[V]) add(p *pursuit[V]) {
	g.ps = append(g.ps, p)
	g.left.Add(1)
	once := &sync.Once{}
	p.part = func() {
		once.Do(func() {
			if g.left.Add(-1) == 0 {
				g.cancel()
			}
		})
	}
	p.flight.DetachTo(p.part, func() { g.urgeOnce.Do(func() { close(g.urged) }) })
}

// landAll lands what has not landed yet.
func (g *group[V]) landAll(err error) {
	for _, p := range g.ps {
		if !p.away.Load() {
			p.land(Result[V]{}, err)
		}
	}
}

// alone has a flight go on by itself, from an answer to its question for the lease, if there is one.
func (g *group[V]) alone(ctx context.Context, p *pursuit[V], ans *LeaseAnswer) {
	c := g.cache
	p.first, p.mates = ans, g.mates
	g.mates.leave()
	p.away.Store(true)
	work, cancel := p.flight.Detach(ctx, errAbandoned)
	p.part()
	if !c.life.begin() {
		cancel(nil)
		if p.watcher != nil {
			p.watcher.stop()
		}
		p.land(Result[V]{}, ErrClosed)
		return
	}
	go c.work(work, cancel, p.flight, p)
}

// pursue gets the results for all flights.
func (g *group[V]) pursue(ctx context.Context) {
	c := g.cache
	var asking, without, apart []*pursuit[V]
	for _, p := range g.ps {
		switch {
		case p.apart:
			apart = append(apart, p)
		case p.storeErr != nil:
			without = append(without, p)
		default:
			asking = append(asking, p)
		}
	}
	var granted []*pursuit[V]
	var slot func()
	var asked time.Time
	if len(asking) > 0 {
		var err error
		if slot, err = c.acquire(ctx, g.urged, asking[0].behind); err != nil {
			g.refused(ctx, asking, err)
		} else {
			var failed []*pursuit[V]
			asked = time.Now()
			granted, failed = g.ask(ctx, asking, asked)
			without = append(without, failed...)
			if len(granted) == 0 {
				slot()
			}
		}
	}
	var others sync.WaitGroup
	if without = append(g.withoutStore(ctx, without), apart...); len(without) > 0 {
		others.Go(func() { g.loadWithoutLeases(ctx, without) })
	}
	if len(granted) > 0 {
		g.lead(ctx, granted, slot, asked)
	}
	others.Wait()
}

// ask asks for all leases. What is neither granted in time nor failed goes its own way.
func (g *group[V]) ask(ctx context.Context, ps []*pursuit[V], asked time.Time) (granted, failed []*pursuit[V]) {
	c := g.cache
	keys, asks := make([]Key, len(ps)), make([]LeaseAsk, len(ps))
	for i, p := range ps {
		p.watcher = c.waits.watch(p.key.Key) // before the lease is asked for: no message may fall between
		keys[i], asks[i] = p.key, c.ask(ctx, p)
	}
	replies := c.store.LeaseMany(context.WithoutCancel(ctx), keys, asks)
	if len(replies) == len(ps) {
		g.look(ctx, ps, replies)
	}
	for i, p := range ps {
		ans, err := LeaseAnswer{}, errReplies
		if len(replies) == len(ps) {
			ans, err = replies[i].Answer, replies[i].Err
		}
		switch {
		case err != nil:
			p.watcher.stop()
			p.watcher = nil
			c.notAsked(ctx, p, asks[i], err)
			failed = append(failed, p)
			continue
		case ans.State == LeaseGranted && c.tooLate(p, asks[i], asked):
			g.alone(ctx, p, nil)
		case ans.State == LeaseGranted:
			c.observe(ctx, Event{Kind: EventLeaseGranted, Key: p.name})
			p.watcher.stop()
			p.watcher = nil
			p.failures, p.grant = ans.Failures, ans.Grant
			granted = append(granted, p)
		default:
			g.alone(ctx, p, &ans)
		}
		c.up(ctx, &c.leasing)
	}
	return granted, failed
}

// look reads the generations of all values that are there after all, in one trip. Without them each is looked at alone.
func (g *group[V]) look(ctx context.Context, ps []*pursuit[V], replies []Reply[LeaseAnswer]) {
	c := g.cache
	all := make([]found[V], len(ps))
	var there []int
	for i, r := range replies {
		if r.Err == nil && r.Answer.State == LeaseValue {
			if all[i] = c.open(r.Answer.Frame); all[i].res.Status != StatusMiss {
				there = append(there, i)
			}
		}
	}
	if len(there) == 0 {
		return
	}
	of, at, err := c.generations(context.WithoutCancel(ctx), all, there)
	if err != nil {
		return
	}
	for _, i := range there {
		if !all[i].after(of, at, c.store.Now()) {
			all[i] = found[V]{id: all[i].id}
		}
		ps[i].there = &all[i]
	}
}

// withoutStore lands what is not loaded when the store can't be used, as the policy says, and returns the rest.
func (g *group[V]) withoutStore(ctx context.Context, ps []*pursuit[V]) (load []*pursuit[V]) {
	for _, p := range ps {
		switch {
		case p.behind:
			if !g.cache.stepBack(ctx, p) { // somebody waits for it by now
				g.alone(ctx, p, nil)
			}
		case p.reads && p.good != useNone, g.cache.opts.OnStoreDown == FailClosed:
			g.cache.withoutStore(ctx, p, nil)
			p.part()
		default:
			load = append(load, p)
		}
	}
	return load
}

// refused lands flights that got no slot.
func (g *group[V]) refused(ctx context.Context, ps []*pursuit[V], err error) {
	for _, p := range ps {
		g.cache.refused(ctx, p, err)
		p.part()
	}
}

// loadWithoutLeases loads for the callers of this process only, and stores nothing.
func (g *group[V]) loadWithoutLeases(ctx context.Context, ps []*pursuit[V]) {
	c := g.cache
	slot, err := c.acquire(ctx, g.urged, false)
	if err != nil {
		g.refused(ctx, ps, err)
		return
	}
	loadCtx, cancel := c.loadContext(ctx)
	defer cancel()
	asOf := flight.Tick()
	outs := g.run(loadCtx, ps, slot)
	for i, p := range ps {
		p.asOf = asOf
		c.landAlone(loadCtx, p, outs[i], p.storeErr != nil)
		p.part()
	}
}

// lead runs the load under granted leases, keeps them meanwhile, stores what comes of it and lands the flights.
func (g *group[V]) lead(ctx context.Context, ps []*pursuit[V], slot func(), asked time.Time) {
	c := g.cache
	if ctx.Err() != nil || c.life.closing.Err() != nil { // too late: don't begin what nobody waits for
		slot()
		g.release(ps, cmp.Or(context.Cause(ctx), ErrClosed))
		return
	}
	loadCtx, cancelLoad := c.loadContext(ctx)
	defer cancelLoad()
	loadCtx, lose := context.WithCancelCause(loadCtx)
	defer lose(nil)
	k := &keeper[V]{group: g, ps: ps, lose: lose}
	stop := k.keep(loadCtx, asked)
	outs := g.run(loadCtx, ps, slot)
	stop()

	ctx = context.WithoutCancel(ctx) // what follows must happen, whoever has left
	cause := context.Cause(loadCtx)
	var fills []FillAsk
	var filling []int
	var unstored, failed []int
	var abandoned []*pursuit[V]
	for i, p := range ps {
		if p.away.Load() { // its callers follow the load that has the lease now
			continue
		}
		p.note = outs[i].note
		switch out := outs[i]; {
		case out.err == nil:
			if p.header = c.header(out, p.grant); out.storable(p.header) {
				frame.Seal(out.frame, p.header)
				fills = append(fills, FillAsk{Key: p.key, Grant: p.grant, Frame: out.frame, TTL: p.header.Hard()})
				filling = append(filling, i)
			} else {
				unstored = append(unstored, i)
			}
		case givenUp(cause):
			abandoned = append(abandoned, p)
		default:
			failed = append(failed, i)
		}
	}
	if len(fills) > 0 {
		replies := c.store.FillMany(ctx, fills)
		for n, i := range filling {
			ans, err := FillAnswer(0), errReplies
			if len(replies) == len(fills) {
				ans, err = replies[n].Answer, replies[n].Err
			}
			c.filled(ctx, ps[i], ps[i].grant, outs[i], ps[i].header, ans, err)
		}
	}
	atATime(unstored, func(i int) { c.notStored(ctx, ps[i], ps[i].grant, outs[i], ps[i].header) })
	g.release(abandoned, cause)
	atATime(failed, func(i int) { c.failed(ps[i], ps[i].grant, outs[i]) })
	for _, p := range ps {
		p.part()
	}
}

// release gives leases up, and lands their flights with what nobody gets to see, or ErrClosed.
func (g *group[V]) release(ps []*pursuit[V], cause error) {
	c := g.cache
	atATime(ps, func(p *pursuit[V]) {
		c.settle(func(ctx context.Context) error { return c.store.Release(ctx, p.key, p.grant.Token) })
		p.land(Result[V]{}, cause)
	})
}

// atATime does something for all, for a few of them at a time.
func atATime[T any](all []T, do func(T)) {
	const few = 8
	var next atomic.Int32
	var working sync.WaitGroup
	for range min(few, len(all)) {
		working.Go(func() {
			for i := int(next.Add(1)) - 1; i < len(all); i = int(next.Add(1)) - 1 {
				do(all[i])
			}
		})
	}
	working.Wait()
}

// run runs the load and returns how it ended for each key.
func (g *group[V]) run(ctx context.Context, ps []*pursuit[V], slot func()) []loaded[V] {
	c := g.cache
	names, ids := make([]string, len(ps)), make([]string, len(ps))
	for i, p := range ps {
		names[i], ids[i] = p.name, p.key.Key
	}
	all := func(err error, note []byte) []loaded[V] {
		outs := make([]loaded[V], len(ps))
		for i := range outs {
			outs[i].err, outs[i].note = err, note
		}
		return outs
	}
	what := names[0]
	if len(names) > 1 {
		what = fmt.Sprintf("%s and %d more", what, len(names)-1)
	}
	load := launch(c, ctx, what, ids, slot, func(ctx context.Context, note []byte) []loaded[V] {
		values, err := g.load(ctx, names)
		outs := make([]loaded[V], len(ps))
		for i, p := range ps {
			v, err := pick(values, err, p.name)
			outs[i] = c.completeSafely(v, err, note)
		}
		return outs
	}, func(outs []loaded[V], end ending) ([]loaded[V], ending) {
		if end.err != nil {
			outs = all(end.err, nil)
		}
		end.notFound = true // if nothing was found at all
		for i := range outs {
			outs[i].took, outs[i].note = end.took, end.note
			end.err = cmp.Or(end.err, outs[i].err)
			end.notFound = end.notFound && outs[i].notFound
		}
		return outs, end
	})
	outs, ok := ended(ctx, load.done)
	if !ok {
		c.lateLoad(func() {
			late := (<-load.done)[0]
			c.observe(ctx, Event{Kind: EventLoadLate, Key: what, Took: late.took, Note: late.note, Err: late.err})
		})
		return all(context.Cause(ctx), load.noted())
	}
	for i := range outs {
		if outs[i].err != nil && ctx.Err() != nil {
			outs[i].err = context.Cause(ctx) // it was told to stop, and did
		}
	}
	return outs
}

// completeSafely is complete for one of many: what the user's functions do with its value is not the others' problem.
func (c *Cache[V]) completeSafely(v V, err error, note []byte) (out loaded[V]) {
	defer func() {
		if v := recover(); v != nil {
			out = loaded[V]{err: panicError(v)}
		}
	}()
	return c.complete(previous[V]{}, Entry[V]{Value: v}, err, note)
}
