package lock_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/cacheguard/cacheguard/cacheguard/lock"
)

// manyLocks returns the locks of n names.
func manyLocks(t *testing.T, f *fake, n int) *lock.All {
	t.Helper()
	var names []string
	for i := range n {
		names = append(names, fmt.Sprint(i))
	}
	all, err := lock.LockAll(t.Context(), f, names...)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// Of thousands of locks only a few are given back at the same time, so that they don't wait for
// each other's connections.
func TestUnlockOfManySideBySide(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n, most = 5000, 16
		f := newFake()
		var under, peak atomic.Int64
		gate := make(chan struct{})
		f.release = func() error {
			peak.Store(max(peak.Load(), under.Add(1)))
			<-gate
			under.Add(-1)
			return nil
		}
		all := manyLocks(t, f, n)
		done := make(chan error)
		go func() { done <- all.Unlock(context.Background()) }()
		synctest.Wait()
		if got := under.Load(); got != most {
			t.Errorf("%d are given back at once; want %d", got, most)
		}
		close(gate)
		if err := <-done; err != nil || f.released.Load() != n || peak.Load() > most {
			t.Errorf("%v, %d given back, up to %d at once", err, f.released.Load(), peak.Load())
		}
	})
}

// If the system doesn't reply for one lock, the release of the other locks doesn't wait for this
// reply.
func TestUnlockOfManyInTrouble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 1000
		f := newFake()
		first, rest := make(chan struct{}), make(chan struct{})
		var under atomic.Int64
		f.release = func() error {
			if under.Add(1) == 1 {
				<-first
			} else {
				<-rest
			}
			return errSystem
		}
		all := manyLocks(t, f, n)
		done := make(chan error)
		go func() { done <- all.Unlock(context.Background()) }()
		synctest.Wait()
		close(first)
		synctest.Wait()
		if got := under.Load(); got != n {
			t.Errorf("after one has failed %d were begun; want all %d", got, n)
		}
		close(rest)
		if err := <-done; !errors.Is(err, errSystem) {
			t.Errorf("Unlock says %v", err)
		}
	})
}
