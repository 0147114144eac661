package redisstore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
)

// call runs one step in Redis within OpTimeout, whatever the client does: the step runs aside, because a client may
// not look at contexts, may wait for a connection, or may dial. When no answer came within half of the time, the step
// is sent once more; every step recognises what it did before. The step gets the client to use.
func call[T any](ctx context.Context, s *Store, step func(context.Context, redis.UniversalClient) (T, error)) (v T, err error) {
	if s.closed.Load() {
		return v, errClosed
	}
	var rdb redis.UniversalClient = s.rdb
	if s.direct != nil {
		rdb = s.direct
	}
	for range 2 {
		v, err = try(ctx, s.opts.OpTimeout/2, func(ctx context.Context) (T, error) { return step(ctx, rdb) })
		if err == nil || !noAnswer(err) || ctx.Err() != nil {
			break
		}
	}
	if err != nil {
		err = fmt.Errorf("redisstore: %w", err)
	}
	return v, err
}

// try runs a step aside for at most d.
func try[T any](ctx context.Context, d time.Duration, step func(context.Context) (T, error)) (T, error) {
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	return aside(ctx, step)
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
