package lock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
)

// LockAll waits until it has the locks of all names, or returns an error and holds none of them. It
// takes them one after another in the order of their bytes, so calls of LockAll never wait for each
// other in a circle, whatever the order in which their names are given; a name that is given twice
// is locked once. A deadlock is still possible with a holder of one of the names that waits for
// another one in some other way, such as a LockAll under a LockAll: lock what belongs together in
// one call.
//
// While it waits for one name it holds the locks of those before. If one of these is lost
// meanwhile, that is the error at once, and wraps ErrLost. ctx bounds the whole of it, as for
// Locker.Lock: what it holds when ctx ends is given back in the background. Otherwise its errors
// are those of Locker.Lock. No name at all is an error.
//
// Give the locks back by All.Unlock, not one by one: All keeps a goroutine for each until then.
func LockAll(ctx context.Context, locker Locker, names ...string) (*All, error) {
	return all(ctx, locker.Lock, names)
}

// TryLockAll is LockAll without the wait: if another holder has one of the locks it returns an
// error that wraps ErrHeld, and holds none.
func TryLockAll(ctx context.Context, locker Locker, names ...string) (*All, error) {
	return all(ctx, locker.TryLock, names)
}

func all(ctx context.Context, lock func(context.Context, string) (Lock, error), names []string) (*All, error) {
	names = slices.Compact(slices.Sorted(slices.Values(names)))
	if len(names) == 0 {
		return nil, errors.New("lock: there is no name to lock")
	}
	within, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	a := &All{over: make(chan struct{}), lost: make(chan struct{}), waiting: cancel}
	given := false
	defer func() {
		if !given { // an error, or a panic of the locker
			_ = a.Unlock(ctx)
		}
	}()
	var err error
	for _, name := range names {
		var held Lock
		if held, err = lock(within, name); err != nil {
			break
		}
		a.held = append(a.held, held)
		go a.watch(held)
	}
	switch {
	case err == nil:
		err = a.Err() // only now: asked after each name, thousands of locks would be asked millions of times
	case ctx.Err() == nil && context.Cause(within) == ErrLost:
		err = ErrLost
	}
	if errors.Is(err, ErrLost) {
		return nil, fmt.Errorf("lock: one of %d locks ended before all of them were held: %w", len(names), err)
	}
	if err != nil {
		return nil, err
	}
	given = true
	return a, nil
}

// All is the locks of several names, held together: each of them has to be held for all of them to
// be. It implements Lock, so Context works with it. It is safe for concurrent use.
type All struct {
	held    []Lock // in the order of their names
	waiting context.CancelCauseFunc

	once sync.Once
	lost chan struct{} // closed when one of them is

	end  sync.Once
	over chan struct{} // closed by Unlock
}

var _ Lock = (*All)(nil)

// Locks are the single ones, in the order of their names. Each has a fencing token of its own.
func (a *All) Locks() []Lock { return slices.Clone(a.held) }

// Name is all names, quoted.
func (a *All) Name() string {
	var names []string
	for _, held := range a.held {
		names = append(names, fmt.Sprintf("%q", held.Name()))
	}
	return strings.Join(names, ", ")
}

// Token is 0, for there is none for all of them: each of Locks has its own.
func (a *All) Token() int64 { return 0 }

// Lost is closed when one of the locks is lost.
func (a *All) Lost() <-chan struct{} { return a.lost }

// Until is when the first of the locks ends if nothing renews it.
func (a *All) Until() time.Time {
	var first time.Time
	for _, held := range a.held {
		if until := held.Until(); !until.IsZero() && (first.IsZero() || until.Before(first)) {
			first = until
		}
	}
	return first
}

// Err is nil while all of them are held, ErrLost when one was lost, and ErrNotHeld after Unlock.
func (a *All) Err() error {
	var worst error
	for _, held := range a.held {
		switch err := held.Err(); {
		case errors.Is(err, ErrLost):
			return err
		case err != nil:
			worst = err
		}
	}
	return worst
}

// mostUnlocks is how many locks are given back side by side: thousands at once would wait for each
// other's connections until the time for one step is over.
const mostUnlocks = 16

// Unlock gives all of them back, some side by side, or all that are left when the system doesn't
// answer to one. It returns the errors of all, joined: ErrLost if one of them had been lost. ctx is
// as for each of them. If the Unlock of one panics, so does this one, when the others are done.
func (a *All) Unlock(ctx context.Context) error {
	a.end.Do(func() { close(a.over) })
	errs := make([]error, len(a.held))
	panics := make([]any, len(a.held))
	var done sync.WaitGroup
	turns, trouble := make(chan struct{}, mostUnlocks), make(chan struct{})
	failed := sync.OnceFunc(func() { close(trouble) })
	for i, held := range a.held {
		select {
		case turns <- struct{}{}:
		case <-trouble:
		}
		done.Go(func() {
			defer func() {
				if panics[i] = recover(); panics[i] != nil || errs[i] != nil && !errors.Is(errs[i], ErrLost) {
					failed()
				}
				select {
				case <-turns:
				default: // it began without one
				}
			}()
			errs[i] = held.Unlock(ctx)
		})
	}
	done.Wait()
	for _, p := range panics {
		if p != nil {
			panic(p)
		}
	}
	return errors.Join(errs...)
}

// Carry has a context carry each of the locks. See Context.
func (a *All) Carry(ctx context.Context) context.Context {
	for _, held := range a.held {
		ctx = carry(ctx, held)
	}
	return ctx
}

// watch says so when one of the locks is lost.
func (a *All) watch(held Lock) {
	select {
	case <-held.Lost():
		a.once.Do(func() {
			close(a.lost)
			a.waiting(ErrLost)
		})
	case <-a.over:
	}
}
