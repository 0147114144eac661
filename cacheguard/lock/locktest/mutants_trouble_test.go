package locktest_test

import (
	"context"
	"errors"
	"time"
)

var troubleMutants = []mutant{
	{
		name:   "questions take as long as they take",
		caught: []string{"cut: acquisitions return an error", "cut: unlock returns"},
		mutate: func(s *seat) { s.inner.opTimeout = time.Hour },
	},
	{
		name:   "a system that is away has nobody's locks",
		caught: []string{"cut: acquisitions return an error"},
		mutate: func(s *seat) {
			s.system.acquireAs = func(
				ctx context.Context, name, owner string, d time.Duration,
			) (Answer, error) {
				a, err := s.line.acquire(ctx, name, owner, d)
				if errors.Is(err, context.DeadlineExceeded) {
					return Answer{Granted: true, Token: 1}, nil
				}
				return a, err
			}
		},
	},
	{
		name:   "a system that is away has all locks held",
		caught: []string{"cut: acquisitions return an error"},
		mutate: func(s *seat) {
			s.system.acquireAs = func(
				ctx context.Context, name, owner string, d time.Duration,
			) (Answer, error) {
				a, err := s.line.acquire(ctx, name, owner, d)
				if errors.Is(err, context.DeadlineExceeded) {
					return Answer{}, nil
				}
				return a, err
			}
		},
	},
	{
		name:   "who waits gives up at the first trouble",
		caught: []string{"cut: one who waits stays"},
		mutate: func(s *seat) {
			s.inner.flaws.weak = true
			s.inner.opTimeout = lease / 10
			s.system.waitFor = func(ctx context.Context, name string) error {
				<-time.After(lease / 50) // it polls
				return nil
			}
		},
	},
	{
		name:   "a lock whose reply was lost is another's",
		caught: []string{"lost reply: TryLock", "linearizable: replies are lost"},
		mutate: func(s *seat) {
			s.system.acquireAs = func(
				ctx context.Context, name, owner string, d time.Duration,
			) (Answer, error) {
				a, err := s.line.acquire(ctx, name, owner, d)
				if errors.Is(err, errReplyLost) {
					a, err = s.line.acquire(ctx, name, owner+" again", d)
				}
				return a, err
			}
		},
	},
	{
		name: "a lock whose reply was lost is kept",
		caught: []string{
			"lost reply: TryLock", "lost reply: Lock", "linearizable: replies are lost",
		},
		mutate: func(s *seat) {
			s.inner.flaws.left = func(string, string) {}
			s.system.acquireAs = func(
				ctx context.Context, name, owner string, _ time.Duration,
			) (Answer, error) {
				return s.line.acquire(ctx, name, owner, time.Hour)
			}
		},
	},
	{
		name:   "what comes late from one who was cut off counts",
		caught: []string{"cut: the holder knows before another has the lock"},
		mutate: func(s *seat) {
			s.system.releaseAs = func(name, owner string) (bool, error) {
				ctx, cancel := context.WithTimeout(context.Background(), lease)
				defer cancel()
				held, err := s.line.release(ctx, name, owner)
				if err == nil && !held {
					s.table.steal(name)
				}
				return held, err
			}
		},
	},
}
