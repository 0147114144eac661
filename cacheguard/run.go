package cacheguard

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cacheguard/cacheguard/internal/flight"
	"github.com/cacheguard/cacheguard/internal/mailbox"
	"github.com/cacheguard/cacheguard/internal/protocol"
)

// manyFunc is a load of many keys, as in GetManyEntries.
type manyFunc[V any] func(ctx context.Context, missing []string) (map[string]Entry[V], error)

// run does the work for one miss, or for all misses of one GetMany together. If several misses need
// the same step at the same time, the run does the step once for all of them: one slot, one request
// for all leases, one load, one fill.
//
// Only one goroutine at a time does these steps, so the misses need no locks. If a caller asks for
// the lease in place of a read (asksFirst), the caller's goroutine does the first steps. All other
// steps are done by the goroutine that runs loop. Loads and renewals have their own goroutines. The
// wait for a slot has its own goroutine only if the run has other misses that have not landed.
// These goroutines post their results to the run's mail.
type run[V any] struct {
	cache  *Cache[V]
	many   manyFunc[V] // nil: its only miss has a load of its own
	misses []*miss[V]
	began  time.Time // the zero point of the state machines' clock

	// Has the values of the caller's context, but never ends; for steps that must happen even if
	// all callers have left.
	values  context.Context
	ctx     context.Context // ends when no caller waits any more, or with the cache
	cancel  context.CancelCauseFunc
	waiting atomic.Int32 // flights with waiting callers
	urging  sync.Once
	urged   chan struct{} // closed when the run must go on without a slot; see Cache.urge

	left leftover
	// Called when a load returns after it was given up; nil unless the run is for Update.
	late func()
	mail mailbox.Box
	agenda[V]
}

// agenda is the work that a run still has to do.
type agenda[V any] struct {
	todo         []*miss[V] // misses with something to do
	open         int        // misses that have not landed
	someDeserted bool       // at least one miss has no waiting callers any more
	back         comeback[V]
}

// newRun makes a run of these misses. The run uses the values of ctx, but doesn't end with ctx. The
// exception is a run for Update, which runs on its caller's context. Call life.Begin before newRun.
func (c *Cache[V]) newRun(ctx context.Context, many manyFunc[V], all ...*miss[V]) *run[V] {
	r := &run[V]{cache: c, many: many, misses: all, began: time.Now(), urged: make(chan struct{})}
	r.open = len(all)
	if r.values = context.WithoutCancel(ctx); !all[0].Claims {
		ctx = r.values
	}
	r.ctx, r.cancel = context.WithCancelCause(ctx)
	r.mail.Init()
	r.waiting.Store(int32(len(all)))
	for _, m := range all {
		m.flight.DetachTo(func() { r.abandon(m) }, r.urge)
	}
	return r
}

// abandon is called when the last caller of a flight has left.
func (r *run[V]) abandon(m *miss[V]) {
	if r.uncount(m) {
		r.cancel(flight.ErrAbandoned)
	}
	r.mail.Post(func() { m.plan.deserted, r.someDeserted = true, true })
}

// uncount notes that a flight has landed or has no waiting callers any more, and reports whether it
// was the last such flight of the run. A second call for the same flight does nothing.
func (r *run[V]) uncount(m *miss[V]) (last bool) {
	return m.uncounted.CompareAndSwap(false, true) && r.waiting.Add(-1) == 0
}

// close is called when the cache closes.
func (r *run[V]) close() {
	r.cancel(ErrClosed)
	r.mail.Post(func() {}) // wakes the run, so that it notices the end
}

func (r *run[V]) urge() { r.urging.Do(func() { close(r.urged) }) }

func (r *run[V]) now() time.Duration { return time.Since(r.began) }

// work runs the misses until all have landed.
func (r *run[V]) work() {
	c := r.cache
	defer c.life.End()
	defer r.cancel(nil)
	defer r.abort()
	defer context.AfterFunc(c.life.Closing, r.close)()
	r.loop()
}

// loop performs the steps that are due, and waits for mail, until all misses have landed.
func (r *run[V]) loop() {
	for _, m := range r.misses {
		// In another state, asksFirst has already asked for the lease.
		if m.State == protocol.Begun {
			r.step(m, protocol.Event{Kind: protocol.Begin, Sent: m.asked.sent})
		}
	}
	for r.perform(); r.open > 0; r.perform() {
		if !r.endLeft() {
			r.await()
			r.endLeft()
		}
	}
}

// abort closes the mail of a run that has ended. If the user's code has called Goexit on this
// goroutine, it also lands all flights that have not landed, because callers would otherwise wait
// for ever, and gives back the leases, because other processes would otherwise wait until the
// leases end. Mail that comes later only gives back slots, and calls no code of the user.
func (r *run[V]) abort() {
	for _, m := range r.misses {
		switch m.State {
		case protocol.Asking, protocol.Leading, protocol.Settling, protocol.Failing:
			// It has a lease, or may have been granted one.
			r.endLater(r.releaseOf(m))
		}
		m.State, m.work = protocol.Landed, nil
		m.waits.watcher.Stop()
		if m.turn != nil {
			m.turn.end()
		}
		m.flight.Land(outcome[V]{err: errGoexit})
	}
	r.sendLeftover()
	r.mail.Close()
}

// step passes an event to the state machine of a miss, and notes the steps that the state machine
// requests.
func (r *run[V]) step(m *miss[V], e protocol.Event) {
	// Its stale window ended while the store was asked.
	if m.Seen >= protocol.OnError && m.had.servable() && !time.Now().Before(m.servableUntil()) {
		m.had.good, m.Seen = protocol.Shown, protocol.Shown
	}
	was := m.Miss
	do, landing := m.Step(e)
	if protocol.Watched.Step != nil {
		protocol.Watched.Step(m, protocol.InHand{Turn: m.turn != nil, Load: m.work != nil}, was, e,
			do)
	}
	if m.plan.do |= do; m.plan.do != 0 && !m.plan.listed {
		m.plan.listed = true
		r.todo = append(r.todo, m)
	}
	if landing != protocol.NoLanding {
		m.plan.landing = landing
	}
	if was.State == protocol.Following && m.State != was.State {
		r.cache.observe(r.ctx, Event{
			Kind: EventWaited, Key: m.name, Took: time.Since(m.waits.since), Note: m.waits.note,
		})
	}
}

// stopping reports whether no caller waits any more, or the cache is closing.
func (r *run[V]) stopping() bool { return r.ctx.Err() != nil || r.cache.life.Closing.Err() != nil }

// endLeft ends misses for which no caller waits, or all misses if the cache is closing, and reports
// whether it has ended any. If callers still wait for other misses that share a slot, a request or
// a load with a miss, this miss stays.
func (r *run[V]) endLeft() (some bool) {
	ended := r.stopping()
	if !ended && !r.someDeserted {
		return false
	}
	for _, m := range r.misses {
		if !m.Ended &&
			(ended ||
				m.plan.deserted &&
					(m.State == protocol.Following || m.work != nil && m.work.deserted())) {
			r.step(m, protocol.Event{Kind: protocol.End})
			some = true
		}
	}
	return some
}

// perform performs steps until the run only has to wait. It also returns while many outcomes must
// still be sent one by one, so that the run reads its mail in between and renews the other leases
// in time.
func (r *run[V]) perform() {
	for len(r.todo) > 0 {
		for do := protocol.Seal; do <= protocol.Renew; do <<= 1 {
			if all := r.take(do); len(all) > 0 {
				r.do(do, all)
			}
		}
		left, rest := r.todo[:0], protocol.Do(0)
		for _, m := range r.todo {
			if m.plan.listed = m.plan.do != 0; m.plan.listed {
				left, rest = append(left, m), rest|m.plan.do
			}
		}
		if r.todo = left; rest&protocol.Conclude != 0 &&
			rest&^(protocol.Conclude|protocol.Land) == 0 {
			return
		}
	}
}

// take returns the misses that need the step do, and notes the step as done.
func (r *run[V]) take(do protocol.Do) (all []*miss[V]) {
	for _, m := range r.todo {
		if m.plan.do&do == 0 {
			continue
		}
		m.plan.do &^= do
		if protocol.Watched.Done != nil {
			protocol.Watched.Done(m, do)
		}
		if len(r.misses) == 1 {
			return r.misses
		}
		all = append(all, m)
	}
	return all
}

// do performs one step for all misses that need it.
func (r *run[V]) do(do protocol.Do, all []*miss[V]) {
	switch do {
	case protocol.Release:
		atATime(all, r.release)
		r.sendLeftover()
	case protocol.Fill:
		r.fill(all)
	case protocol.Conclude:
		now := all[:min(few, len(all))]
		// The others come later, so that callers don't wait for the outcomes of other keys.
		for _, m := range all[len(now):] {
			m.plan.do |= do
		}
		atATime(now, r.conclude)
		for _, m := range now {
			r.step(m, protocol.Event{Kind: protocol.Told})
		}
		if len(now) == len(all) {
			r.sendLeftover()
		}
	case protocol.TakeTurn:
		r.takeTurn(all)
	case protocol.Ask:
		r.ask(r.values, all)
	case protocol.Refresh:
		r.refresh(all)
	case protocol.Load:
		r.load(all)
	case protocol.Renew:
		for _, m := range all { // misses of one request may have different loads
			if m.work.renews == nil {
				m.work.renewFrom(m.asked.sent)
			}
		}
	default:
		for _, m := range all {
			r.doOne(do, m)
		}
		if do&(protocol.ReleaseLater|protocol.ConcludeLater) != 0 {
			r.sendLeftover()
		}
	}
}

// refresh starts refreshes in the background of values that callers already have.
func (r *run[V]) refresh(all []*miss[V]) {
	c := r.cache
	if r.many == nil {
		c.refreshBehind(r.ctx, &all[0].target, all[0].had)
		return
	}
	behind := make([]*miss[V], len(all))
	for i, m := range all {
		behind[i] = c.missOf(&m.target, m.had, nil)
	}
	c.refreshAllBehind(r.ctx, r.many, behind)
}

// doOne performs a step that each miss needs separately.
func (r *run[V]) doOne(do protocol.Do, m *miss[V]) {
	c := r.cache
	switch do {
	case protocol.Seal:
		m.flight.Seal()
		c.observe(r.ctx, Event{Kind: EventLeaseLost, Key: m.name})
	case protocol.CancelLoad:
		m.work.drop(m)
	case protocol.EndTurn:
		m.turn.end()
		m.turn = nil
	case protocol.Land:
		r.land(m)
	case protocol.ReleaseLater:
		r.endLater(r.releaseOf(m))
	case protocol.ConcludeLater:
		o := c.unstored(m)
		m.ownLoad.out.frame = nil
		r.endLater(func(ctx context.Context) error { return c.sendOutcome(ctx, m, o, 0) })
	case protocol.LetGo:
		kind := protocol.Wanted
		if m.flight.LetGo() || r.stopping() {
			kind = protocol.Unwanted
		}
		r.step(m, protocol.Event{Kind: kind})
	case protocol.Follow:
		r.follow(m)
	}
}

// few is the number of single-key steps of the store that run at the same time.
const few = 8

// atATime calls do for all, with at most few calls at the same time. The store has no batch for
// these steps, and a GetMany of thousands of keys must not use thousands of connections.
func atATime[T any](all []T, do func(T)) {
	if len(all) == 1 {
		do(all[0])
		return
	}
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
