package cacheguard_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/cacheguard/guardtest"
)

// speaking is a store for which a test can speak to its caches, and answer for it when the lease is
// asked for.
type speaking struct {
	*tampered
	lease func(cacheguard.LeaseAnswer) cacheguard.LeaseAnswer // nil: as it is

	mu   sync.Mutex // guards tell
	tell []func(cacheguard.Message)
}

func (s *speaking) Listen(cache string, tell func(cacheguard.Message)) func() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tell = append(s.tell, tell)
	return s.tampered.Listen(cache, tell)
}

func (s *speaking) says(m cacheguard.Message) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, tell := range s.tell {
		tell(m)
	}
}

func (s *speaking) Lease(ctx context.Context, k cacheguard.Key, ask cacheguard.LeaseAsk) (cacheguard.LeaseAnswer, error) {
	ans, err := s.tampered.Lease(ctx, k, ask)
	if err == nil && s.lease != nil {
		ans = s.lease(ans)
	}
	return ans, err
}

// exitingObserver ends the goroutine on which it is told of this kind of event.
type exitingObserver struct{ on cacheguard.EventKind }

func (o exitingObserver) Observe(_ context.Context, e cacheguard.Event) {
	if e.Kind == o.on {
		runtime.Goexit()
	}
}

// gateObserver holds up who tells it that a wait for this key is over.
type gateObserver struct {
	guardtest.Recorder
	key  string
	gate chan struct{}
}

func (o *gateObserver) Observe(ctx context.Context, e cacheguard.Event) {
	if e.Kind == cacheguard.EventWaited && e.Key == o.key {
		<-o.gate
	}
	o.Recorder.Observe(ctx, e)
}

// Keys of a batch that come back one after another while there is no slot are asked for together
// when there are some. Each load of theirs has its leases renewed.
func TestGetManyRenewsEachLoad(t *testing.T) {
	manyBubble(t, cacheguard.Options[string]{}, func(t *testing.T, store *tampered, a, _ *cacheguard.Cache[string], o *bulk) {
		events := &gateObserver{key: "3", gate: make(chan struct{})}
		b := openOn(t, store, cacheguard.Options[string]{Limiter: cacheguard.NewLimiter(2, 10), Observer: events})
		leaders, keys := newScriptedOrigin[string](t), []string{"1", "2", "3"}
		leave := make(map[string]func())
		for _, key := range keys {
			var ctx context.Context
			ctx, leave[key] = context.WithCancel(t.Context())
			getting(ctx, t, a, key, leaders.load)
			leaders.next()
		}
		batch := getMany(t.Context(), t, b, o, keys...)
		batch.waits()
		busy := newScriptedOrigin[string](t)
		var running []*scriptedLoad[string]
		for _, key := range []string{"x", "y"} {
			getting(t.Context(), t, b, key, busy.load)
			running = append(running, busy.next())
		}
		for _, key := range keys {
			leave[key]() // the key comes back, and waits for a slot
			time.Sleep(100 * time.Millisecond)
			synctest.Wait()
		}
		for _, load := range running { // the first two get theirs at once
			load.gives("v")
		}
		synctest.Wait()
		close(events.gate)
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if n := events.Count(cacheguard.EventLeaseLost); n != 0 {
			t.Errorf("%d leases were lost", n)
		}
		for _, key := range keys[:2] {
			if leaseFree(t, store, key) {
				t.Errorf("the lease of %q is over while its load runs", key)
			}
		}
		for range keys {
			(<-o.begin).gives("v")
		}
		wantMany(t, batch, []string{"1v", "2v", "3v"}, nil)
	})
}

// When everybody has left, a place in the queue is given back, also that of a batch of which a part
// has landed.
func TestGetManyLeavesTheQueue(t *testing.T) {
	manyBubble(t, cacheguard.Options[string]{}, func(t *testing.T, store *tampered, a, _ *cacheguard.Cache[string], o *bulk) {
		b := openOn(t, store, cacheguard.Options[string]{Limiter: cacheguard.NewLimiter(1, 1)})
		single, other := newScriptedOrigin[string](t), newScriptedOrigin[string](t)
		getting(t.Context(), t, a, "landed", single.load)
		landed := single.next()
		leader, leave := context.WithCancel(t.Context())
		getting(leader, t, a, "waiting", single.load)
		single.next()
		ctx, leaves := context.WithCancel(t.Context())
		batch := getMany(ctx, t, b, o, "landed", "waiting")
		batch.waits()
		landed.gives("landed v")
		busy := getting(t.Context(), t, b, "busy", other.load)
		running := other.next()
		leave() // what the batch waits for ends, and there is no slot
		time.Sleep(time.Second)
		synctest.Wait()
		getting(t.Context(), t, b, "too many", other.load).gives("", cacheguard.ErrOverloaded)
		leaves()
		batch.later()
		synctest.Wait()
		next := getting(t.Context(), t, b, "next", other.load)
		next.waits()
		running.gives("v")
		busy.gives("v", nil)
		other.next().gives("v")
		next.gives("v", nil)
		o.none()
	})
}

// What a load elsewhere kept to itself is loaded by a batch together, also if that becomes known
// key by key.
func TestGetManyGathersWhatIsLoadedApart(t *testing.T) {
	var keys []string
	for i := range 20 {
		keys = append(keys, fmt.Sprint(100+i))
	}
	manyBubble(t, cacheguard.Options[string]{MaxValueSize: 5000, MaxLoads: 1}, func(t *testing.T, store *tampered, a, b *cacheguard.Cache[string], o *bulk) {
		first := getMany(t.Context(), t, a, o, keys...)
		load := o.next(keys...)
		second := getMany(t.Context(), t, b, o, keys...)
		second.waits()
		store.onto("Conclude", func(context.Context) error { time.Sleep(time.Millisecond); return nil })
		load.gives(strings.Repeat("x", 10_000))
		first.later()
		time.Sleep(100 * time.Millisecond)
		synctest.Wait()
		again := <-o.begin
		if sorted := slices.Sorted(slices.Values(again.keys)); !slices.Equal(sorted, keys) {
			t.Errorf("the load that takes over is of %d keys", len(again.keys))
		}
		again.gives("v")
		if got, err := second.later(); err != nil || len(got) != len(keys) {
			t.Errorf("got %d values, %v", len(got), err)
		}
	})
}

// A batch in which much has failed keeps nobody waiting for what is stored, nor for the end of the
// others' leases.
func TestGetManyLandsWhatIsReady(t *testing.T) {
	manyBubble(t, cacheguard.Options[string]{}, func(t *testing.T, store *tampered, a, _ *cacheguard.Cache[string], o *bulk) {
		var keys []string
		errs := cacheguard.KeyErrors{}
		for i := range 20 {
			keys = append(keys, fmt.Sprint("failed ", i))
			errs[keys[i]] = errOrigin
		}
		batch := getMany(t.Context(), t, a, o, append([]string{"good"}, keys...)...)
		load := o.next(append([]string{"good"}, keys...)...)
		good := getting(t.Context(), t, a, "good", returning("not called"))
		good.waits()
		bad := getting(t.Context(), t, a, keys[0], returning("not called"))
		bad.waits()
		store.onto("Conclude", func(context.Context) error { time.Sleep(time.Second); return nil })
		began := time.Now()
		load.end <- func() (map[string]string, error) { return map[string]string{"good": "good v"}, errs }
		good.gives("good v", nil)
		if _, err := bad.later(); !errors.Is(err, errOrigin) || time.Since(began) > 1500*time.Millisecond {
			t.Errorf("the first that failed got %v after %v", err, time.Since(began))
		}
		wantMany(t, batch, []string{"good v"}, errs)
	})
}

// Values that are too large for messages are read side by side.
func TestGetManyReadsTogether(t *testing.T) {
	manyBubble(t, cacheguard.Options[string]{}, func(t *testing.T, store *tampered, a, b *cacheguard.Cache[string], o *bulk) {
		var keys, want []string
		value := strings.Repeat("x", 200_000)
		for i := range 20 {
			keys = append(keys, fmt.Sprint(100+i))
			want = append(want, keys[i]+value)
		}
		first := getMany(t.Context(), t, a, o, keys...)
		load := o.next(keys...)
		second := getMany(t.Context(), t, b, o, keys...)
		second.waits()
		store.onto("Get", func(context.Context) error { time.Sleep(100 * time.Millisecond); return nil })
		load.gives(value)
		first.later()
		began := time.Now()
		wantMany(t, second, want, nil)
		if n, took := store.steps("Get"), time.Since(began); n == 0 || took > 150*time.Millisecond {
			t.Errorf("%d reads took %v", n, took)
		}
	})
}

// A caller doesn't wait for loads elsewhere for ever, also if something is heard of each in time.
func TestWaitingEndsAlsoWithMessages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &speaking{tampered: newTampered()}
		c := openOn(t, store, cacheguard.Options[string]{LoadTimeout: 5 * time.Second, LeaseTTL: time.Second})
		store.lease = func(cacheguard.LeaseAnswer) cacheguard.LeaseAnswer {
			return cacheguard.LeaseAnswer{State: cacheguard.LeaseHeld, Holder: cacheguard.ID{1}, Remaining: time.Second}
		}
		call := getting(t.Context(), t, c, "k", returning("v"))
		for range 200 {
			time.Sleep(100 * time.Millisecond)
			synctest.Wait()
			store.says(cacheguard.Message{Kind: cacheguard.MessageReleased, Key: "k", Load: cacheguard.ID{1}})
		}
		if !call.returned() || !errors.Is(call.err, context.DeadlineExceeded) || call.took > 12*time.Second {
			t.Errorf("the caller got %v after %v", call.err, call.took)
		}
	})
}

// An answer of a kind that this program doesn't know is none.
func TestUnknownLeaseAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &speaking{tampered: newTampered()}
		store.lease = func(ans cacheguard.LeaseAnswer) cacheguard.LeaseAnswer { ans.State = 200; return ans }
		c := openOn(t, store, cacheguard.Options[string]{})
		res, err := gettingResult(t.Context(), t, c, "k", returning("v")).later()
		if res.Value != "v" || !res.Degraded || err != nil {
			t.Errorf("got %+v, %v", res, err)
		}
	})
}

// TestGoexitInObservers takes along the goroutine it happens on: nobody waits for ever, and no slot
// is lost.
func TestGoexitInObservers(t *testing.T) {
	inBubble(t, "of waits", func(t *testing.T) {
		store := newTampered()
		a := openOn(t, store, cacheguard.Options[string]{})
		b := openOn(t, store, cacheguard.Options[string]{MaxLoads: 1, Observer: exitingObserver{cacheguard.EventWaited}})
		o := newBulk(t)
		getMany(t.Context(), t, a, o, "1", "2", "3")
		load := o.next("1", "2", "3")
		many := getMany(t.Context(), t, b, o, "1", "2", "3")
		many.waits()
		load.gives("v")
		synctest.Wait()
		if !many.returned() {
			t.Error("the batch hangs")
		}
		getting(t.Context(), t, b, "other", returning("v")).gives("v", nil)
	})
	inBubble(t, "of Update", func(t *testing.T) {
		store := newTampered()
		c := openOn(t, store, cacheguard.Options[string]{Observer: exitingObserver{cacheguard.EventStoreError}})
		store.onto("Claim", fails(1))
		call := beginCall(t, func() (string, error) { return c.Update(t.Context(), "k", returning("v")) })
		if !call.returned() || !call.died {
			t.Error("the caller lives on")
		}
		if closed := beginCall(t, func() (int, error) { return 0, c.Close() }); !closed.returned() {
			t.Error("Close hangs")
		}
	})
}

// What Update stores is no load's result: observers don't count it as one.
func TestUpdateIsNoFill(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		events := &guardtest.Recorder{}
		store := newTampered()
		c := openOn(t, store, cacheguard.Options[string]{Observer: events})
		update := func() { _, _ = c.Update(t.Context(), "k", returning("v")) }
		update()
		store.onto("Fill", fails(1))
		update()
		store.onto("Fill", func(ctx context.Context) error { return c.Invalidate(ctx, "k") })
		update()
		if got := events.Events(cacheguard.EventFilled, cacheguard.EventFillUnknown, cacheguard.EventFillRefused); len(got) != 0 {
			t.Errorf("observers were told of %v", got)
		}
	})
}
