package cacheguard

import (
	"context"
	"errors"
	"io"
	"net"

	"github.com/cacheguard/cacheguard/internal/knowledge"
	"github.com/cacheguard/cacheguard/internal/protocol"
)

// find looks for a value. Usually it reads the store. If there is likely no value, find asks for
// the lease at once, which saves a trip. The request contains the double check: if there is a value
// after all, the answer has the value, as the answer to a read would, and no lease is granted. With
// any other answer the run goes on.
func (c *Cache[V]) find(ctx context.Context, of *target[V], mayLead bool, e knowledge.Expected) (got found[V], goesOn *run[V], err error) {
	if r := c.firstRun(ctx, of, mayLead, e); r != nil {
		m := r.misses[0]
		switch err = r.asksFirst(ctx); {
		case m.State != protocol.Begun:
			return got, r, nil
		case err == nil:
			return m.had, nil, m.storeErr
		case unanswered(err) && !timeIsUp(ctx): // a read would run into the same time-out
			return got, nil, err
		}
	}
	got, err = c.read(ctx, of.key)
	return got, nil, err
}

// unanswered reports whether a request to the store got no answer at all, not even an error of the
// server.
func unanswered(err error) bool {
	var network net.Error // a time-out is one, too
	return errors.As(err, &network) || errors.Is(err, io.EOF)
}

// firstRun makes a run that asks for the lease without a look-up before. It returns nil if a read
// is better. That is so if there likely is a value; if no slot is free, so that a load couldn't
// begin at once; if reads or leases have trouble; if a load of the key has just failed; or inside a
// load of the same key.
func (c *Cache[V]) firstRun(ctx context.Context, of *target[V], mayLead bool, e knowledge.Expected) *run[V] {
	if !mayLead || !c.presence.Lacks(e) || c.reading.is() || c.leasing.is() ||
		c.failures.Recent(of.key.Key) != nil || c.inside(ctx, of.key.Key) || !c.life.Begin() {
		return nil
	}
	slot := c.opts.Limiter.try(ctx)
	if slot == nil {
		c.life.End()
		return nil
	}
	m := c.missOf(of, found[V]{}, nil)
	m.Reads, m.Unseen, m.turn = true, true, &turn{release: slot, members: 1}
	return c.newRun(ctx, nil, m)
}

// asksFirst asks for the lease in place of a read, on the goroutine of the caller that leads the
// flight. If the state of the miss is Begun afterwards, the run is over. Then the miss has the same
// result that a read would have had, or asksFirst returns the error.
func (r *run[V]) asksFirst(ctx context.Context) error {
	m, asking, answered := r.misses[0], r.values, false
	defer func() {
		switch {
		case answered && m.State != protocol.Begun:
			return
		case answered:
			r.perform() // gives back the slot, and a lease that may have been granted without an answer
			m.waits.watcher.Stop()
		default: // the user's code has called Goexit
			r.abort()
		}
		r.cancel(nil)
		r.cache.life.End()
	}()
	if by, ok := ctx.Deadline(); ok { // the caller's deadline applies, as for a read
		var cancel context.CancelFunc
		asking, cancel = context.WithDeadline(asking, by)
		defer cancel()
	}
	r.step(m, protocol.Event{Kind: protocol.Begin})
	r.ask(asking, r.take(protocol.Ask))
	answered = true
	return m.own.out.err
}
