package lock_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cacheguard/cacheguard/cacheguard/lock"
	"github.com/cacheguard/cacheguard/internal/tenure"
)

// shelf is a locker within one process. It records its actions in order.
type shelf struct {
	keeper *tenure.Keeper

	mu     sync.Mutex // guards the fields below
	taken  map[string]chan struct{}
	held   map[string]lock.Lock
	did    []string
	broken string // the name whose lock returns an error
}

func newShelf() *shelf {
	return &shelf{
		keeper: tenure.NewKeeper(), taken: make(map[string]chan struct{}),
		held: make(map[string]lock.Lock),
	}
}

func (s *shelf) Lock(ctx context.Context, name string) (lock.Lock, error) {
	for {
		held, freed, err := s.take(ctx, name)
		if freed == nil {
			return held, err
		}
		select {
		case <-freed:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func (s *shelf) TryLock(ctx context.Context, name string) (lock.Lock, error) {
	held, freed, err := s.take(ctx, name)
	if freed != nil {
		return nil, lock.ErrHeld
	}
	return held, err
}

func (s *shelf) take(
	ctx context.Context, name string,
) (held lock.Lock, freed <-chan struct{}, err error) {
	if again, err := s.keeper.Again(ctx, name); again != nil || err != nil {
		return again, nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case name == s.broken:
		return nil, nil, errSystem
	case s.taken[name] != nil:
		return nil, s.taken[name], nil
	}
	free := make(chan struct{})
	s.taken[name] = free
	s.did = append(s.did, "+"+name)
	s.held[name] = s.keeper.Begin(tenure.Terms{Name: name, Token: 7,
		Until: time.Now().Add(time.Duration(len(name)) * time.Minute), Release: func(
			context.Context,
		) error {
			s.mu.Lock()
			defer s.mu.Unlock()
			delete(s.taken, name)
			s.did = append(s.did, "-"+name)
			close(free)
			return nil
		}})
	return s.held[name], nil, nil
}

func TestLockAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShelf()
		a, err := lock.LockAll(t.Context(), s, "ccc", "a", "bb", "a")
		wantErr(t, "LockAll", err, nil)
		if want := []string{"+a", "+bb", "+ccc"}; !slices.Equal(s.did, want) {
			t.Errorf("it did %v; want %v", s.did, want)
		}
		if got := a.Name(); got != `"a", "bb", "ccc"` {
			t.Errorf("its name is %s", got)
		}
		if locks := a.Locks(); len(locks) != 3 || locks[1].Name() != "bb" ||
			locks[1].Token() != 7 || a.Token() != 0 {
			t.Errorf("it has %v and the token %d", locks, a.Token())
		}
		if left := time.Until(a.Until()); left != time.Minute {
			t.Errorf("it ends in %v; the first of its locks in a minute", left)
		}
		wantErr(t, "Err", a.Err(), nil)
		under, cancel := lock.Context(t.Context(), a)
		defer cancel()
		again, err := lock.LockAll(under, s, "bb", "ccc") // reentrant, each of them
		wantErr(t, "LockAll again", err, nil)
		wantErr(t, "Unlock again", again.Unlock(t.Context()), nil)
		_, err = lock.TryLockAll(t.Context(), s, "0", "ccc")
		wantErr(t, "TryLockAll", err, lock.ErrHeld)
		wantErr(t, "Unlock", a.Unlock(t.Context()), nil)
		wantErr(t, "Err", a.Err(), lock.ErrNotHeld)
		back := slices.Sorted(slices.Values(s.did[5:])) // side by side
		if want := []string{"+a", "+bb", "+ccc", "+0", "-0"}; !slices.Equal(s.did[:5], want) ||
			!slices.Equal(back, []string{"-a", "-bb", "-ccc"}) {
			t.Errorf("it did %v; want %v and the rest back", s.did, want)
		}
		if none, err := lock.LockAll(t.Context(), s); err == nil {
			t.Errorf("LockAll of nothing: %v", none)
		}
	})
}

// All or nothing: if LockAll returns an error, the locks that it has acquired are given back.
func TestLockAllOrNothing(t *testing.T) {
	s := newShelf()
	s.broken = "c"
	_, err := lock.LockAll(t.Context(), s, "a", "b", "c", "d")
	wantErr(t, "LockAll", err, errSystem)
	ctx, cancel := context.WithCancel(t.Context())
	held, err := s.Lock(t.Context(), "b2")
	wantErr(t, "Lock", err, nil)
	cancel()
	_, err = lock.LockAll(ctx, s, "b2", "a")
	wantErr(t, "LockAll whose context ends", err, context.Canceled)
	wantErr(t, "Unlock", held.Unlock(t.Context()), nil)
	s.keeper.Close() // waits until the locks are given back in the background
	if len(s.taken) > 0 {
		t.Errorf("%v are still held", s.taken)
	}
}

// Callers that want the same locks in different orders never wait for each other in a circle.
func TestLockAllWithoutDeadlock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // where a deadlock fails the test
		s := newShelf()
		names := []string{"a", "b", "c", "d"}
		var all sync.WaitGroup
		for i := range 20 {
			all.Go(func() {
				mine := slices.Concat(names[i%4:], names[:i%4])
				if i%2 == 0 {
					slices.Reverse(mine)
				}
				for range 10 {
					a, err := lock.LockAll(t.Context(), s, mine[:2+i%3]...)
					if err != nil {
						t.Error(err)
						return
					}
					// On the bubble's clock, so that all other callers want the locks meanwhile.
					time.Sleep(time.Millisecond)
					wantErr(t, "Unlock", a.Unlock(t.Context()), nil)
				}
			})
		}
		all.Wait()
	})
}

// If one lock of the group is lost, the group is lost.
func TestLockAllLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, err := lock.LockAll(t.Context(), newShelf(), "a", "b", "c")
		wantErr(t, "LockAll", err, nil)
		under, cancel := lock.Context(t.Context(), a)
		defer cancel()
		lose(a.Locks()[1])
		<-a.Lost()
		wantErr(t, "Err", a.Err(), lock.ErrLost)
		<-under.Done()
		wantErr(t, "the cause", context.Cause(under), lock.ErrLost)
		err = a.Unlock(t.Context())
		wantErr(t, "Unlock", err, lock.ErrLost)
		wantErr(t, "Err after Unlock", a.Err(), lock.ErrLost)
	})
}

// If a lock is lost while LockAll waits for other locks, LockAll returns at once, because it can't
// have all of them any more.
func TestLockAllLosesOneMeanwhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShelf()
		other, err := s.Lock(t.Context(), "z")
		wantErr(t, "Lock", err, nil)
		said := make(chan error)
		go func() {
			_, err := lock.LockAll(t.Context(), s, "a", "b", "z")
			said <- err
		}()
		synctest.Wait()
		s.mu.Lock()
		held := s.held["a"]
		s.mu.Unlock()
		lose(held)
		wantErr(t, "LockAll", <-said, lock.ErrLost)
		wantErr(t, "Unlock", other.Unlock(t.Context()), nil)
		synctest.Wait()
		if len(s.taken) > 0 {
			t.Errorf("%v are still held", s.taken)
		}
	})
}

// asked counts the calls of Err of its locks.
type asked struct {
	lock.Locker
	times int
}

type askedLock struct {
	lock.Lock
	of *asked
}

func (a *asked) Lock(ctx context.Context, name string) (lock.Lock, error) {
	held, err := a.Locker.Lock(ctx, name)
	return askedLock{held, a}, err
}

func (l askedLock) Err() error {
	l.of.times++
	return l.Lock.Err()
}

// LockAll calls Err of each lock once, so thousands of names don't cost millions of calls.
func TestLockAllAsksEachOnce(t *testing.T) {
	const n = 100
	var names []string
	for i := range n {
		names = append(names, fmt.Sprint("n", i))
	}
	locker := &asked{Locker: newShelf()}
	a, err := lock.LockAll(t.Context(), locker, names...)
	wantErr(t, "LockAll", err, nil)
	if locker.times != n {
		t.Errorf("%d locks were asked %d times", n, locker.times)
	}
	wantErr(t, "Unlock", a.Unlock(t.Context()), nil)
}

// If a lock has ended while its timer was stopped, Err reports that before LockAll returns the
// group.
func TestLockAllFindsWhatHasEnded(t *testing.T) {
	s := newShelf()
	_, err := lock.LockAll(t.Context(), ended{s}, "a", "b")
	wantErr(t, "LockAll", err, lock.ErrLost)
	if len(s.taken) > 0 {
		t.Errorf("%v are still held", s.taken)
	}
}

// ended is a locker whose first lock has ended. Only Err reports that.
type ended struct{ *shelf }

type endedLock struct{ lock.Lock }

func (e ended) Lock(ctx context.Context, name string) (lock.Lock, error) {
	held, err := e.shelf.Lock(ctx, name)
	if name == "a" {
		held = endedLock{held}
	}
	return held, err
}

func (endedLock) Err() error { return lock.ErrLost }

// slowly is a locker whose Unlock returns when its context ends, or panics.
type slowly struct {
	*shelf
	panics string // the name whose Unlock panics
}

type slowLock struct {
	lock.Lock
	of *slowly
}

func (s *slowly) Lock(ctx context.Context, name string) (lock.Lock, error) {
	held, err := s.shelf.Lock(ctx, name)
	return slowLock{held, s}, err
}

func (l slowLock) Unlock(ctx context.Context) error {
	if l.of.panics == l.Name() {
		panic("the Unlock of " + l.Name())
	}
	<-ctx.Done()
	return errors.Join(ctx.Err(), l.Lock.Unlock(context.WithoutCancel(ctx)))
}

// ctx also limits the release after an error: the release of all locks together, not of each lock.
func TestLockAllEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &slowly{shelf: newShelf()}
		s.broken = "z"
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began := time.Now()
		_, err := lock.LockAll(ctx, s, "a", "b", "c", "z")
		wantErr(t, "LockAll", err, errSystem)
		if took := time.Since(began); took != time.Second {
			t.Errorf("it returned after %v; its context ended after 1s", took)
		}
	})
}

// If one Unlock panics, the other locks are given back all the same.
func TestUnlockOfAllPanics(t *testing.T) {
	s := &slowly{shelf: newShelf(), panics: "b"}
	a, err := lock.LockAll(t.Context(), s, "a", "b", "c")
	wantErr(t, "LockAll", err, nil)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	func() {
		defer func() {
			if r := recover(); r != "the Unlock of b" {
				t.Errorf("it panicked with %v", r)
			}
		}()
		_ = a.Unlock(ctx)
		t.Error("no panic")
	}()
	if len(s.taken) != 1 {
		t.Errorf("%v are held; want b alone", s.taken)
	}
}

func ExampleLockAll() {
	s := newShelf()
	transfer := func(from, to string) error {
		both, err := lock.LockAll(context.Background(), s, "account/"+from, "account/"+to)
		if err != nil {
			return err
		}
		ctx, cancel := lock.Context(context.Background(), both)
		defer cancel()
		defer both.Unlock(context.Background())
		fmt.Println(from, "to", to, "under", both.Name())
		return ctx.Err()
	}
	_ = transfer("42", "7")
	_ = transfer("7", "42") // a transfer in the other direction at the same time causes no deadlock
	// Output:
	// 42 to 7 under "account/42", "account/7"
	// 7 to 42 under "account/42", "account/7"
}
