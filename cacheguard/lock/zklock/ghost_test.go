package zklock_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/cacheguard/cacheguard/cacheguard/lock"
	"github.com/cacheguard/cacheguard/cacheguard/lock/zklock"
	"github.com/cacheguard/cacheguard/internal/waittest"
	"github.com/cacheguard/cacheguard/internal/zktest"
)

// TestLostReplyIsRecognised breaks the connection when the reply to the creation of a node comes.
// The call finds its node, and creates no other node.
func TestLostReplyIsRecognised(t *testing.T) {
	server := zktest.Shared(t)
	proxy := zktest.StartProxy(t, server.Addr())
	opts := zklock.Options{Prefix: "/lost", Lease: time.Minute}
	p, operator := open(t, proxy.Addr(), opts), open(t, server.Addr(), opts)
	for _, name := range []string{"a", "b", "c"} {
		prepare(t, operator, name)
		proxy.Reset()
		fault := proxy.LoseReply(inLine, zktest.Hangup)
		held := acquire(t, p, name)
		waittest.Next(t, "the fault", fault.Struck())
		var ops []string
		for _, r := range proxy.Requests() {
			ops = append(ops, r.Op)
		}
		// The call may be connected to another server, which lags behind.
		if len(ops) < 3 || ops[0] != "create" || ops[1] != "sync" {
			t.Errorf("the requests are %v", ops)
		}
		line := operator.line(t, "/lost", name)
		if len(line) != 1 {
			t.Errorf("in line are %v", line)
		}
		_, stat, err := operator.conn.Exists(zklock.DirOf("/lost", name) + "/" + line[0])
		if err != nil || stat.Czxid != held.Token() {
			t.Errorf("the token is %d, the node's %d, %v", held.Token(), stat.Czxid, err)
		}
		if err := held.Unlock(testContext(t)); err != nil {
			t.Errorf("Unlock: %v", err)
		}
		if line := operator.line(t, "/lost", name); len(line) > 0 {
			t.Errorf("left in line are %v", line)
		}
	}
}

// In TestOneNodeForEachCall a call gets into the queue again after its connection was silent for
// longer than OpTimeout. It creates one node, not two.
func TestOneNodeForEachCall(t *testing.T) {
	t.Parallel() // it waits for OpTimeout
	server := zktest.Shared(t)
	proxy := zktest.StartProxy(t, server.Addr())
	opts := zklock.Options{Prefix: "/one", Lease: 40 * time.Second, OpTimeout: 5 * time.Second}
	p, operator := open(t, proxy.Addr(), opts),
		open(t, server.Addr(), zklock.Options{Prefix: "/one", Lease: time.Minute})
	held := acquire(t, operator, "a")
	got := make(chan error, 1)
	go func() {
		var next lock.Lock
		err := error(nil)
		for next == nil { // repeat, because OpTimeout is short
			next, err = p.Lock(testContext(t), "a")
		}
		if err == nil {
			err = next.Unlock(testContext(t))
		}
		got <- err
	}()
	holder := zklock.DirOf("/one", "a") + "/" + operator.line(t, "/one", "a")[0]
	waittest.Until(t, "it to wait", func() bool {
		return slices.Contains(asked(proxy, "getData"), holder)
	})
	creates := len(asked(proxy, "create"))
	fault := proxy.LoseReply(zktest.IsOp("create"), zktest.Silence)
	for _, node := range operator.line(t, "/one", "a")[1:] {
		err := operator.conn.Delete(zklock.DirOf("/one", "a")+"/"+node, -1)
		if err != nil && !errors.Is(err, zk.ErrNoNode) { // a call may have removed its node itself
			t.Fatal(err)
		}
	}
	waittest.Next(t, "the fault", fault.Struck())
	// The call tries again after OpTimeout, and must not create a second node.
	<-time.After(opts.OpTimeout + opts.OpTimeout/2)
	if n := len(asked(proxy, "create")) - creates; n != 1 {
		t.Errorf("%d creations are under way", n)
	}
	proxy.Cut()
	if err := held.Unlock(testContext(t)); err != nil {
		t.Error(err)
	}
	if err := <-got; err != nil {
		t.Error(err)
	}
	waittest.Until(t, "the end of the line", func() bool {
		return len(operator.line(t, "/one", "a")) == 0
	})
}

// TestCallsThatAreGivenUpAtOnce checks that calls which are given up at once leave nothing, at
// whatever point they were.
func TestCallsThatAreGivenUpAtOnce(t *testing.T) {
	server := zktest.Shared(t)
	opts := zklock.Options{Prefix: "/given/up", Lease: time.Minute}
	p, operator := open(t, server.Addr(), opts), open(t, server.Addr(), opts)
	for range 300 {
		ctx, cancel := context.WithCancel(testContext(t))
		go cancel()
		if held, err := p.Lock(ctx, "a"); err == nil {
			if err := held.Unlock(testContext(t)); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := p.Close(); err != nil { // Close waits for nodes that are still to be removed
		t.Fatal(err)
	}
	if line := operator.line(t, "/given/up", "a"); len(line) > 0 {
		t.Errorf("left in line are %v", line)
	}
}

// TestGhostIsRemovedWithinItsSession gives up a call whose node was created but whose reply was
// lost. The session goes on, so only the locker can remove the node.
func TestGhostIsRemovedWithinItsSession(t *testing.T) {
	server := zktest.Shared(t)
	proxy := zktest.StartProxy(t, server.Addr())
	opts := zklock.Options{Prefix: "/ghost", Lease: time.Minute}
	p, operator := open(t, proxy.Addr(), opts), open(t, server.Addr(), opts)
	for _, name := range []string{"a", "b"} {
		prepare(t, operator, name)
		session := p.conn.SessionID()
		fault := proxy.LoseReply(inLine, zktest.Silence)
		ctx, cancel := context.WithCancel(testContext(t))
		given := make(chan error, 1)
		go func() {
			_, err := p.Lock(ctx, name)
			given <- err
		}()
		waittest.Next(t, "the fault", fault.Struck())
		cancel()
		if err := <-given; !errors.Is(err, context.Canceled) {
			t.Fatalf("Lock: %v", err)
		}
		ghost := operator.line(t, "/ghost", name)
		if len(ghost) != 1 {
			t.Fatalf("in line are %v, want a ghost", ghost)
		}
		proxy.Cut() // go-zookeeper would notice later that the connection is silent
		held := acquire(t, p, name)
		if line := operator.line(t, "/ghost", name); len(line) != 1 || line[0] == ghost[0] {
			t.Errorf("in line are %v, the ghost was %v", line, ghost)
		}
		if session != 0 && p.conn.SessionID() != session {
			t.Error("it is another session: this shows nothing")
		}
		if err := held.Unlock(testContext(t)); err != nil {
			t.Error(err)
		}
	}
}

// TestUnheardUnlock loses the reply to the removal of a node.
func TestUnheardUnlock(t *testing.T) {
	server := zktest.Shared(t)
	proxy := zktest.StartProxy(t, server.Addr())
	opts := zklock.Options{Prefix: "/unheard", Lease: time.Minute}
	p, operator := open(t, proxy.Addr(), opts), open(t, server.Addr(), opts)

	held := acquire(t, p, "a")
	proxy.LoseReply(zktest.IsOp("delete"), zktest.Hangup)
	if err := held.Unlock(testContext(t)); err != nil {
		t.Errorf("Unlock whose answer was lost, and asked for again: %v", err)
	}

	// The removal can't be requested in time, so it happens later.
	held = acquire(t, p, "b")
	proxy.Blackhole(true)
	ctx, cancel := context.WithCancel(testContext(t))
	cancel()
	if err := held.Unlock(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("Unlock: %v", err)
	}
	proxy.Blackhole(false)
	if err := acquire(t, operator, "b").Unlock(testContext(t)); err != nil {
		t.Error(err)
	}
}

// In TestUnlockGoesOnAfterItsTime ZooKeeper is away for longer than OpTimeout.
func TestUnlockGoesOnAfterItsTime(t *testing.T) {
	t.Parallel() // it waits for OpTimeout
	server := zktest.Shared(t)
	proxy := zktest.StartProxy(t, server.Addr())
	opts := zklock.Options{Prefix: "/later", Lease: 50 * time.Second, OpTimeout: 10 * time.Second}
	p, operator := open(t, proxy.Addr(), opts), open(t, server.Addr(), opts)
	prepare(t, operator, "a")
	held := acquire(t, p, "a")
	if err := proxy.Refuse(true); err != nil {
		t.Fatal(err)
	}
	proxy.Cut()
	if err := held.Unlock(testContext(t)); err == nil {
		t.Error("Unlock without ZooKeeper returns nil")
	}
	// By then go-zookeeper has nothing more to send.
	for err := error(nil); !errors.Is(err, zk.ErrNoServer); {
		_, _, err = p.conn.Exists("/")
	}
	if line := operator.line(t, "/later", "a"); len(line) != 1 {
		t.Errorf("in line are %v", line)
	}
	if err := proxy.Refuse(false); err != nil {
		t.Fatal(err)
	}
	// In the same session as before.
	if err := acquire(t, operator, "a").Unlock(testContext(t)); err != nil {
		t.Error(err)
	}
}

// In TestALockThatIsLostAndKeptIsTakenAway holders don't unlock, and their session lives.
func TestALockThatIsLostAndKeptIsTakenAway(t *testing.T) {
	server := zktest.Shared(t)
	for what, test := range map[string]struct {
		maxHold time.Duration
		lose    func(*process, *zktest.Proxy)
	}{
		"held for too long": {50 * time.Millisecond, func(*process, *zktest.Proxy) {}},
		"closed":            {0, func(p *process, _ *zktest.Proxy) { _ = p.Close() }},
		"cut off for a lease, and no longer": {0, func(_ *process, proxy *zktest.Proxy) {
			proxy.Blackhole(true)
		}},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel() // each takes two leases
			proxy := zktest.StartProxy(t, server.Addr())
			operator := open(t, server.Addr(), zklock.Options{Prefix: "/kept", Lease: time.Minute})
			var p *process
			var held lock.Lock
			var session int64
			for tries, again := 1, true; again; tries++ {
				var began time.Time // before it is lost
				var lease time.Duration
				p, held, _ = acquireShort(t, operator, "/kept", what, func(
					d time.Duration,
				) *process {
					began, lease = time.Now(), d
					const session = 50 * time.Second // longer than Lease
					return openFor(t, proxy.Addr(), session, zklock.Options{
						Prefix: "/kept", Lease: lease, OpTimeout: lease, MaxHold: test.maxHold,
					})
				})
				session = p.conn.SessionID()
				test.lose(p, proxy)
				waittest.Next(t, "Lost", held.Lost())
				line := operator.line(t, "/kept", what)
				took := time.Since(began)
				proxy.Blackhole(false)
				// On a busy machine a lease may have passed since it was lost.
				again = len(line) == 0 && took > lease && tries < 5
				if again {
					t.Logf("tried again: after %v of a lease of %v nobody is in line", took, lease)
				} else if len(line) != 1 {
					t.Errorf("when it is lost, in line are %v: the holder has a lease to stop",
						line)
				}
			}
			next := acquire(t, operator, what)
			if p.conn.SessionID() != session {
				t.Error("the session has ended: this shows nothing")
			}
			if err := held.Unlock(testContext(t)); !errors.Is(err, lock.ErrLost) {
				t.Errorf("Unlock: %v", err)
			}
			if err := next.Unlock(testContext(t)); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestCloseDoesNotWaitForZooKeeper closes a locker that has a ghost and can't reach ZooKeeper.
func TestCloseDoesNotWaitForZooKeeper(t *testing.T) {
	t.Parallel() // it waits for OpTimeout
	server := zktest.Shared(t)
	proxy := zktest.StartProxy(t, server.Addr())
	opts := zklock.Options{Prefix: "/close", Lease: 40 * time.Second, OpTimeout: 6 * time.Second}
	p, operator := open(t, proxy.Addr(), opts),
		open(t, server.Addr(), zklock.Options{Prefix: "/close", Lease: time.Minute})
	prepare(t, operator, "a")
	fault := proxy.LoseReply(inLine, zktest.Silence)
	// Only one call: the next one would get through, and have a second node.
	if held, err := p.Lock(testContext(t), "a"); err == nil {
		t.Fatalf("it has %v", held)
	}
	waittest.Next(t, "a ghost", fault.Struck())
	closed := make(chan struct{})
	go func() {
		_ = p.Close()
		close(closed)
	}()
	waittest.Next(t, "Close", closed)
	if line := operator.line(t, "/close", "a"); len(line) != 1 {
		t.Fatalf("in line are %v: this shows nothing", line)
	}
	if _, err := p.Lock(testContext(t), "a"); !errors.Is(err, lock.ErrClosed) {
		t.Errorf("Lock after Close: %v", err)
	}
	proxy.Cut() // now the client connects again
	if err := acquire(t, operator, "a").Unlock(testContext(t)); err != nil {
		t.Error(err)
	}
}

// inLine matches the creation of a node in the queue of a name that is prepared.
func inLine(r zktest.Request) bool {
	return r.Op == "create" && strings.Contains(r.Path, zklock.BeforeTurn)
}

// prepare creates the node of a name.
func prepare(t *testing.T, p *process, name string) {
	t.Helper()
	if err := acquire(t, p, name).Unlock(testContext(t)); err != nil {
		t.Fatal(err)
	}
}
