package redisstore_test

import (
	"sync"
	"testing"

	"github.com/cacheguard/cacheguard/cacheguard/redisstore"
	"github.com/cacheguard/cacheguard/internal/redistest"
)

// TestCrowdReadsInBatches: the readers of a crowd read in batches. Direct reads would cost a trip
// each, and so would batches that are sent before the readers that can run have joined them. With
// either, it takes thousands of trips.
func TestCrowdReadsInBatches(t *testing.T) {
	const readers, each = 64, 200
	server := redistest.Start(t)
	rdb := newClient(t, server.Addr())
	store := newStore(t, rdb, redisstore.Options{})
	_, _, err := store.Get(t.Context(), testKey, nil) // measures the server's clock
	must(t, err)
	must(t, redistest.ResetStats(t.Context(), rdb))
	var reading sync.WaitGroup
	for range readers {
		reading.Go(func() {
			for range each {
				if _, _, err := store.Get(t.Context(), testKey, nil); err != nil {
					t.Error(err)
				}
			}
		})
	}
	reading.Wait()
	stats, err := redistest.CommandStats(t.Context(), rdb)
	must(t, err)
	if trips := stats["GET"] + stats["MGET"]; trips > readers*each/8 {
		t.Errorf("%d readers read %d values in %d trips, %d of them direct; want at most an eighth", readers, readers*each, trips, stats["GET"])
	}
}
