package locktest_test

import (
	"context"
	"errors"

	"github.com/cacheguard/cacheguard/cacheguard/lock"
	"github.com/cacheguard/cacheguard/internal/tenure"
)

// remembers makes a locker keep the hold of each name.
func remembers(s *seat) {
	s.inner.flaws.begun = func(h *tenure.Hold) {
		s.shared.mu.Lock()
		defer s.shared.mu.Unlock()
		s.shared.holds[h.Name()] = h
	}
}

func (s *shared) hold(name string) *tenure.Hold {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.holds[name]
}

var reentrantMutants = []mutant{
	{
		name: "a Context carries nothing",
		caught: []string{
			"reentrant: with the Context, at once", "do: inside itself",
			"reentrant: the last Unlock counts",
		},
		mutate: func(s *seat) {
			s.inner.flaws.again = func(context.Context, string) (*tenure.Hold, error) {
				return nil, nil
			}
		},
	},
	{
		name:   "a lock that is had again has another token",
		caught: []string{"reentrant: with the Context, at once", "do: inside itself"},
		mutate: onLock(func(s *seat, b *brokenLock) {
			s.shared.mu.Lock()
			defer s.shared.mu.Unlock()
			s.shared.count++
			token := int64(s.shared.count)
			b.token = func() int64 { return token }
		}),
	},
	{
		name:   "reentrant for everybody in the process",
		caught: []string{"reentrant: for nobody else", "try: held", "exclusion: under contention"},
		mutate: func(s *seat) {
			own := map[string]*tenure.Hold{}
			s.inner.flaws.begun = func(h *tenure.Hold) {
				s.shared.mu.Lock()
				defer s.shared.mu.Unlock()
				own[h.Name()] = h
			}
			s.inner.flaws.again = func(ctx context.Context, name string) (*tenure.Hold, error) {
				s.shared.mu.Lock()
				h := own[name]
				s.shared.mu.Unlock()
				if h != nil {
					ctx = h.Carry(ctx)
				}
				return s.inner.keeper.Again(ctx, name)
			}
		},
	},
	{
		name:   "any Context will do",
		caught: []string{"reentrant: for nobody else"},
		mutate: func(s *seat) {
			remembers(s)
			s.inner.flaws.again = func(ctx context.Context, name string) (*tenure.Hold, error) {
				h := s.shared.hold(name)
				if h == nil || ctx.Value(anyContext{}) == nil {
					return nil, nil
				}
				h.Err()
				return h, nil
			}
			s.locker.wrap = func(held lock.Lock) lock.Lock {
				return &brokenLock{Lock: held, carry: func(ctx context.Context) context.Context {
					return context.WithValue(ctx, anyContext{}, true)
				}}
			}
		},
	},
	{
		name: "the first Unlock counts",
		caught: []string{
			"reentrant: the last Unlock counts", "reentrant: with the Context, at once",
		},
		mutate: func(s *seat) {
			remembers(s)
			s.inner.flaws.again = func(ctx context.Context, name string) (*tenure.Hold, error) {
				again, err := s.inner.keeper.Again(ctx, name)
				if again == nil {
					return again, err
				}
				_ = again.Unlock(ctx) // in this case it is the same hold
				return s.shared.hold(name), nil
			}
		},
	},
	{
		name:   "had again after a loss",
		caught: []string{"reentrant: after a loss"},
		mutate: func(s *seat) {
			s.inner.flaws.again = func(ctx context.Context, name string) (*tenure.Hold, error) {
				again, err := s.inner.keeper.Again(ctx, name)
				if errors.Is(err, lock.ErrLost) {
					return nil, nil
				}
				return again, err
			}
		},
	},
	{
		name:   "a Context carries what was unlocked",
		caught: []string{"reentrant: after Unlock"},
		mutate: func(s *seat) {
			remembers(s)
			s.inner.flaws.again = func(ctx context.Context, name string) (*tenure.Hold, error) {
				if ctx.Value(anyContext{}) != nil {
					return s.shared.hold(name), nil
				}
				return nil, nil
			}
			s.locker.wrap = func(held lock.Lock) lock.Lock {
				return &brokenLock{Lock: held, carry: func(ctx context.Context) context.Context {
					return context.WithValue(ctx, anyContext{}, true)
				}}
			}
		},
	},
}

// anyContext is the key of a context that carries a lock of any name.
type anyContext struct{}
