package cacheguard

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cacheguard/cacheguard/internal/mailbox"
	"github.com/cacheguard/cacheguard/internal/protocol"
)

// manyFunc loads many keys, as GetManyEntries takes it.
type manyFunc[V any] func(ctx context.Context, missing []string) (map[string]Entry[V], error)

// run goes the way of one miss, or of those of one GetMany together: what several of them want in
// the same moment becomes one slot, one question for all leases, one load, one fill. One goroutine,
// in loop, does everything but what may take longer than a step of the store: waiting for a slot,
// loads, renewals. Those post their ends.
type run[V any] struct {
	cache  *Cache[V]
	many   manyFunc[V] // nil: its only miss has a load of its own
	misses []*miss[V]
	began  time.Time // the machines' clock counts from here

	values  context.Context // those of the caller who began it, for what must happen, whoever has left
	ctx     context.Context // ends when nobody waits any more, or with the cache
	cancel  context.CancelCauseFunc
	waiting atomic.Int32 // flights that somebody waits for
	urging  sync.Once
	urged   chan struct{} // closed when somebody can't wait for the run to get its turn

	late func() // called when a load returns after it was given up; nil for most
	mail mailbox.Box
	agenda[V]
}

// agenda is what is still to be done in a run.
type agenda[V any] struct {
	todo         []*miss[V] // for which something is to be done
	open         int        // misses that have not landed
	someDeserted bool       // nobody waits for one of them any more
	back         comeback[V]
}

// newRun makes a run of these misses, whose callers may wait from now on. What it does has ctx'
// values, but doesn't end with it, unless it is a claim. life.Begin has been called for it.
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

// abandon is called when nobody waits for a flight any more.
func (r *run[V]) abandon(m *miss[V]) {
	if r.uncount(m) {
		r.cancel(errAbandoned)
	}
	r.mail.Post(func() { m.plan.deserted, r.someDeserted = true, true })
}

// uncount notes that a flight has landed or that nobody waits for it any more, and reports whether
// that was the last one.
func (r *run[V]) uncount(m *miss[V]) (last bool) {
	return m.uncounted.CompareAndSwap(false, true) && r.waiting.Add(-1) == 0
}

// close is called when the cache closes.
func (r *run[V]) close() {
	r.cancel(ErrClosed)
	r.mail.Post(func() {}) // so that it takes note
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

func (r *run[V]) loop() {
	for _, m := range r.misses {
		if m.State == protocol.Begun { // else it has asked for the lease already
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

// abort lands what has not landed: the user's code in here has ended the goroutine. What is in the
// mail then only gives back what it brings, and calls nothing of the user's.
func (r *run[V]) abort() {
	for _, m := range r.misses {
		m.State, m.work = protocol.Landed, nil
		m.waits.watcher.Stop()
		if m.turn != nil {
			m.turn.end()
		}
		m.flight.Land(outcome[V]{err: errGoexit})
	}
	r.mail.Close()
}

// step tells a miss what happened, and notes what is to be done.
func (r *run[V]) step(m *miss[V], e protocol.Event) {
	if m.Seen >= protocol.OnError && m.had.servable() && !time.Now().Before(m.until()) { // its time ended while the store was asked
		m.had.good, m.Seen = protocol.Shown, protocol.Shown
	}
	was := m.Miss
	do, landing := m.Step(e)
	if protocol.Watched.Step != nil {
		protocol.Watched.Step(m, protocol.InHand{Turn: m.turn != nil, Load: m.work != nil}, was, e, do)
	}
	if m.plan.do |= do; m.plan.do != 0 && !m.plan.listed {
		m.plan.listed = true
		r.todo = append(r.todo, m)
	}
	if landing != protocol.NoLanding {
		m.plan.landing = landing
	}
	if was.State == protocol.Following && m.State != was.State {
		r.cache.observe(r.ctx, Event{Kind: EventWaited, Key: m.name, Took: time.Since(m.waits.since), Note: m.waits.note})
	}
}

// stopping reports whether nobody waits any more or the cache is closing.
func (r *run[V]) stopping() bool { return r.ctx.Err() != nil || r.cache.life.Closing.Err() != nil }

// endLeft ends misses that nobody waits for, and reports whether there are any. While others take
// part in the same slot, question or load they stay.
func (r *run[V]) endLeft() (some bool) {
	ended := r.stopping()
	if !ended && !r.someDeserted {
		return false
	}
	for _, m := range r.misses {
		if !m.Ended && (ended || m.plan.deserted && (m.State == protocol.Following || m.work != nil && m.work.deserted())) {
			r.step(m, protocol.Event{Kind: protocol.End})
			some = true
		}
	}
	return some
}

// perform does what is to be done until there is only something to wait for, or many ends of loads
// to be told one by one: in between it is looked at what comes, so that other leases are renewed in
// time.
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
		if r.todo = left; rest&protocol.Conclude != 0 && rest&^(protocol.Conclude|protocol.Land) == 0 {
			return
		}
	}
}

// take returns the misses for which something is to be done, which is noted as done.
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

// do does one thing for all misses that want it.
func (r *run[V]) do(do protocol.Do, all []*miss[V]) {
	switch do {
	case protocol.Release:
		atATime(all, r.release)
	case protocol.Fill:
		r.fill(all)
	case protocol.Conclude:
		now := all[:min(few, len(all))]
		for _, m := range all[len(now):] { // later: callers don't wait for what others' keys cost
			m.plan.do |= do
		}
		atATime(now, r.conclude)
		for _, m := range now {
			r.step(m, protocol.Event{Kind: protocol.Told})
		}
	case protocol.TakeTurn:
		r.takeTurn(all)
	case protocol.Ask:
		r.ask(r.values, all)
	case protocol.Load:
		r.load(all)
	case protocol.Renew:
		for _, m := range all { // of one question, but perhaps with a slot each
			if m.work.renews == nil {
				m.work.renewFrom(m.asked.sent)
			}
		}
	default:
		for _, m := range all {
			r.doOne(do, m)
		}
	}
}

// doOne does what is done for each miss by itself.
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
		token := m.asked.token
		c.background(func(ctx context.Context) error { return c.store.Release(ctx, m.key, token) })
	case protocol.ConcludeLater:
		o := c.unstored(m)
		m.own.out.frame = nil
		c.background(func(ctx context.Context) error { return c.sendOutcome(ctx, m, o, 0) })
	case protocol.Refresh:
		c.refreshBehind(r.ctx, &m.target, m.had)
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

// few is how many steps of the store that are about one key each are made side by side.
const few = 8

// atATime does something for all, for a few of them at a time.
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
