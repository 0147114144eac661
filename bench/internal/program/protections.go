package program

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/singleflight"

	"github.com/cacheguard/cacheguard/bench/internal/contender"
	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/cacheguard/lockstore"
	"github.com/cacheguard/cacheguard/cacheguard/redisstore"
	"github.com/cacheguard/cacheguard/internal/flight"
)

// protections are the ways to guard the origin, by name. Each returns how to get a key, ready to be
// used.
var protections = map[string]func(context.Context, *rig) (getter, func(), error){
	"none":               none,
	"singleflight":       single,
	"flight":             flightOnly,
	"cacheguard":         guarded,
	"redislock":          locked("redislock"),
	"redlock":            locked("redlock"),
	"zklock":             locked("zklock"),
	"sqlite":             locked("sqlite"),
	"postgresql":         locked("postgresql"),
	contender.FlightLock: polling,

	"noop": noProtection, // these two are for the calibration of simulate
	"ping": pings,
}

// order in which they are listed.
var (
	plainNames      = []string{"none", "singleflight", "flight", "cacheguard"}
	protectionNames = slices.Concat(plainNames, []string{contender.FlightLock}, lockSystemNames)
)

const valueTTL = time.Minute

// readThrough is the plain pattern: GET, load, SET.
func readThrough(ctx context.Context, rdb *redis.Client, key string, ttl time.Duration, load func(context.Context) (string, error)) (string, error) {
	v, err := rdb.Get(ctx, key).Result()
	if !errors.Is(err, redis.Nil) {
		return v, err
	}
	if v, err = load(ctx); err != nil {
		return "", err
	}
	return v, rdb.Set(ctx, key, v, ttl).Err()
}

func (r *rig) readThrough(ctx context.Context, key string) (string, error) {
	return readThrough(ctx, r.rdb, key, valueTTL, r.origin)
}

// warm sees that Redis answers.
func (r *rig) warm(ctx context.Context) error { return r.rdb.Ping(ctx).Err() }

// none has every caller read through for itself.
func none(ctx context.Context, r *rig) (getter, func(), error) {
	return func(ctx context.Context, key string) error {
		return r.check(r.readThrough(ctx, key))
	}, func() {}, r.warm(ctx)
}

// single is golang.org/x/sync/singleflight, as it comes, around the plain pattern.
func single(ctx context.Context, r *rig) (getter, func(), error) {
	var g singleflight.Group
	return func(ctx context.Context, key string) error {
		v, err, _ := g.Do(key, func() (any, error) { return r.readThrough(ctx, key) })
		s, _ := v.(string)
		return r.check(s, err)
	}, func() {}, r.warm(ctx)
}

// flightOnly is the loader's own flight without the lease, around the plain pattern: the read on
// the caller's goroutine, the load on another one, as the loader does it.
func flightOnly(ctx context.Context, r *rig) (getter, func(), error) {
	type result struct {
		v   string
		err error
	}
	errLeft := errors.New("all callers have left")
	var g flight.Group[result]
	return func(ctx context.Context, key string) error {
		f, leads := g.Join(key, 0)
		if leads {
			v, err := r.rdb.Get(ctx, key).Result()
			if !errors.Is(err, redis.Nil) {
				f.Land(result{v, err})
				return r.check(v, err)
			}
			work, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
			f.DetachTo(func() { cancel(errLeft) }, func() {})
			go func() {
				defer cancel(nil)
				v, err := r.origin(work)
				if err == nil {
					err = r.rdb.Set(context.WithoutCancel(work), key, v, valueTTL).Err()
				}
				f.Land(result{v, err})
			}()
		}
		res, err := f.Wait(ctx)
		return r.check(res.v, errors.Join(err, res.err))
	}, func() {}, r.warm(ctx)
}

// guarded is the loader.
func guarded(ctx context.Context, r *rig) (getter, func(), error) {
	return r.loader(ctx, func(s cacheguard.Store) cacheguard.Store { return s })
}

// locked is the loader with a locker's locks under its loads.
func locked(name string) func(context.Context, *rig) (getter, func(), error) {
	return func(ctx context.Context, r *rig) (getter, func(), error) {
		locker, stopLocker, err := openLocks(ctx, name, r.locks, benchLease)
		if err != nil {
			return nil, nil, err
		}
		var wrapped *lockstore.Store
		get, stop, err := r.loader(ctx, func(s cacheguard.Store) cacheguard.Store {
			wrapped = lockstore.Wrap(s, locker)
			return wrapped
		})
		if err != nil {
			stopLocker()
			return nil, nil, err
		}
		return get, func() { stop(); _ = wrapped.Close(); stopLocker() }, nil
	}
}

// loader is the loader on a store that may be wrapped.
func (r *rig) loader(ctx context.Context, wrap func(cacheguard.Store) cacheguard.Store) (getter, func(), error) {
	store, err := redisstore.New(r.rdb, redisstore.Options{})
	if err != nil {
		return nil, nil, err
	}
	cache, err := cacheguard.New(wrap(store), cacheguard.Options[string]{Name: "bench", TTL: valueTTL})
	if err != nil {
		return nil, nil, err
	}
	stop := func() {
		_ = cache.Close()
		_ = store.Close()
	}
	if err := store.Warm(ctx); err != nil {
		stop()
		return nil, nil, err
	}
	return func(ctx context.Context, key string) error {
		return r.check(cache.Get(ctx, key, r.origin))
	}, stop, nil
}
