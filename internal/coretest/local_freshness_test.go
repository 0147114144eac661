package coretest_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/cacheguard/memstore"
)

// The local tier never answers with a value that has expired, that was replaced, or that is older
// than its earlier value.

func seenOf(t *testing.T, s cacheguard.Store, cache, key string) []byte {
	f, _, err := s.Get(t.Context(), cacheguard.Key{Cache: cache, Key: key}, nil)
	if err != nil || len(f) < 18 {
		t.Fatal(f, err)
	}
	return f[2:18]
}

// What a load found to be out of date is not answered any more by the tier of its process, also if
// nothing is stored in its place.
func TestLocalTierForgetsWhatIsSuperseded(t *testing.T) {
	for name, load := range map[string]cacheguard.LoadFunc[string]{
		"gone":      func(context.Context) (string, error) { return "", cacheguard.ErrNotFound },
		"too large": returning("a much larger value"),
	} {
		bubble(t, name, func(t *testing.T) {
			store := memstore.New(memstore.Options{})
			defer store.Close()
			c := openOn(t, cacheguard.Store(store), cacheguard.Options[string]{
				TTL: time.Hour, NegativeTTL: -1, MaxValueSize: 5,
				Local: cacheguard.Local[string]{Entries: 10, TTL: time.Hour}})
			if _, err := c.Get(t.Context(), "k", returning("old")); err != nil {
				t.Fatal(err)
			}
			fresh, err := c.Refresh(t.Context(), "k", load)
			t.Log("refresh:", fresh, err)
			if res, err := c.GetResult(t.Context(), "k", load); res.Value == "old" {
				t.Errorf("after it: %+v, %v", res, err)
			}
		})
	}
}

type slowFill struct {
	cacheguard.Store
	took time.Duration
}

func (s *slowFill) Fill(
	ctx context.Context, k cacheguard.Key, g cacheguard.Grant, f []byte, ttl time.Duration,
) (cacheguard.FillAnswer, error) {
	time.Sleep(s.took)
	return s.Store.Fill(ctx, k, g, f, ttl)
}

// The tier doesn't answer with a value after its TTL, however long it took to store.
func TestLocalTierKeepsToTheTTL(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shared := memstore.New(memstore.Options{})
		defer shared.Close()
		store := &slowFill{Store: shared, took: 200 * time.Millisecond}
		c := openOn(t, cacheguard.Store(store),
			cacheguard.Options[int]{TTL: time.Second, Local: cacheguard.Local[int]{Entries: 10}})
		began := time.Now()
		if _, err := c.Get(t.Context(), "k", returning(1)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(900 * time.Millisecond)
		if res, err := c.GetResult(t.Context(), "k", returning(2)); res.Value == 1 {
			t.Errorf("%v after it was made, with a TTL of 1 s: %+v, %v", time.Since(began), res,
				err)
		}
	})
}

// A slow read doesn't replace a value that this process has loaded itself by an older value.
func TestLocalTierDoesntGoBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t, cacheguard.Options[int]{TTL: time.Hour})
		p.put(t, 1)
		gate := make(chan struct{})
		p.store.hold.Store(&gate)
		slow := beginCall(t, func() (int, error) {
			return p.near.Get(t.Context(), "k", returning(9))
		})
		synctest.Wait() // it has read 1
		p.store.hold.Store(nil)
		if v, err := p.near.Refresh(t.Context(), "k", returning(2)); v != 2 || err != nil {
			t.Fatal(v, err)
		}
		if res, err := p.near.Peek(t.Context(), "k"); res.Value != 2 || !res.Local {
			t.Fatalf("after Refresh: %+v, %v", res, err)
		}
		close(gate)
		slow.later()
		if res, err := p.near.Peek(t.Context(), "k"); res.Value != 2 {
			t.Errorf("the tier had 2, which Refresh returned and stored, and now: %+v, %v", res,
				err)
		}
	})
}

// A Refresh whose result can't be kept in the tier doesn't leave the older one there.
func TestRefreshReplacesWhatIsLocal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shared := memstore.New(memstore.Options{})
		defer shared.Close()
		c := openOn(t, cacheguard.Store(shared), cacheguard.Options[int]{TTL: time.Hour,
			Local: cacheguard.Local[int]{Entries: 10, TTL: time.Hour, Weigh: func(
				_ string, v int,
			) uint32 {
				if v == 2 {
					panic("weigh")
				}
				return 1
			}}})
		if _, err := c.Get(t.Context(), "k", returning(1)); err != nil {
			t.Fatal(err)
		}
		if v, err := c.Refresh(t.Context(), "k", returning(2)); v != 2 || err != nil {
			t.Fatal(v, err)
		}
		if res, err := c.GetResult(t.Context(), "k", returning(3)); res.Value != 2 {
			t.Errorf("after Refresh: %+v, %v", res, err)
		}
	})
}

type lostFill struct {
	cacheguard.Store
	lost atomic.Bool
}

func (s *lostFill) Fill(
	ctx context.Context, k cacheguard.Key, g cacheguard.Grant, f []byte, ttl time.Duration,
) (cacheguard.FillAnswer, error) {
	a, err := s.Store.Fill(ctx, k, g, f, ttl)
	if s.lost.Load() {
		return 0, errors.New("no answer")
	}
	return a, err
}

// The same when the answer to the fill is lost.
func TestRefreshReplacesWhatIsLocalWithoutAnAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shared := memstore.New(memstore.Options{})
		defer shared.Close()
		store := &lostFill{Store: shared}
		c := openOn(t, cacheguard.Store(store), cacheguard.Options[int]{
			TTL: time.Hour, Local: cacheguard.Local[int]{Entries: 10, TTL: time.Hour},
		})
		if _, err := c.Get(t.Context(), "k", returning(1)); err != nil {
			t.Fatal(err)
		}
		store.lost.Store(true)
		if v, err := c.Refresh(t.Context(), "k", returning(2)); v != 2 || err != nil {
			t.Fatal(v, err)
		}
		if res, err := c.GetResult(t.Context(), "k", returning(3)); res.Value != 2 {
			t.Errorf("after Refresh: %+v, %v", res, err)
		}
	})
}

// A distrusted value that is served as stale has no FreshFor above zero.
func TestFreshForOfWhatIsDistrusted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t, cacheguard.Options[int]{TTL: time.Minute, StaleIfError: time.Hour})
		p.put(t, 1)
		p.reads(t, 1, false)
		p.store.lose()
		p.store.down.Store(true)
		res, err := p.near.GetResult(t.Context(), "k", returning(2))
		if err != nil || res.Status == cacheguard.StatusStale && res.FreshFor >= 0 {
			t.Errorf("%+v, %v", res, err)
		}
		t.Logf("%+v", res)
	})
}
