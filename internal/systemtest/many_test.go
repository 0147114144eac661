package systemtest_test

import (
	"context"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/cacheguard/redisstore"
	"github.com/cacheguard/cacheguard/internal/redistest"
)

// trips counts a client's commands and pipelines.
type trips struct{ n atomic.Int64 }

func (h *trips) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		return next(ctx, network, addr)
	}
}

func (h *trips) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error { h.n.Add(1); return next(ctx, cmd) }
}

func (h *trips) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		h.n.Add(1)
		return next(ctx, cmds)
	}
}

// Four members ask for the same 100 keys at once, half of which are there: each of the others is
// loaded once in the whole fleet, and a member takes one trip to read, one for the leases, and one
// to store what it has loaded itself.
func TestManyMembersGetMany(t *testing.T) {
	const members, keys, cold = 4, 100, 50
	server := redistest.Shared(t)
	prefix := memberPrefix()
	var loads [keys]atomic.Int64
	origin := func(_ context.Context, missing []string) (map[string]int, error) {
		all := make(map[string]int)
		for _, key := range missing {
			var n int
			_, _ = fmt.Sscanf(key, "k%d", &n)
			loads[n].Add(1)
			all[key] = n
		}
		return all, nil
	}
	names := make([]string, keys)
	for i := range names {
		names[i] = fmt.Sprint("k", i)
	}
	var caches []*cacheguard.Cache[int]
	var hooks []*trips
	for range members {
		rdb := redis.NewClient(&redis.Options{Addr: server.Addr(), ContextTimeoutEnabled: true})
		defer rdb.Close()
		store, err := redisstore.New(rdb,
			redisstore.Options{Prefix: prefix, OpTimeout: replicaPatience})
		if err != nil {
			t.Fatal(err)
		}
		defer store.Close()
		cache, err := cacheguard.New(store,
			cacheguard.Options[int]{Name: "many", LeaseTTL: replicaPatience})
		if err != nil {
			t.Fatal(err)
		}
		defer cache.Close()
		if err := store.Warm(t.Context()); err != nil {
			t.Fatal(err)
		}
		h := &trips{}
		rdb.AddHook(h)
		caches, hooks = append(caches, cache), append(hooks, h)
	}
	if _, err := caches[0].GetMany(t.Context(), names[cold:], origin); err != nil {
		t.Fatal(err)
	}
	before := hooks[0].n.Load()
	var started, asking sync.WaitGroup
	gate := make(chan struct{})
	started.Add(members)
	led := make([]atomic.Int64, members)
	for i, cache := range caches {
		asking.Go(func() {
			started.Done()
			<-gate
			got, err := cache.GetMany(t.Context(), names, func(
				ctx context.Context, missing []string,
			) (map[string]int, error) {
				led[i].Add(1)
				return origin(ctx, missing)
			})
			if err != nil || len(got) != keys {
				t.Errorf("member %d got %d values, %v", i, len(got), err)
			}
			for n, name := range names {
				if got[name] != n {
					t.Errorf("member %d: %s is %d", i, name, got[name])
				}
			}
		})
	}
	started.Wait()
	close(gate)
	asking.Wait()
	for n := range loads {
		if got := loads[n].Load(); got != 1 {
			t.Errorf("%s was loaded %d times", names[n], got)
		}
	}
	for i, h := range hooks {
		took := h.n.Load()
		if i == 0 {
			took -= before
		}
		t.Logf("member %d: %d trips, %d loads", i, took, led[i].Load())
		// Messages carry the values of the loads that are waited for; with each leader a question
		// may cross them.
		if most := 2 + members + led[i].Load(); took > most {
			t.Errorf("member %d took %d trips, want at most %d", i, took, most)
		}
	}
}
