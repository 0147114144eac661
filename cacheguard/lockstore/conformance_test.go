package lockstore_test

import (
	"context"
	"io"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/cacheguard/lock"
	"github.com/cacheguard/cacheguard/cacheguard/lock/redislock"
	"github.com/cacheguard/cacheguard/cacheguard/lockstore"
	"github.com/cacheguard/cacheguard/cacheguard/memstore"
	"github.com/cacheguard/cacheguard/cacheguard/redisstore"
	"github.com/cacheguard/cacheguard/cacheguard/storetest"
	"github.com/cacheguard/cacheguard/internal/redistest"
)

func TestMain(m *testing.M) {
	redis.SetLogger(silent{})
	goleak.VerifyTestMain(redistest.Wrap(m),
		goleak.IgnoreAnyFunction("github.com/redis/go-redis/v9/internal/pool.(*ConnPool).tryDial"))
}

// silent drops the log of go-redis.
type silent struct{}

func (silent) Printf(context.Context, string, ...any) {}

var quiet = slog.New(slog.NewTextHandler(io.Discard, nil))

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func client(t *testing.T, addr string) *redis.Client {
	rdb := redis.NewClient(&redis.Options{Addr: addr, ContextTimeoutEnabled: true})
	t.Cleanup(func() { _ = rdb.Close() })
	return rdb
}

func newLocker(t *testing.T, addr string) *redislock.Locker {
	t.Helper()
	l, err := redislock.New(client(t, addr),
		redislock.Options{Lease: time.Minute, OpTimeout: 20 * time.Second, Logger: quiet})
	must(t, err)
	t.Cleanup(func() { _ = l.Close() })
	return l
}

func wrap(t *testing.T, store cacheguard.Store, locker lock.Locker) *lockstore.Store {
	t.Helper()
	s, err := lockstore.New(store, locker,
		lockstore.Options{Patience: 5 * time.Second, Logger: quiet})
	must(t, err)
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// elsewhere are the cases in which a load goes on in another process than the one in which it
// began. No cache does this, and a cache's lock can't follow the load.
var elsewhere = []string{
	"lease knows its own token", "release with any number", "grants have a stamp",
	"many: leases of each kind", "many: fills of each kind",
}

// conformance runs the suite without these cases. It also doesn't tell the suite how to lose
// leases: if a lease is lost, its key isn't free, because the lock still protects the load.
func conformance(t *testing.T, open func(t *testing.T) storetest.Fleet) {
	for _, c := range storetest.Cases() {
		if !slices.Contains(elsewhere, c.Name) {
			t.Run(c.Name, func(t *testing.T) { c.Run(t, open(t)) })
		}
	}
}

func TestConformanceMemory(t *testing.T) {
	addr := miniredis.RunT(t).Addr()
	conformance(t, func(t *testing.T) storetest.Fleet {
		s := memstore.New(memstore.Options{})
		t.Cleanup(func() { s.Close() })
		return storetest.Fleet{
			Stores: []cacheguard.Store{
				wrap(t, s, newLocker(t, addr)), wrap(t, s, newLocker(t, addr)),
			},
		}
	})
}

// heard is a store whose Listen returns when messages of the cache arrive. In a real cache messages
// arrive long before its first load. If the message about a change is lost, the change ends no
// lock.
type heard struct {
	cacheguard.Store
	t *testing.T
}

func (s heard) Listen(cache string, tell func(cacheguard.Message)) (stop func()) {
	arrive := make(chan struct{})
	var once sync.Once
	first := s.Store.Listen(cache, func(m cacheguard.Message) {
		if m.Kind == cacheguard.MessageRestored {
			once.Do(func() { close(arrive) })
		}
	})
	stop = s.Store.Listen(cache, tell)
	select {
	case <-arrive:
	case <-time.After(20 * time.Second):
		s.t.Error("messages don't arrive")
	}
	first()
	return stop
}

func TestConformanceRedis(t *testing.T) {
	addr := redistest.Start(t).Addr()
	open := func(t *testing.T) cacheguard.Store {
		s, err := redisstore.New(client(t, addr),
			redisstore.Options{Prefix: "suite", OpTimeout: 20 * time.Second, Logger: quiet})
		must(t, err)
		t.Cleanup(func() { _ = s.Close() })
		// Otherwise a change's message may come before the store listens, and a case waits for a
		// lock.
		must(t, s.Warm(t.Context()))
		return wrap(t, heard{s, t}, newLocker(t, addr))
	}
	conformance(t, func(t *testing.T) storetest.Fleet {
		return storetest.Fleet{Stores: []cacheguard.Store{open(t), open(t)}}
	})
}
