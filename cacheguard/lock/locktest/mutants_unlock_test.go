package locktest_test

import (
	"context"
	"errors"
	"sync"

	"github.com/cacheguard/cacheguard/cacheguard/lock"
)

// onLock breaks each lock that is handed out.
func onLock(change func(s *seat, b *brokenLock)) func(s *seat) {
	return func(s *seat) {
		s.locker.wrap = func(held lock.Lock) lock.Lock {
			b := &brokenLock{Lock: held}
			change(s, b)
			return b
		}
	}
}

var unlockMutants = []mutant{
	{
		name: "Unlock does nothing",
		caught: []string{
			"try: free", "unlock: again", "do: returns what work does", "do: panic and Goexit",
			"names: any bytes",
		},
		mutate: onLock(func(_ *seat, b *brokenLock) {
			b.unlock = func(context.Context) error { return nil }
		}),
	},
	{
		name:   "one Unlock says that it failed",
		caught: []string{"do: returns what work does", "do: inside itself"},
		mutate: onLock(func(s *seat, b *brokenLock) {
			b.unlock = func(ctx context.Context) error {
				err := b.Lock.Unlock(ctx)
				if err == nil && s.shared.add(1) == 1 {
					err = errOther
				}
				return err
			}
		}),
	},
	{
		name: "another Unlock says ErrNotHeld",
		caught: []string{
			"unlock: again", "unlock: again, while another holds", "unlock: many at once",
			"reentrant: the last Unlock counts",
		},
		mutate: onLock(func(_ *seat, b *brokenLock) {
			var once sync.Once
			b.unlock = func(ctx context.Context) error {
				err := lock.ErrNotHeld
				once.Do(func() { err = b.Lock.Unlock(ctx) })
				return err
			}
		}),
	},
	{
		name:   "each Unlock removes what is there",
		caught: []string{"unlock: again, while another holds", "unlock: by who lost it"},
		mutate: onLock(func(s *seat, b *brokenLock) {
			b.unlock = func(ctx context.Context) error {
				err := b.Lock.Unlock(ctx)
				s.table.steal(b.Name())
				return err
			}
		}),
	},
	{
		name: "a release is by name",
		caught: []string{
			"unlock: by who lost it", "unlock: nobody has it any more",
			"cut: the holder knows before another has the lock",
		},
		mutate: func(s *seat) {
			s.system.releaseAs = func(name, _ string) (bool, error) {
				s.table.steal(name)
				return true, nil
			}
		},
	},
	{
		name:   "Unlock with a context that has ended does nothing",
		caught: []string{"unlock: with a context that has ended"},
		mutate: onLock(func(_ *seat, b *brokenLock) {
			b.unlock = func(ctx context.Context) error {
				if ctx.Err() != nil {
					return ctx.Err()
				}
				return b.Lock.Unlock(ctx)
			}
		}),
	},
	{
		name: "Unlock always says nil",
		caught: []string{
			"unlock: by who lost it", "unlock: nobody has it any more", "state: lost", "do: lost",
			"reentrant: after a loss", "close: waits end, locks are lost",
		},
		mutate: onLock(func(_ *seat, b *brokenLock) {
			b.unlock = func(ctx context.Context) error {
				if err := b.Lock.Unlock(ctx); !errors.Is(err, lock.ErrLost) {
					return err
				}
				return nil
			}
		}),
	},
	{
		name:   "Unlock of what was lost says ErrNotHeld",
		caught: []string{"unlock: by who lost it", "state: lost", "do: lost"},
		mutate: onLock(func(_ *seat, b *brokenLock) {
			b.unlock = func(ctx context.Context) error {
				err := b.Lock.Unlock(ctx)
				if errors.Is(err, lock.ErrLost) {
					err = lock.ErrNotHeld
				}
				return err
			}
		}),
	},
}
