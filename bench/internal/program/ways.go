package program

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/singleflight"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/cacheguard/redisstore"
)

// stand is what a way to keep one hot key is built on.
type stand struct {
	rdb     *redis.Client
	origin  *origin
	key     string
	ttl     time.Duration
	backoff time.Duration
}

// asker asks for the stand's key. stale is the protection's own word.
type asker func(ctx context.Context) (value string, stale bool, err error)

// ways are the protections of a hot key, by name. Each returns how to ask, ready to be used, and
// how to end.
var ways = map[string]func(context.Context, *stand) (asker, func(), error){
	"noop":         noop,
	"get":          plainGet,
	"singleflight": hotSingle,
	"xfetch":       xfetch,

	"cacheguard":           hotGuarded(func(*options) {}),
	"cacheguard-swr":       hotGuarded(func(o *options) { o.StaleWhileRevalidate = hour }),
	"cacheguard-early":     hotGuarded(func(o *options) { o.EarlyRefresh = 1 }),
	"cacheguard-early+swr": hotGuarded(func(o *options) { o.EarlyRefresh, o.StaleWhileRevalidate = 1, hour }),

	"cacheguard-stale":          hotGuarded(func(o *options) { o.StaleIfError, o.StaleWhileRevalidate = hour, hour }),
	"cacheguard-stale-if-error": hotGuarded(func(o *options) { o.StaleIfError = hour }),
}

type options = cacheguard.Options[string]

const hour = time.Hour // a stale window that doesn't end

// noop is the generator alone.
func noop(_ context.Context, s *stand) (asker, func(), error) {
	value := newVersion(time.Now(), s.origin.replica).value(s.origin.size)
	return func(context.Context) (string, bool, error) { return value, false, nil }, func() {}, nil
}

// plainGet is one GET of a key that never expires: the floor of whatever asks Redis.
func plainGet(ctx context.Context, s *stand) (asker, func(), error) {
	value := newVersion(time.Now(), s.origin.replica).value(s.origin.size)
	return func(ctx context.Context) (string, bool, error) {
		v, err := s.rdb.Get(ctx, s.key).Result()
		return v, false, err
	}, func() {}, s.rdb.SetNX(ctx, s.key, value, 24*time.Hour).Err()
}

// hotSingle is golang.org/x/sync/singleflight, as it comes, around the plain pattern.
func hotSingle(ctx context.Context, s *stand) (asker, func(), error) {
	var g singleflight.Group
	load := func(ctx context.Context) (string, error) { return s.origin.load(ctx, 0) }
	return func(ctx context.Context) (string, bool, error) {
		v, err, _ := g.Do(s.key, func() (any, error) { return readThrough(ctx, s.rdb, s.key, s.ttl, load) })
		value, _ := v.(string)
		return value, false, err
	}, func() {}, s.rdb.Ping(ctx).Err()
}

// xfetch is XFetch with a beta of 1 in each process, and no lease between them: what is stored
// carries its expiry and how long its load took; each reader draws, and one who is early has it
// loaded behind its back.
func xfetch(ctx context.Context, s *stand) (asker, func(), error) {
	var reads, loads singleflight.Group
	var behind sync.WaitGroup
	load := func(ctx context.Context, replaces version) (string, error) {
		v, err, _ := loads.Do(s.key, func() (any, error) {
			began := time.Now()
			value, err := s.origin.load(ctx, replaces)
			if err != nil {
				return "", err
			}
			now := time.Now()
			head := fmt.Sprintf("%d %d ", now.Add(s.ttl).UnixNano(), now.Sub(began))
			return value, s.rdb.Set(context.WithoutCancel(ctx), s.key, head+value, s.ttl).Err()
		})
		value, _ := v.(string)
		return value, err
	}
	return func(ctx context.Context) (string, bool, error) {
		v, err, _ := reads.Do(s.key, func() (any, error) { return s.rdb.Get(ctx, s.key).Result() })
		if errors.Is(err, redis.Nil) {
			value, err := load(ctx, 0)
			return value, false, err
		} else if err != nil {
			return "", false, err
		}
		expiry, took, value := parseXFetch(v.(string))
		if float64(time.Now().UnixNano())-took*math.Log(rand.Float64()) >= expiry {
			seen, _ := versionOf(value, s.origin.size)
			behind.Go(func() { _, _ = load(ctx, seen) })
		}
		return value, false, nil
	}, behind.Wait, s.rdb.Ping(ctx).Err()
}

func parseXFetch(stored string) (expiry, took float64, value string) {
	first, rest, _ := strings.Cut(stored, " ")
	second, value, _ := strings.Cut(rest, " ")
	expiry, _ = strconv.ParseFloat(first, 64)
	took, _ = strconv.ParseFloat(second, 64)
	return expiry, took, value
}

// hotGuarded is the loader with these options.
func hotGuarded(with func(*options)) func(context.Context, *stand) (asker, func(), error) {
	return func(ctx context.Context, s *stand) (asker, func(), error) {
		store, err := redisstore.New(s.rdb, redisstore.Options{})
		if err != nil {
			return nil, nil, err
		}
		o := options{Name: "bench", TTL: s.ttl, Jitter: -1, Backoff: s.backoff}
		with(&o)
		cache, err := cacheguard.New(store, o)
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
		load := func(ctx context.Context, prev cacheguard.Result[string]) (cacheguard.Entry[string], error) {
			var replaces version
			if prev.Status != cacheguard.StatusMiss {
				replaces, _ = versionOf(prev.Value, s.origin.size)
			}
			v, err := s.origin.load(ctx, replaces)
			return cacheguard.Entry[string]{Value: v}, err
		}
		return func(ctx context.Context) (string, bool, error) {
			r, err := cache.GetEntry(ctx, s.key, load)
			return r.Value, r.Status == cacheguard.StatusStale, err
		}, stop, nil
	}
}
