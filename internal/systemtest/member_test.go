package systemtest_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"sort"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/cacheguard/redisstore"
)

// member is a replica of a fleet, as far as the others can tell, that lives in this process: a
// client, a store and a cache of its own. One clock for all is what the tests with members measure
// by.
type member struct {
	cache *cacheguard.Cache[fact]
	store *redisstore.Store
	close func() // also called at the end of the test

	mu   sync.Mutex // guards what follows
	told []told
	more chan struct{} // closed when it is told more
}

// told is a message, and the time when the cache had acted on it.
type told struct {
	cacheguard.Message
	at time.Time
}

// seat has the parts of a member.
type seat struct {
	redis    string // address
	messages string // address for the subscription, where it is another one
	store    redisstore.Options
	cache    cacheguard.Options[fact]
	through  func(*redisstore.Store) cacheguard.Store // what the cache sees of its store
}

// apart is a client whose subscriptions take another way than its commands.
type apart struct {
	redis.UniversalClient
	subscriptions redis.UniversalClient
}

func (c apart) Subscribe(ctx context.Context, channels ...string) *redis.PubSub {
	return c.subscriptions.Subscribe(ctx, channels...)
}

func (c apart) Close() error {
	_ = c.subscriptions.Close()
	return c.UniversalClient.Close()
}

// newMember makes a member. Those with one prefix are a fleet.
func newMember(t *testing.T, s seat) *member {
	t.Helper()
	quiet := slog.New(slog.DiscardHandler)
	s.store.Logger, s.cache.Logger, s.cache.Name = quiet, quiet, "facts"
	var rdb redis.UniversalClient = redis.NewClient(&redis.Options{
		Addr: s.redis, ContextTimeoutEnabled: true,
	})
	if s.messages != "" {
		rdb = apart{rdb, redis.NewClient(&redis.Options{Addr: s.messages})}
	}
	store, err := redisstore.New(rdb, s.store)
	if err != nil {
		t.Fatal(err)
	}
	var seen cacheguard.Store = store
	if s.through != nil {
		seen = s.through(store)
	}
	cache, err := cacheguard.New(seen, s.cache)
	if err != nil {
		t.Fatal(err)
	}
	m := &member{cache: cache, store: store, more: make(chan struct{})}
	stop := store.Listen("facts", m.hear) // after the cache: it is told before
	m.close = sync.OnceFunc(func() {
		_ = cache.Close()
		stop()
		_ = store.Close()
		_ = rdb.Close()
	})
	t.Cleanup(m.close)
	ctx, cancel := context.WithTimeout(t.Context(), replicaPatience)
	defer cancel()
	if err := store.Warm(ctx); err != nil {
		t.Fatal(err)
	}
	return m
}

func (m *member) hear(msg cacheguard.Message) {
	switch msg.Kind {
	case cacheguard.MessageChanged, cacheguard.MessageTags, cacheguard.MessageLost,
		cacheguard.MessageRestored:
	default:
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.told = append(m.told, told{msg, time.Now()})
	close(m.more)
	m.more = make(chan struct{})
}

// heard returns the first message of a kind and, if it has one, for a key that the member was told
// after a moment, as soon as it was.
func (m *member) heard(kind cacheguard.MessageKind, key string, after time.Time) (told, error) {
	timeout := time.NewTimer(replicaPatience)
	defer timeout.Stop()
	for next := -1; ; {
		m.mu.Lock()
		if next < 0 {
			next = sort.Search(len(m.told), func(i int) bool { return m.told[i].at.After(after) })
		}
		for ; next < len(m.told); next++ {
			if msg := m.told[next]; msg.Kind == kind && msg.Key == key {
				m.mu.Unlock()
				return msg, nil
			}
		}
		more := m.more
		m.mu.Unlock()
		select {
		case <-more:
		case <-timeout.C:
			return told{}, fmt.Errorf("not told of %d %q within %v", kind, key, replicaPatience)
		}
	}
}

func memberPrefix() string { return "member-" + rand.Text() }
