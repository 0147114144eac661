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

// LockAll waits until it has acquired the locks of all names. If it returns an error, it holds none
// of them. It acquires the locks one after another, sorted by the bytes of their names, so calls of
// LockAll never deadlock with each other, whatever the order of their arguments. A name that is
// given twice is locked once. A deadlock is still possible if a holder of one of these locks waits
// for another of them by a separate call, for example by a LockAll inside a LockAll. To avoid this,
// acquire all locks that are needed together in one call.
//
// While LockAll waits for the lock of one name, it holds the locks that it has acquired before. If
// one of these locks is lost in the meantime, LockAll returns at once with an error that wraps
// [ErrLost]. ctx limits the whole call, as for [Locker.Lock]: when ctx ends, the locks acquired
// until then are given back in the background. All other errors are those of Locker.Lock. A call
// without any name returns an error.
//
// Give the locks back with [All.Unlock], not one by one, because All keeps a goroutine for each
// lock until that lock is lost or All.Unlock is called.
func LockAll(ctx context.Context, locker Locker, names ...string) (*All, error) {
	return all(ctx, locker.Lock, names)
}

// TryLockAll is like [LockAll], but doesn't wait: if another holder has one of the locks,
// TryLockAll returns an error that wraps [ErrHeld], and holds none of the locks.
func TryLockAll(ctx context.Context, locker Locker, names ...string) (*All, error) {
	return all(ctx, locker.TryLock, names)
}

func all(
	ctx context.Context, lock func(context.Context, string) (Lock, error), names []string,
) (*All, error) {
	names = slices.Compact(slices.Sorted(slices.Values(names)))
	if len(names) == 0 {
		return nil, errors.New("lock: there is no name to lock")
	}
	within, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	a := &All{over: make(chan struct{}), lost: make(chan struct{}), waiting: cancel}
	given := false
	defer func() {
		if !given { // an error, or the locker panicked
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
		// Err is called once, at the end: after each name, thousands of locks would be checked
		// millions of times.
		err = a.Err()
	case ctx.Err() == nil && context.Cause(within) == ErrLost:
		err = ErrLost
	}
	if errors.Is(err, ErrLost) {
		return nil,
			fmt.Errorf("lock: one of %d locks ended before all of them were held: %w", len(names),
				err)
	}
	if err != nil {
		return nil, err
	}
	given = true
	return a, nil
}

// All is a group of locks of several names that are held together. The group is held only while
// each of its locks is held. All implements [Lock], so [Context] works with it. It is safe for
// concurrent use.
type All struct {
	held    []Lock // in the order of their names
	waiting context.CancelCauseFunc

	once sync.Once
	lost chan struct{} // closed when one of the locks is lost

	end  sync.Once
	over chan struct{} // closed by Unlock
}

var _ Lock = (*All)(nil)

// Locks returns the individual locks, sorted by their names. Each lock has its own fencing token.
func (a *All) Locks() []Lock { return slices.Clone(a.held) }

// Name returns the quoted names of all locks, separated by commas.
func (a *All) Name() string {
	var names []string
	for _, held := range a.held {
		names = append(names, fmt.Sprintf("%q", held.Name()))
	}
	return strings.Join(names, ", ")
}

// Token returns 0, because the group has no token. Each of the [All.Locks] has a token.
func (a *All) Token() int64 { return 0 }

// Lost returns a channel that is closed when one of the locks is lost.
func (a *All) Lost() <-chan struct{} { return a.lost }

// Until returns the time at which the first of the locks expires if nothing renews it.
func (a *All) Until() time.Time {
	var first time.Time
	for _, held := range a.held {
		if until := held.Until(); !until.IsZero() && (first.IsZero() || until.Before(first)) {
			first = until
		}
	}
	return first
}

// Err returns nil while all locks are held, [ErrLost] after one of them was lost, and [ErrNotHeld]
// after Unlock.
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

// mostUnlocks is the number of locks that are given back at the same time. If thousands of locks
// were given back together, they would wait for each other's connections until the timeout of a
// single step is over.
const mostUnlocks = 16

// Unlock gives all locks back, a limited number of them at the same time. If one lock can't be
// given back, this limit no longer applies to the remaining locks. Unlock returns the errors of all
// locks, joined. [ErrLost] is among them if one of the locks had been lost. ctx is passed to the
// [Lock.Unlock] of each lock. If the Unlock of one lock panics, All.Unlock panics too, after all
// other locks are done.
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
				if panics[i] = recover(); panics[i] != nil ||
					errs[i] != nil && !errors.Is(errs[i], ErrLost) {
					failed()
				}
				select {
				case <-turns:
				default: // this Unlock began without waiting for a free place
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

// Carry returns a context that carries each of the locks. See [Context].
func (a *All) Carry(ctx context.Context) context.Context {
	for _, held := range a.held {
		ctx = carry(ctx, held)
	}
	return ctx
}

// watch waits until this lock is lost. Then it closes a.lost and ends a LockAll that still waits.
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
