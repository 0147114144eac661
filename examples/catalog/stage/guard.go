package stage

import (
	"context"
	"errors"
	"log/slog"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/cacheguard/redisstore"
)

// guard is cacheguard. The requests of one replica share one flight, and the replicas share a
// lease. Waiting requests get the result as soon as it is there. A value is stored only while its
// lease is valid, and a change ends the lease of a load that began before it.
type guard struct {
	store *redisstore.Store
	cache *cacheguard.Cache[string]
	r     *Replica
}

// guardName is the name of the cache.
const guardName = "stage"

// A step of the store may take the lease's time divided by stepShare. With the shortest lease of
// the lab, which lasts 1 s, this is 250 ms, the default. If a busy machine needs longer for a step,
// the replica loads without a lease.
const stepShare = 4

// quiet discards the log, because the important steps are reported as points.
var quiet = slog.New(slog.DiscardHandler)

func newGuard(r *Replica) (Protection, error) {
	store, err := redisstore.New(r.Redis, redisstore.Options{
		OpTimeout: r.LockTTL / stepShare, Logger: quiet,
	})
	if err != nil {
		return nil, err
	}
	cache, err := cacheguard.New(store, cacheguard.Options[string]{
		Name: guardName, TTL: r.CacheTTL, LeaseTTL: r.LockTTL, Observer: told{r}, Logger: quiet,
	})
	if err != nil {
		return nil, errors.Join(err, store.Close())
	}
	return &guard{store, cache, r}, nil
}

func (g *guard) Get(ctx context.Context, key string) (string, error) {
	value, err := g.cache.Get(ctx, key, func(ctx context.Context) (string, error) {
		value, err := g.r.fetch(ctx, key)
		if err == nil && value == "" {
			return "", cacheguard.ErrNotFound
		}
		return value, err
	})
	if errors.Is(err, cacheguard.ErrNotFound) {
		return "", nil
	}
	return value, err
}

func (g *guard) Changed(ctx context.Context, key string) error {
	return g.cache.Invalidate(ctx, key)
}

func (g *guard) Close() error { return errors.Join(g.cache.Close(), g.store.Close()) }

// told reports the cache's events as points. It uses Told, because an observer must not be stopped.
type told struct{ r *Replica }

var pointOf = map[cacheguard.EventKind]Point{
	cacheguard.EventHit: Hit, cacheguard.EventMiss: Miss, cacheguard.EventLeaseAsked: Try,
	cacheguard.EventLeaseGranted: Acquired,
	cacheguard.EventWaited:       Announced, cacheguard.EventFilled: Filled,
	cacheguard.EventFillRefused: Refused, cacheguard.EventRenewed: Renewed,
}

func (t told) Observe(ctx context.Context, e cacheguard.Event) {
	if p, ok := pointOf[e.Kind]; ok && t.r.Told != nil {
		t.r.Told(ctx, p)
	}
}
