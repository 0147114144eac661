package redlock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/cacheguard/cacheguard/cacheguard/lock"
	"github.com/cacheguard/cacheguard/internal/redislink"
	"github.com/cacheguard/cacheguard/internal/tenure"
)

// warmTimeout bounds what is done with each master.
const warmTimeout = time.Second

// Warm dials, loads the scripts and subscribes ahead, so that the first locks don't pay for it: a connection that is
// dialled may take longer than NodeTimeout. It ends with ctx, or after a second, and returns an error if that went well
// with no majority of the masters.
func (l *Locker) Warm(ctx context.Context) error {
	ctx, leave, err := l.keeper.Enter(ctx)
	if err != nil {
		return fmt.Errorf("redlock: %w", err)
	}
	defer leave()
	within, cancel := context.WithTimeout(ctx, warmTimeout)
	defer cancel()
	subs := l.listen()
	if subs == nil {
		return fmt.Errorf("redlock: %w", lock.ErrClosed)
	}
	results := make(chan error, len(l.masters))
	for i, m := range l.masters {
		l.keeper.Go(func() { results <- warm(within, m, subs[i]) })
	}
	var errs []error
	for range l.masters {
		if err := <-results; err != nil {
			errs = append(errs, err)
		}
	}
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("redlock: warming up: %w", errors.Join(slices.Insert(errs, 0, tenure.Why(ctx))...))
	case len(l.masters)-len(errs) < quorum(len(l.masters)):
		return fmt.Errorf("redlock: warming up: %w", errors.Join(errs...))
	default:
		return nil
	}
}

func warm(ctx context.Context, m *master, sub *redislink.Subscription) error {
	rdb := m.rdb
	if direct := m.link.Direct(); direct != nil { // which has more time than NodeTimeout
		rdb = direct
	}
	var err error
	for _, script := range scripts {
		if err == nil {
			err = script.Load(ctx, rdb).Err()
		}
	}
	if err == nil {
		select {
		case <-sub.Confirmed():
		case <-sub.Ended():
			err = errors.New("closed")
		case <-ctx.Done():
			err = fmt.Errorf("subscribing: %w", errors.Join(ctx.Err(), sub.Last()))
		}
	}
	if err != nil {
		return fmt.Errorf("master %d: %w", m.index, err)
	}
	return nil
}
