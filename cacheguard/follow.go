package cacheguard

import (
	"math/rand/v2"
	"time"

	"github.com/cacheguard/cacheguard/internal/flight"
	"github.com/cacheguard/cacheguard/internal/protocol"
	"github.com/cacheguard/cacheguard/internal/watch"
)

// waiting is the state of a miss that follows. Such a miss waits for the load that has the lease,
// in another process or in this one.
type waiting struct {
	watcher *watch.Watcher[Message]
	poll    time.Duration // the last pause between two requests while messages don't arrive
	since   time.Time     // when the miss began to follow; zero: it never has
	until   time.Time     // when the miss asks for the lease again
	note    []byte        // the LoadTracer's note about the load for which the miss waited
}

// follow begins to wait for the load that has the lease. The wait ends with a message about the
// key, when the lease ends, or when all callers have left. If messages may have been lost, the wait
// ends earlier: see patience.
func (r *run[V]) follow(m *miss[V]) {
	now := time.Now()
	m.waits.note, m.waits.since = nil, now
	m.waits.until = now.Add(r.cache.patience(m.ans.Remaining, &m.waits))
}

// patience returns how long to wait for a message. If messages arrive, the miss waits until the end
// of the lease and a few random milliseconds longer, so that not all processes ask at the same
// moment. If messages don't arrive, or the end of the lease is not known, the miss polls. The
// pauses grow from 25 ms to a second, plus up to a quarter at random. If the end of the lease is
// known, a pause ends a few milliseconds after it at the latest. remaining comes from the store and
// may be any number.
func (c *Cache[V]) patience(remaining time.Duration, w *waiting) time.Duration {
	wait := min(remaining, c.longest()) + time.Millisecond + rand.N(8*time.Millisecond)
	if remaining > 0 && c.store.Listening() {
		w.poll = 0
		return wait
	}
	w.poll = min(max(2*w.poll, 25*time.Millisecond), time.Second)
	poll := w.poll + rand.N(w.poll/4)
	if remaining > 0 {
		poll = min(wait, poll)
	}
	return poll
}

// await waits until mail comes, or until a miss has waited long enough. Then it handles the mail,
// or all misses that have waited long enough.
func (r *run[V]) await() {
	var due <-chan time.Time
	if next := r.next(); !next.IsZero() {
		timer := time.NewTimer(time.Until(next))
		defer timer.Stop()
		due = timer.C
	}
	select {
	case <-r.mail.Ready():
		r.mail.Read()
		return
	case <-due:
	}
	now := time.Now()
	for _, m := range r.misses {
		if m.State != protocol.Following || now.Before(m.waits.until) {
			continue
		}
		r.step(m, r.woken())
	}
	if len(r.back.misses) > 0 {
		r.takeTurn(nil)
	}
}

// woken returns the event for a miss that has a reason to look again, but no further information.
// If the run began too long ago, the miss gets Overdue, so that no call waits for ever.
func (r *run[V]) woken() protocol.Event {
	if time.Since(r.began) > r.cache.longest() {
		return protocol.Event{Kind: protocol.Overdue}
	}
	return protocol.Event{Kind: protocol.Woken}
}

// next returns the time at which the run has work even if no mail comes. Zero means never.
func (r *run[V]) next() (next time.Time) {
	switch {
	case len(r.todo) > 0:
		return time.Now()
	case len(r.back.misses) > 0:
		next = r.back.next
	}
	for _, m := range r.misses {
		if m.State == protocol.Following && (next.IsZero() || m.waits.until.Before(next)) {
			next = m.waits.until
		}
	}
	return next
}

// longest returns the longest time for which a miss waits for loads in other processes. It is
// longer than LoadTimeout plus LeaseTTL: a load can take LoadTimeout, and if its process dies, its
// lease stays for LeaseTTL at most.
func (c *Cache[V]) longest() time.Duration { return 2*c.opts.LoadTimeout + c.opts.LeaseTTL }

// takeMessage handles a message about the key of a miss. question is the number of the miss's last
// request when the message came.
func (r *run[V]) takeMessage(m *miss[V], question uint32, msg Message) {
	if m.State != protocol.Following || m.waits.watcher.Asked() != question {
		return // the message is older than the last answer of the store
	}
	// Don't ask at once: all processes may have lost messages, and they may arrive again in a
	// moment.
	if msg.Kind == MessageLost {
		m.waits.until = time.Now().Add(r.cache.patience(time.Until(m.waits.until), &m.waits))
		return
	}
	e := r.woken()
	switch {
	case msg.Kind == MessageChanged:
		e.Kind = protocol.Changed
	case protocol.ID(msg.Load) != m.Awaited: // about a different load: only a reason to look again
	case msg.Kind == MessageFilled && msg.Frame != nil:
		got, err := r.cache.openAlone(r.values, m.asked.unsent, m.key, msg.Frame, true)
		r.takeStored(m, got, err)
		return
	case msg.Kind == MessageFilled:
		r.readStored(m, question)
		return
	case msg.Kind == MessageOutcome:
		m.ans.Holder, m.ans.Outcome = msg.Load, msg.Outcome
		e.Kind, e.Left = protocol.Over, r.takeOutcome(m, true)
	}
	r.step(m, e)
}

// takeStored handles the value that the awaited load has stored.
func (r *run[V]) takeStored(m *miss[V], got found[V], err error) {
	e := r.woken()
	// After an error the miss asks for the lease again, and the answer decides what happens.
	if err == nil {
		e = r.takeFound(m, got, true)
		e.Kind = protocol.Filled
	}
	r.step(m, e)
}

// readStored reads a value that the awaited load has stored and that is too large for a message.
// The process reads it once, for all callers of the key. The other misses of a batch don't wait for
// the read.
func (r *run[V]) readStored(m *miss[V], question uint32) {
	c, asOf := r.cache, flight.Tick()
	take := func(got found[V], err error) {
		// A value that is not fresh may be marked stale; it is used nevertheless, because the miss
		// waited for it.
		if got.good == protocol.Fresh {
			m.asked.asOf = asOf
		}
		r.takeStored(m, got, err)
	}
	if len(r.misses) > 1 && c.life.Go(func() {
		var got found[V]
		err := errGoexit
		defer func() { // deferred, so that it runs even if the codec calls Goexit
			r.mail.Post(func() {
				if m.State == protocol.Following && m.waits.watcher.Asked() == question {
					take(got, err)
				}
			})
		}()
		got, _, err = c.read(r.values, m.key)
	}) {
		return
	}
	got, _, err := c.read(r.values, m.key)
	take(got, err)
}

// listen registers the miss for messages about its key. If it is registered already, earlier
// messages are ignored from now on, because the answer to the next request is newer.
func (r *run[V]) listen(m *miss[V]) {
	if m.waits.watcher == nil {
		m.waits.watcher = r.cache.waits.Watch(m.key.Key, func(question uint32, msg Message) {
			r.mail.Post(func() {
				m.waits.watcher.Read(question)
				r.takeMessage(m, question, msg)
			})
		})
	}
	m.waits.watcher.Ask()
}
