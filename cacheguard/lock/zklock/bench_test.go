package zklock_test

import (
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/cacheguard/cacheguard/cacheguard/lock"
	"github.com/cacheguard/cacheguard/cacheguard/lock/zklock"
	"github.com/cacheguard/cacheguard/internal/zktest"
)

// The two benchmarks compare this package's lock with zk.Lock of go-zookeeper. zk.Lock has no
// context and no fencing token, and doesn't report its loss, so it needs fewer requests.

func BenchmarkUncontended(b *testing.B) {
	server := zktest.Shared(b)
	b.Run("zklock", func(b *testing.B) {
		l := benchLocker(b, server)
		for b.Loop() {
			held, err := l.Lock(b.Context(), "a")
			if err != nil {
				b.Fatal(err)
			}
			if err := held.Unlock(b.Context()); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("zk.Lock", func(b *testing.B) {
		l := zk.NewLock(benchConn(b, server), "/bench/theirs", zk.WorldACL(zk.PermAll))
		for b.Loop() {
			if err := l.Lock(); err != nil {
				b.Fatal(err)
			}
			if err := l.Unlock(); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// In BenchmarkHandOver two sessions take turns: while one session holds the lock, the other session
// waits.
func BenchmarkHandOver(b *testing.B) {
	server := zktest.Shared(b)
	turns := func(b *testing.B, lock func(who int), unlock func(who int)) {
		done := make(chan struct{})
		play := func(who int) {
			for range b.N / 2 {
				lock(who)
				unlock(who)
			}
			done <- struct{}{}
		}
		b.ResetTimer()
		go play(0)
		go play(1)
		<-done
		<-done
	}
	b.Run("zklock", func(b *testing.B) {
		lockers := []*zklock.Locker{benchLocker(b, server), benchLocker(b, server)}
		held := make([]lock.Lock, 2)
		turns(b, func(who int) {
			var err error
			if held[who], err = lockers[who].Lock(b.Context(), "b"); err != nil {
				b.Error(err)
			}
		}, func(who int) {
			if err := held[who].Unlock(b.Context()); err != nil {
				b.Error(err)
			}
		})
	})
	b.Run("zk.Lock", func(b *testing.B) {
		var locks []*zk.Lock
		for range 2 {
			locks = append(locks,
				zk.NewLock(benchConn(b, server), "/bench/turns", zk.WorldACL(zk.PermAll)))
		}
		turns(b, func(who int) {
			if err := locks[who].Lock(); err != nil {
				b.Error(err)
			}
		}, func(who int) {
			if err := locks[who].Unlock(); err != nil {
				b.Error(err)
			}
		})
	})
}

func benchConn(b *testing.B, server *zktest.Server) *zk.Conn {
	b.Helper()
	conn, err := connect(server.Addr(), 20*time.Second)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(conn.Close)
	return conn
}

func benchLocker(b *testing.B, server *zktest.Server) *zklock.Locker {
	b.Helper()
	l, err := zklock.New(benchConn(b, server),
		zklock.Options{Prefix: "/bench", Lease: 20 * time.Second, OpTimeout: 20 * time.Second})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = l.Close() })
	return l
}
