package redisstore_test

import (
	"context"
	"strings"
	"testing"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/cacheguard/redisstore"
	"github.com/cacheguard/cacheguard/cacheguard/storetest"
	"github.com/cacheguard/cacheguard/internal/redistest"
)

// conformancePrefix begins the names of all keys of the suite.
const conformancePrefix = "suite"

func TestConformance(t *testing.T) {
	t.Parallel()
	addr := redistest.Start(t).Addr()
	storetest.Run(t, func(t *testing.T) storetest.Fleet {
		return openFleet(t, newClient(t, addr), newClient(t, addr), newClient(t, addr))
	})
}

// TestConformanceDefaultClient uses clients that ignore contexts.
func TestConformanceDefaultClient(t *testing.T) {
	t.Parallel()
	addr := redistest.Start(t).Addr()
	storetest.Run(t, func(t *testing.T) storetest.Fleet {
		return openFleet(t, defaultClient(t, addr), defaultClient(t, addr), newClient(t, addr))
	})
}

// TestConformanceOwnClient uses clients of the user's own type.
func TestConformanceOwnClient(t *testing.T) {
	t.Parallel()
	addr := redistest.Start(t).Addr()
	storetest.Run(t, func(t *testing.T) storetest.Fleet {
		return openFleet(t, own{newClient(t, addr)}, own{newClient(t, addr)}, newClient(t, addr))
	})
}

func TestConformanceMiniredis(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T) storetest.Fleet {
		server := miniredis.RunT(t)
		// With a clock, miniredis sorts all of its keys for each command.
		server.ClockTTL(!strings.HasSuffix(t.Name(), "/many:_a_thousand"))
		fleet := openFleet(t, newClient(t, server.Addr()), newClient(t, server.Addr()),
			newClient(t, server.Addr()))
		fleet.LoseMessages = nil // miniredis has no CLIENT KILL
		return fleet
	})
}

// openFleet returns two processes with a client each, and a third client that causes damage.
func openFleet(t *testing.T, a, b, other redis.UniversalClient) storetest.Fleet {
	t.Helper()
	ctx := t.Context()
	const opTimeout = 4 * patience // miniredis takes its time
	value := func(k cacheguard.Key) string { return redisstore.ValueName(conformancePrefix, k) }
	lease := func(k cacheguard.Key) string { return redisstore.LeaseName(conformancePrefix, k) }
	return storetest.Fleet{
		Stores: []cacheguard.Store{
			newStore(t, a, redisstore.Options{Prefix: conformancePrefix, OpTimeout: opTimeout}),
			newStore(t, b, redisstore.Options{Prefix: conformancePrefix, OpTimeout: opTimeout}),
		},
		WrongType: func(k cacheguard.Key) {
			must(t, other.Del(ctx, value(k)).Err())
			must(t, other.LPush(ctx, value(k), "not", "a", "string").Err())
		},
		LoseLease: func(k cacheguard.Key) { must(t, other.Del(ctx, lease(k)).Err()) },
		SpoilLease: func(k cacheguard.Key) {
			must(t, other.Set(ctx, lease(k), "by another program", 0).Err())
		},
		LoseMessages: func() {
			if cluster, ok := other.(*redis.ClusterClient); ok {
				must(t, cluster.ForEachShard(ctx, killSubscriptions[*redis.Client]))
			} else {
				must(t, killSubscriptions(ctx, other))
			}
		},
	}
}

func killSubscriptions[C redis.UniversalClient](ctx context.Context, rdb C) error {
	return rdb.Do(ctx, "CLIENT", "KILL", "TYPE", "pubsub").Err()
}
