package zklock_test

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/cacheguard/cacheguard/cacheguard/lock"
	"github.com/cacheguard/cacheguard/cacheguard/lock/zklock"
	"github.com/cacheguard/cacheguard/internal/waittest"
	"github.com/cacheguard/cacheguard/internal/zktest"
)

// In TestNodesOfNamesGoWhenNobodyIsThere the server removes empty nodes all the time, even while
// calls are about to use them.
func TestNodesOfNamesGoWhenNobodyIsThere(t *testing.T) {
	server := zktest.Start(t, "-Dznode.container.checkIntervalMs=20")
	opts := zklock.Options{Prefix: "/containers/of/locks", Lease: time.Minute}
	a, b := open(t, server.Addr(), opts), open(t, server.Addr(), opts)
	began := time.Now()
	var work sync.WaitGroup
	for _, p := range []*process{a, b} {
		work.Go(func() {
			// A busy machine does fewer rounds.
			for n := 0; n < 200 && (n < 10 || time.Since(began) < 20*time.Second); n++ {
				held, err := p.Lock(testContext(t), "often")
				if err != nil {
					t.Errorf("Lock: %v", err)
					return
				}
				if err := held.Unlock(testContext(t)); err != nil {
					t.Errorf("Unlock: %v", err)
				}
			}
		})
	}
	work.Wait()
	var last int64
	for range 3 {
		held := acquire(t, a, "often")
		if held.Token() <= last {
			t.Errorf("token %d after %d", held.Token(), last)
		}
		last = held.Token()
		if err := held.Unlock(testContext(t)); err != nil {
			t.Fatal(err)
		}
		waittest.Until(t, "the node of the name to go", func() bool {
			there, _, err := a.conn.Exists(zklock.DirOf("/containers/of/locks", "often"))
			return err == nil && !there
		})

	}
}

// In TestACL only clients with the password have rights on the prefix.
func TestACL(t *testing.T) {
	server := zktest.Shared(t)
	opts := zklock.Options{
		Prefix: "/secret", Lease: time.Minute,
		ACL: zk.DigestACL(zk.PermAll, "holder", "password"),
	}
	p, stranger := open(t, server.Addr(), opts), open(t, server.Addr(), opts)
	if err := p.conn.AddAuth("digest", []byte("holder:password")); err != nil {
		t.Fatal(err)
	}
	held := acquire(t, p, "a")
	dir := zklock.DirOf("/secret", "a")
	for path := range map[string]bool{
		"/secret": true, dir: true, dir + "/" + p.line(t, "/secret", "a")[0]: true,
	} {
		if err := stranger.conn.Delete(path, -1); err == nil {
			t.Errorf("a stranger deletes %s", path)
		}
		if _, _, err := stranger.conn.Children(path); !errors.Is(err, zk.ErrNoAuth) {
			t.Errorf("a stranger reads %s: %v", path, err)
		}
	}
	if _, err := stranger.Lock(testContext(t), "a"); !errors.Is(err, zk.ErrNoAuth) {
		t.Errorf("Lock without the password: %v", err)
	}
	if _, err := stranger.TryLock(testContext(t), "b"); !errors.Is(err, zk.ErrNoAuth) {
		t.Errorf("TryLock without the password: %v", err)
	}
	if err := held.Unlock(testContext(t)); err != nil {
		t.Fatal(err)
	}
}

// TestLeastRights uses a prefix with the rights that the documentation names, and prefixes with one
// right less.
func TestLeastRights(t *testing.T) {
	server := zktest.Shared(t)
	const least = zk.PermCreate | zk.PermDelete | zk.PermRead
	for perms, enough := range map[int32]bool{
		least: true, least &^ zk.PermCreate: false, least &^ zk.PermDelete: false,
		least &^ zk.PermRead: false,
	} {
		opts := zklock.Options{
			Prefix: fmt.Sprint("/rights-", perms), Lease: time.Minute, ACL: zk.WorldACL(perms),
		}
		p := open(t, server.Addr(), opts)
		held, err := p.Lock(testContext(t), "a")
		if err == nil {
			other := open(t, server.Addr(), opts)
			if _, refused := other.TryLock(testContext(t), "a"); !errors.Is(refused, lock.ErrHeld) {
				t.Errorf("rights %b: TryLock of another: %v", perms, refused)
			}
			err = held.Unlock(testContext(t))
		}
		if (err == nil) != enough || err != nil && !errors.Is(err, zk.ErrNoAuth) {
			t.Errorf("rights %b: %v", perms, err)
		}
		p.conn.Close() // otherwise Close waits for a node that may not be removed
	}
}

// In TestWithoutAServer there is no server.
func TestWithoutAServer(t *testing.T) {
	l, err := zklock.New(nowhere(t), zklock.Options{Lease: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := l.Lock(testContext(t), "a"); err == nil || testContext(t).Err() != nil {
		t.Errorf("Lock: %v", err)
	}
	if _, err := l.TryLock(testContext(t), "a"); err == nil {
		t.Error("TryLock has it")
	}
	for range 2 {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	}
}
