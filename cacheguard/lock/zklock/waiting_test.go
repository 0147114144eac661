package zklock_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/cacheguard/cacheguard/cacheguard/lock"
	"github.com/cacheguard/cacheguard/cacheguard/lock/zklock"
	"github.com/cacheguard/cacheguard/internal/waittest"
	"github.com/cacheguard/cacheguard/internal/zktest"
)

// In TestReleaseWakesOne fifty calls wait. The test counts the effects of a release: one event, and
// the steps of one call.
func TestReleaseWakesOne(t *testing.T) {
	server := zktest.Shared(t)
	proxy := zktest.StartProxy(t, server.Addr())
	// So long that no lock is verified in the meantime.
	opts := zklock.Options{Prefix: "/herd", Lease: 10 * time.Minute}
	var lockers []*process
	for range 5 {
		lockers = append(lockers, open(t, proxy.Addr(), opts))
	}
	ctx, cancel := context.WithCancel(testContext(t))
	holder := open(t, server.Addr(), opts)
	held := acquire(t, holder, "popular")

	const waiters = 50
	got := make(chan lock.Lock, waiters)
	for i := range waiters {
		go func() {
			if next, err := lockers[i%len(lockers)].Lock(ctx, "popular"); err == nil {
				got <- next
			} else if !errors.Is(err, context.Canceled) {
				t.Errorf("Lock: %v", err)
			}
		}()
	}
	// Its own node, and the node before it.
	waittest.Until(t, "all to wait", func() bool {
		return len(asked(proxy, "getData")) == 2*waiters
	})
	// Wait until each connection has the replies to all its requests.
	for _, p := range lockers {
		settle(p.conn)
	}
	proxy.Reset()
	if err := held.Unlock(ctx); err != nil {
		t.Fatal(err)
	}
	next := waittest.Next(t, "the next one", got)
	if n := proxy.Events(); n != 1 {
		t.Errorf("a release with %d waiting caused %d events, want 1", waiters, n)
	}
	var ops []string
	for _, r := range proxy.Requests() {
		ops = append(ops, r.Op)
	}
	if want := []string{"sync", "getChildren"}; !slices.Equal(ops, want) {
		t.Errorf("a release with %d waiting caused the requests %v, want %v", waiters, ops, want)
	}
	select {
	case <-got:
		t.Error("two have it")
	default:
	}
	cancel()
	if err := next.Unlock(context.Background()); err != nil {
		t.Error(err)
	}
	waittest.Until(t, "the end of the line", func() bool {
		return len(holder.line(t, "/herd", "popular")) == 0
	})
}

// In TestFirstComeFirstServed thirty calls wait on three sessions.
func TestFirstComeFirstServed(t *testing.T) {
	server := zktest.Shared(t)
	// A call that isn't woken looks again only after a third of this.
	opts := zklock.Options{Prefix: "/fifo", Lease: 10 * time.Minute}
	lockers := []*process{
		open(t, server.Addr(), opts), open(t, server.Addr(), opts), open(t, server.Addr(), opts),
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*patience)
	held := acquire(t, lockers[0], "counter")

	const waiters = 30
	type turn struct {
		who   int
		token int64
	}
	turns := make(chan turn, waiters)
	var work sync.WaitGroup
	defer func() {
		cancel()
		work.Wait()
	}()
	for i := range waiters {
		work.Go(func() {
			own, err := lockers[i%len(lockers)].Lock(ctx, "counter")
			if err != nil {
				t.Errorf("Lock: %v", err)
				turns <- turn{who: -1}
				return
			}
			turns <- turn{i, own.Token()}
			if err := own.Unlock(context.Background()); err != nil {
				t.Errorf("Unlock: %v", err)
			}
		})
		waittest.Until(t, "the next one in line", func() bool {
			return len(lockers[0].line(t, "/fifo", "counter")) == i+2
		})
	}
	last := held.Token()
	if err := held.Unlock(ctx); err != nil {
		t.Fatal(err)
	}
	for i := range waiters {
		got := waittest.Next(t, "the next one", turns)
		if got.who != i {
			t.Fatalf("number %d has the lock as the %dth", got.who, i)
		}
		if got.token <= last {
			t.Errorf("token %d after %d", got.token, last)
		}
		last = got.token
	}
}

// In TestWritingIntoANodeWakesNobodyForLong an operator writes into the holder's node while another
// call waits.
func TestWritingIntoANodeWakesNobodyForLong(t *testing.T) {
	server := zktest.Shared(t)
	proxy := zktest.StartProxy(t, server.Addr())
	opts := zklock.Options{Prefix: "/written", Lease: 50 * time.Second}
	holder, other := open(t, server.Addr(), opts), open(t, proxy.Addr(), opts)
	held := acquire(t, holder, "busy")
	node := zklock.DirOf("/written", "busy") + "/" + holder.line(t, "/written", "busy")[0]
	got := make(chan error, 1)
	go func() {
		next, err := other.Lock(testContext(t), "busy")
		if err == nil {
			err = next.Unlock(testContext(t))
		}
		got <- err
	}()
	watches := func() int {
		return len(slices.DeleteFunc(asked(proxy, "getData"), func(path string) bool {
			return path != node
		}))
	}
	for i := range 4 {
		waittest.Until(t, "a watch", func() bool {
			watched, err := server.Ask("wchp")
			// The watches of the holder, and the two watches of the waiting call.
			return err == nil && watches() == i+1 && strings.Count(watched, "0x") == 3
		})

		if _, err := holder.conn.Set(node, []byte{byte(i)}, -1); err != nil {
			t.Fatal(err)
		}
	}
	waittest.Until(t, "a watch", func() bool { return watches() == 5 })
	if n := len(asked(proxy, "getChildren")); n != 5 {
		t.Errorf("it has looked at the line %d times, want 5", n)
	}
	if err := held.Unlock(testContext(t)); err != nil {
		t.Fatal(err)
	}
	if err := <-got; err != nil {
		t.Error(err)
	}
}

// TestAWaiterWhoseNodeIsGoneGetsInLineAgain removes the node of a waiting call, and then ends the
// session of the call.
func TestAWaiterWhoseNodeIsGoneGetsInLineAgain(t *testing.T) {
	server := zktest.Shared(t)
	opts := zklock.Options{Prefix: "/again", Lease: time.Minute}
	const session = 8 * time.Second // shorter than Lease, because the test waits for its end
	for what, harm := range map[string]func(t *testing.T, operator, waiter *process,
		proxy *zktest.Proxy){
		"removed": func(t *testing.T, operator, waiter *process, proxy *zktest.Proxy) {
			node := operator.line(t, "/again", "removed")[1]
			if err := operator.conn.Delete(zklock.DirOf("/again", "removed")+"/"+node,
				-1); err != nil {
				t.Fatal(err)
			}
			waittest.Until(t, "it to be in line again", func() bool {
				line := operator.line(t, "/again", "removed")
				return len(line) == 2 && line[1] != node
			})

		},
		"expired": func(t *testing.T, operator, waiter *process, proxy *zktest.Proxy) {
			session := waiter.conn.SessionID()
			proxy.Blackhole(true)
			waittest.Until(t, "the end of the session", func() bool {
				return len(operator.line(t, "/again", "expired")) == 1
			})
			proxy.Blackhole(false)
			proxy.Cut()
			waittest.Until(t, "another session", func() bool {
				id := waiter.conn.SessionID()
				return id != 0 && id != session
			})

		},
	} {
		t.Run(what, func(t *testing.T) {
			proxy := zktest.StartProxy(t, server.Addr())
			holder, waiter := open(t, server.Addr(), opts),
				openFor(t, proxy.Addr(), session, opts)
			held := acquire(t, holder, what)
			got := make(chan error, 1)
			go func() {
				next, err := waiter.Lock(testContext(t), what)
				if err == nil {
					err = next.Unlock(testContext(t))
				}
				got <- err
			}()
			// Its own node, and the holder's node.
			waittest.Until(t, "it to wait", func() bool {
				return len(asked(proxy, "getData")) == 2
			})
			harm(t, holder, waiter, proxy)
			if err := held.Unlock(testContext(t)); err != nil {
				t.Fatal(err)
			}
			if err := <-got; err != nil {
				t.Error(err)
			}
		})
	}
}

// In TestAWaitEndsWithTrouble one waiting call loses its rights, another call loses its server, and
// a third call loses its connection. The loss is permanent, so waiting is useless.
func TestAWaitEndsWithTrouble(t *testing.T) {
	for what, test := range map[string]struct {
		lease time.Duration
		harm  func(t *testing.T, operator, waiter *process, server *zktest.Server)
		want  error
	}{
		"no rights": {10 * time.Minute, func(t *testing.T, operator, _ *process, _ *zktest.Server) {
			if _, err := operator.conn.SetACL(zklock.DirOf("/trouble", "a"),
				zk.WorldACL(zk.PermDelete), -1); err != nil {
				t.Fatal(err)
			}
		}, zk.ErrNoAuth},
		"no server for a lease": {10 * time.Second, func(
			_ *testing.T, _, _ *process, server *zktest.Server,
		) {
			server.Kill()
		}, nil},
		"no connection any more": {10 * time.Minute, func(
			_ *testing.T, _, waiter *process, _ *zktest.Server,
		) {
			waiter.conn.Close()
		}, zk.ErrConnectionClosed},
	} {
		t.Run(what, func(t *testing.T) {
			server := zktest.Start(t)
			proxy := zktest.StartProxy(t, server.Addr())
			opts := zklock.Options{
				Prefix: "/trouble", Lease: test.lease, OpTimeout: 5 * time.Second,
			}
			holder, waiter := open(t, server.Addr(),
				zklock.Options{Prefix: "/trouble", Lease: time.Minute}), open(t, proxy.Addr(), opts)
			held := acquire(t, holder, "a")
			got := make(chan error, 1)
			go func() {
				_, err := waiter.Lock(testContext(t), "a")
				got <- err
			}()
			waittest.Until(t, "it to wait", func() bool {
				return len(asked(proxy, "getData")) == 2
			})
			test.harm(t, holder, waiter, server)
			go func() { _ = held.Unlock(testContext(t)) }()
			select {
			case err := <-got:
				if err == nil || errors.Is(err, context.DeadlineExceeded) ||
					test.want != nil && !errors.Is(err, test.want) {
					t.Errorf("Lock: %v", err)
				}
			case <-time.After(patience):
				t.Error("it waits on")
			}
			for _, p := range []*process{holder, waiter} {
				p.conn.Close() // otherwise Close may wait for the server
			}
		})
	}
}

// TestRefusedTryLockWritesNothing checks the requests of a refused TryLock. A call isn't refused
// only because a server lags behind.
func TestRefusedTryLockWritesNothing(t *testing.T) {
	server := zktest.Shared(t)
	proxy := zktest.StartProxy(t, server.Addr())
	opts := zklock.Options{Prefix: "/try", Lease: time.Minute}
	held := acquire(t, open(t, server.Addr(), opts), "taken")
	other := open(t, proxy.Addr(), opts)
	proxy.Reset()
	if _, err := other.TryLock(testContext(t), "taken"); !errors.Is(err, lock.ErrHeld) {
		t.Fatalf("TryLock: %v", err)
	}
	var ops []string
	for _, r := range proxy.Requests() {
		ops = append(ops, r.Op)
	}
	if want := []string{"getChildren", "sync", "getChildren"}; !slices.Equal(ops, want) {
		t.Errorf("its requests are %v, want %v", ops, want)
	}
	if err := held.Unlock(testContext(t)); err != nil {
		t.Fatal(err)
	}
}

// In TestOtherRecipesStandInTheSameLine zk.Lock uses the same node.
func TestOtherRecipesStandInTheSameLine(t *testing.T) {
	server := zktest.Shared(t)
	p := open(t, server.Addr(), zklock.Options{Prefix: "/mixed", Lease: time.Minute})
	other := open(t, server.Addr(), zklock.Options{Lease: time.Minute})
	theirs := zk.NewLock(other.conn, zklock.DirOf("/mixed", "shared"), zk.WorldACL(zk.PermAll))
	ours := acquire(t, p, "shared")
	locked := make(chan error, 1)
	go func() { locked <- theirs.Lock() }()
	waittest.Until(t, "zk.Lock to wait", func() bool {
		return len(p.line(t, "/mixed", "shared")) == 2
	})
	if err := ours.Unlock(testContext(t)); err != nil {
		t.Fatal(err)
	}
	if err := <-locked; err != nil {
		t.Fatal(err)
	}
	if _, err := p.TryLock(testContext(t), "shared"); !errors.Is(err, lock.ErrHeld) {
		t.Errorf("TryLock while zk.Lock has it: %v", err)
	}
	if err := theirs.Unlock(); err != nil {
		t.Fatal(err)
	}
	if err := acquire(t, p, "shared").Unlock(testContext(t)); err != nil {
		t.Fatal(err)
	}
}

// asked returns the paths of the requests of one kind that have gone through a proxy.
func asked(p *zktest.Proxy, op string) []string {
	var paths []string
	for _, r := range p.Requests() {
		if r.Op == op {
			paths = append(paths, r.Path)
		}
	}
	return paths
}
