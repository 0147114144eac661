package redisstore_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/internal/redistest"
	"github.com/cacheguard/cacheguard/internal/waittest"
)

// A load that asks for its own key gets an error at once, whether it asks directly or through
// another key.
func TestLoadAsksForItsOwnKey(t *testing.T) {
	t.Parallel()
	r := newReplica(t, redistest.Start(t).Addr(), newPrefix())
	r.listens(t)
	for _, way := range [][]string{{"own"}, {"far", "other"}} {
		loads := 0
		var load cacheguard.LoadFunc[string]
		load = func(ctx context.Context) (string, error) {
			loads++
			return r.cache.Get(ctx, way[loads%len(way)], load)
		}
		a := r.get(t, way[0], load)
		if !errors.Is(a.err, cacheguard.ErrRecursion) || !strings.Contains(a.err.Error(), way[0]) ||
			loads != len(way) {
			t.Errorf("by way of %q a caller got %v after %d loads; want %v, and the key", way,
				a.err, loads, cacheguard.ErrRecursion)
		}
		if a.took > 2*soon {
			t.Errorf("by way of %q a caller waited %v", way, a.took)
		}
		figures(t, "a load asks for its own key by way of "+strings.Join(way, ", "), int64(loads),
			0, a)
	}
}

// A circle of loads through several processes, which no process can see, ends after LoadTimeout.
func TestCircleOfProcesses(t *testing.T) {
	t.Parallel()
	const loadTimeout = time.Second
	server := redistest.Start(t)
	prefix := newPrefix()
	brief := func(s *site) { s.cache.LoadTimeout, s.cache.ErrorTTL = loadTimeout, -1 }
	here, there := newReplica(t, server.Addr(), prefix, brief),
		newReplica(t, server.Addr(), prefix, brief)
	here.listens(t)
	there.listens(t)
	// A request to another process carries at most a deadline.
	var a, b cacheguard.LoadFunc[string]
	a = func(context.Context) (string, error) {
		return there.cache.Get(context.Background(), "b", b)
	}
	b = func(context.Context) (string, error) {
		return here.cache.Get(context.Background(), "a", a)
	}
	got := here.get(t, "a", a)
	if got.err == nil || !strings.Contains(got.err.Error(), "LoadTimeout") {
		t.Errorf("the caller got %q, %v; want LoadTimeout's error", got.res.Value, got.err)
	}
	if got.took < loadTimeout || got.took > loadTimeout+2*soon {
		t.Errorf("the caller was answered after %v; want %v", got.took, loadTimeout)
	}
	began := time.Now()
	waittest.Until(t, "the keys are free", func() bool {
		return here.get(t, "a", newOrigin("v").load).err == nil &&
			there.get(t, "b", newOrigin("v").load).err == nil
	})

	figures(t, "a circle of loads in two processes", 2, time.Since(began), got)
}
