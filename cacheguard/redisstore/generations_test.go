package redisstore_test

import (
	"context"
	"fmt"
	"maps"
	"testing"
	"time"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/internal/redistest"
)

// The generation of a whole cache is also stored by itself, for values without tags. If this key,
// or the set that also has the generation, is damaged, values stay valid. Invalidations still take
// effect, those from before the damage and later ones.
func TestWholeGenerationIsHarmed(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	for what, harm := range map[string]func(ctx context.Context, r *replica) error{
		"evicted": func(ctx context.Context, r *replica) error {
			return r.rdb.Del(ctx, r.whole()).Err()
		},
		"set evicted": func(ctx context.Context, r *replica) error {
			return r.rdb.Del(ctx, r.generations()).Err()
		},
		"text": func(ctx context.Context, r *replica) error {
			return r.rdb.Set(ctx, r.whole(), "soon", 0).Err()
		},
		"zero": func(ctx context.Context, r *replica) error {
			return r.rdb.Set(ctx, r.whole(), "0", 0).Err()
		},
		"negative": func(ctx context.Context, r *replica) error {
			return r.rdb.Set(ctx, r.whole(), "-5", 0).Err()
		},
		"signed": func(ctx context.Context, r *replica) error {
			return r.rdb.Set(ctx, r.whole(), "+5", 0).Err()
		},
		"a fraction": func(ctx context.Context, r *replica) error {
			return r.rdb.Set(ctx, r.whole(), "1.5", 0).Err()
		},
		"a list": func(ctx context.Context, r *replica) error {
			return r.rdb.Eval(ctx,
				"redis.call('DEL', KEYS[1]) return redis.call('RPUSH', KEYS[1], 'x')",
				[]string{r.whole()}).Err()
		},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			a, b := twoTagged(t, server.Addr())
			must(t, harm(t.Context(), a))
			b.getEntry(t, "plain", notTagged(t)).hit(t, "v")

			must(t, a.cache.InvalidateAll(t.Context()))
			must(t, harm(t.Context(), a))
			for _, r := range []*replica{a, b} {
				if res, err := r.cache.Peek(t.Context(), "plain"); err != nil ||
					res.Status != cacheguard.StatusMiss {
					t.Errorf("what was invalidated before the harm is %+v, %v", res, err)
				}
			}
			a.getEntry(t, "plain", newOrigin("new").tagged()).is(t, "new")
			b.getEntry(t, "plain", notTagged(t)).hit(t, "new")
			must(t, harm(t.Context(), a))
			must(t, b.cache.InvalidateAll(t.Context()))
			for _, r := range []*replica{a, b} {
				if res, err := r.cache.Peek(t.Context(), "plain"); err != nil ||
					res.Status != cacheguard.StatusMiss {
					t.Errorf("what was invalidated after the harm is %+v, %v", res, err)
				}
			}
		})
	}
}

// An impossible number doesn't keep a cache empty: values that are loaded after it are valid.
func TestWholeGenerationInTheFuture(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	for _, whole := range []string{
		"9007199254740991", "9007199254740993", "99999999999999999999999",
		fmt.Sprint(time.Now().Add(time.Hour).UnixMicro()),
	} {
		t.Run(whole, func(t *testing.T) {
			t.Parallel()
			a, b := twoTagged(t, server.Addr())
			must(t, a.rdb.Set(t.Context(), a.whole(), whole, 0).Err())
			servedOf(t, "a forged generation of the whole", "plain", nil, a, b)
			b.toldOfTags(t, func() { must(t, a.cache.InvalidateAll(t.Context())) })
			for _, r := range []*replica{a, b} {
				if res, err := r.cache.Peek(t.Context(), "plain"); err != nil ||
					res.Status != cacheguard.StatusMiss {
					t.Errorf("an invalidation after the forged one left %+v, %v", res, err)
				}
			}
			servedOf(t, "then an invalidation", "plain", nil, a, b)
		})
	}
}

// A read of a value without tags costs one command, also after the value was invalidated and loaded
// again.
func TestHitIsOneCommand(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	proxy := redistest.StartProxy(t, server.Addr())
	r := newReplica(t, proxy.Addr(), newPrefix())
	r.listens(t)
	sent := stepsOf(t, proxy)
	for _, v := range []string{"v", "w"} {
		r.getEntry(t, "plain", newOrigin(v).tagged()).is(t, v)
		sent()
		for range 10 {
			r.getEntry(t, "plain", notTagged(t)).hit(t, v)
		}
		if got, want := sent(), map[string]int64{"MGET": 10}; !maps.Equal(got, want) {
			t.Errorf("10 hits sent %v; want %v", got, want)
		}
		must(t, r.cache.InvalidateAll(t.Context()))
	}
}
