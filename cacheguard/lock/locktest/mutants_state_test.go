package locktest_test

import (
	"context"
	"errors"
	"time"

	"github.com/cacheguard/cacheguard/cacheguard/lock"
	"github.com/cacheguard/cacheguard/internal/tenure"
)

var stateMutants = []mutant{
	{
		name: "Err stays nil",
		caught: []string{
			"state: while held and after Unlock", "state: lost",
			"reentrant: the last Unlock counts", "close: waits end, locks are lost",
		},
		mutate: onLock(func(_ *seat, b *brokenLock) { b.err = func() error { return nil } }),
	},
	{
		name:   "Unlock closes Lost",
		caught: []string{"state: while held and after Unlock"},
		mutate: onLock(func(_ *seat, b *brokenLock) {
			lost := make(chan struct{})
			b.lost = func() <-chan struct{} { return lost }
			b.unlock = func(ctx context.Context) error {
				err := b.Lock.Unlock(ctx)
				if b.err == nil {
					b.err = func() error { return lock.ErrNotHeld }
					close(lost)
				}
				return err
			}
		}),
	},
	{
		name: "Lost is never closed",
		caught: []string{
			"state: lost", "state: lost, under a Context", "do: lost",
			"cut: the holder knows before another has the lock",
		},
		mutate: onLock(func(_ *seat, b *brokenLock) {
			b.lost = func() <-chan struct{} { return nil }
		}),
	},
	{
		name:   "Lost is closed late",
		caught: []string{"state: lost"},
		mutate: onLock(func(s *seat, b *brokenLock) {
			late := make(chan struct{})
			s.inner.keeper.Go(func() {
				select {
				case <-b.Lock.Lost():
					s.pass(3 * lease)
					close(late)
				case <-s.inner.keeper.Closed():
				}
			})
			b.lost = func() <-chan struct{} { return late }
		}),
	},
	{
		name: "a lock is not renewed",
		caught: []string{
			"state: held for several leases", "state: the context of its acquisition ends",
			"reentrant: the last Unlock counts",
		},
		mutate: func(s *seat) { s.inner.flaws.terms = func(t *tenure.Terms) { t.Renew = nil } },
	},
	{
		name: "a lock is not renewed, and its holder doesn't know",
		caught: []string{
			"state: held for several leases", "state: the context of its acquisition ends",
			"cut: the holder knows before another has the lock",
		},
		mutate: func(s *seat) {
			s.inner.flaws.terms = func(t *tenure.Terms) { t.Renew, t.Until = nil, time.Time{} }
		},
	},
	{
		name:   "a lock is renewed once",
		caught: []string{"state: held for several leases"},
		mutate: func(s *seat) {
			s.inner.flaws.terms = func(t *tenure.Terms) {
				renew, once := t.Renew, false
				t.Renew = func(ctx context.Context) (time.Time, bool, error) {
					if once {
						return time.Time{}, false, errOther
					}
					once = true
					return renew(ctx)
				}
			}
		},
	},
	{
		name:   "a lock is renewed for as long as those who wait leave room",
		caught: []string{"names: waiters leave others alone"},
		mutate: func(s *seat) {
			s.system.waitFor = func(ctx context.Context, name string) error {
				s.shared.add(+1)
				defer s.shared.add(-1)
				return s.line.wait(ctx, name)
			}
			s.system.renewAs = func(name, owner string) (bool, error) {
				if s.shared.add(0) > 10 {
					return false, errOther
				}
				return s.line.renew(context.Background(), name, owner, lease)
			}
		},
	},
	{
		name:   "renewals take anything for theirs",
		caught: []string{"state: lost", "state: lost, under a Context", "reentrant: after a loss"},
		mutate: func(s *seat) {
			s.system.renewAs = func(name, owner string) (bool, error) {
				_, err := s.line.renew(context.Background(), name, owner, lease)
				return true, err
			}
		},
	},
	{
		name:   "what renews acquires",
		caught: []string{"state: lost"},
		mutate: func(s *seat) {
			s.system.renewAs = func(name, owner string) (bool, error) {
				s.table.steal(name)
				_, err := s.line.acquire(context.Background(), name, owner, lease)
				return true, err
			}
		},
	},
	{
		name:   "the lease is counted from the answer, and trouble is not noticed",
		caught: []string{"cut: the holder knows before another has the lock"},
		mutate: func(s *seat) {
			s.inner.flaws.terms = func(t *tenure.Terms) { t.Until = t.Until.Add(lease) }
		},
	},
	{
		name: "the lock ends with the context of its acquisition",
		caught: []string{
			"state: the context of its acquisition ends", "do: the context ends during the work",
		},
		mutate: func(s *seat) {
			s.locker.lock = func(ctx context.Context, name string) (lock.Lock, error) {
				held, err := s.inner.Lock(ctx, name)
				if err == nil {
					context.AfterFunc(ctx, func() { _ = held.Unlock(context.Background()) })
				}
				return held, err
			}
		},
	},
	{
		name:   "a Context has another parent",
		caught: []string{"state: a Context without a loss"},
		mutate: onLock(func(_ *seat, b *brokenLock) {
			b.carry = func(ctx context.Context) context.Context {
				return context.WithoutCancel(ctx)
			}
		}),
	},
	{
		name:   "Close does nothing",
		caught: []string{"close: waits end, locks are lost"},
		mutate: func(s *seat) { s.locker.shut = func() error { return nil } },
	},
	{
		name:   "Close returns an error",
		caught: []string{"close: waits end, locks are lost"},
		mutate: func(s *seat) {
			s.locker.shut = func() error {
				s.inner.Close()
				return errOther
			}
		},
	},
	{
		name:   "after Close there are other errors",
		caught: []string{"close: waits end, locks are lost", "close: in the middle of everything"},
		mutate: func(s *seat) {
			other := func(
				acquire func(context.Context, string) (lock.Lock, error),
			) func(context.Context, string) (lock.Lock, error) {
				return func(ctx context.Context, name string) (lock.Lock, error) {
					held, err := acquire(ctx, name)
					if errors.Is(err, lock.ErrClosed) {
						err = errOther
					}
					return held, err
				}
			}
			s.locker.lock, s.locker.try = other(s.inner.Lock), other(s.inner.TryLock)
		},
	},
	{
		name:   "Close removes what its locker waits for",
		caught: []string{"close: others go on"},
		mutate: func(s *seat) {
			s.locker.shut = func() error {
				s.table.stealAll()
				return s.inner.Close()
			}
		},
	},
	{
		name:   "Close leaves renewals behind",
		caught: []string{"close: others go on"},
		mutate: func(s *seat) {
			s.locker.shut = func() error {
				s.table.outlive()
				return s.inner.Close()
			}
		},
	},
}
