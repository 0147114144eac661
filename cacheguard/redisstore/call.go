package redisstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
)

// call runs one step in Redis within OpTimeout. When no answer came within half of the time, the step is sent once
// more; every step recognises what it did before. The step gets the client to use. name is where it goes; while Redis
// doesn't answer there, or takes no writes, it is not sent.
func call[T any](ctx context.Context, s *Store, name string, step func(context.Context, redis.UniversalClient) (T, error)) (v T, err error) {
	if err := cmp.Or(s.health.of(name).refusal(), s.writes.of(name).refusal()); err != nil {
		return v, err
	}
	return change(ctx, s, name, step)
}

// look is call for a step that writes nothing, or perhaps nothing: that it went well doesn't show that Redis takes
// writes.
func look[T any](ctx context.Context, s *Store, name string, step func(context.Context, redis.UniversalClient) (T, error)) (v T, err error) {
	b := s.health.of(name)
	if err := b.refusal(); err != nil {
		return v, err
	}
	began := time.Now()
	v, err = twice(ctx, s, step)
	if !errors.Is(err, errClosed) && ctx.Err() == nil {
		b.answered(name, err, time.Since(began))
	}
	return v, err
}

// change is call for a step that must be tried whatever has been heard of Redis last: something has changed, and it is
// not the cache that says whether that is known.
func change[T any](ctx context.Context, s *Store, name string, step func(context.Context, redis.UniversalClient) (T, error)) (v T, err error) {
	began := time.Now()
	v, err = twice(ctx, s, step)
	if !errors.Is(err, errClosed) && ctx.Err() == nil {
		took := time.Since(began)
		s.health.of(name).answered(name, err, took)
		s.writes.of(name).answered(name, err, took)
	}
	return v, err
}

// twice sends a step, and once more if no answer came.
func twice[T any](ctx context.Context, s *Store, step func(context.Context, redis.UniversalClient) (T, error)) (v T, err error) {
	if s.closed.Load() {
		return v, errClosed
	}
	for range 2 {
		v, err = try(ctx, s, step)
		if err == nil && !s.routed.Load() {
			s.routed.Store(true)
		}
		if err == nil || !noAnswer(err) || ctx.Err() != nil {
			break
		}
		s.reroute(ctx)
	}
	if err != nil {
		err = fmt.Errorf("redisstore: %w", explained(s, err))
	}
	return v, err
}

// reroute has a cluster client ask, aside, which node has what. By itself it does so when a node sends it to another
// one, and once a minute: a master that is dead sends nobody anywhere, and its replica would not be found for so long.
// Asking too often is the client's to prevent, which it does.
func (s *Store) reroute(ctx context.Context) {
	if c, ok := s.rdb.(interface{ ReloadState(context.Context) }); ok {
		c.ReloadState(ctx)
	}
}

// node is the node of a cluster that has a name, as far as the client knows, or nil: there is a server only, the client
// is of a type of the user's own, or it knows nothing yet and would have to ask.
func (s *Store) node(name string) *redis.Client {
	c, ok := s.rdb.(*redis.ClusterClient)
	if !ok || !s.routed.Load() {
		return nil
	}
	node, err := c.MasterForKey(context.Background(), name)
	if err != nil {
		return nil
	}
	return node
}

// try runs a step once: on this goroutine where the client's calls end with their context, for another goroutine would
// have to wait for a processor just when thousands of callers have woken up; otherwise aside.
func try[T any](ctx context.Context, s *Store, step func(context.Context, redis.UniversalClient) (T, error)) (T, error) {
	ctx, cancel := context.WithTimeout(ctx, s.opts.OpTimeout/2)
	defer cancel()
	if s.direct != nil {
		return step(ctx, s.direct)
	}
	return aside(ctx, func(ctx context.Context) (T, error) { return step(ctx, s.rdb) })
}

// aside runs a step on another goroutine and stops waiting for it when ctx ends.
func aside[T any](ctx context.Context, step func(context.Context) (T, error)) (T, error) {
	type result struct {
		v   T
		err error
	}
	began := time.Now()
	done := make(chan result, 1)
	go func() {
		v, err := step(ctx)
		done <- result{v, err}
	}()
	select {
	case r := <-done:
		return r.v, r.err
	case <-ctx.Done():
	}
	select {
	case r := <-done: // both at once: an answer is better than none
		return r.v, r.err
	default:
		var zero T
		return zero, fmt.Errorf("no answer within %v: %w", time.Since(began).Round(time.Millisecond), ctx.Err())
	}
}

// noAnswer reports whether the server has not answered, so that it is unknown what was done.
func noAnswer(err error) bool {
	var answer redis.Error // what the server itself said
	return !errors.As(err, &answer)
}
