package locktest_test

import (
	"context"
	"time"

	"github.com/cacheguard/cacheguard/cacheguard/lock"
)

var exclusionMutants = []mutant{
	{
		name: "no exclusion now and then",
		caught: []string{
			"exclusion: under contention", "exclusion: many wait at once",
			"linearizable: Lock, TryLock and Unlock",
		},
		mutate: func(s *seat) {
			s.system.acquireAs = func(
				ctx context.Context, name, owner string, d time.Duration,
			) (Answer, error) {
				if s.shared.each(7) {
					s.table.steal(name)
				}
				return s.line.acquire(ctx, name, owner, d)
			}
		},
	},
	{
		name: "looks first and takes it then",
		caught: []string{
			"exclusion: many try at once", "exclusion: under contention",
			"linearizable: Lock, TryLock and Unlock",
		},
		mutate: func(s *seat) {
			s.system.acquireAs = func(
				ctx context.Context, name, owner string, d time.Duration,
			) (Answer, error) {
				if s.table.isHeld(name) {
					return Answer{}, nil
				}
				<-time.After(time.Microsecond)
				s.table.steal(name)
				return s.line.acquire(ctx, name, owner, d)
			}
		},
	},
	{
		name: "TryLock takes what is held",
		caught: []string{
			"try: held", "unlock: again, while another holds", "wait: deadline",
			"state: held for several leases",
		},
		mutate: func(s *seat) {
			s.locker.try = func(ctx context.Context, name string) (lock.Lock, error) {
				s.table.steal(name)
				return s.inner.TryLock(ctx, name)
			}
		},
	},
	{
		name:   "TryLock says ErrHeld now and then",
		caught: []string{"try: free", "linearizable: Lock, TryLock and Unlock"},
		mutate: func(s *seat) {
			s.locker.try = func(ctx context.Context, name string) (lock.Lock, error) {
				if s.shared.each(5) {
					return nil, lock.ErrHeld
				}
				return s.inner.TryLock(ctx, name)
			}
		},
	},
	{
		name:   "TryLock waits",
		caught: []string{"try: held"},
		mutate: func(s *seat) { s.locker.try = s.inner.Lock },
	},
	{
		name:   "TryLock waits for a while",
		caught: []string{"try: held, at once"},
		mutate: func(s *seat) {
			s.locker.try = func(ctx context.Context, name string) (lock.Lock, error) {
				within, cancel := context.WithTimeout(ctx, lease)
				defer cancel()
				held, err := s.inner.Lock(within, name)
				if err != nil && ctx.Err() == nil {
					err = lock.ErrHeld
				}
				return held, err
			}
		},
	},
	{
		name: "TryLock has an error of its own for what is held",
		caught: []string{
			"try: held", "exclusion: under contention", "linearizable: Lock, TryLock and Unlock",
		},
		mutate: func(s *seat) {
			s.locker.try = func(ctx context.Context, name string) (lock.Lock, error) {
				held, err := s.inner.TryLock(ctx, name)
				if err != nil {
					err = errOther
				}
				return held, err
			}
		},
	},
}
