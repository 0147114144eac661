package cacheguard

import (
	"context"
	"slices"
	"time"

	"github.com/cacheguard/cacheguard/internal/flight"
	"github.com/cacheguard/cacheguard/internal/protocol"
)

// turn is a slot of Options.Limiter or of MaxLoads. Several misses of a run share it, because
// together they become one load.
type turn struct {
	release func()
	members int
	taken   bool // a load has the slot, and gives it back when it returns
}

// end ends the turn of one miss. The last miss of the turn gives the slot back, unless a load has
// taken the slot.
func (t *turn) end() {
	if t.members--; t.members == 0 && !t.taken {
		t.taken = true
		t.release()
	}
}

// takeTurn takes one slot for the misses that want to ask for the lease, and one slot for those
// that want to load without the lease. These are two loads, because a result without a lease is not
// stored.
func (r *run[V]) takeTurn(all []*miss[V]) {
	ask, load := r.together(all), []*miss[V](nil)
	// The usual case, a single miss, needs no split.
	if len(ask) != 1 || ask[0].State != protocol.Queued {
		ask, load = partition(ask, func(m *miss[V]) bool { return m.State == protocol.Queued })
	}
	for _, some := range [][]*miss[V]{ask, load} {
		if len(some) > 0 {
			r.acquire(some, func(release func(), err error) { r.turned(some, release, err) })
		}
	}
}

// partition separates the misses for which is returns true from the others.
func partition[V any](all []*miss[V], is func(*miss[V]) bool) (some, others []*miss[V]) {
	for _, m := range all {
		if is(m) {
			some = append(some, m)
		} else {
			others = append(others, m)
		}
	}
	return some, others
}

// acquire takes a slot of the Limiter. Then it calls the parameter then with the slot, on the run's
// goroutine.
func (r *run[V]) acquire(all []*miss[V], then func(release func(), err error)) {
	c, share := r.cache, 0.5 // loads without waiting callers use at most half of the queue
	patience := c.opts.LoadTimeout
	switch {
	case all[0].audits: // an audit takes a slot only if one is free now
		share, patience = 0, 0
	case slices.ContainsFunc(all, func(m *miss[V]) bool { return !m.Behind }):
		share = 1
	}
	take := func() (release func(), err error) {
		c.loads.queued.Add(1)
		defer c.loads.queued.Add(-1)
		return c.opts.Limiter.acquire(r.ctx, patience, r.urged, share)
	}
	if len(all) < r.open && c.life.Go(func() {
		release, err := take()
		if !r.mail.Post(func() { then(release, err) }) && err == nil {
			release()
		}
	}) {
		return
	}
	then(take()) // the run has nothing else to do meanwhile, or the cache is being closed
}

// refuse tells misses that they get no slot. Some misses may have landed while they waited for the
// slot, because their callers have left.
func (r *run[V]) refuse(all []*miss[V], err error) {
	for _, m := range all {
		if m.State == protocol.Landed {
			continue
		}
		m.ownLoad.out.err = err
		r.step(m, protocol.Event{Kind: protocol.Refused})
	}
}

// turned continues misses that have got a slot, or have been refused one.
func (r *run[V]) turned(all []*miss[V], release func(), err error) {
	if err != nil {
		r.refuse(all, err)
		return
	}
	t := &turn{release: release, members: 1}
	for _, m := range all {
		if m.State == protocol.Queued || m.State == protocol.Spared {
			t.members++
			m.turn = t
			r.step(m, protocol.Event{Kind: protocol.Turned})
		}
	}
	t.end() // gives the slot back if no miss needs it any more
}

// ask asks for the leases of all misses in one trip. ctx is for the steps of the store.
func (r *run[V]) ask(ctx context.Context, all []*miss[V]) {
	keys, asks := make([]Key, len(all)), make([]LeaseAsk, len(all))
	for i, m := range all {
		keys[i], asks[i] = m.key, r.question(m)
	}
	sent := r.now()
	var replies []Reply[LeaseAnswer]
	if len(all) == 1 {
		replies = only(r.cache.store.Lease(ctx, keys[0], asks[0]))
	} else {
		replies = complete(r.cache.store.LeaseMany(ctx, keys, asks), len(keys))
	}
	there, lookErr := r.doubleCheck(ctx, all, replies)
	for i, m := range all {
		m.asked.sent = sent
		r.leaseAnswered(m, replies[i].Answer, replies[i].Err, there[i], lookErr)
	}
}

// question makes the request of a miss for the lease. First it notes the state with which the
// answer is checked later. If a change comes after this note, the answer may be from before the
// change.
func (r *run[V]) question(m *miss[V]) LeaseAsk {
	c := r.cache
	r.listen(m) // before the request, so that no message is missed between the answer and the wait
	id, asked := m.key.Key, &m.asked
	*asked = question{
		token: newID(), hint: c.hints.Of(id), tier: c.tier.moment(id), changed: c.changed.Count(id),
		unsent: c.unsent.Now(), asOf: flight.Tick(),
	}
	// If the miss is Unseen, the request replaces a look-up, and its answer may still be a hit.
	if !m.Unseen {
		c.observe(r.ctx, Event{Kind: EventLeaseAsked, Key: m.name})
	}
	return LeaseAsk{
		Token: asked.token, TTL: c.opts.LeaseTTL, Seen: m.had.id, Awaited: ID(m.Awaited),
		Tags: asked.hint.Tags, Wait: !m.Behind,
	}
}

// complete returns the replies if there is one for each request. Otherwise it returns an error for
// each request. A store that returns a different number of replies has a bug, but the run must not
// index out of range.
func complete[T any](replies []Reply[T], want int) []Reply[T] {
	if len(replies) == want {
		return replies
	}
	replies = make([]Reply[T], want)
	for i := range replies {
		replies[i].Err = errReplies
	}
	return replies
}

// only makes a list of the reply to a single request.
func only[T any](answer T, err error) []Reply[T] { return []Reply[T]{{answer, err}} }

// doubleCheck opens the values that came instead of a lease. It also checks again the values that
// loads will see as previous values, because a load must not see a value that was invalidated
// before its lease was granted. If the answers don't have the generations of the tags, doubleCheck
// reads them in one trip. An error means that it is not known which of the values have been
// invalidated.
func (r *run[V]) doubleCheck(
	ctx context.Context, all []*miss[V], replies []Reply[LeaseAnswer],
) ([]found[V], error) {
	there := make([]found[V], len(replies))
	var some []*found[V]
	for i, reply := range replies {
		m, ans, checked := all[i], reply.Answer, true
		switch {
		case reply.Err != nil:
		case ans.State == LeaseValue:
			checked = r.cache.openWith(&there[i], m.asked.unsent, m.key.Key, ans.Frame,
				m.asked.hint, ans.Of)
		case ans.State == LeaseGranted && m.had.res.Status != StatusMiss:
			there[i] = m.had
			if there[i].ages(time.Since(m.at)); !ans.Stands {
				there[i].forget()
			} else if !there[i].checkWith(m.asked.hint, ans.Of, r.cache.store) {
				// Without an EntryFunc, and in a batch, no load sees this value, so it needs no
				// check.
				checked = m.load.entry == nil || r.many != nil
			}
		}
		if !checked {
			some = append(some, &there[i])
		}
	}
	began := time.Now()
	err := r.cache.validate(ctx, some)
	for i, took := 0, time.Since(began); i < len(there); i++ {
		if len(some) > 0 && some[0] == &there[i] { // validate has aged it
			some = some[1:]
		} else {
			there[i].ages(took)
		}
	}
	return there, err
}

// leaseAnswered handles the answer to a request for the lease. The parameter there has the value
// that came with the answer, or the previous value that the load sees. lookErr is the error of
// doubleCheck.
func (r *run[V]) leaseAnswered(
	m *miss[V], ans LeaseAnswer, err error, there found[V], lookErr error,
) {
	c, e := r.cache, protocol.Event{Sent: m.asked.sent, Now: r.now()}
	if err == nil && ans.State > LeaseOutcome {
		err = errAnswer
	}
	// The caller goes on with the value or the error, as after a look-up.
	if m.Unseen && (err != nil || ans.State == LeaseValue) {
		m.saw(there)
		m.storeErr, m.ownLoad.out.err = lookErr, err
		if e.Kind = protocol.Value; err != nil {
			e.Kind = protocol.Unanswered
		}
		r.step(m, e)
		return
	}
	if err != nil {
		r.noLeases(m, err)
		return
	}
	c.up(r.ctx, &c.leasing)
	if m.Unseen {
		c.observeMiss(r.ctx, m.name, found[V]{})
		c.observe(r.ctx, Event{Kind: EventLeaseAsked, Key: m.name})
	}
	m.ans = ans
	switch m.ans.State {
	case LeaseGranted:
		// The grant came too late: no caller waits any more, or the cache is closing.
		if r.stopping() && !m.Ended {
			r.step(m, protocol.Event{Kind: protocol.End})
		}
		if m.had.res.Status != StatusMiss {
			m.saw(there)
			m.Seen = there.use()
		}
		e.Kind = protocol.Granted
		if r.step(m, e); m.State == protocol.Leading {
			c.observe(r.ctx, Event{Kind: EventLeaseGranted, Key: m.name})
		}
		return
	case LeaseHeld:
		if m.Behind {
			c.pause(m, m.ans.Remaining, nil)
		}
		e.Kind, e.Load = protocol.Held, protocol.ID(m.ans.Holder)
	case LeaseValue:
		if lookErr != nil {
			c.down(r.ctx, &c.reading, m.name, lookErr)
		}
		e = r.takeFound(m, there, false)
		e.Kind = protocol.Value
		if m.Behind {
			c.tier.keep(m.key.Key, m.asked.tier, there)
		}
	case LeaseOutcome:
		c.pause(m, m.ans.Remaining, c.theirError(m))
		e.Kind, e.Left = protocol.Outcome, r.takeOutcome(m, false)
	}
	r.step(m, e)
}

// noLeases continues a miss whose request for the lease got no answer.
func (r *run[V]) noLeases(m *miss[V], err error) {
	c := r.cache
	c.down(r.ctx, &c.leasing, m.name, err)
	m.storeErr = err
	c.pause(m, pauseWithoutLeases, nil)
	r.step(m, protocol.Event{Kind: protocol.Unanswered, Sent: m.asked.sent, Now: r.now()})
}

// takeFound notes a value that was found, and makes the event for it. If awaited is true, the value
// may be the result of the load for which the miss has waited.
func (r *run[V]) takeFound(m *miss[V], got found[V], awaited bool) protocol.Event {
	if got.corrupt != nil {
		r.cache.observeMiss(r.ctx, m.name, got)
	}
	m.saw(got)
	m.waits.note = got.note
	mine := awaited && protocol.ID(got.load) == m.Awaited && !got.unshared && !got.marked
	return protocol.Event{Use: got.use(), Mine: mine}
}

// takeOutcome handles the outcome that a load has left instead of a value, and returns its kind for
// the state machine. The outcome came by a message or in the answer to a request for the lease.
func (r *run[V]) takeOutcome(m *miss[V], byMessage bool) protocol.Left {
	o := &m.ans.Outcome
	m.note, m.waits.note = o.Note, o.Note
	switch o.Kind {
	case OutcomeFailed:
		return protocol.Failure
	case OutcomeUnshared:
		return protocol.Unshared
	case OutcomeUnstored:
		got, err := r.cache.openAlone(r.values, m.asked.unsent, m.key, o.Frame, byMessage)
		if err != nil {
			return protocol.Unreadable
		}
		if got.res.Status == StatusMiss || got.marked { // damaged on the way, or changed since
			r.cache.observeMiss(r.ctx, m.name, got)
			return protocol.Damaged
		}
		m.note, m.waits.note = got.note, got.note
		m.ownLoad.res = got.res
		return protocol.Result
	}
	return protocol.Unknown
}

// theirError returns the error of the failed load that left this outcome: the error itself if the
// load ran in this process and the error is still remembered, else a LoadError with its text and
// sentinels. If the load has not failed, it returns nil.
func (c *Cache[V]) theirError(m *miss[V]) error {
	if m.ans.Outcome.Kind != OutcomeFailed {
		return nil
	}
	if err := c.failures.Find(m.key.Key, m.ans.Holder); err != nil {
		return err
	}
	text, is := c.sentinels.parse(m.ans.Outcome.Text)
	return &LoadError{Key: m.name, Text: text, is: is}
}

// comeback has the misses of a run that must load after all: the load for which they waited has
// died, or has ended without a result for them. The run gathers these misses, so that they go on
// together. Otherwise, if a batch waits for a process that dies, the batch would become one load
// per key.
type comeback[V any] struct {
	misses []*miss[V]
	since  time.Time
	came   int // the number of misses at the last check
	next   time.Time
}

// If one miss comes back, many others usually come soon after it, for the same reason. So the run
// waits until no further miss has come for gatherPause. It waits for gatherMost at most.
const (
	gatherPause = 5 * time.Millisecond
	gatherMost  = 50 * time.Millisecond
)

// together returns the misses that take a slot now. Misses that have followed another load wait for
// each other, as long as other misses of the run still follow a load.
func (r *run[V]) together(all []*miss[V]) []*miss[V] {
	b := &r.back
	// The usual case: a single miss that has not followed.
	if len(all) == 1 && all[0].waits.since.IsZero() && len(b.misses) == 0 {
		return all
	}
	now, followed := partition(all, func(m *miss[V]) bool { return m.waits.since.IsZero() })
	if b.misses = append(b.misses, followed...); len(b.misses) == 0 {
		return now
	}
	if b.since.IsZero() {
		b.since, b.came, b.next = time.Now(), 0, time.Now()
	}
	if time.Now().Before(b.next) && r.following() {
		return now
	}
	if n := len(b.misses); r.following() && n != b.came && time.Since(b.since) < gatherMost {
		b.came, b.next = n, time.Now().Add(gatherPause)
		return now
	}
	for _, m := range b.misses {
		switch {
		case m.State != protocol.Queued && m.State != protocol.Spared: // it has ended
		case m.plan.deserted:
			r.step(m, protocol.Event{Kind: protocol.End})
		default:
			now = append(now, m)
		}
	}
	r.back = comeback[V]{}
	return now
}

func (r *run[V]) following() bool {
	return slices.ContainsFunc(r.misses, func(m *miss[V]) bool {
		return m.State == protocol.Following
	})
}
