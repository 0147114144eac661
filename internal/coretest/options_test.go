package coretest_test

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/cacheguard/memstore"
)

// TestInvalidOptions: all invalid options are reported at once, each by its name.
func TestInvalidOptions(t *testing.T) {
	c, err := cacheguard.New(nil, cacheguard.Options[string]{
		Name: "", TTL: -1, NegativeTTL: 1, ErrorTTL: 1, Jitter: 1, LeaseTTL: time.Millisecond,
		LoadTimeout: -time.Second,
		MaxLoads:    1, Limiter: cacheguard.NewLimiter(1, 1), OnStoreDown: 7, MaxValueSize: -1,
	})
	if c != nil || err == nil {
		t.Fatalf("New: %v, %v", c, err)
	}
	for _, name := range []string{
		"store", "Name", "TTL is -1ns", "NegativeTTL", "ErrorTTL", "Jitter", "LeaseTTL",
		"LoadTimeout", "MaxLoads", "Limiter", "OnStoreDown", "MaxValueSize",
	} {
		if !strings.Contains(err.Error(), name) {
			t.Errorf("New says nothing about %s: %v", name, err)
		}
	}
	for line := range strings.Lines(err.Error()) {
		if !strings.HasPrefix(line, "cacheguard: ") {
			t.Errorf("a problem doesn't say whose it is: %q", line)
		}
	}
}

func TestOptionsOneByOne(t *testing.T) {
	type options = cacheguard.Options[string]
	const year = 365 * 24 * time.Hour
	for name, c := range map[string]struct {
		set func(o *options)
		bad string // in the error; empty: it is fine
	}{
		"zero":    {func(o *options) {}, ""},
		"no name": {func(o *options) { o.Name = "" }, "Name"},
		"longest name": {
			func(o *options) { o.Name = strings.Repeat("n", 128) }, "",
		},
		"long name": {
			func(o *options) { o.Name = strings.Repeat("n", 129) }, "Name",
		},
		"open brace":    {func(o *options) { o.Name = "a{b" }, "Name"},
		"closing brace": {func(o *options) { o.Name = "a}b" }, "Name"},
		"strange name":  {func(o *options) { o.Name = "\x00 \xff:é\n" }, ""},
		"shortest TTL":  {func(o *options) { o.TTL = time.Millisecond }, ""},
		"short TTL": {
			func(o *options) { o.TTL = time.Millisecond - 1 }, "Options.TTL",
		},
		"negative TTL": {
			func(o *options) { o.TTL = -time.Hour }, "Options.TTL",
		},
		"longest TTL": {func(o *options) { o.TTL = 10 * year }, ""},
		"long TTL": {
			func(o *options) { o.TTL = 10*year + 1 }, "Options.TTL",
		},
		"short NegativeTTL": {
			func(o *options) { o.NegativeTTL = 1 }, "Options.NegativeTTL",
		},
		"NegativeTTL off": {func(o *options) { o.NegativeTTL = -1 }, ""},
		"NegativeTTL well off": {
			func(o *options) { o.NegativeTTL = math.MinInt64 }, "",
		},
		"long NegativeTTL": {
			func(o *options) { o.NegativeTTL = math.MaxInt64 }, "Options.NegativeTTL",
		},
		"short ErrorTTL": {
			func(o *options) { o.ErrorTTL = 1 }, "Options.ErrorTTL",
		},
		"ErrorTTL off": {func(o *options) { o.ErrorTTL = -time.Hour }, ""},
		"short LeaseTTL": {func(o *options) {
			o.LeaseTTL = 10*time.Millisecond - 1
		}, "Options.LeaseTTL"},
		"shortest LeaseTTL": {func(o *options) {
			o.LeaseTTL = 10 * time.Millisecond
		}, ""},
		"negative LeaseTTL": {
			func(o *options) { o.LeaseTTL = -1 }, "Options.LeaseTTL",
		},
		"negative LoadTimeout": {
			func(o *options) { o.LoadTimeout = -1 }, "Options.LoadTimeout",
		},
		"Jitter off": {func(o *options) { o.Jitter = math.Inf(-1) }, ""},
		"Jitter below 1": {
			func(o *options) { o.Jitter = math.Nextafter(1, 0) }, "",
		},
		"Jitter of 1": {func(o *options) { o.Jitter = 1 }, "Options.Jitter"},
		"Jitter is no number": {
			func(o *options) { o.Jitter = math.NaN() }, "Options.Jitter",
		},
		"two limits": {func(o *options) {
			o.MaxLoads, o.Limiter = 3, cacheguard.NewLimiter(1, 1)
		}, "Options.MaxLoads"},
		"no limit and a Limiter": {func(o *options) {
			o.MaxLoads, o.Limiter = -1, cacheguard.NewLimiter(1, 1)
		}, "Options.MaxLoads"},
		"a Limiter": {func(o *options) {
			o.Limiter = cacheguard.NewLimiter(1, 1)
		}, ""},
		"largest MaxLoads": {func(o *options) { o.MaxLoads = math.MaxInt }, ""},
		"no bounds": {func(o *options) {
			o.MaxLoads, o.MaxWaiters = math.MinInt, math.MinInt
		}, ""},
		"strong reads": {func(o *options) { o.StrongReads = true }, ""},
		"strong reads and SoftTimeout": {func(o *options) {
			o.StrongReads, o.SoftTimeout = true, time.Second
		}, "Options.StrongReads"},
		"strong reads beside a local tier": {func(o *options) {
			o.StrongReads, o.Local.Entries = true, 1
		}, "Options.StrongReads"},
		"unknown policy": {
			func(o *options) { o.OnStoreDown = 2 }, "Options.OnStoreDown",
		},
		"negative MaxValueSize": {
			func(o *options) { o.MaxValueSize = math.MinInt }, "Options.MaxValueSize",
		},
		"largest MaxValueSize": {func(o *options) { o.MaxValueSize = math.MaxInt }, ""},
	} {
		inBubble(t, name, func(t *testing.T) {
			o := options{Name: "behave"}
			c.set(&o)
			cache, err := cacheguard.New(memstore.New(memstore.Options{}), o)
			if c.bad != "" {
				if cache != nil || err == nil || !strings.Contains(err.Error(), c.bad) ||
					strings.Contains(err.Error(), "\n") {
					t.Fatalf("New: %v; want one error, about %s", err, c.bad)
				}
				return
			}
			if err != nil {
				t.Fatalf("New: %v", err)
			}
			defer cache.Close()
			getting(t.Context(), t, cache, "k", returning("v")).gives("v", nil)
			getting(t.Context(), t, cache, "gone",
				failingWith[string](cacheguard.ErrNotFound)).gives("", cacheguard.ErrNotFound)
			getting(t.Context(), t, cache, "bad", failingWith[string](errOrigin)).gives("",
				errOrigin)
		})
	}
}

// TestDefaults are those that the documentation names, as far as they can be seen from outside.
func TestDefaults(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := openOn(t, memstore.New(memstore.Options{}), cacheguard.Options[[]byte]{})
		r, err := gettingResult(t.Context(), t, c, "k", returning([]byte("v"))).now()
		if r.FreshFor != 5*time.Minute || err != nil {
			t.Errorf("a value is fresh for %v, %v; want 5m", r.FreshFor, err)
		}
		o := newScriptedOrigin[[]byte](t)
		began := time.Now()
		slow := getting(t.Context(), t, c, "slow", o.load)
		if d, _ := o.next().ctx.Deadline(); d.Sub(began) != 30*time.Second {
			t.Errorf("a load has %v; want 30s", d.Sub(began))
		}
		if _, err := slow.later(); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Get: %v", err)
		}
		for size, want := range map[int]cacheguard.Status{
			8 << 20: cacheguard.StatusHit, 8<<20 + 1: cacheguard.StatusMiss,
		} {
			if _, err := c.Refresh(t.Context(), "large",
				returning(make([]byte, size))); err != nil {
				t.Errorf("Refresh: %v", err)
			}
			if r, err := c.Peek(t.Context(), "large"); r.Status != want || err != nil {
				t.Errorf("%d bytes: %v, %v; want a %v", size, r.Status, err, want)
			}
			if err := c.Invalidate(t.Context(), "large"); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// A constructor's error that was ignored leaves a nil in the interface.
func TestStoreIsNil(t *testing.T) {
	var none *memstore.Store
	if _, err := cacheguard.New(none, cacheguard.Options[string]{Name: "c"}); err == nil ||
		!strings.Contains(err.Error(), "store is nil") {
		t.Errorf("got %v", err)
	}
}
