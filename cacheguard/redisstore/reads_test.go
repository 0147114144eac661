package redisstore_test

import (
	"context"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

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

// gateHook lets each GET wait, and ends the goroutine of the first MGET.
type gateHook struct {
	gate  chan struct{}
	waits chan struct{}
	ended atomic.Bool
}

func (h *gateHook) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h *gateHook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (h *gateHook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		switch {
		case cmd.Name() == "get":
			h.waits <- struct{}{}
			<-h.gate
		case cmd.Name() == "mget" && h.ended.CompareAndSwap(false, true):
			runtime.Goexit()
		}
		return next(ctx, cmd)
	}
}

// TestGoexitInABatch: if a hook of the client ends the goroutine that sends a batch, its readers get
// an error, and the next batch is sent.
func TestGoexitInABatch(t *testing.T) {
	server := redistest.Start(t)
	rdb := newClient(t, server.Addr())
	store := newStore(t, rdb, redisstore.Options{OpTimeout: time.Minute})
	must(t, store.Warm(t.Context()))
	hook := &gateHook{gate: make(chan struct{}), waits: make(chan struct{})}
	rdb.AddHook(hook)
	var direct sync.WaitGroup
	for range 4 { // as many as read directly
		direct.Go(func() {
			if _, _, err := store.Get(t.Context(), testKey, nil); err != nil {
				t.Error(err)
			}
		})
		<-hook.waits
	}
	if _, _, err := store.Get(t.Context(), testKey, nil); err == nil || !strings.Contains(err.Error(), "hook") {
		t.Errorf("the read whose goroutine has ended: %v", err)
	}
	if _, _, err := store.Get(t.Context(), testKey, nil); err != nil {
		t.Errorf("the next read: %v", err)
	}
	close(hook.gate)
	direct.Wait()
	must(t, store.Close())
}
