package cacheguard

import (
	"context"
	"time"

	"github.com/cacheguard/cacheguard/internal/protocol"
)

// This file has the flights of a GetMany: those that it joins, those that it leads in one run, and
// what it records when they land.

// join joins the flights of all missed keys, and starts one run for the flights that this call
// leads.
func (m *many[V]) join(ctx context.Context) {
	c := m.cache
	var began []*miss[V]
	offered, ended := false, false
	defer func() {
		if !ended { // Goexit in an observer
			for _, p := range began {
				p.flight.Land(outcome[V]{err: errGoexit})
			}
		}
	}()
	for _, p := range m.missed {
		id := p.key.Key
		if c.inside(ctx, id) { // a load that waits for its own key would wait for ever
			m.give(p.name, &Result[V]{}, recursion(p.name))
			continue
		}
		if p.flight != nil { // no other call takes part
			began = append(began, p)
			continue
		}
		f, leads := c.flights[m.group].JoinBegun(id, c.opts.MaxWaiters,
			max(m.since, c.sinceIfRead(ctx, id)), m.asOf)
		switch {
		case f == nil:
			m.give(p.name, &Result[V]{}, c.turnAway(ctx, p.name, id))
			continue
		case !leads:
			p.flight = f
			m.waits = append(m.waits, p)
			continue
		}
		p.flight = f
		began = append(began, p)
		// Callers that join from now on must not get a value that was read before the change.
		if c.changed.Count(id) != p.asked.changed {
			p.had.forget()
			p.Seen = protocol.Nothing
		}
		if p.Reads {
			offered = c.offer(p) || offered
		}
	}
	ended = true
	// A load that makes this call waits for SoftTimeout at most, so it may return while the new
	// load still needs a slot.
	if offered {
		ctx = outsideSlots(ctx)
	}
	m.waits, m.leads = append(m.waits, began...), len(began)
	if len(began) > 0 {
		c.runAll(ctx, m.load, began...)
	}
}

// wait waits for the flights and records their outcomes. If loads of other calls had results for
// their own callers only, it then loads these keys together, as Get loads one of them.
func (m *many[V]) wait(ctx context.Context) {
	for began := time.Now(); len(m.waits) > 0; {
		for _, p := range m.waits {
			m.cache.urge(ctx, p.flight)
		}
		if m.waits = m.record(ctx, began); len(m.waits) > 0 {
			m.leads = len(m.waits)
			m.cache.runAll(ctx, m.load, m.waits...)
		}
	}
}

// record waits for the flights, one after another, and records their outcomes. It returns misses
// for the keys that this call must load for itself.
func (m *many[V]) record(ctx context.Context, began time.Time) (unshared []*miss[V]) {
	c := m.cache
	for len(m.waits) > 0 {
		p := m.waits[0]
		m.waits = m.waits[1:]
		out, err := m.result(ctx, p, began)
		own := len(m.waits) < m.leads
		var res Result[V]
		switch {
		case err != nil:
		case out.unshared() && (!own || out.res.Status == StatusMiss):
			unshared = append(unshared, c.unsharedMiss(p.name, p.load, out.also.marker))
			continue
		case own:
			err = c.led(ctx, p, out, began, &res)
		case c.opts.StrongReads && m.since == 0 && c.tooOld(out, p.flight, m.asOf):
			m.again = append(m.again, p.name)
			continue
		default:
			err = c.shared(ctx, p.flight, p.name, p.load, out, began, &res)
		}
		m.give(p.name, &res, err)
	}
	return unshared
}

// result waits for one flight. SoftTimeout applies to the whole call. since is when the call began
// to wait.
func (m *many[V]) result(ctx context.Context, p *miss[V], since time.Time) (*outcome[V], error) {
	c := m.cache
	if c.opts.SoftTimeout <= 0 {
		return p.flight.Result(ctx)
	}
	return c.resultWithin(ctx, p.flight, max(c.opts.SoftTimeout-time.Since(since), 0))
}

// leave leaves the flights that the call still waits for. There are such flights if Goexit has
// ended the call. Without leave, their loads could not be cancelled.
func (m *many[V]) leave() {
	for _, p := range m.waits {
		p.flight.Leave()
	}
}
