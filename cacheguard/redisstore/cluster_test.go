package redisstore_test

import (
	"context"
	"net"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/cacheguard/cacheguard/cacheguard/storetest"
	"github.com/cacheguard/cacheguard/internal/redistest"
)

// startCluster starts a cluster of three masters.
func startCluster(t *testing.T) (addrs []string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var nodes []*redis.Client
	for range 3 {
		server := redistest.Start(t, "--cluster-enabled", "yes")
		addrs = append(addrs, server.Addr())
		nodes = append(nodes, newClient(t, server.Addr()))
	}
	const slots = 16384
	for i, node := range nodes {
		must(t, node.Do(ctx, "CLUSTER", "SET-CONFIG-EPOCH", i+1).Err())
		must(t, node.ClusterAddSlotsRange(ctx, i*slots/3, (i+1)*slots/3-1).Err())
		for _, addr := range addrs[:i] {
			host, port, _ := net.SplitHostPort(addr)
			must(t, node.ClusterMeet(ctx, host, port).Err())
		}
	}
	for _, node := range nodes {
		await(t, "the cluster stands", func() bool {
			info, err := node.ClusterInfo(ctx).Result()
			return err == nil && strings.Contains(info, "cluster_state:ok") &&
				strings.Contains(info, "cluster_known_nodes:3") && strings.Contains(info, "cluster_slots_ok:16384")
		})
	}
	return addrs
}

func TestCluster(t *testing.T) {
	t.Parallel()
	addrs := startCluster(t)
	t.Run("conformance", func(t *testing.T) {
		storetest.Run(t, func(t *testing.T) storetest.Fleet {
			return openFleet(t, clusterClient(t, addrs...), clusterClient(t, addrs...), clusterClient(t, addrs...))
		})
	})
	onCluster := func(s *site) { s.rdb = clusterClient(t, addrs...) }
	t.Run("keys of any bytes", func(t *testing.T) {
		prefix := newPrefix()
		keysOfAnyBytes(t, newReplica(t, "", prefix, onCluster), newReplica(t, "", prefix, onCluster))
	})
	t.Run("service", func(t *testing.T) {
		prefix := newPrefix()
		f := &wired{first: newReplica(t, "", prefix, onCluster), second: newReplica(t, "", prefix, onCluster)}
		f.third = newReplica(t, "", prefix, onCluster)
		for range 5 {
			f.serves(t)
		}
	})
}

// Every name that is ever in use for a key lies in one slot, in the opinion of the server.
func TestClusterSlots(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, "--cluster-enabled", "yes")
	rdb := newClient(t, server.Addr())
	r := &replica{prefix: newPrefix()}
	for _, key := range oddKeys() {
		value, err := rdb.ClusterKeySlot(t.Context(), r.valueName(key)).Result()
		must(t, err)
		lease, err := rdb.ClusterKeySlot(t.Context(), r.leaseName(key)).Result()
		must(t, err)
		if value != lease {
			t.Errorf("key %.40q has its value in slot %d and its lease in slot %d", key, value, lease)
		}
	}
}
