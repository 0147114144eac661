package redisstore_test

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/cacheguard/cacheguard/cacheguard/redisstore"
	"github.com/cacheguard/cacheguard/internal/redistest"
	"github.com/cacheguard/cacheguard/internal/waittest"
)

// TestCrowdReadsInBatches: the readers of a crowd read in batches. Direct reads would cost a trip
// each, and so would batches that are sent before the readers that can run have joined them. With
// either, it takes thousands of trips.
func TestCrowdReadsInBatches(t *testing.T) {
	const readers, each = 64, 200
	server := redistest.Start(t)
	rdb := newClient(t, server.Addr())
	store := newStore(t, rdb, redisstore.Options{OpTimeout: time.Minute})
	store.SetSlowTrip(time.Hour)
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
		t.Errorf("%d readers read %d values in %d trips, %d of them direct; want at most an eighth",
			readers, readers*each, trips, stats["GET"])
	}
}

// gateHook lets each GET and each MGET wait. It calls breaks at the next MGET, if that is set.
type gateHook struct {
	get, mget gate
	came      atomic.Int64 // the reads that have come to the gates
	breaks    atomic.Pointer[func()]
}

// begun returns how many reads have come to the gates or are in a batch that is not sent yet. A
// read under way may not have got so far, and would be sent otherwise once the gates are open.
func (h *gateHook) begun(store *redisstore.Store) int {
	came := h.came.Load() // first: a batch that is sent meanwhile must not be counted twice
	return int(came) + store.ReadsCollected()
}

// gate is passed when it is open. arrived gets a value from each command that comes to it.
type gate struct {
	arrived, opened chan struct{}
	open            func()
}

func newGate(t *testing.T) gate {
	opened := make(chan struct{})
	g := gate{make(chan struct{}, 100), opened, sync.OnceFunc(func() { close(opened) })}
	t.Cleanup(g.open) // before the store is closed, which waits for all reads
	return g
}

func (g gate) pass() {
	g.arrived <- struct{}{}
	<-g.opened
}

func (h *gateHook) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h *gateHook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (h *gateHook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		switch cmd.Name() {
		case "get": // a direct read
			h.came.Add(1)
			h.get.pass()
		case "mget": // a batch
			if breaks := h.breaks.Swap(nil); breaks != nil {
				(*breaks)()
			}
			h.came.Add(int64(len(cmd.Args()) - 1))
			h.mget.pass()
		}
		return next(ctx, cmd)
	}
}

// crowd begins four direct reads, and then this many reads in batches.
func (h *gateHook) crowd(
	t *testing.T, store *redisstore.Store, more int,
) (reading *sync.WaitGroup) {
	t.Helper()
	reading = new(sync.WaitGroup)
	h.came.Store(0)
	for i := range 4 + more {
		reading.Go(func() {
			if _, _, err := store.Get(context.Background(), testKey, nil); err != nil {
				t.Error(err)
			}
		})
		if i < 4 {
			<-h.get.arrived
		}
	}
	waittest.Until(t, "all reads have begun", func() bool { return h.begun(store) == 4+more })
	return reading
}

func newGated(t *testing.T) (*gateHook, *redisstore.Store) {
	rdb := newClient(t, redistest.Start(t).Addr())
	store := newStore(t, rdb, redisstore.Options{OpTimeout: time.Minute})
	must(t, store.Warm(t.Context()))
	hook := &gateHook{get: newGate(t), mget: newGate(t)}
	rdb.AddHook(hook)
	return hook, store
}

// TestDirectReadsOfACrowd: in a crowd no read is direct, even if no other is, unless batches are
// slow.
func TestDirectReadsOfACrowd(t *testing.T) {
	for _, slow := range []bool{false, true} {
		t.Run(fmt.Sprintf("slow: %v", slow), func(t *testing.T) {
			hook, store := newGated(t)
			store.SetSlowTrip(time.Hour)
			if slow {
				store.SetSlowTrip(0)
			}
			first := hook.crowd(t, store, 1) // its batch is slow, or not
			hook.mget.open()
			hook.get.open()
			first.Wait()

			hook.get, hook.mget = newGate(t), newGate(t)
			reading := hook.crowd(t, store, 5)
			hook.get.open()
			waittest.Until(t, "reads under way", func() bool { return store.ReadsUnderWay() == 5 })
			var last sync.WaitGroup
			last.Go(func() {
				if _, _, err := store.Get(context.Background(), testKey, nil); err != nil {
					t.Error(err)
				}
			})
			if slow { // the batches still wait
				waittest.Next(t, "a direct read", hook.get.arrived)
				last.Wait()
			} else {
				waittest.Until(t, "the last read has begun", func() bool {
					return hook.begun(store) == 4+5+1
				})
			}
			hook.mget.open()
			reading.Wait()
			last.Wait()
			if len(hook.get.arrived) > 0 {
				t.Error("a direct read in a crowd, whose batches are not slow")
			}
		})
	}
}

// TestBatchThatBreaks: if a hook of the client panics, or ends the goroutine that sends a batch,
// its readers get an error, and the next batch is sent.
func TestBatchThatBreaks(t *testing.T) {
	for how, breaks := range map[string]func(){
		"has ended the goroutine": runtime.Goexit,
		"panicked: boom":          func() { panic("boom") },
	} {
		t.Run(how, func(t *testing.T) {
			hook, store := newGated(t)
			hook.breaks.Store(&breaks)
			direct := hook.crowd(t, store, 0)
			if _, _, err := store.Get(t.Context(), testKey, nil); err == nil ||
				!strings.Contains(err.Error(), "hook of the client "+how) {
				t.Errorf("the read whose batch broke: %v", err)
			}
			hook.mget.open()
			if _, _, err := store.Get(t.Context(), testKey, nil); err != nil {
				t.Errorf("the next read: %v", err)
			}
			hook.get.open()
			direct.Wait()
			must(t, store.Close())
		})
	}
}
