package redisstore_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/cacheguard/redisstore"
	"github.com/cacheguard/cacheguard/internal/redistest"
	"github.com/cacheguard/cacheguard/internal/waittest"
)

// sizesHook notes how many reads each batch and how many steps each pipeline has. Reads wait at the
// gate. If silent is set, batches get no answer.
type sizesHook struct {
	gateHook // for dials, which pass
	gate     gate
	silent   bool

	mu    sync.Mutex
	most  int // reads in the largest batch
	steps int // steps in the largest pipeline
}

func (h *sizesHook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		switch cmd.Name() {
		case "get":
			<-h.gate.opened
		case "mget":
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

func (h *sizesHook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		h.mu.Lock()
		h.steps = max(h.steps, len(cmds))
		h.mu.Unlock()
		return next(ctx, cmds)
	}
}

// crowd reads a key 100 times at the same moment, and returns the number of reads in the largest
// batch.
func (h *sizesHook) crowd(t *testing.T, store *redisstore.Store, silent bool) int {
	t.Helper()
	const readers = 100
	h.gate, h.silent, h.most = newGate(t), silent, 0
	var reading sync.WaitGroup
	for range readers {
		reading.Go(func() {
			if _, _, err := store.Get(context.Background(), testKey, nil); err != nil && !silent {
				t.Error(err)
			}
		})
	}
	waittest.Until(t, "reads under way", func() bool { return store.ReadsUnderWay() == readers })
	h.gate.open()
	reading.Wait()
	waittest.Until(t, "no batch is left", func() bool { return store.Lanes() == 0 })
	return h.most
}

// TestBatchesFitIntoTheirTime: a batch of large values has few reads. Otherwise it would take longer
// than the time for a step, and all of its reads would fail, as often as they are repeated.
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
		must(t, newClient(t, rdb.Options().Addr).Set(t.Context(), redisstore.ValueName(prefix, testKey), strings.Repeat("x", size), 0).Err())
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
		t.Errorf("after batches of all sizes were without an answer, one has %d reads, want 2 at most", most)
	}
	write(large << 3)
	hook.crowd(t, store, false)
	if most := hook.crowd(t, store, false); most != 1 {
		t.Errorf("a batch has %d reads of 1.6 MiB, want 1", most)
	}
}

// TestManyFitIntoTheirTime: GetMany and FillMany send large values in several trips. Otherwise these
// would never be read, and never be stored.
func TestManyFitIntoTheirTime(t *testing.T) {
	rdb := newClient(t, redistest.Start(t).Addr())
	store := newStore(t, rdb, redisstore.Options{Prefix: newPrefix(), OpTimeout: time.Minute})
	must(t, store.Warm(t.Context()))
	hook := &sizesHook{gate: newGate(t)}
	hook.gate.open()
	rdb.AddHook(hook)
	const n, large = 40, 200 << 10
	keys := make([]cacheguard.Key, n)
	for i := range keys {
		keys[i] = cacheguard.Key{Cache: "test", Key: fmt.Sprint(i)}
	}
	fill := func(size int) {
		t.Helper()
		asks, fills := make([]cacheguard.LeaseAsk, n), make([]cacheguard.FillAsk, n)
		for i := range asks {
			asks[i] = cacheguard.LeaseAsk{Token: cacheguard.ID{1, byte(i)}, TTL: longLease}
		}
		for i, r := range store.LeaseMany(t.Context(), keys, asks) {
			must(t, r.Err)
			fills[i] = cacheguard.FillAsk{Key: keys[i], Grant: r.Answer.Grant, Frame: []byte(strings.Repeat("x", size)), TTL: longLease}
		}
		hook.steps = 0
		for i, r := range store.FillMany(t.Context(), fills) {
			if r.Err != nil || r.Answer != cacheguard.FillStored {
				t.Fatalf("fill %d of %d: %v, %v; want it stored", i, n, r.Answer, r.Err)
			}
		}
	}
	// read returns the number of reads in the largest trip.
	read := func(size int) int {
		t.Helper()
		hook.most = 0
		replies, _ := store.GetMany(t.Context(), keys, nil)
		for i, r := range replies {
			if r.Err != nil || len(r.Answer) != size {
				t.Fatalf("value %d of %d has %d bytes, %v; want %d", i, n, len(r.Answer), r.Err, size)
			}
		}
		return hook.most
	}

	fill(large)
	if hook.steps > 5 {
		t.Errorf("a trip has %d fills of 200 KiB, want 5 at most", hook.steps)
	}
	if most := read(large); most != n {
		t.Errorf("while no size is known, a trip has %d reads, want %d", most, n)
	}
	for range 6 { // each trip halves what is missing to the size of these values
		read(large)
	}
	if most := read(large); most > 6 {
		t.Errorf("a trip has %d reads of 200 KiB, want 6 at most", most)
	}

	must(t, store.Invalidate(t.Context(), keys))
	fill(5)
	if hook.steps != n {
		t.Errorf("a trip has %d fills of 5 bytes, want %d", hook.steps, n)
	}
	for range 3 {
		read(5)
	}
	if most := read(5); most != n {
		t.Errorf("a trip has %d reads of 5 bytes, want %d", most, n)
	}
	hook.silent = true
	store.GetMany(t.Context(), keys, nil)
	hook.silent = false
	waittest.Until(t, "reads work", func() bool {
		_, _, err := store.Get(t.Context(), testKey, nil)
		return err == nil
	})
	if most := read(5); most >= n {
		t.Errorf("after trips had no answer, one has %d reads, want less than %d", most, n)
	}
}
