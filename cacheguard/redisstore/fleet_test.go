package redisstore_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/cacheguard/redisstore"
	"github.com/cacheguard/cacheguard/internal/logtest"
	"github.com/cacheguard/cacheguard/internal/waittest"
)

const (
	patience  = 30 * time.Second // the time-out for events that must happen
	longLease = 2 * time.Minute  // a test that waits for its end fails first
	// opTimeout is long, so that a busy machine doesn't look like a Redis that is down.
	opTimeout = patience
	// OpTimeout if replies are lost: the store waits half of it for each.
	lossTime = 4 * time.Second
	// OpTimeout if a step begins with a new connection through a proxy: half of it is enough for
	// the connection and the step, also on a slow machine.
	redialTime = 6 * time.Second
)

// replica is a process of a fleet, as far as the other processes can tell: it has a client, a store
// and a cache of its own.
type replica struct {
	rdb    redis.UniversalClient
	store  *spy
	cache  *cacheguard.Cache[string]
	events *tally
	log    *logtest.Lines
	prefix string
}

// site has the options of a replica.
type site struct {
	rdb   redis.UniversalClient // used in place of a client with the options above
	redis redis.Options
	store redisstore.Options
	cache cacheguard.Options[string]
}

// newReplica makes a replica that uses the Redis at addr. Replicas with the same prefix are a
// fleet.
func newReplica(t *testing.T, addr, prefix string, change ...func(*site)) *replica {
	t.Helper()
	r := &replica{events: &tally{}, log: &logtest.Lines{}, prefix: prefix}
	logger := r.log.Logger()
	s := site{
		redis: redis.Options{Addr: addr, ContextTimeoutEnabled: true},
		store: redisstore.Options{Prefix: prefix, OpTimeout: opTimeout, Logger: logger},
		cache: cacheguard.Options[string]{
			Name: "test", TTL: time.Hour, LeaseTTL: longLease, LoadTimeout: longLease, Jitter: -1,
			Observer: r.events, Logger: logger,
		},
	}
	for _, f := range change {
		f(&s)
	}
	if r.rdb = s.rdb; r.rdb == nil {
		r.rdb = redis.NewClient(&s.redis)
		t.Cleanup(func() { _ = r.rdb.Close() })
	}
	r.store = &spy{Store: newStore(t, r.rdb, s.store)}
	var err error
	r.cache, err = cacheguard.New(r.store, s.cache)
	must(t, err)
	t.Cleanup(func() {
		_ = r.cache.Close()
		if t.Failed() {
			t.Logf("a replica saw %v and said %q", r.events, r.log.With())
		}
	})
	return r
}

func newStore(t *testing.T, rdb redis.UniversalClient, opts redisstore.Options) *redisstore.Store {
	t.Helper()
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	s, err := redisstore.New(rdb, opts)
	must(t, err)
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// newClient makes a client with the recommended options.
func newClient(t *testing.T, addr string) *redis.Client {
	rdb := redis.NewClient(&redis.Options{Addr: addr, ContextTimeoutEnabled: true})
	t.Cleanup(func() { _ = rdb.Close() })
	return rdb
}

// defaultClient makes a client with default options.
func defaultClient(t *testing.T, addr string) *redis.Client {
	rdb := redis.NewClient(&redis.Options{Addr: addr})
	t.Cleanup(func() { _ = rdb.Close() })
	return rdb
}

// own is a client of the user's own type.
type own struct{ redis.UniversalClient }

func newPrefix() string { return "test-" + rand.Text() }

// valueName returns the name of a key's value in the replica's cache.
func (r *replica) valueName(key string) string {
	return redisstore.ValueName(r.prefix, cacheguard.Key{Cache: "test", Key: key})
}

func (r *replica) leaseName(key string) string {
	return redisstore.LeaseName(r.prefix, cacheguard.Key{Cache: "test", Key: key})
}

// listens waits until messages arrive.
func (r *replica) listens(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	err := r.store.Warm(ctx)
	for ; err != nil && ctx.Err() == nil; err = r.store.Warm(ctx) {
		// A busy machine takes longer than the OpTimeout of some tests.
		t.Logf("trying again: %v", err)
	}
	must(t, err)
}

// looksFirst stores a value through another process and reads it, so that the cache looks values up
// before it asks for leases.
func (r *replica) looksFirst(t *testing.T) {
	t.Helper()
	other, err := cacheguard.New(cacheguard.Store(r.store),
		cacheguard.Options[string]{Name: "test"})
	must(t, err)
	defer other.Close()
	must(t, other.Set(t.Context(), "looks first", "v"))
	r.get(t, "looks first", mustNotLoad(t)).hit(t, "v")
}

// spy is a store that counts the answers to its cache's requests for leases, and the renewals that
// failed.
type spy struct {
	*redisstore.Store
	renewalsFailed atomic.Int64

	mu      sync.Mutex // guards answers
	answers map[cacheguard.LeaseState]int
}

func (s *spy) Lease(
	ctx context.Context, k cacheguard.Key, ask cacheguard.LeaseAsk,
) (cacheguard.LeaseAnswer, error) {
	ans, err := s.Store.Lease(ctx, k, ask)
	if err == nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.answers == nil {
			s.answers = make(map[cacheguard.LeaseState]int)
		}
		s.answers[ans.State]++
	}
	return ans, err
}

func (s *spy) Renew(
	ctx context.Context, k cacheguard.Key, g cacheguard.Grant, ttl time.Duration,
) (cacheguard.Holding, error) {
	held, err := s.Store.Renew(ctx, k, g, ttl)
	if err != nil {
		s.renewalsFailed.Add(1)
	}
	return held, err
}

func (s *spy) told(state cacheguard.LeaseState) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.answers[state]
}

// waits returns when the replica has learned once that another process has the lease, and so waits
// for that process's load.
func (r *replica) waits(t *testing.T) {
	t.Helper()
	waittest.Until(t, "the replica waits for another one's load", func() bool {
		return r.store.told(cacheguard.LeaseHeld) > 0
	})
}

// tally counts events.
type tally struct {
	mu     sync.Mutex // guards counts
	counts map[cacheguard.EventKind]int
}

func (c *tally) Observe(_ context.Context, e cacheguard.Event) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.counts == nil {
		c.counts = make(map[cacheguard.EventKind]int)
	}
	c.counts[e.Kind]++
}

func (c *tally) String() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return fmt.Sprint(c.counts)
}

func (c *tally) of(kind cacheguard.EventKind) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.counts[kind]
}

// put stores a value under the key, whatever was stored there before.
func put(t *testing.T, s cacheguard.Store, k cacheguard.Key, f []byte) {
	t.Helper()
	g, err := s.Claim(t.Context(), k, cacheguard.ID{0xee}, longLease)
	must(t, err)
	if ans, err := s.Fill(t.Context(), k, g, f, time.Hour); err != nil ||
		ans != cacheguard.FillStored {
		t.Fatalf("the fill after a claim: %d, %v", ans, err)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
