package cacheguard

import (
	"context"
	"sync"
	"time"
)

// keeper renews the leases of a group's load.
type keeper[V any] struct {
	group *group[V]
	ps    []*pursuit[V]
	lose  context.CancelCauseFunc

	mu    sync.Mutex // guards what follows
	over  bool       // the load is: what is lost from now on is found out by the fill
	taken int        // leases that other loads have
}

// keep renews at a third of the leases' time until the returned function is called or ctx ends.
func (k *keeper[V]) keep(ctx context.Context, asked time.Time) (stop func()) {
	c := k.group.cache
	ctx, cancel := context.WithCancel(ctx)
	if !c.life.begin() {
		return cancel
	}
	timer := time.AfterFunc(time.Until(asked.Add(c.opts.LeaseTTL/3)), func() {
		defer c.life.end()
		k.renew(ctx, asked)
	})
	return func() {
		cancel()
		if timer.Stop() {
			c.life.end()
		}
		k.mu.Lock()
		defer k.mu.Unlock()
		k.over = true
	}
}

// renew is renew for many keys: each has its own end.
func (k *keeper[V]) renew(ctx context.Context, asked time.Time) {
	c := k.group.cache
	alive := append([]*pursuit[V](nil), k.ps...)
	until := make(map[*pursuit[V]]time.Time, len(alive))
	for _, p := range alive {
		until[p] = asked.Add(c.opts.LeaseTTL)
	}
	for ctx.Err() == nil && len(alive) > 0 {
		keys, grants := make([]Key, len(alive)), make([]Grant, len(alive))
		for i, p := range alive {
			keys[i], grants[i] = p.key, p.grant
		}
		sent, pause := time.Now(), c.opts.LeaseTTL/3
		replies := c.store.RenewMany(ctx, keys, grants, c.opts.LeaseTTL)
		if ctx.Err() != nil {
			return
		}
		var still []*pursuit[V]
		for i, p := range alive {
			held, err := Holding(0), errReplies
			if len(replies) == len(alive) {
				held, err = replies[i].Answer, replies[i].Err
			}
			switch {
			case err != nil && !sent.Before(until[p]), err == nil && held == HoldingGone:
				c.lost(ctx, p) // the load goes on for those who wait for it
				continue
			case err != nil:
				pause = min(pause, c.opts.LeaseTTL/10, max(time.Until(until[p]), time.Millisecond))
			case held == HoldingOther:
				c.lost(ctx, p)
				k.takeOut(ctx, p)
				continue
			default:
				until[p] = sent.Add(c.opts.LeaseTTL)
				c.observe(ctx, Event{Kind: EventRenewed, Key: p.name})
			}
			still = append(still, p)
		}
		alive = still
		if !sleep(ctx, pause) {
			return
		}
	}
}

// takeOut has the callers of a key follow the load that has its lease now.
func (k *keeper[V]) takeOut(ctx context.Context, p *pursuit[V]) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.over {
		return
	}
	if k.taken++; k.taken == len(k.ps) { // before the group ends for want of members, with another cause
		k.lose(ErrLeaseLost)
	}
	p.restarts++
	k.group.alone(ctx, p, nil)
}
