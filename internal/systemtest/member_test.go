package systemtest_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"slices"
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
	// Warm measures the clock within OpTimeout, which is too short for a busy machine in some
	// tests.
	first := store.Warm(ctx)
	for err = first; err != nil && pause(ctx, 10*time.Millisecond); err = store.Warm(ctx) {
	}
	if err != nil {
		t.Fatal(first, err)
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

// errMissed is the error of heard if a change's message may have been lost: after the moment the
// member was told that messages arrive again after a break. A busy machine can make such a break.
var errMissed = errors.New("messages didn't arrive for a while")

// mostMissed is how often a message is sent again because it may have been lost.
const mostMissed = 10

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
			} else if msg.Kind == cacheguard.MessageRestored &&
				(kind == cacheguard.MessageChanged || kind == cacheguard.MessageTags) {
				m.mu.Unlock()
				return told{}, errMissed
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

// wasTold reports whether the member was told a message of a kind after a moment.
func (m *member) wasTold(kind cacheguard.MessageKind, after time.Time) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.ContainsFunc(m.told, func(msg told) bool {
		return msg.Kind == kind && msg.at.After(after)
	})
}

func memberPrefix() string { return "member-" + rand.Text() }
