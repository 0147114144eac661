package locktest_test

import (
	"context"
	"errors"
	"os"
	"time"

	"github.com/cacheguard/cacheguard/cacheguard/lock"
	"github.com/cacheguard/cacheguard/cacheguard/lock/locktest"
)

var errOther = errors.New("something else")

var waitMutants = []mutant{
	{
		name: "contexts are not looked at",
		caught: []string{
			"try: with a context that has ended", "wait: deadline", "wait: cancelled",
			"wait: no ghost of one who left",
		},
		mutate: func(s *seat) { s.inner.flaws.context = context.WithoutCancel },
	},
	{
		name:   "Lock with a context that has ended asks",
		caught: []string{"try: with a context that has ended"},
		mutate: func(s *seat) {
			s.locker.lock = func(ctx context.Context, name string) (lock.Lock, error) {
				held, err := s.inner.Lock(context.WithoutCancel(ctx), name)
				if err == nil && ctx.Err() != nil {
					return nil, ctx.Err() // and keeps the lock
				}
				return held, err
			}
		},
	},
	{
		name: "Lock doesn't say why it ended",
		caught: []string{
			"try: with a context that has ended", "wait: deadline", "wait: cancelled",
			"wait: left as the lock becomes free",
		},
		mutate: func(s *seat) {
			s.locker.lock = func(ctx context.Context, name string) (lock.Lock, error) {
				held, err := s.inner.Lock(ctx, name)
				if err != nil && ctx.Err() != nil {
					err = errOther
				}
				return held, err
			}
		},
	},
	{
		name: "Lock doesn't say once why it ended",
		caught: []string{
			"wait: deadline", "wait: cancelled", "wait: no ghost of one who left",
			"wait: left as the lock becomes free",
		},
		mutate: func(s *seat) {
			s.locker.lock = func(ctx context.Context, name string) (lock.Lock, error) {
				held, err := s.inner.Lock(ctx, name)
				if err != nil && ctx.Err() != nil && s.shared.add(1) == 1 {
					err = os.ErrDeadlineExceeded // of the connection
				}
				return held, err
			}
		},
	},
	{
		name:   "Lock leaves before its deadline",
		caught: []string{"wait: deadline"},
		mutate: func(s *seat) {
			s.locker.lock = func(ctx context.Context, name string) (lock.Lock, error) {
				deadline, ok := ctx.Deadline()
				if !ok {
					return s.inner.Lock(ctx, name)
				}
				ctx, cancel := context.WithDeadline(ctx, deadline.Add(-10*time.Millisecond))
				defer cancel()
				return s.inner.Lock(ctx, name)
			}
		},
	},
	{
		name:   "Lock leaves a lease after its deadline",
		caught: []string{"wait: deadline", "wait: cancelled"},
		mutate: func(s *seat) {
			s.locker.lock = func(ctx context.Context, name string) (lock.Lock, error) {
				late, cancel := context.WithCancel(context.WithoutCancel(ctx))
				defer cancel()
				defer context.AfterFunc(ctx, func() { time.AfterFunc(lease, cancel) })()
				held, err := s.inner.Lock(late, name)
				if err != nil && ctx.Err() != nil {
					err = ctx.Err()
				}
				return held, err
			}
		},
	},
	{
		name: "Lock says ErrHeld",
		caught: []string{
			"wait: until the holder unlocks", "wait: one after another",
			"exclusion: under contention",
		},
		mutate: func(s *seat) { s.locker.lock = s.inner.TryLock },
	},
	{
		name:   "nobody is woken",
		caught: []string{"wait: until the holder unlocks", "reentrant: for nobody else"},
		mutate: func(s *seat) {
			s.system.waitFor = func(ctx context.Context, _ string) error {
				<-ctx.Done()
				return ctx.Err()
			}
		},
	},
	{
		name:   "only one of those who wait is woken",
		caught: []string{"wait: one after another"},
		mutate: func(s *seat) {
			s.system.waitFor = func(ctx context.Context, name string) error {
				s.shared.mu.Lock()
				s.shared.names[name]++
				first := s.shared.names[name] == 1
				s.shared.mu.Unlock()
				if !first {
					<-ctx.Done()
					return ctx.Err()
				}
				return s.line.wait(ctx, name)
			}
		},
	},
	{
		name:   "only Unlock wakes",
		caught: []string{"wait: the lock disappears"},
		mutate: func(s *seat) { s.system.waitFor = s.table.told },
		harm:   func(f *locktest.Fleet, t *table) { f.Steal = t.stealQuietly },
	},
	{
		name: "those who wait look again after a lease",
		caught: []string{
			"wait: how long a hand-over takes", "unlock: with a context that has ended",
		},
		mutate: func(s *seat) {
			s.system.waitFor = func(ctx context.Context, _ string) error {
				select {
				case <-time.After(lease):
					return nil
				case <-ctx.Done():
					return ctx.Err()
				}
			}
		},
	},
	{
		name:   "who leaves gets the lock nevertheless",
		caught: []string{"wait: no ghost of one who left", "wait: left as the lock becomes free"},
		mutate: func(s *seat) { s.locker.lock = leavesGhost(s, func(lock.Lock) {}) },
	},
	{
		name:   "who leaves gets the lock nevertheless, for a while",
		caught: []string{"wait: no ghost of one who left"},
		mutate: func(s *seat) {
			s.locker.lock = leavesGhost(s, func(held lock.Lock) {
				s.pass(lease * 3 / 4)
				_ = held.Unlock(context.Background())
			})
		},
	},
	{
		name:   "what was acquired while one left is not given back",
		caught: []string{"wait: left while acquiring"},
		mutate: func(s *seat) {
			s.system.acquireAs = slowly(s)
			s.inner.flaws.left = func(string, string) {}
		},
	},
	{
		name:   "many who wait take all connections",
		caught: []string{"names: waiters leave others alone"},
		mutate: func(s *seat) {
			pool := make(chan struct{}, 10)
			s.system.waitFor = func(ctx context.Context, name string) error {
				select {
				case pool <- struct{}{}:
				case <-ctx.Done():
					return ctx.Err()
				}
				defer func() { <-pool }()
				return s.line.wait(ctx, name)
			}
			s.system.acquireAs = func(
				ctx context.Context, name, owner string, d time.Duration,
			) (Answer, error) {
				pool <- struct{}{}
				defer func() { <-pool }()
				return s.line.acquire(ctx, name, owner, d)
			}
		},
	},
}

// leavesGhost is a Lock that continues to wait after its caller has left.
func leavesGhost(
	s *seat, then func(held lock.Lock),
) func(ctx context.Context, name string) (lock.Lock, error) {
	return func(ctx context.Context, name string) (lock.Lock, error) {
		type result struct {
			held lock.Lock
			err  error
		}
		got := make(chan result, 1)
		s.inner.keeper.Go(func() {
			held, err := s.inner.Lock(context.WithoutCancel(ctx), name)
			got <- result{held, err}
			if err == nil && ctx.Err() != nil {
				then(held)
			}
		})
		select {
		case r := <-got:
			return r.held, r.err
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// slowly is an acquire that takes a while. Its caller may be gone before it returns.
func slowly(s *seat) func(ctx context.Context, name, owner string,
	d time.Duration) (Answer, error) {
	return func(ctx context.Context, name, owner string, d time.Duration) (Answer, error) {
		a, err := s.line.acquire(ctx, name, owner, d)
		select {
		case <-time.After(10 * time.Millisecond):
			return a, err
		case <-ctx.Done():
			return Answer{}, ctx.Err()
		}
	}
}
