package drivetest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/cacheguard/memstore"
	"github.com/cacheguard/cacheguard/internal/protocol"
)

// TestRuns compares what a disturbed fleet does with what the explorer's driver does. A step that
// the explorer's driver never does has never been explored.
func TestRuns(t *testing.T) {
	d := newDrive()
	protocol.Watched.Step, protocol.Watched.Done = d.step, d.done
	defer func() { protocol.Watched.Step, protocol.Watched.Done = nil, nil }()
	for seed := range uint64(8) {
		synctest.Test(t, func(t *testing.T) { disturbed(t, seed) })
	}
	for _, what := range d.wrong() {
		t.Error(what)
	}
	if t.Logf("%d of the %d lines of the table were told", len(d.seen),
		len(d.table)); len(d.seen) < 60 {
		t.Error("few of them: the fleet is hardly disturbed")
	}
}

var errBroken = errors.New("broken")

// torn is a store whose answers get lost, sometimes after it has done what it was asked for. It
// also loses leases.
type torn struct {
	*memstore.Store
	draws *draws
}

// draws are random numbers of several goroutines.
type draws struct {
	mu sync.Mutex // guards r
	r  *rand.Rand
}

func (d *draws) below(n int) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.r.IntN(n)
}

func (d *draws) pause(most time.Duration) { time.Sleep(time.Duration(d.below(int(most)))) }

// answer carries out a command, or loses it, or its answer.
func answer[T any](s torn, do func() (T, error)) (none T, _ error) {
	s.draws.pause(3 * time.Millisecond)
	switch s.draws.below(40) {
	case 0:
		return none, errBroken
	case 1:
		_, _ = do()
		return none, errBroken
	}
	return do()
}

func (s torn) Get(
	ctx context.Context, k cacheguard.Key, tags []string,
) (f []byte, of cacheguard.Generations, _ error) {
	f, err := answer(s, func() (f []byte, err error) {
		f, of, err = s.Store.Get(ctx, k, tags)
		return f, err
	})
	return f, of, err
}

func (s torn) Lease(
	ctx context.Context, k cacheguard.Key, ask cacheguard.LeaseAsk,
) (cacheguard.LeaseAnswer, error) {
	return answer(s, func() (cacheguard.LeaseAnswer, error) { return s.Store.Lease(ctx, k, ask) })
}

func (s torn) Fill(
	ctx context.Context, k cacheguard.Key, g cacheguard.Grant, f []byte, ttl time.Duration,
) (cacheguard.FillAnswer, error) {
	return answer(s, func() (cacheguard.FillAnswer, error) {
		return s.Store.Fill(ctx, k, g, f, ttl)
	})
}

func (s torn) Conclude(
	ctx context.Context, k cacheguard.Key, g cacheguard.Grant, o cacheguard.Outcome,
	keep, backoff time.Duration,
) error {
	_, err := answer(s, func() (struct{}, error) {
		return struct{}{}, s.Store.Conclude(ctx, k, g, o, keep, backoff)
	})
	return err
}

func (s torn) Renew(
	ctx context.Context, k cacheguard.Key, g cacheguard.Grant, ttl time.Duration,
) (cacheguard.Holding, error) {
	if s.draws.below(20) == 0 {
		_ = s.Store.Invalidate(ctx, []cacheguard.Key{k})
	}
	return answer(s, func() (cacheguard.Holding, error) { return s.Store.Renew(ctx, k, g, ttl) })
}

// disturbed has three processes read and change a few keys in every way there is.
func disturbed(t *testing.T, seed uint64) {
	store := memstore.New(memstore.Options{})
	defer store.Close()
	d := &draws{r: rand.New(rand.NewPCG(seed, 0))}
	ctx, stop := context.WithTimeout(t.Context(), 2*time.Minute)
	defer stop()
	var working sync.WaitGroup
	var caches []*cacheguard.Cache[int]
	for p := range 3 {
		mode := new(cacheguard.Switch)
		if p == 2 && seed%4 == 3 {
			if err := mode.Set(cacheguard.ModeShadow); err != nil {
				t.Fatal(err)
			}
		}
		opts := cacheguard.Options[int]{
			Name: "disturbed", TTL: 5 * time.Second, StaleWhileRevalidate: 3 * time.Second,
			StaleIfError: 3 * time.Second,
			LeaseTTL:     time.Second, LoadTimeout: 3 * time.Second,
			Logger:  slog.New(slog.DiscardHandler),
			Limiter: cacheguard.NewLimiter(2, 2), Switch: mode,
		}
		if seed%2 == 1 {
			opts.OnStoreDown = cacheguard.FailClosed
		}
		c, err := cacheguard.New(cacheguard.Store(torn{store, d}), opts)
		if err != nil {
			t.Fatal(err)
		}
		caches = append(caches, c)
		for range 4 {
			working.Go(func() {
				for ctx.Err() == nil {
					use(ctx, c, d)
					d.pause(100 * time.Millisecond)
				}
			})
		}
	}
	d.pause(2 * time.Minute)
	for _, c := range caches { // while calls are under way
		c.Close()
	}
	stop()
	working.Wait()
	time.Sleep(time.Minute) // of the bubble: what was given up returns
}

// use does one thing with a cache. Its caller may leave.
func use(ctx context.Context, c *cacheguard.Cache[int], d *draws) {
	if d.below(5) == 0 {
		var leave context.CancelFunc
		ctx, leave = context.WithTimeout(ctx, time.Duration(d.below(int(time.Second))))
		defer leave()
	}
	key := fmt.Sprint(d.below(4))
	load := func(ctx context.Context) (int, error) {
		most := 50 * time.Millisecond
		if d.below(4) == 0 {
			most = 2 * time.Second
		}
		d.pause(most)
		if d.below(8) == 0 {
			return 0, errBroken
		}
		return 1, ctx.Err()
	}
	switch d.below(24) {
	case 0:
		_ = c.Invalidate(ctx, key)
	case 1:
		_ = c.MarkStale(ctx, key)
	case 2:
		_ = c.Set(ctx, key, 1)
	case 3, 4:
		_, _ = c.Update(ctx, key, load)
	case 5, 6:
		_, _ = c.Refresh(ctx, key, load)
	case 7, 8:
		_, _ = c.GetMany(ctx, []string{key, "2", "3"}, func(
			ctx context.Context, keys []string,
		) (map[string]int, error) {
			_, err := load(ctx)
			all := map[string]int{}
			for _, k := range keys {
				all[k] = 1
			}
			return all, err
		})
	case 9, 10:
		_, _ = c.GetEntry(ctx, key, func(
			ctx context.Context, _ cacheguard.Result[int],
		) (cacheguard.Entry[int], error) {
			v, err := load(ctx)
			e := cacheguard.Entry[int]{Value: v}
			if d.below(2) == 0 {
				e.NoShare = true
			} else {
				e.NoStore = true
			}
			return e, err
		})
	default:
		_, _ = c.Get(ctx, key, load)
	}
}
