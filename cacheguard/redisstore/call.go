package redisstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/cacheguard/cacheguard/internal/redislink"
)

// call runs one step in Redis within OpTimeout, with the client that it passes to step. If no
// answer comes within half of OpTimeout, call sends the step once more. Every step recognises what
// its first copy did. name says which node the step is for. While that node doesn't answer or takes
// no writes, the step is not sent.
func call[T any](
	ctx context.Context, s *Store, name string,
	step func(context.Context, redis.UniversalClient) (T, error),
) (v T, err error) {
	if err := cmp.Or(s.health.of(name).refusal(), s.writes.of(name).refusal()); err != nil {
		return v, err
	}
	return change(ctx, s, name, step)
}

// look is call for a step that possibly writes nothing, such as a read. So its success doesn't show
// that Redis accepts writes.
func look[T any](
	ctx context.Context, s *Store, name string,
	step func(context.Context, redis.UniversalClient) (T, error),
) (v T, err error) {
	if err := s.health.of(name).refusal(); err != nil {
		return v, err
	}
	return lookAnyway(ctx, s, name, step)
}

// lookAnyway is look for a step that is sent even while the breaker is open.
func lookAnyway[T any](
	ctx context.Context, s *Store, name string,
	step func(context.Context, redis.UniversalClient) (T, error),
) (v T, err error) {
	began := time.Now()
	v, err = twice(ctx, s, step)
	if !errors.Is(err, errClosed) && !isOver(ctx) {
		s.health.of(name).answered(name, err, time.Since(began))
	}
	return v, err
}

// change is call for a step that tells Redis of a change. It is sent even while the breaker is
// open, because a change must be tried.
func change[T any](
	ctx context.Context, s *Store, name string,
	step func(context.Context, redis.UniversalClient) (T, error),
) (v T, err error) {
	began := time.Now()
	v, err = twice(ctx, s, step)
	if !errors.Is(err, errClosed) && !isOver(ctx) {
		took := time.Since(began)
		s.health.of(name).answered(name, err, took)
		s.writes.of(name).answered(name, err, took)
	}
	return v, err
}

// isOver reports whether the caller's own time is over. Then a missing answer is no sign of
// trouble. isOver also compares the context's deadline with the clock, because a connection with
// this deadline may fail a moment before the context ends.
func isOver(ctx context.Context) bool {
	by, ends := ctx.Deadline()
	return ctx.Err() != nil || ends && !time.Now().Before(by)
}

// twice sends a step. If no answer comes, it sends the step once more.
func twice[T any](
	ctx context.Context, s *Store, step func(context.Context, redis.UniversalClient) (T, error),
) (v T, err error) {
	if s.closed.Load() {
		return v, errClosed
	}
	if v, err = redislink.Twice(ctx, s.link, step); err != nil {
		err = fmt.Errorf("redisstore: %w", s.explained(err))
	}
	return v, err
}
