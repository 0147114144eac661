package fuzztest_test

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/cacheguard/memstore"
)

// FuzzOptions: for any options, New returns either a cache that works or an error, and never
// panics.
func FuzzOptions(f *testing.F) {
	f.Add("n", int64(0), int64(0), int64(0), 0.0, int64(0), int64(0), 0, 0, uint8(0), 0, false)
	f.Add("n", int64(1), int64(-1), int64(-1), 0.5, int64(1), int64(1), -1, -1, uint8(1), 1, false)
	f.Add("{", int64(math.MaxInt64), int64(math.MinInt64), int64(1), math.NaN(), int64(-1),
		int64(-1), 1, 1, uint8(9), -1, true)
	f.Fuzz(func(
		t *testing.T, name string, ttl, negative, failed int64, jitter float64,
		lease, timeout int64, loads, waiters int, policy uint8, size int, limiter bool,
	) {
		opts := cacheguard.Options[string]{
			Name: name, TTL: time.Duration(ttl), NegativeTTL: time.Duration(negative),
			ErrorTTL: time.Duration(failed), Jitter: jitter,
			LeaseTTL: time.Duration(lease), LoadTimeout: time.Duration(timeout), MaxLoads: loads,
			MaxWaiters:  waiters,
			OnStoreDown: cacheguard.StorePolicy(policy), MaxValueSize: size,
			Logger: slog.New(slog.DiscardHandler),
		}
		if limiter {
			opts.Limiter = cacheguard.NewLimiter(loads, waiters)
		}
		c, err := cacheguard.New(memstore.New(memstore.Options{}), opts)
		if (c == nil) != (err != nil) {
			t.Fatalf("New: %v, %v", c, err)
		}
		if err != nil {
			if !strings.Contains(err.Error(), "Options.") {
				t.Errorf("New: %v; want the name of the option", err)
			}
			return
		}
		defer c.Close()
		v, err := c.Get(t.Context(), "k", func(context.Context) (string, error) { return "v", nil })
		if v != "v" && !errors.Is(err, context.DeadlineExceeded) &&
			!errors.Is(err, cacheguard.ErrOverloaded) {
			t.Errorf("Get: %q, %v", v, err)
		}
	})
}
