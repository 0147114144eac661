package cacheguard

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/cacheguard/cacheguard/internal/desk"
	"github.com/cacheguard/cacheguard/internal/flight"
	"github.com/cacheguard/cacheguard/internal/frame"
	"github.com/cacheguard/cacheguard/internal/protocol"
)

// work is one load for misses of a run, with or without leases. Only the run's goroutine changes
// its fields, except the atomic fields.
type work[V any] struct {
	run *run[V]
	// The misses for which the load was begun; a miss belongs to the load while its field work is
	// this work.
	all    []*miss[V]
	prev   previous[V]  // the previous value that a load of one key sees
	tags   []frame.Tags // the tags that the results of a load of many keys keep; nil: no tags
	ctx    context.Context
	lose   context.CancelCauseFunc
	cancel func()
	stop   func() bool
	renews *time.Timer // renews the leases; nil: there are no leases
	over   bool

	note     atomic.Pointer[[]byte] // of the tracer
	reported atomic.Bool            // the run knows how the load ended, or no longer needs to know
	fate     atomic.Uint32          // of a load of one key
}

// These are the fates of a load. Callers may leave at the moment at which the load's result
// arrives, and only one of these two events may win.
const (
	undecided uint32 = iota
	// The load has its result, and its flight goes on until it gets this result, even if no caller
	// waits.
	secured
	dropped // no caller wants the result
)

// load starts the loads of misses that have a slot. Misses with a lease and misses without a lease
// get separate loads, because a result without a lease is not stored.
func (r *run[V]) load(all []*miss[V]) {
	// Misses with leases first, because a lease must not wait for a slot.
	slices.SortStableFunc(all, func(a, b *miss[V]) int { return cmp.Compare(a.State, b.State) })
	for len(all) > 0 {
		first, t := all[0], all[0].turn
		some, others := partition(all, func(m *miss[V]) bool {
			return m.State == first.State && m.turn == t
		})
		all = others
		for _, m := range some {
			m.turn = nil
		}
		switch {
		case t == nil: // a write has no slot
			r.launch(some, nil)
		case !t.taken:
			t.taken = true
			r.launch(some, t.release)
		default: // another load of the run has the slot
			r.acquire(some, func(release func(), err error) { r.launchWith(some, release, err) })
		}
	}
}

// launchWith starts the load of misses that had to wait for another slot.
func (r *run[V]) launchWith(all []*miss[V], release func(), err error) {
	all = slices.DeleteFunc(all, func(m *miss[V]) bool { return m.State != protocol.Alone })
	switch {
	case err != nil:
		r.refuse(all, err)
	case len(all) == 0:
		release()
	default:
		r.launch(all, release)
	}
}

// launch starts one load.
func (r *run[V]) launch(all []*miss[V], slot func()) {
	c, w := r.cache, &work[V]{run: r, all: all}
	ctx, cancel := context.WithTimeoutCause(r.ctx, c.opts.LoadTimeout, c.tookTooLong)
	ctx, w.lose = context.WithCancelCause(ctx)
	w.ctx, w.cancel = ctx, cancel
	for _, m := range all {
		if m.work = w; m.State == protocol.Alone {
			m.asked.asOf = flight.Tick()
			m.had.res.Degraded = true // tells the load that its result will not be stored
		}
	}
	// Before the load's goroutine starts, because the run may change the misses afterwards.
	w.notePrevious()
	w.stop = context.AfterFunc(w.ctx, w.timedOut)
	if r.many == nil && desk.From(ctx) != nil {
		var kept *desk.Load
		ctx, kept = desk.WithLoad(ctx, w, slot)
		if slot != nil {
			slot = kept.End
		}
	}
	w.start(ctx, slot)
}

// notePrevious notes the value or the tags that the store has before the load.
func (w *work[V]) notePrevious() {
	if w.run.many == nil {
		w.prev = w.all[0].before()
		return
	}
	for i, m := range w.all {
		if len(m.had.tags) > 0 {
			if w.tags == nil {
				w.tags = make([]frame.Tags, len(w.all))
			}
			w.tags[i] = m.had.tags
		}
	}
}

// name returns the key of the load for a LoadTracer.
func (w *work[V]) name() string {
	if len(w.all) == 1 {
		return w.all[0].name
	}
	return fmt.Sprintf("%s and %d more", w.all[0].name, len(w.all)-1)
}

// callers returns the number of callers that wait for the load. Any goroutine may call it.
func (w *work[V]) callers() (n int) {
	for _, m := range w.all {
		// No caller waits for an audit; the only member of its flight is the audit itself.
		if !m.audits {
			n += m.flight.Callers()
		}
	}
	return n
}

// Announce sends a word to the callers that wait for a load of one key, while the load still runs.
func (w *work[V]) Announce(word any) { w.all[0].flight.Announce(word) }

// Made notes that a load of one key has its result. From now on the load is a member of its own
// flight, so the result is not thrown away if the last caller leaves. If all callers have already
// left, Made does nothing.
func (w *work[V]) Made() {
	f := w.all[0].flight
	f.Hold()
	if !w.fate.CompareAndSwap(undecided, secured) {
		f.LetGo()
	}
}

// call calls the user's load, and returns for each key how the load ended.
func (w *work[V]) call(ctx context.Context) []loaded[V] {
	c, note := w.run.cache, noteOf(&w.note)
	if w.run.many == nil {
		entry, err := w.all[0].load.call(ctx, w.prev.Result)
		err = w.stopped(err)
		if err == nil || errors.Is(err, ErrNotFound) {
			w.Made()
		}
		return []loaded[V]{c.complete(w.prev, entry, err, note)}
	}
	names, outs := make([]string, len(w.all)), make([]loaded[V], len(w.all))
	for i, m := range w.all {
		names[i] = m.name
	}
	entries, err := w.run.many(ctx, names)
	answers := answersOf(entries, err, names)
	for i, m := range w.all {
		var prev previous[V]
		if w.tags != nil {
			prev.tags = w.tags[i]
		}
		entry, err := answers.pick(m.name)
		outs[i] = c.completeSafely(prev, entry, w.stopped(err), note)
	}
	return outs
}

// stopped returns the error of a load for one key. If the cache has given the load up, the load has
// failed for this reason and not because of the origin, so stopped returns the reason.
func (w *work[V]) stopped(err error) error {
	if cause := context.Cause(w.ctx); err != nil && givenUp(cause) && !wraps(err, ErrNotFound) {
		return cause
	}
	return err
}

// completeSafely is complete for one key of many. If the user's code panics for this key, the
// others still get their values.
func (c *Cache[V]) completeSafely(
	prev previous[V], entry Entry[V], err error, note []byte,
) (out loaded[V]) {
	defer func() {
		if v := recover(); v != nil {
			out = loaded[V]{err: panicError(v)}
		}
	}()
	return c.complete(prev, entry, err, note)
}

// loadEnded is called on the load's goroutine when the load is over. err is the error of the first
// key that failed.
func (w *work[V]) loadEnded(outs []loaded[V], err error) {
	r := w.run
	if w.reported.CompareAndSwap(false, true) {
		for i := range outs {
			if outs[i].err != nil && w.ctx.Err() != nil {
				outs[i].err = context.Cause(w.ctx) // the load has stopped because its context ended
			}
		}
		if r.mail.Post(func() { w.returned(outs) }) {
			return
		}
	}
	if r.late != nil {
		r.late()
	}
	r.cache.observe(w.ctx, Event{
		Kind: EventLoadLate, Key: w.all[0].name, More: len(w.all) - 1, Took: outs[0].took,
		Note: outs[0].note, Err: err,
	})
}

// timedOut is called when the load's context ends. The callers are answered at once, because the
// load may ignore its context.
func (w *work[V]) timedOut() {
	if w.reported.CompareAndSwap(false, true) {
		w.run.mail.Post(func() {
			outs := make([]loaded[V], len(w.all))
			for i := range outs {
				outs[i] = loaded[V]{err: context.Cause(w.ctx), note: noteOf(&w.note)}
			}
			w.returned(outs)
		})
	}
}

// returned handles the end of the load, on the run's goroutine.
func (w *work[V]) returned(outs []loaded[V]) {
	r, cause := w.run, context.Cause(w.ctx)
	w.end()
	for i, m := range w.all {
		if m.work != w {
			continue
		}
		m.work, m.ownLoad.out, m.note = nil, outs[i], outs[i].note
		e := protocol.Event{Kind: protocol.Unstorable}
		switch err := outs[i].err; {
		case err == nil:
			if m.ownLoad.header = r.cache.header(outs[i],
				m.ans.Grant); outs[i].storable(m.ownLoad.header) {
				e.Kind = protocol.Returned
			}
		case givenUp(cause):
			e.Kind = protocol.End
		case m.State == protocol.Leading && !m.Claims && wraps(err, ErrClosed):
			// The load has called another cache of this process, which has been closed first.
			// Other processes need not wait.
			e.Kind = protocol.End
			r.cache.standBack(m, false)
		default:
			e.Kind = protocol.Failed
		}
		r.step(m, e)
	}
}

// end stops the timers and contexts of the load.
func (w *work[V]) end() {
	w.over = true
	if w.renews != nil {
		w.renews.Stop()
	}
	w.stop()
	w.lose(nil)
	w.cancel()
}

// drop takes a miss out of the load, because no caller waits for the miss, because the cache
// closes, or because another load has the lease. If the load has no misses any more, drop cancels
// its context.
func (w *work[V]) drop(m *miss[V]) {
	if w == nil || m.work != w { // the load still waits for its slot, or has returned
		return
	}
	m.work = nil
	for _, other := range w.all {
		if other.work == w {
			return
		}
	}
	cause := ErrLeaseLost
	if m.Ended {
		cause = flight.ErrAbandoned
	}
	w.reported.Store(true)
	// The load has its result, which no caller needs.
	if !w.fate.CompareAndSwap(undecided, dropped) {
		m.flight.LetGo()
	}
	w.lose(cause)
	w.end()
}

// deserted reports whether no caller waits for the load.
func (w *work[V]) deserted() bool {
	for _, m := range w.all {
		if m.work == w && !m.plan.deserted {
			return false
		}
	}
	return true
}

// renewFrom starts to renew the leases of the load, each time after a third of LeaseTTL. sent is
// when the request for the leases was sent; the first third begins then. The renewals end with the
// load or its context. LoadTimeout ends the context, so a load that hangs can't hold a key for
// ever.
func (w *work[V]) renewFrom(sent time.Duration) {
	r := w.run
	due := sent + r.cache.opts.LeaseTTL/3 - r.now()
	w.renews = time.AfterFunc(due, func() { r.mail.Post(w.renew) })
}

// renew renews the leases that the load still has.
func (w *work[V]) renew() {
	r := w.run
	c := r.cache
	var all []*miss[V]
	var keys []Key
	var grants []Grant
	for _, m := range w.all {
		if m.work == w && m.Until != 0 {
			all, keys, grants = append(all, m), append(keys, m.key), append(grants, m.ans.Grant)
		}
	}
	if w.over || len(all) == 0 {
		return
	}
	sent := r.now()
	c.life.Go(func() {
		var replies []Reply[Holding]
		if len(keys) == 1 {
			replies = only(c.store.Renew(w.ctx, keys[0], grants[0], c.opts.LeaseTTL))
		} else {
			replies = complete(c.store.RenewMany(w.ctx, keys, grants, c.opts.LeaseTTL), len(keys))
		}
		r.mail.Post(func() { w.renewed(all, sent, replies) })
	})
}

// renewed handles the answers to a renewal. After an error the next try comes sooner, so that there
// are several tries before the lease ends.
func (w *work[V]) renewed(all []*miss[V], sent time.Duration, replies []Reply[Holding]) {
	if w.over {
		return
	}
	r := w.run
	pause := r.cache.opts.LeaseTTL / 3
	for i, m := range all {
		if m.work != w {
			continue
		}
		e := protocol.Event{Kind: protocol.Renewed, Sent: sent}
		switch held := replies[i].Answer; {
		case replies[i].Err != nil, held > HoldingOther: // no valid answer
			e.Kind = protocol.Unrenewed
			pause = min(pause, r.cache.opts.LeaseTTL/10, max(m.Until-r.now(), time.Millisecond))
		case held == HoldingGone:
			e.Kind = protocol.Gone
		case held == HoldingOther:
			e.Kind = protocol.Taken
		default:
			r.cache.observe(r.ctx, Event{Kind: EventRenewed, Key: m.name})
		}
		r.step(m, e)
	}
	w.renews.Reset(pause)
}
