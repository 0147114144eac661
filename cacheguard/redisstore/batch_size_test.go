package redisstore_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/cacheguard/cacheguard/cacheguard/redisstore"
	"github.com/cacheguard/cacheguard/internal/redistest"
	"github.com/cacheguard/cacheguard/internal/waittest"
)

// sizesHook notes how many reads each batch has. Reads wait at the gate. If silent is set, batches
// get no answer.
type sizesHook struct {
	gateHook // counts the reads; dials and pipelines pass
	gate     gate
	silent   bool

	mu   sync.Mutex
	most int // reads in the largest batch
}

func (h *sizesHook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		switch cmd.Name() {
		case "get":
			h.came.Add(1)
			<-h.gate.opened
		case "mget":
			h.came.Add(int64(len(cmd.Args()) - 1))
			<-h.gate.opened
			h.mu.Lock()
			h.most = max(h.most, len(cmd.Args())-1)
			h.mu.Unlock()
			if h.silent {
				cmd.SetErr(context.DeadlineExceeded)
				return context.DeadlineExceeded
			}
		}
		return next(ctx, cmd)
	}
}

// crowd reads a key 100 times at the same moment, and returns the number of reads in the largest
// batch.
func (h *sizesHook) crowd(t *testing.T, store *redisstore.Store, silent bool) int {
	t.Helper()
	const readers = 100
	h.gate, h.silent, h.most = newGate(t), silent, 0
	h.came.Store(0)
	var reading sync.WaitGroup
	for range readers {
		reading.Go(func() {
			if _, _, err := store.Get(context.Background(), testKey, nil); err != nil && !silent {
				t.Error(err)
			}
		})
	}
	waittest.Until(t, "all reads have begun", func() bool { return h.begun(store) == readers })
	h.gate.open()
	reading.Wait()
	waittest.Until(t, "no batch is left", func() bool { return store.Lanes() == 0 })
	return h.most
}

// TestBatchesFitIntoTheirTime: a batch of large values has few reads. Otherwise it would take
// longer than the time for a step, and all of its reads would fail, as often as they are repeated.
func TestBatchesFitIntoTheirTime(t *testing.T) {
	rdb := newClient(t, redistest.Start(t).Addr())
	prefix := newPrefix()
	store := newStore(t, rdb, redisstore.Options{Prefix: prefix, OpTimeout: time.Minute})
	store.SetSlowTrip(time.Hour)
	must(t, store.Warm(t.Context()))
	_, _, err := store.Get(t.Context(), testKey, nil) // measures the server's clock
	must(t, err)
	hook := &sizesHook{}
	rdb.AddHook(hook)
	write := func(size int) {
		must(t,
			newClient(t, rdb.Options().Addr).Set(t.Context(), redisstore.ValueName(prefix, testKey),
				strings.Repeat("x", size), 0).Err())
	}
	const large = 200 << 10

	write(large)
	if most := hook.crowd(t, store, false); most > 32 {
		t.Errorf("while no size is known, a batch has %d reads, want 32 at most", most)
	}
	if most := hook.crowd(t, store, false); most > 6 {
		t.Errorf("a batch has %d reads of 200 KiB, want 6 at most", most)
	}
	write(5)
	hook.crowd(t, store, false)
	// While the first batch waits, the others collect, and half of the reads are in one batch.
	before := hook.crowd(t, store, false)
	if before <= 32 {
		t.Errorf("the largest batch has %d reads of 5 bytes, want more than at first", before)
	}
	for range 4 {
		hook.crowd(t, store, true)
		waittest.Until(t, "reads work", func() bool {
			_, _, err := store.Get(t.Context(), testKey, nil)
			return err == nil
		})
	}
	if most := hook.crowd(t, store, false); most > 2 {
		t.Errorf("after batches of all sizes were without an answer, one has %d reads, want 2 at most",
			most)
	}
	write(large << 3)
	hook.crowd(t, store, false)
	if most := hook.crowd(t, store, false); most != 1 {
		t.Errorf("a batch has %d reads of 1.6 MiB, want 1", most)
	}
}
