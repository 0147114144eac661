package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/cacheguard/redisstore"
	"github.com/cacheguard/cacheguard/examples/catalog/stage"
)

// trees gets the tree for one replica.
type trees interface {
	// get returns the cached tree, or the result of a load. The tree is shared, so callers must not
	// change it.
	get(ctx context.Context) (tree, error)

	close(ctx context.Context) error
}

// treeKey is the only key of the tree's cache.
const treeKey = "all"

// guarded is the protection that a shop should use. The outbox tells it of changes.
type guarded struct {
	cache  *cacheguard.Cache[tree]
	origin *origin
}

func openGuarded(store *redisstore.Store, o *origin, opts cacheguard.Options[tree]) (trees, error) {
	cache, err := cacheguard.New(store, opts)
	if err != nil {
		return nil, err
	}
	return &guarded{cache, o}, nil
}

func (g *guarded) get(ctx context.Context) (tree, error) {
	return g.cache.Get(ctx, treeKey, g.origin.load)
}

func (g *guarded) close(ctx context.Context) error { return g.cache.Shutdown(ctx) }

// staged is a protection that a shop may have used before: one of the stages of the lab, with its
// flaw.
type staged struct {
	stage.Protection
	masters []*redis.Client // of Redlock
}

// stageSpin is the time that a stage waits before it asks again for a held lock.
const stageSpin = 100 * time.Millisecond

func openStaged(rdb *redis.Client, f *fleet, t *tally) (*staged, error) {
	s := &staged{}
	for _, addr := range f.world.Masters {
		s.masters = append(s.masters,
			redis.NewClient(&redis.Options{
				Addr: addr, ContextTimeoutEnabled: true, DialerRetries: 1, MaxRetries: -1,
			}))
	}
	p, err := stage.Open(f.opts.stage, &stage.Replica{
		Redis: rdb, DB: f.world.DB, Masters: s.masters, ZooKeeper: f.world.ZooKeeper,
		Load: func(ctx context.Context, _ string) (string, error) {
			loaded, err := f.origin.load(ctx)
			if err != nil {
				return "", err
			}
			text, err := json.Marshal(loaded)
			return string(text), err
		},
		At:  func(_ context.Context, p stage.Point) error { t.passed(p); return nil },
		Now: time.Now, LockTTL: f.opts.lockTTL, CacheTTL: f.opts.ttl, Spin: stageSpin,
	})
	if err != nil {
		return nil, errors.Join(err, s.closeMasters())
	}
	s.Protection = p
	return s, nil
}

func (s *staged) get(ctx context.Context) (tree, error) {
	text, err := s.Get(ctx, stagedKey)
	if err != nil {
		return nil, err
	}
	var t tree
	if err := json.Unmarshal([]byte(text), &t); err != nil {
		return nil, fmt.Errorf("what is cached as %q is no tree: %w", stagedKey, err)
	}
	return t, nil
}

// stagedKey is the key under which the stages cache the tree. The key of their lock is "lock:" and
// stagedKey.
const stagedKey = "catalog:" + treeKey

func (s *staged) changed(ctx context.Context) error { return s.Changed(ctx, stagedKey) }

func (s *staged) close(context.Context) error { return errors.Join(s.Close(), s.closeMasters()) }

func (s *staged) closeMasters() error {
	var errs []error
	for _, m := range s.masters {
		errs = append(errs, m.Close())
	}
	return errors.Join(errs...)
}
