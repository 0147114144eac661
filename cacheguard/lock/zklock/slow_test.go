package zklock_test

import (
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cacheguard/cacheguard/cacheguard/lock"
	"github.com/cacheguard/cacheguard/cacheguard/lock/zklock"
	"github.com/cacheguard/cacheguard/internal/waittest"
	"github.com/cacheguard/cacheguard/internal/zktest"
)

// far returns the address of a proxy to a server. The proxy delays data in both directions, as if
// the server were far away.
func far(t *testing.T, addr string, way time.Duration) string {
	t.Helper()
	door, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var links sync.WaitGroup
	links.Go(func() {
		for {
			client, err := door.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("tcp", addr)
			if err != nil {
				_ = client.Close()
				continue
			}
			links.Go(func() { carry(server, client, way) })
			links.Go(func() { carry(client, server, way) })
		}
	})
	// Connections end before that, because their users were opened later.
	t.Cleanup(func() { _ = door.Close(); links.Wait() })
	return door.Addr().String()
}

// carry copies data from one connection to the other, and delays each piece by way.
func carry(to, from net.Conn, way time.Duration) {
	type piece struct {
		bytes []byte
		due   time.Time
	}
	pieces := make(chan piece, 1000)
	go func() {
		defer close(pieces)
		for {
			buffer := make([]byte, 1<<16)
			n, err := from.Read(buffer)
			if n > 0 {
				pieces <- piece{buffer[:n], time.Now().Add(way)}
			}
			if err != nil {
				return
			}
		}
	}()
	for p := range pieces {
		<-time.After(time.Until(p.due))
		_, _ = to.Write(p.bytes)
	}
	_ = to.Close()
	_, _ = io.Copy(io.Discard, from)
}

// In TestZooKeeperIsFarAway the replies take so long that the locker first tries again to begin the
// lock with more time left. It then gets the lock and keeps it, for as long as the requests allow,
// because ZooKeeper counts from the requests, not from the replies.
func TestZooKeeperIsFarAway(t *testing.T) {
	t.Parallel() // it waits for verifications
	server := zktest.Shared(t)
	way, lease := 180*time.Millisecond, 12*time.Second
	for {
		p := open(t, far(t, server.Addr(), way),
			zklock.Options{Prefix: "/far", Lease: lease, OpTimeout: lease})
		began := time.Now()
		held, err := p.Lock(testContext(t), "a")
		if err == nil {
			t.Logf("Lock took %v", time.Since(began))
			if err = keptFar(t, held, way, lease); err == nil {
				return
			}
		}
		if lease > 40*time.Second {
			t.Fatal(err)
		}
		// On a busy machine the replies take longer than the way.
		t.Logf("tried again, with twice the lease: %v", err)
		way, lease = 2*way, 2*lease
	}
}

// keptFar checks the validity of a lock that has just begun, for half a lease, and unlocks it. It
// returns an error if the lock was lost.
func keptFar(t *testing.T, held lock.Lock, way, lease time.Duration) error {
	t.Helper()
	until := held.Until()
	if left, most := time.Until(until), lease*5/12-2*way; left > most {
		t.Errorf("at first the lock counts as held for %v; want %v at most", left, most)
	}
	for n := range 2 { // half a lease; a lock isn't valid for so long without a verification
		waittest.Until(t, "a verification", func() bool {
			return held.Until() != until || held.Err() != nil
		})
		until = held.Until()
		// Two replies have come since the request. The lock's validity counts from the request
		// before, an eighth of a Lease ago or more.
		if left, most := time.Until(until), lease-4*way-lease/8; left > most {
			t.Errorf("after verification %d the lock counts as held for %v; want %v at most", n,
				left, most)
		}
	}
	err := errors.Join(held.Err(), held.Unlock(testContext(t)))
	if err != nil && !errors.Is(err, lock.ErrLost) {
		t.Errorf("Unlock: %v", err)
	}
	return err
}

// In TestZooKeeperIsTooFarAway the error names the slow replies, and no node stays.
func TestZooKeeperIsTooFarAway(t *testing.T) {
	t.Parallel() // it waits for OpTimeout
	server := zktest.Shared(t)
	const way, lease = 450 * time.Millisecond, 12 * time.Second
	p := open(t, far(t, server.Addr(), way),
		zklock.Options{Prefix: "/too/far", Lease: lease, OpTimeout: lease})
	operator := open(t, server.Addr(),
		zklock.Options{Prefix: "/too/far", Lease: time.Minute})
	prepare(t, operator, "a")
	_, err := p.Lock(testContext(t), "a")
	if err == nil || !strings.Contains(err.Error(), "too slow for a Lease of 12s") {
		t.Errorf("Lock: %v", err)
	}
	waittest.Until(t, "the end of the line", func() bool {
		return len(operator.line(t, "/too/far", "a")) == 0
	})
}
