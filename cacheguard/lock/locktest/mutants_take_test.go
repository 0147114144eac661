package locktest_test

import (
	"context"
	"time"

	"github.com/cacheguard/cacheguard/cacheguard/lock"
)

// takes replaces the system's take.
func takes(
	take func(s *seat, ctx context.Context, name, owner string, from int64,
		lease time.Duration) (Answer, error),
) func(s *seat) {
	return func(s *seat) {
		s.system.takeAs = func(
			ctx context.Context, name, owner string, from int64, lease time.Duration,
		) (Answer, error) {
			return take(s, ctx, name, owner, from, lease)
		}
	}
}

// until makes locks report another Until than the system's.
func until(other func(held lock.Lock) time.Time) func(s *seat) {
	return func(s *seat) {
		s.locker.wrap = func(held lock.Lock) lock.Lock {
			return &brokenLock{Lock: held, until: func() time.Time { return other(held) }}
		}
	}
}

var takeMutants = []mutant{
	{
		name:   "whoever names a token has the lock",
		caught: []string{"continue: by a token that has none", "continue: two at once"},
		mutate: takes(func(
			s *seat, ctx context.Context, name, owner string, _ int64, lease time.Duration,
		) (Answer, error) {
			return s.line.take(ctx, name, owner, anybody, lease)
		}),
	},
	{
		name:   "a lock that is continued keeps its token",
		caught: []string{"continue: a lock is handed over", "seize: from a holder"},
		mutate: takes(func(
			s *seat, ctx context.Context, name, owner string, from int64, lease time.Duration,
		) (Answer, error) {
			a, err := s.line.take(ctx, name, owner, from, lease)
			a.Token = max(a.Token-1, 1)
			return a, err
		}),
	},
	{
		name:   "the holder keeps its lock",
		caught: []string{"continue: a lock is handed over", "seize: from a holder"},
		mutate: func(s *seat) {
			s.system.renewAs = func(string, string) (bool, error) { return true, nil }
		},
	},
	{
		name:   "a lock is free for a moment before it is continued",
		caught: []string{"continue: a lock is handed over"},
		mutate: takes(func(
			s *seat, ctx context.Context, name, owner string, from int64, lease time.Duration,
		) (Answer, error) {
			s.table.steal(name)
			s.pass(lease / 10)
			a, err := s.line.acquire(ctx, name, owner, lease)
			return Answer{true, a.Token}, err
		}),
	},
	{
		name:   "what nobody has can't be seized",
		caught: []string{"seize: what nobody has"},
		mutate: takes(func(
			s *seat, ctx context.Context, name, owner string, from int64, lease time.Duration,
		) (Answer, error) {
			if !s.table.isHeld(name) {
				return Answer{}, nil
			}
			return s.line.take(ctx, name, owner, from, lease)
		}),
	},
	{
		name:   "a lock that is held can't be seized",
		caught: []string{"seize: from a holder"},
		mutate: takes(func(
			s *seat, ctx context.Context, name, owner string, from int64, lease time.Duration,
		) (Answer, error) {
			if s.table.isHeld(name) {
				return Answer{}, nil
			}
			return s.line.take(ctx, name, owner, from, lease)
		}),
	},
	{
		name:   "Until is too late",
		caught: []string{"state: until"},
		mutate: until(func(held lock.Lock) time.Time { return held.Until().Add(lease) }),
	},
	{
		name:   "Until is that of the question",
		caught: []string{"state: until"},
		mutate: func(s *seat) {
			s.locker.wrap = func(held lock.Lock) lock.Lock {
				first := held.Until()
				return &brokenLock{Lock: held, until: func() time.Time { return first }}
			}
		},
	},
}
