package contender

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/cacheguard/redisstore"
)

// window is the stale window of the contenders with stale values. It is longer than any run.
const window = time.Hour

// quiet discards log lines about events that the benchmark counts.
var quiet = slog.New(slog.DiscardHandler)

// OpTimeoutEnv is the environment variable with the OpTimeout of all stores, for example "4s",
// and with the time that rueidislock waits for a request. The replicas of a run inherit it.
// Without it, they have their defaults. Tests set it, because on a busy machine Redis can be
// silent for longer than the default. Then replicas load without a lease.
const OpTimeoutEnv = "CACHEGUARD_BENCH_OP_TIMEOUT"

// OpTimeout returns the time in OpTimeoutEnv, or 0 for the default.
func OpTimeout() (time.Duration, error) {
	wanted := os.Getenv(OpTimeoutEnv)
	if wanted == "" {
		return 0, nil
	}
	d, err := time.ParseDuration(wanted)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", OpTimeoutEnv, err)
	}
	return d, nil
}

// OpenStore opens a store that doesn't log. An empty prefix means the default one.
func OpenStore(rdb *redis.Client, prefix string) (*redisstore.Store, error) {
	within, err := OpTimeout()
	if err != nil {
		return nil, err
	}
	return redisstore.New(rdb,
		redisstore.Options{Prefix: prefix, Logger: quiet, OpTimeout: within})
}

type options = cacheguard.Options[string]

// guarded are the contenders of cacheguard: one with its defaults, except for the lifetimes that
// all contenders have, and one for each option that changes a stampede.
var guarded = []Contender{
	{Name: "cacheguard",
		What: "with its defaults, except for the lifetimes that all have here: LeaseTTL is -lock-ttl (its own default is 3s), NegativeTTL is -ttl, no Jitter",
		Note: "A process runs at most 64 loads at a time (MaxLoads).",
		Open: openGuarded(func(*options) {})},
	{Name: "cacheguard-swr", What: "stale while it is loaded again",
		Open: openGuarded(func(o *options) {
			o.StaleWhileRevalidate = window
		})},
	{Name: "cacheguard-early", What: "loads again before the end",
		Open: openGuarded(func(o *options) {
			o.EarlyRefresh = 1
		})},
	{Name: "cacheguard-strong", What: "with StrongReads", Open: openGuarded(func(o *options) {
		o.StrongReads = true
	})},
	{Name: "cacheguard-local", What: "with the process-local tier",
		Open: openGuarded(func(o *options) {
			o.Local.Entries = 10_000
		})},
}

type guard struct {
	Rig
	store *redisstore.Store
	cache *cacheguard.Cache[string]
}

func openGuarded(with func(*options)) func(context.Context, Rig) (Protection, error) {
	return func(ctx context.Context, r Rig) (Protection, error) {
		return OpenGuarded(ctx, r, with, nil)
	}
}

// OpenGuarded opens cacheguard. If the functions aren't nil, one changes the options, and the other
// wraps the store.
func OpenGuarded(
	ctx context.Context, r Rig, with func(*options), wrap func(cacheguard.Store) cacheguard.Store,
) (Protection, error) {
	store, err := OpenStore(r.Redis, "")
	if err != nil {
		return nil, err
	}
	o := options{
		Name: "bench", TTL: r.TTL, NegativeTTL: r.TTL, LeaseTTL: r.LockTTL, Backoff: r.Backoff,
		Jitter: -1, Logger: quiet,
	}
	if with != nil {
		with(&o)
	}
	var below cacheguard.Store = store
	if wrap != nil {
		below = wrap(store)
	}
	cache, err := cacheguard.New(below, o)
	if err != nil {
		return nil, errors.Join(err, store.Close())
	}
	g := &guard{r, store, cache}
	if err := store.Warm(ctx); err != nil {
		return nil, errors.Join(err, g.Close())
	}
	return g, nil
}

func (g *guard) Get(ctx context.Context, key string) (string, bool, error) {
	value, err := g.cache.Get(ctx, key, func(ctx context.Context) (string, error) {
		value, found, err := g.Load(ctx, key)
		if err == nil && !found {
			return "", cacheguard.ErrNotFound
		}
		return value, err
	})
	if errors.Is(err, cacheguard.ErrNotFound) {
		return "", false, nil
	}
	return value, err == nil, err
}

func (g *guard) GetDated(ctx context.Context, key string) (string, bool, error) {
	r, err := g.cache.GetEntry(ctx, key,
		func(
			ctx context.Context, prev cacheguard.Result[string],
		) (cacheguard.Entry[string], error) {
			value, _, err := g.Renew(ctx, key, prev.Value)
			return cacheguard.Entry[string]{Value: value}, err
		})
	return r.Value, r.Status == cacheguard.StatusStale, err
}

func (g *guard) GetMany(ctx context.Context, keys []string) (map[string]string, error) {
	return g.cache.GetMany(ctx, keys, func(context.Context, []string) (map[string]string, error) {
		return nil, errors.New("a load of what is cached")
	})
}

func (g *guard) Invalidate(ctx context.Context, key string) error {
	return g.cache.Invalidate(ctx, key)
}

func (g *guard) Close() error { return errors.Join(g.cache.Close(), g.store.Close()) }
