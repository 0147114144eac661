package cacheguard

import (
	"context"
	"errors"
	"io"
	"net"

	"github.com/cacheguard/cacheguard/internal/knowledge"
	"github.com/cacheguard/cacheguard/internal/protocol"
)

// find looks for a value: by a read, or where there is likely none by asking for the lease at once.
// That question has the double check inside: a value comes as a read would have brought it, and
// nothing is granted. With any other answer the run goes on.
func (c *Cache[V]) find(ctx context.Context, of *target[V], mayLead bool, e knowledge.Expected) (got found[V], goesOn *run[V], err error) {
	if r := c.firstRun(ctx, of, mayLead, e); r != nil {
		m := r.misses[0]
		switch err = r.asksFirst(ctx); {
		case m.State != protocol.Begun:
			return got, r, nil
		case err == nil:
			return m.had, nil, m.storeErr
		case unanswered(err) && !timeIsUp(ctx): // a read would take as long
			return got, nil, err
		}
	}
	got, err = c.read(ctx, of.key)
	return got, nil, err
}

// unanswered reports whether a question to the store got no answer, not even a refusal.
func unanswered(err error) bool {
	var network net.Error // a time-out is one, too
	return errors.As(err, &network) || errors.Is(err, io.EOF)
}

// firstRun makes a run that asks for the lease before anything else. It returns nil if there likely
// is a value, if a load couldn't begin at once, for want of a slot, if the store has trouble, which
// is another one for reads, after a load that failed, and inside the load of this very key.
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

// asksFirst asks for the lease on the goroutine of the caller who leads the flight, where a read
// would be. If its miss has not begun then, the run is over, and the miss has what a read would
// have found, or there is an error.
func (r *run[V]) asksFirst(ctx context.Context) error {
	m, asking, answered := r.misses[0], r.values, false
	defer func() {
		switch {
		case answered && m.State != protocol.Begun:
			return
		case answered:
			r.perform() // the slot is given back, and a lease that may have been granted
			m.waits.watcher.Stop()
		default: // the user's code has ended this goroutine
			r.abort()
		}
		r.cancel(nil)
		r.cache.life.End()
	}()
	if by, ok := ctx.Deadline(); ok { // a read keeps to it, too
		var cancel context.CancelFunc
		asking, cancel = context.WithDeadline(asking, by)
		defer cancel()
	}
	r.step(m, protocol.Event{Kind: protocol.Begin})
	r.ask(asking, r.take(protocol.Ask))
	answered = true
	return m.own.out.err
}
