package redislock_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/cacheguard/cacheguard/cacheguard/lock"
	"github.com/cacheguard/cacheguard/cacheguard/lock/redislock"
	"github.com/cacheguard/cacheguard/internal/redistest"
	"github.com/cacheguard/cacheguard/internal/wallclock"
)

// After MaxHold a holder that hangs learns that its lock is lost. The lock ends one lease later.
func TestMaxHold(t *testing.T) {
	t.Parallel() // it waits most of the time
	const prefix, name, lease, most = "most", "n", 5 * time.Second, 6 * time.Second
	addr := redistest.Start(t).Addr()
	opts := redislock.Options{Prefix: prefix, Lease: lease, MaxHold: most, OpTimeout: lease}
	a, b := locker(t, addr, opts), locker(t, addr, opts)
	began := time.Now()
	held := locked(t, a, name)
	waits := calls(t.Context(), b, name)
	<-held.Lost()
	if took := time.Since(began); took < most {
		t.Errorf("lost after %v; want at least %v", took, most)
	}
	if err := held.Err(); !errors.Is(err, lock.ErrLost) {
		t.Errorf("Err is %v", err)
	}
	next := waits.lock(t)
	if err := held.Unlock(context.Background()); !errors.Is(err, lock.ErrLost) {
		t.Errorf("Unlock says %v", err)
	}
	if err := next.Err(); err != nil {
		t.Errorf("the next holder's lock: %v", err)
	}
	unlock(t, next)
}

// A negative MaxHold means no limit: a lock is renewed for as long as it is held.
func TestHeldForManyLeases(t *testing.T) {
	t.Parallel() // it waits most of the time
	const prefix, name, lease = "renewed", "n", 6 * time.Second
	addr := redistest.Start(t).Addr()
	proxy := redistest.StartProxy(t, addr)
	a := locker(t, proxy.Addr(),
		redislock.Options{Prefix: prefix, Lease: lease, MaxHold: -1, OpTimeout: lease})
	held := locked(t, a, name)
	for range 12 { // four leases
		select {
		case <-proxy.Duplicate(redistest.IsEval(redislock.RenewScript)).Struck():
		case <-held.Lost(): // it is renewed no more
		}
		if err := held.Err(); err != nil {
			t.Fatal(err)
		}
	}
	unlock(t, held)
}

// A renewal that gets no reply is tried again until the lease is over. Then the lock is lost,
// before another holder can have it.
func TestRenewalFails(t *testing.T) {
	t.Parallel() // it waits most of the time
	const prefix, name, lease = "renewal", "n", 9 * time.Second
	addr := redistest.Start(t).Addr()
	proxy := redistest.StartProxy(t, addr)
	a := locker(t, proxy.Addr(), redislock.Options{Prefix: prefix, Lease: lease})
	b := locker(t, addr, redislock.Options{Prefix: prefix, Lease: lease})
	held := locked(t, a, name)
	for range 2 { // a single failed try does no harm
		fails := proxy.DropCommand(redistest.IsEval(redislock.RenewScript), redistest.Hangup)
		select {
		case <-fails.Struck():
		case <-held.Lost():
			t.Fatalf("lost before two renewals failed: %v", held.Err())
		}
	}
	goes := proxy.Duplicate(redistest.IsEval(redislock.RenewScript))
	select {
	case <-goes.Struck():
	case <-held.Lost():
	}
	if err := held.Err(); err != nil {
		t.Fatalf("after two renewals that failed: %v", err)
	}
	began := time.Now()
	proxy.Blackhole(true)
	defer proxy.Blackhole(false)
	next := locked(t, b, name)
	wallclock.CatchUp(began)
	if err := held.Err(); !errors.Is(err, lock.ErrLost) {
		t.Errorf("another has the lock, and the first holder hears %v", err)
	}
	<-held.Lost()
	if next.Token() <= held.Token() {
		t.Errorf("token %d follows %d", next.Token(), held.Token())
	}
	unlock(t, next)
}
