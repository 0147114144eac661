package cacheguard

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cacheguard/cacheguard/internal/flight"
	"github.com/cacheguard/cacheguard/internal/protocol"
)

// land ends a miss: all waiting callers get its outcome.
func (r *run[V]) land(m *miss[V]) {
	if r.open--; r.uncount(m) && r.open > 0 { // the other misses of the run have no waiting callers
		r.cancel(flight.ErrAbandoned)
	}
	m.waits.watcher.Stop()
	if m.plan.do&protocol.ConcludeLater == 0 {
		// A caller may keep the miss in memory for long while it sends the value on, and the frame
		// is not needed any more.
		m.ownLoad.out.frame = nil
	}
	c, landing := r.cache, m.plan.landing
	degraded := m.storeErr != nil || m.ownLoad.res.Degraded
	switch landing {
	case protocol.LandFound:
		c.presence.Of(m.key.Key).Stands(m.had.keeps)
		c.tier.keep(m.key.Key, m.asked.tier, m.had)
		m.note = m.had.note
		res := m.had.res
		res.Status = StatusCoalesced
		m.land(res, nil)
	case protocol.LandStale:
		m.land(m.had.res, nil)
	case protocol.LandMarker:
		marker := m.had
		m.flight.Land(outcome[V]{
			also: &aside[V]{unshared: true, marker: &marker, note: m.had.note},
		})
	case protocol.LandTheirs:
		res := m.ownLoad.res
		res.Status, res.FreshFor = StatusCoalesced, 0
		m.land(res, nil)
	case protocol.LandTheirError:
		m.fail(Result[V]{Status: StatusCoalesced}, c.theirError(m))
	case protocol.LandOwn:
		res := m.ownLoad.res
		if res.Status == StatusMiss { // ownLoad.res is set only for loads with the lease
			res = m.ownLoad.out.result()
			if m.Claims {
				res.stamp = m.ownLoad.header.Stamp
			}
		}
		res.Degraded = degraded
		r.landOwn(m, res)
	case protocol.LandOwnError:
		m.fail(Result[V]{Status: m.ownLoad.res.Status, Degraded: degraded}, m.ownLoad.out.err)
	case protocol.LandRefused:
		if err := m.ownLoad.out.err; errors.Is(err, ErrOverloaded) && !m.audits {
			c.observe(r.ctx, Event{Kind: EventOverloaded, Key: m.name, Err: err})
			m.fail(Result[V]{}, err)
		} else {
			m.land(Result[V]{}, err)
		}
	case protocol.LandDown:
		m.failWith(Result[V]{Degraded: true}, fmt.Errorf("%w: %w", ErrUnavailable, m.storeErr),
			c.protocol.FailClosed)
	case protocol.LandOverdue:
		m.fail(Result[V]{},
			fmt.Errorf("cacheguard: waited %v for loads in other processes: %w",
				c.longest(), context.DeadlineExceeded))
	case protocol.LandEnded:
		r.landEnded(m, degraded)
	}
}

// landEnded lands a miss that ended without a result.
func (r *run[V]) landEnded(m *miss[V], degraded bool) {
	switch {
	case r.cache.life.Closing.Err() != nil:
		m.land(Result[V]{}, ErrClosed)
	case wraps(m.ownLoad.out.err, ErrClosed): // a load found another cache closed
		m.fail(Result[V]{Status: StatusLoaded, Degraded: degraded}, m.ownLoad.out.err)
	default:
		m.land(Result[V]{}, cmp.Or(context.Cause(r.ctx), flight.ErrAbandoned))
	}
}

// land lands the flight of a miss.
func (m *miss[V]) land(res Result[V], err error) {
	m.flight.LandAsOf(noted(res, err, m.note), m.asked.asOf)
}

// landOwn lands with the result of the miss' own load. In shadow mode it also compares the result
// with the value that callers would have got.
func (r *run[V]) landOwn(m *miss[V], res Result[V]) {
	if had := m.rehearsed; had != nil && !m.ownLoad.out.entry.NoShare {
		of, loaded := m.target, res
		// With Local.Clone a copy, because callers may then change the value that they get.
		if v, ok := r.cache.tier.cloned(res.Value); ok {
			loaded.Value = v
			defer r.cache.compareBehind(r.values, func(ctx context.Context) {
				r.cache.compare(ctx,
					&comparison[V]{key: of.name, id: of.key.Key, had: had, loaded: loaded})
			})
		}
	}
	// In 32 bits the clock wraps around, and 0 means "not known".
	res.began = max(uint32(m.asked.asOf), 1)
	out := noted(res, nil, m.note)
	if m.ownLoad.out.entry.NoShare {
		out.also = &aside[V]{unshared: true, note: m.note}
	}
	m.flight.LandAsOf(out, m.asked.asOf)
}

// fail lands with an error. If there is a stale value that may be served instead, fail lands with
// the stale value.
func (m *miss[V]) fail(res Result[V], err error) { m.failWith(res, err, true) }

// failWith is fail. If looks is false, it doesn't check again how long the stale value may be
// served: the state machine has just decided that it may be served, or there is no stale value.
func (m *miss[V]) failWith(res Result[V], err error, looks bool) {
	if m.Reads && m.had.servable() && (!looks || time.Now().Before(m.servableUntil())) {
		stale := m.had.res.later(time.Since(m.at))
		stale.Err, stale.Degraded = err, res.Degraded
		// Not LandAsOf: the stale value was read before the request for the lease.
		m.flight.Land(noted(stale, nil, m.note))
		return
	}
	m.land(res, err)
}
