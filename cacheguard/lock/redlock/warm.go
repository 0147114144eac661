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

// warmTimeout limits the time of Warm for each master.
const warmTimeout = time.Second

// Warm dials, loads the scripts and subscribes in advance, so that the first locks needn't wait for
// these steps. Dialling a connection may take longer than NodeTimeout. Warm ends when ctx ends, or
// after one second plus NodeTimeout at the latest. It returns an error if it succeeded with less
// than a majority of the masters, if two masters are one server, if a master is a replica that
// can't be written to, or if the user of a master lacks rights that locks need. The error names
// each missing right.
func (l *Locker) Warm(ctx context.Context) error {
	ctx, leave, err := l.keeper.Enter(ctx)
	if err != nil {
		return fmt.Errorf("redlock: %w", err)
	}
	defer leave()
	within, cancel := context.WithTimeout(ctx, l.warmTimeout)
	defer cancel()
	subs := l.listen()
	if subs == nil {
		return fmt.Errorf("redlock: %w", lock.ErrClosed)
	}
	results := make(chan error, len(l.masters))
	for i, m := range l.masters {
		l.keeper.Go(func() { results <- warm(within, m, subs[i]) })
	}
	var errs, refused []error
	for range l.masters {
		err := <-results
		if err != nil {
			errs = append(errs, err)
		}
		if redislink.Refused(err) || errors.Is(err, redislink.ErrReplica) {
			refused = append(refused, fmt.Errorf("redlock: warming up: %w", err))
		}
	}
	if err := l.probe(ctx, all); err != nil {
		refused = append(refused, fmt.Errorf("redlock: warming up: %w", err))
	}
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("redlock: warming up: %w",
			errors.Join(slices.Insert(errs, 0, tenure.Why(ctx))...))
	case len(l.masters)-len(errs) < quorum(len(l.masters)):
		return fmt.Errorf("redlock: warming up: %w", errors.Join(errs...))
	default:
		return errors.Join(refused...)
	}
}

func warm(ctx context.Context, m *master, sub *redislink.Subscription) error {
	rdb := m.rdb
	if direct := m.link.Direct(); direct != nil { // a client with a longer timeout than NodeTimeout
		rdb = direct
	}
	// The check of rights is first, because its error names all rights that are missing.
	key := m.rules.Keys[:len(m.rules.Keys)-1] // a lock that nobody can have: its name is empty
	err := m.rules.Try(ctx, rdb, key, m.rules.Channel, []any{"GET", key},
		[]any{"SET", key, "", "PX", 1000}, []any{"APPEND", key, ""},
		// PUBLISH is not tried, because locks work without it.
		[]any{"PTTL", key}, []any{"PEXPIRE", key, 1000}, []any{"DEL", key})
	// One after another: in a pipeline Load would take an empty reply for the script's hash.
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
