package zklock_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/cacheguard/cacheguard/cacheguard/lock"
	"github.com/cacheguard/cacheguard/cacheguard/lock/zklock"
	"github.com/cacheguard/cacheguard/internal/logtest"
	"github.com/cacheguard/cacheguard/internal/waittest"
	"github.com/cacheguard/cacheguard/internal/zktest"
)

// In TestLostBeforeTheSessionEnds the operator notes the time at which ZooKeeper gives the lock to
// another call. The holder has got no message, but by then it knows that its lock is lost.
func TestLostBeforeTheSessionEnds(t *testing.T) {
	server := zktest.Shared(t)
	for _, name := range []string{"one", "two", "three"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // each waits for the end of a session
			proxy := zktest.StartProxy(t, server.Addr())
			operator := open(t, server.Addr(), zklock.Options{Lease: time.Minute})
			var held lock.Lock
			var gone <-chan zk.Event
			for tries := 1; gone == nil; tries++ {
				var node string
				_, held, node = acquireShort(t, operator, "/expiry", name, func(
					lease time.Duration,
				) *process {
					return open(t, proxy.Addr(),
						zklock.Options{Prefix: "/expiry", Lease: lease, OpTimeout: lease})
				})
				var err error
				_, _, gone, err = operator.conn.GetW(node)
				lost := held.Err()
				switch {
				case err == nil:
				case tries < 5 && errors.Is(err, zk.ErrNoNode) && errors.Is(lost, lock.ErrLost):
					// On a busy machine the session may have ended by itself.
					t.Logf("tried again: the lock is lost already")
					gone = nil
				default:
					t.Fatalf("its node: %v; Err is %v", err, lost)
				}
			}
			proxy.Blackhole(true)
			<-gone
			if err := held.Err(); !errors.Is(err, lock.ErrLost) {
				t.Errorf("the session has ended, and Err is %v", err)
			}
			waittest.Next(t, "Lost", held.Lost())
			proxy.Blackhole(false)
			proxy.Cut()
			if err := held.Unlock(testContext(t)); !errors.Is(err, lock.ErrLost) {
				t.Errorf("Unlock: %v", err)
			}
		})
	}
}

// TestAShortBreakKeepsTheLock cuts the connection twice. Afterwards the lock is verified.
func TestAShortBreakKeepsTheLock(t *testing.T) {
	t.Parallel() // it waits for verifications
	server := zktest.Shared(t)
	proxy := zktest.StartProxy(t, server.Addr())
	opts := zklock.Options{Prefix: "/break", Lease: 30 * time.Second}
	holder, other := open(t, proxy.Addr(), opts), open(t, server.Addr(), opts)
	held := acquire(t, holder, "kept")
	line := other.line(t, "/break", "kept")
	for range 2 {
		proxy.Cut()
		proxy.Reset()
		waittest.Until(t, "the lock to be verified", func() bool {
			return len(asked(proxy, "exists")) >= 2
		})
	}
	if err := held.Err(); err != nil {
		t.Errorf("after a short break: %v", err)
	}
	if after := other.line(t, "/break", "kept"); !slices.Equal(line, after) {
		t.Errorf("in line are %v, were %v", after, line)
	}
	// The leader is asked first, before the server to which the client is connected.
	var ops []string
	for _, r := range proxy.Requests() {
		if r.Op == "sync" || r.Op == "exists" {
			ops = append(ops, r.Op)
		}
	}
	if len(ops) < 2 || ops[0] != "sync" || ops[1] != "exists" {
		t.Errorf("it is verified by %v", ops)
	}
	if _, err := other.TryLock(testContext(t), "kept"); !errors.Is(err, lock.ErrHeld) {
		t.Errorf("TryLock of another: %v", err)
	}
	if err := held.Unlock(testContext(t)); err != nil {
		t.Errorf("Unlock: %v", err)
	}
}

// In TestARemovedNodeIsALostLock an operator writes into a node and then removes it.
func TestARemovedNodeIsALostLock(t *testing.T) {
	server := zktest.Shared(t)
	// The lock isn't verified in this time.
	opts := zklock.Options{Prefix: "/operator", Lease: 10 * time.Minute}
	holder, operator := open(t, server.Addr(), opts), open(t, server.Addr(), opts)
	held := acquire(t, holder, "removed")
	node := zklock.DirOf("/operator", "removed") + "/" + operator.line(t, "/operator", "removed")[0]
	for range 3 {
		if _, err := operator.conn.Set(node, []byte("why does this take so long?"),
			-1); err != nil {
			t.Fatal(err)
		}
		// The watch is set again.
		waittest.Until(t, "a watch", func() bool {
			watched, err := server.Ask("wchp")
			return err == nil && strings.Contains(watched, node)
		})
		if err := held.Err(); err != nil {
			t.Fatalf("after somebody wrote there: %v", err)
		}
	}
	if err := operator.conn.Delete(node, -1); err != nil {
		t.Fatal(err)
	}
	waittest.Next(t, "Lost", held.Lost())
	if err := held.Unlock(testContext(t)); !errors.Is(err, lock.ErrLost) {
		t.Errorf("Unlock: %v", err)
	}
}

func TestAClosedConnectionIsALostLock(t *testing.T) {
	server := zktest.Shared(t)
	// The lock isn't verified in this time.
	opts := zklock.Options{Prefix: "/closed", Lease: 10 * time.Minute}
	holder, other := open(t, server.Addr(), opts), open(t, server.Addr(), opts)
	held := acquire(t, holder, "closed")
	holder.conn.Close()
	waittest.Next(t, "Lost", held.Lost())
	next := acquire(t, other, "closed")
	if err := held.Unlock(testContext(t)); !errors.Is(err, lock.ErrLost) {
		t.Errorf("Unlock: %v", err)
	}
	if _, err := holder.Lock(testContext(t), "closed"); err == nil {
		t.Error("Lock on a closed connection")
	}
	if err := next.Unlock(testContext(t)); err != nil {
		t.Error(err)
	}
}

// In TestServerRestarts a server comes back with its data.
func TestServerRestarts(t *testing.T) {
	const limit = 5 * time.Minute // on a busy machine a JVM needs more than a minute
	server := zktest.Start(t, fmt.Sprint("maxSessionTimeout=", limit.Milliseconds()))
	p := zktest.StartProxy(t, server.Addr())
	opts := zklock.Options{Prefix: "/restart", Lease: limit, OpTimeout: limit}
	holder, other := open(t, p.Addr(), opts), open(t, p.Addr(), opts)
	held := acquire(t, holder, "kept")
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	waits := make(chan error, 1)
	go func() {
		next, err := other.Lock(ctx, "kept")
		if err == nil {
			err = next.Unlock(ctx)
		}
		waits <- err
	}()
	waittest.Until(t, "one who waits", func() bool {
		return len(holder.line(t, "/restart", "kept")) == 2
	})
	if err := zktest.RestartBehind(p, server); err != nil {
		t.Fatal(err)
	}
	if err := held.Unlock(ctx); err != nil {
		t.Errorf("Unlock after a restart: %v", err)
	}
	if err := <-waits; err != nil {
		t.Errorf("who waited over a restart: %v", err)
	}
}

// In TestServerForgets a server comes back without its data. It never tells its clients that, but
// refuses them, because they have seen newer data than it has.
func TestServerForgets(t *testing.T) {
	server := zktest.Start(t)
	operator := open(t, server.Addr(), zklock.Options{Lease: time.Minute})
	_, held, _ := acquireShort(t, operator, "/forget", "forgotten", func(
		lease time.Duration,
	) *process {
		return open(t, server.Addr(),
			zklock.Options{Prefix: "/forget", Lease: lease, OpTimeout: lease})
	})
	if err := server.RestartEmpty(); err != nil {
		t.Fatal(err)
	}
	other := open(t, server.Addr(), zklock.Options{Prefix: "/forget", Lease: time.Minute})
	next := acquire(t, other, "forgotten")
	waittest.Next(t, "Lost", held.Lost())
	if err := held.Unlock(testContext(t)); !errors.Is(err, lock.ErrLost) {
		t.Errorf("Unlock: %v", err)
	}
	if err := next.Unlock(testContext(t)); err != nil {
		t.Error(err)
	}
}

// In TestLeaseLongerThanTheSessionIsSaid the locker has a wrong session timeout.
func TestLeaseLongerThanTheSessionIsSaid(t *testing.T) {
	t.Parallel() // it waits for the end of a session
	server := zktest.Shared(t)
	proxy := zktest.StartProxy(t, server.Addr())
	var log logtest.Lines
	p := openFor(t, proxy.Addr(), 5*time.Second,
		zklock.Options{Prefix: "/wrong", Lease: 10 * time.Minute, Logger: log.Logger()})
	held := acquire(t, p, "wrong")
	operator := open(t, server.Addr(), zklock.Options{Lease: time.Minute})
	proxy.Blackhole(true)
	waittest.Until(t, "the end of the session", func() bool {
		return len(operator.line(t, "/wrong", "wrong")) == 0
	})
	proxy.Blackhole(false)
	proxy.Cut()
	waittest.Next(t, "Lost", held.Lost())
	if said := log.String(); !strings.Contains(said, "session timeout") {
		t.Errorf("the log says %q", said)
	}
}
