package redlock_test

import (
	"context"
	"math"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/cacheguard/cacheguard/cacheguard/lock/redlock"
	"github.com/cacheguard/cacheguard/internal/waittest"
)

func TestNewRefuses(t *testing.T) {
	ring := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"one": "127.0.0.1:1"}})
	cluster := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{"127.0.0.1:1"}})
	sentinel := redis.NewFailoverClient(&redis.FailoverOptions{
		MasterName: "m", SentinelAddrs: []string{"127.0.0.1:1"},
	})
	for _, c := range []redis.UniversalClient{ring, cluster, sentinel} {
		t.Cleanup(func() { _ = c.Close() })
	}
	a, b, c := newClient(t, "127.0.0.1:1"), newClient(t, "127.0.0.1:2"), newClient(t, "127.0.0.1:3")
	good := []redis.UniversalClient{a, b, c}
	for name, r := range map[string]struct {
		masters []redis.UniversalClient
		opts    redlock.Options
		says    []string // each on a separate line
	}{
		"none": {nil, redlock.Options{}, []string{"there are 0 masters"}},
		"two":  {good[:2], redlock.Options{}, []string{"there are 2 masters"}},
		"too many": {
			slices.Repeat([]redis.UniversalClient{incomparable{UniversalClient: a}}, 257),
			redlock.Options{}, []string{"257 masters, more than 256"},
		},
		"nil": {
			[]redis.UniversalClient{a, nil, c}, redlock.Options{},
			[]string{"master 1: the client is nil"},
		},
		"nil client": {
			[]redis.UniversalClient{a, b, (*redis.Client)(nil)}, redlock.Options{},
			[]string{"master 2: the client is nil"},
		},
		"cluster": {
			[]redis.UniversalClient{cluster, b, c}, redlock.Options{},
			[]string{"a cluster is not a master"},
		},
		"ring": {
			[]redis.UniversalClient{ring, b, c}, redlock.Options{},
			[]string{"a Ring is not a master"},
		},
		"sentinel": {
			[]redis.UniversalClient{a, sentinel, c}, redlock.Options{},
			[]string{"master 1: a client of sentinels moves to a replica"},
		},
		"one twice": {
			[]redis.UniversalClient{a, b, a}, redlock.Options{},
			[]string{"masters 0 and 2 are the same"},
		},
		"own, twice": {
			[]redis.UniversalClient{own{a}, b, own{a}}, redlock.Options{},
			[]string{"masters 0 and 2 are the same"},
		},
		"one address": {
			[]redis.UniversalClient{a, b, newClient(t, "127.0.0.1:2")}, redlock.Options{},
			[]string{"masters 1 and 2 are the same"},
		},
		"prefix of two": {
			good, redlock.Options{Prefix: "shop:eu"}, []string{`Prefix "shop:eu" has a colon`},
		},
		"short lease": {
			good, redlock.Options{Lease: time.Millisecond}, []string{"Lease is 1ms"},
		},
		"negative lease": {good, redlock.Options{Lease: -1}, []string{"Lease is -1ns"}},
		"short timeout": {
			good, redlock.Options{NodeTimeout: time.Microsecond}, []string{"NodeTimeout is 1µs"},
		},
		"negative timeout": {
			good, redlock.Options{NodeTimeout: -1}, []string{"NodeTimeout is -1ns"},
		},
		"long timeout": {
			good, redlock.Options{Lease: time.Second, NodeTimeout: 101 * time.Millisecond},
			[]string{"more than a tenth of the Lease of 1s"},
		},
		"negative drift": {good, redlock.Options{Drift: -0.01}, []string{"Drift is -0.01"}},
		"large drift":    {good, redlock.Options{Drift: 0.51}, []string{"Drift is 0.51"}},
		"no drift":       {good, redlock.Options{Drift: math.NaN()}, []string{"Drift is NaN"}},
		"everything at once": {[]redis.UniversalClient{nil, ring},
			redlock.Options{Lease: 1, NodeTimeout: 1, Drift: 1},
			[]string{
				"2 masters", "master 0: the client is nil", "master 1: a Ring", "Lease",
				"NodeTimeout", "Drift",
			}},
	} {
		t.Run(name, func(t *testing.T) {
			l, err := redlock.New(r.masters, r.opts)
			if err == nil || l != nil {
				t.Fatalf("New gave %v, %v; want an error and no locker", l, err)
			}
			lines := strings.Split(err.Error(), "\n")
			if len(lines) != len(r.says) {
				t.Fatalf("New reports %d problems; want %d: %v", len(lines), len(r.says), err)
			}
			for i, line := range lines {
				if !strings.HasPrefix(line, "redlock: ") || !strings.Contains(line, r.says[i]) {
					t.Errorf("New says %q; want something about %q", line, r.says[i])
				}
			}
		})
	}
}

// own is a client type of the user's own.
type own struct{ redis.UniversalClient }

// incomparable is a client type that can't be compared.
type incomparable struct {
	redis.UniversalClient
	_ []int
}

func TestNewAccepts(t *testing.T) {
	a, b, c, d := newClient(t, "127.0.0.1:1"), newClient(t, "127.0.0.1:2"),
		newClient(t, "127.0.0.1:3"), newClient(t, "127.0.0.1:4")
	for name, r := range map[string]struct {
		masters []redis.UniversalClient
		opts    redlock.Options
	}{
		"three": {[]redis.UniversalClient{a, b, c}, redlock.Options{}},
		"four":  {[]redis.UniversalClient{a, b, c, d}, redlock.Options{MaxHold: -1}},
		"own":   {[]redis.UniversalClient{own{a}, own{b}, c}, redlock.Options{}},
		"incomparable": {
			[]redis.UniversalClient{
				incomparable{UniversalClient: a}, incomparable{UniversalClient: b}, c,
			}, redlock.Options{},
		},
		"least": {
			[]redis.UniversalClient{a, b, c}, redlock.Options{
				Lease: 10 * time.Millisecond, NodeTimeout: time.Millisecond, Drift: 0.5,
			},
		},
		// And a NodeTimeout to match.
		"short lease": {
			[]redis.UniversalClient{a, b, c}, redlock.Options{Lease: 100 * time.Millisecond},
		},
	} {
		l, err := redlock.New(r.masters, r.opts)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		must(t, l.Close())
		must(t, l.Close())
	}
}

// hooks counts commands.
type hooks struct{ commands atomic.Int64 }

func (h *hooks) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h *hooks) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if ctx.Value(traced{}) != nil {
			h.commands.Add(1)
		}
		return next(ctx, cmd)
	}
}

func (h *hooks) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

type traced struct{}

// If a client has ContextTimeoutEnabled and no retries, its hooks see the locker's commands, with
// the values of the caller's context.
func TestHooks(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	var masters []redis.UniversalClient
	seen := &hooks{}
	for _, server := range s.servers {
		c := newClient(t, server.Addr())
		c.AddHook(seen)
		masters = append(masters, c)
	}
	l, err := redlock.New(masters, opts())
	must(t, err)
	t.Cleanup(func() { must(t, l.Close()) })
	held, err := l.Lock(context.WithValue(t.Context(), traced{}, true), "k")
	must(t, err)
	waittest.Until(t, "the hooks have seen a question for each master", func() bool {
		return seen.commands.Load() >= 5
	})
	must(t, held.Unlock(t.Context()))
}

// If a client has no ContextTimeoutEnabled, or has retries, the locker doesn't change it.
func TestClientIsLeftAlone(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	var masters []redis.UniversalClient
	var before []redis.Options
	for _, server := range s.servers {
		c := redis.NewClient(&redis.Options{Addr: server.Addr()})
		t.Cleanup(func() { _ = c.Close() })
		masters, before = append(masters, c), append(before, *c.Options())
	}
	l, err := redlock.New(masters, opts())
	must(t, err)
	t.Cleanup(func() { must(t, l.Close()) })
	must(t, get(t, l, "k").Unlock(t.Context()))
	for i, m := range masters {
		after := m.(*redis.Client).Options()
		if after.ContextTimeoutEnabled || after.MaxRetries != before[i].MaxRetries ||
			after.ReadTimeout != before[i].ReadTimeout {
			t.Errorf("the options of client %d became %+v", i, after)
		}
	}
}
