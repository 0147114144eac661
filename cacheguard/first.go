package cacheguard

import (
	"context"
	"errors"
	"io"
	"net"

	"github.com/cacheguard/cacheguard/internal/protocol"
)

// leaseFirst asks for the lease instead of reading, because there probably is no value. That saves
// a trip. If there is a value after all, the answer contains the value, as the answer to a read
// would, and the store grants no lease. With any other answer about the lease, goesOn is the run
// that continues with this answer.
//
// If asked is false, the caller must read. This happens if more than half of the slots would be
// taken, counting the slot for this request; if the Limiter is a fleet's; if reads or leases have
// trouble; while this process leaves the next try to other processes after its own load of the key
// has failed (see grace); inside a load of the same key; if the server has answered with an error;
// and if the cache is being closed.
func (c *Cache[V]) leaseFirst(
	ctx context.Context, of *target[V],
) (got found[V], goesOn *run[V], asked bool, err error) {
	if c.reading.is() || c.leasing.is() || c.failures.Recent(of.key.Key) != nil ||
		c.inside(ctx, of.key.Key) || !c.life.Begin() {
		return got, nil, false, nil
	}
	slot := c.opts.Limiter.try(ctx)
	if slot == nil {
		c.life.End()
		return got, nil, false, nil
	}
	m := c.missOf(of, found[V]{}, nil)
	m.Reads, m.Unseen, m.turn = true, true, &turn{release: slot, members: 1}
	r := c.newRun(ctx, nil, m)
	switch err = r.asksFirst(ctx); {
	case m.State != protocol.Begun:
		return got, r, true, nil
	case err == nil:
		return m.had, nil, true, m.storeErr
	case unanswered(err): // a read would run into the same time-out
		return got, nil, true, err
	}
	return got, nil, false, nil
}

// unanswered reports whether a request to the store got no answer at all, not even an error of the
// server.
func unanswered(err error) bool {
	var network net.Error // a time-out is one, too
	return errors.As(err, &network) || errors.Is(err, io.EOF)
}

// asksFirst asks for the lease in place of a read, on the goroutine of the caller that leads the
// flight. If the miss is in state Begun afterwards, the run is over. Then the miss has the result
// that a read would have had, or asksFirst returns the error.
func (r *run[V]) asksFirst(ctx context.Context) error {
	m, asking, answered := r.misses[0], r.values, false
	defer func() {
		switch {
		case answered && m.State != protocol.Begun:
			return
		case answered:
			// Gives back the slot, and a lease that may have been granted without an answer.
			r.perform()
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
	return m.ownLoad.out.err
}
