package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/cacheguard/redisstore"
)

// A shop would keep the defaults, which are far shorter. Here all replicas, often the clients and even Redis compete
// for the processors of one machine: an answer that comes late must not pass for a Redis that is down, nor a renewal
// that comes late for a leader that died.
const (
	redisTimeout = 4 * time.Second
	leaseTTL     = 12 * time.Second
)

// catalogCache is one replica's way to the category map.
type catalogCache struct {
	rdb   *redis.Client
	store *redisstore.Store
	maps  *cacheguard.Cache[categoryMap]
}

// openCache dials Redis, so that a wrong address is found at the start. It ends early when ctx does.
func openCache(ctx context.Context, redisAddr string, opts options, observer cacheguard.Observer, log *slog.Logger) (*catalogCache, error) {
	rdb := redis.NewClient(&redis.Options{Addr: redisAddr})
	store, err := redisstore.New(rdb, redisstore.Options{OpTimeout: redisTimeout, Logger: log})
	if err != nil {
		return nil, errors.Join(err, rdb.Close())
	}
	if err := store.Warm(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("redis at %s: %w", redisAddr, err), store.Close(), rdb.Close())
	}
	maps, err := cacheguard.New(store, cacheguard.Options[categoryMap]{
		Name:        "catalog",
		TTL:         opts.ttl,
		LeaseTTL:    leaseTTL,
		LoadTimeout: opts.originDelay + leaseTTL,
		Observer:    observer,
		Logger:      log,
	})
	if err != nil {
		return nil, errors.Join(err, store.Close(), rdb.Close())
	}
	return &catalogCache{rdb: rdb, store: store, maps: maps}, nil
}

// get returns the category map: the cached one, or the one that load brings. It is shared: nobody may change it.
func (c *catalogCache) get(ctx context.Context, load cacheguard.LoadFunc[categoryMap]) (categoryMap, error) {
	return c.maps.Get(ctx, "all", load)
}

// close lets loads finish and store until ctx ends.
func (c *catalogCache) close(ctx context.Context) error {
	return errors.Join(c.maps.Shutdown(ctx), c.store.Close(), c.rdb.Close())
}
