package cacheguard

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/cacheguard/cacheguard/internal/budget"
)

// Limiter bounds how many loads run at a time, in this process (NewLimiter) or in the whole fleet
// (NewFleetLimiter). Give one Limiter to several caches to protect an origin that they share. A
// load that runs inside another load takes no second slot of the same Limiter, so nested loads
// can't block each other. A Limiter is safe for concurrent use.
type Limiter struct {
	queue budget.Queue
	fleet *budget.Fleet // nil for a budget of this process alone
}

// NewLimiter returns a Limiter for max loads at a time; less than 1 means 1. Up to queue more loads
// wait for a slot, in order. If the queue is full, callers get ErrOverloaded.
func NewLimiter(max, queue int) *Limiter {
	if max < 1 {
		max = 1
	}
	return &Limiter{queue: budget.Queue{Max: max, Most: queue}}
}

// acquire takes a slot and returns the function that gives the slot back. Call that function once.
// If no slot is free, acquire waits for one, but no longer than ctx and patience allow. It waits
// only if less than the given share of the queue is taken. When urged is closed, acquire stops
// waiting, and the load goes on without a slot: another load that has a slot may be waiting for
// this load.
func (l *Limiter) acquire(
	ctx context.Context, patience time.Duration, urged <-chan struct{}, share float64,
) (release func(), err error) {
	if l == nil || insideLoad(ctx, l) {
		return func() {}, nil
	}
	by := time.Now().Add(patience)
	slot, err := l.queue.Take(ctx, patience, urged, share)
	if err != nil || l.fleet == nil {
		return slot, err
	}
	permit, err := l.fleet.Take(ctx, time.Until(by), urged)
	if err != nil {
		slot()
		return nil, err
	}
	return func() {
		permit()
		slot()
	}, nil
}

// try takes a slot if at least as many slots are free afterwards as are taken, and returns nil
// otherwise. It takes no slot of a fleet's budget, because a permit costs a trip to the store.
func (l *Limiter) try(ctx context.Context) (release func()) {
	switch {
	case l == nil || insideLoad(ctx, l):
		return func() {}
	case l.fleet != nil:
		return nil
	}
	return l.queue.Try()
}

// NewFleetLimiter returns a Limiter for max loads at a time, shared by all processes that use this
// name on the same store. In each process up to max loads run or wait for a permit, and up to queue
// more loads wait behind them. Use the same max everywhere: a process with a smaller max may never
// get a turn. Call NewFleetLimiter once for each name in a process, and give all caches the same
// Limiter. With two Limiters of one name, a load inside another load needs a second permit: if none
// is free, it waits until LoadTimeout.
//
// Permits are leases in the store. If a process dies, its permits are free after 3 seconds. If a
// process stands still for longer than 3 seconds during a load, another load may begin in that
// time. While the store is unavailable, max applies to each process alone. The Limiter needs no
// Close, and can be used until the store is closed.
func NewFleetLimiter(store Store, name string, max, queue int) (*Limiter, error) {
	var errs []error
	in, ok := store.(Permits)
	if isNil(store) {
		errs = append(errs, errNilStore)
	} else if !ok {
		errs = append(errs, fmt.Errorf("cacheguard: a store of type %T has no permits", store))
	}
	if name == "" || len(name) > maxName || strings.ContainsAny(name, "{}") {
		errs = append(errs,
			fmt.Errorf("cacheguard: %q can't be the name of a budget: it needs 1 to %d bytes without braces",
				name, maxName))
	}
	if max < 1 {
		errs = append(errs,
			fmt.Errorf("cacheguard: a budget of %d loads, it must be at least 1", max))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	l := NewLimiter(max, queue)
	l.fleet = budget.NewFleet(name, permits{Store: store, Permits: in, name: name, max: max})
	store.Listen(PermitsCache, func(m Message) {
		if m.Key == name || m.Kind == MessageRestored {
			l.fleet.Returned()
		}
	})
	return l, nil
}

// permits are the permits of one budget.
type permits struct {
	Store
	Permits
	name string
	max  int
}

func (p permits) Take(
	ctx context.Context, token budget.ID, ttl time.Duration,
) (taken bool, wait time.Duration, err error) {
	return p.TakePermit(ctx, p.name, token, p.max, ttl)
}

func (p permits) Return(ctx context.Context, token budget.ID) error {
	return p.ReturnPermit(ctx, p.name, token)
}
