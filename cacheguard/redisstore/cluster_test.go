package redisstore_test

import (
	"testing"

	"github.com/cacheguard/cacheguard/cacheguard/storetest"
	"github.com/cacheguard/cacheguard/internal/redistest"
)

func TestCluster(t *testing.T) {
	t.Parallel()
	addrs := redistest.StartCluster(t, 3, 0).Addrs()
	t.Run("conformance", func(t *testing.T) {
		storetest.Run(t, func(t *testing.T) storetest.Fleet {
			return openFleet(t, clusterClient(t, addrs...), clusterClient(t, addrs...),
				clusterClient(t, addrs...))
		})
	})
	onCluster := func(s *site) { s.rdb = clusterClient(t, addrs...) }
	t.Run("keys of any bytes", func(t *testing.T) {
		prefix := newPrefix()
		keysOfAnyBytes(t, newReplica(t, "", prefix, onCluster),
			newReplica(t, "", prefix, onCluster))
	})
	t.Run("service", func(t *testing.T) {
		prefix := newPrefix()
		f := &wired{
			first:  newReplica(t, "", prefix, onCluster),
			second: newReplica(t, "", prefix, onCluster),
		}
		f.third = newReplica(t, "", prefix, onCluster)
		for range 5 {
			f.serves(t)
		}
	})
}

// The server computes the same slot for all names that are used for a key.
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
			t.Errorf("key %.40q has its value in slot %d and its lease in slot %d", key, value,
				lease)
		}
	}
}
