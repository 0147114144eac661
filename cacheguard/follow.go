package cacheguard

import (
	"math/rand/v2"
	"time"

	"github.com/cacheguard/cacheguard/internal/flight"
	"github.com/cacheguard/cacheguard/internal/protocol"
	"github.com/cacheguard/cacheguard/internal/watch"
)

// waiting is what a miss knows of its wait for a load in another process, or in this one.
type waiting struct {
	watcher *watch.Watcher[Message]
	poll    time.Duration // the last pause while there are no messages
	since   time.Time     // it follows, or did; zero: it never has
	until   time.Time     // when it asks again
	note    []byte        // the note of the load that was waited for
}

// follow begins to wait for the load that has the lease, until the first of: a message about the
// key, the end of the lease, messages that may have been lost, everybody's leaving.
func (r *run[V]) follow(m *miss[V]) {
	now := time.Now()
	m.waits.note, m.waits.since = nil, now
	m.waits.until = now.Add(r.cache.patience(m.ans.Remaining, &m.waits))
}

// patience is how long to wait for a message: to the end of the lease and a little, so that not
// everybody asks at once; without messages, ask from time to time.
func (c *Cache[V]) patience(remaining time.Duration, w *waiting) time.Duration {
	wait := remaining + time.Millisecond + rand.N(8*time.Millisecond)
	if c.store.Listening() {
		w.poll = 0
		return wait
	}
	w.poll = min(max(2*w.poll, 25*time.Millisecond), time.Second)
	return min(wait, w.poll+rand.N(w.poll/4))
}

// await waits for mail, or for the next miss that has waited long enough, and tells the misses.
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

// woken is what a miss is told that has a reason to look again, and no more.
func (r *run[V]) woken() protocol.Event {
	if time.Since(r.began) > r.longest() {
		return protocol.Event{Kind: protocol.Overdue}
	}
	return protocol.Event{Kind: protocol.Woken}
}

// next is when there is something to do without mail; zero: never.
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

// longest is how long a miss waits for loads in other processes, at most.
func (r *run[V]) longest() time.Duration { return 2*r.cache.opts.LoadTimeout + r.cache.opts.LeaseTTL }

// takeMessage takes a message about the key of a miss that has been asking since then.
func (r *run[V]) takeMessage(m *miss[V], question uint32, msg Message) {
	if m.State != protocol.Following || m.waits.watcher.Asked() != question {
		return // it is from before what the miss knows
	}
	if msg.Kind == MessageLost { // not at once: who has lost them may have the next ones in a moment, and so have all others
		m.waits.until = time.Now().Add(r.cache.patience(time.Until(m.waits.until), &m.waits))
		return
	}
	e := r.woken()
	switch {
	case msg.Kind == MessageChanged:
		e.Kind = protocol.Changed
	case protocol.ID(msg.Load) != m.Awaited: // about a load it was not told to wait for: only a reason to look again
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

// takeStored takes the value that the awaited load has stored.
func (r *run[V]) takeStored(m *miss[V], got found[V], err error) {
	e := r.woken()
	if err == nil { // else asking for the lease will say the same, and what to do
		e = r.takeFound(m, got, true)
		e.Kind = protocol.Filled
	}
	r.step(m, e)
}

// readStored reads the value that the awaited load has stored, which is too large for a message:
// once for the whole process. The others of a batch don't wait for that.
func (r *run[V]) readStored(m *miss[V], question uint32) {
	c, asOf := r.cache, flight.Tick()
	take := func(got found[V], err error) {
		if got.good == protocol.Fresh { // else it may be marked, and lands as what was waited for
			m.asked.asOf = asOf
		}
		r.takeStored(m, got, err)
	}
	if len(r.misses) > 1 && c.life.Go(func() {
		var got found[V]
		err := errGoexit
		defer func() { // also when the codec has ended this goroutine
			r.mail.Post(func() {
				if m.State == protocol.Following && m.waits.watcher.Asked() == question {
					take(got, err)
				}
			})
		}()
		got, err = c.read(r.values, m.key)
	}) {
		return
	}
	take(c.read(r.values, m.key))
}

// listen begins to listen for the key of a miss, or forgets what has been heard: the answer to a
// question is newer.
func (r *run[V]) listen(m *miss[V]) {
	if m.waits.watcher == nil {
		m.waits.watcher = r.cache.waits.Watch(m.key.Key, func(question uint32, msg Message) {
			r.mail.Post(func() {
				m.waits.watcher.Read()
				r.takeMessage(m, question, msg)
			})
		})
	}
	m.waits.watcher.Ask()
}
