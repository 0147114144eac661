package lockstore_test

import (
	"context"
	"sync"
	"time"

	"github.com/cacheguard/cacheguard/cacheguard/lock"
	"github.com/cacheguard/cacheguard/internal/tenure"
)

// fake is a locker inside this process. All its fields except keeper are guarded by mu.
type fake struct {
	keeper *tenure.Keeper

	mu     sync.Mutex
	free   chan struct{} // closed and replaced when a lock is given back
	held   map[string]bool
	down   error // the error that it answers
	silent bool  // it never answers
	sloppy bool  // it grants a lock that is held
	takes  time.Duration
	asked  int
	most   int // the largest number of locks held at once
	names  []string
}

func newFake() *fake {
	return &fake{keeper: tenure.NewKeeper(), free: make(chan struct{}), held: make(map[string]bool)}
}

func (f *fake) set(change func(f *fake)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change(f)
}

func (f *fake) get(read func(f *fake) int) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return read(f)
}

func (f *fake) heldNow() int { return f.get(func(f *fake) int { return len(f.held) }) }

func (f *fake) TryLock(ctx context.Context, name string) (lock.Lock, error) {
	return f.acquire(ctx, name, false)
}

func (f *fake) Lock(ctx context.Context, name string) (lock.Lock, error) {
	return f.acquire(ctx, name, true)
}

func (f *fake) acquire(ctx context.Context, name string, wait bool) (lock.Lock, error) {
	for {
		f.mu.Lock()
		f.asked++
		if takes := f.takes; takes > 0 {
			f.mu.Unlock()
			select {
			case <-time.After(takes):
			case <-ctx.Done():
				return nil, ctx.Err()
			}
			f.mu.Lock()
		}
		f.names = append(f.names, name)
		free, down, silent := f.free, f.down, f.silent
		had := !silent && down == nil && (f.sloppy || !f.held[name])
		if had {
			f.held[name] = true
			f.most = max(f.most, len(f.held))
		}
		f.mu.Unlock()
		switch {
		case had:
			return f.keeper.Begin(tenure.Terms{Name: name, Token: time.Now().UnixNano(),
				Release: func(context.Context) error {
					f.mu.Lock()
					defer f.mu.Unlock()
					delete(f.held, name)
					close(f.free)
					f.free = make(chan struct{})
					return nil
				}}), nil
		case silent:
			<-ctx.Done()
			return nil, ctx.Err()
		case down != nil:
			return nil, down
		case !wait:
			return nil, lock.ErrHeld
		}
		select {
		case <-free:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}
