package redislock_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/cacheguard/cacheguard/cacheguard/lock"
	"github.com/cacheguard/cacheguard/cacheguard/lock/redislock"
	"github.com/cacheguard/cacheguard/internal/redistest"
)

func TestNewRefuses(t *testing.T) {
	nowhere := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	defer nowhere.Close()
	ring := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"a": "127.0.0.1:1"}})
	defer ring.Close()
	for _, c := range []struct {
		name string
		rdb  redis.UniversalClient
		opts redislock.Options
		says []string
	}{
		{"nil", nil, redislock.Options{Prefix: "a{b"}, []string{"client is nil", "Prefix"}},
		{"typed nil", (*redis.Client)(nil), redislock.Options{}, []string{"client is nil"}},
		{"ring", ring, redislock.Options{}, []string{"Ring"}},
		{
			"lease", nowhere, redislock.Options{Lease: time.Millisecond},
			[]string{"Options.Lease is 1ms"},
		},
		{
			"negative", nowhere, redislock.Options{Lease: -1, OpTimeout: -1},
			[]string{"Options.Lease", "Options.OpTimeout"},
		},
		{
			"op", nowhere, redislock.Options{Lease: time.Second, OpTimeout: 2 * time.Second},
			[]string{"more than the Lease"},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			l, err := redislock.New(c.rdb, c.opts)
			if l != nil || err == nil {
				t.Fatalf("New returned %v, %v", l, err)
			}
			for _, what := range c.says {
				if !strings.Contains(err.Error(), what) {
					t.Errorf("New says %q, nothing about %q", err, what)
				}
			}
		})
	}
	l, err := redislock.New(nowhere, redislock.Options{Lease: 10 * time.Millisecond}) // never dials
	if err != nil {
		t.Fatal(err)
	}
	must(t, l.Close())
	must(t, l.Close())
	if err := l.Warm(t.Context()); !errors.Is(err, lock.ErrClosed) {
		t.Errorf("Warm of a closed locker: %v", err)
	}
}

// A lock doesn't last longer for its holder than on the server.
func TestLeaseIsInMilliseconds(t *testing.T) {
	l := open(t, redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"}),
		redislock.Options{Lease: 11*time.Millisecond - 1, OpTimeout: 10 * time.Millisecond})
	if got := l.Lease(); got != 10*time.Millisecond {
		t.Errorf("the holder believes in %v of what ends after 10ms", got)
	}
}

// The errors name the lock.
func TestErrorsNameTheLock(t *testing.T) {
	addr := redistest.Shared(t).Addr()
	a, b := locker(t, addr, redislock.Options{}), locker(t, addr, redislock.Options{})
	held := locked(t, a, "the name")
	defer held.Unlock(context.Background())
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	_, busy := b.TryLock(t.Context(), "the name")
	_, left := b.Lock(ended, "the name")
	for _, err := range []error{busy, left} {
		if err == nil || !strings.HasPrefix(err.Error(), `redislock: "the name": `) {
			t.Errorf("%v", err)
		}
	}
}

// If the server has forgotten the scripts, they are sent again.
func TestScriptsFlushed(t *testing.T) {
	server := redistest.Start(t)
	l := locker(t, server.Addr(), redislock.Options{})
	rdb := client(t, server.Addr())
	must(t, rdb.ScriptFlush(t.Context()).Err())
	held := locked(t, l, "n")
	must(t, rdb.ScriptFlush(t.Context()).Err())
	unlock(t, held)
}
