// Package contendertest contains the checks that every contender passes before it is compared, from
// this module or another. If a library deliberately behaves differently, this is an exception with
// a name, so that it is visible.
package contendertest

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/cacheguard/cacheguard/bench/internal/contender"
	"github.com/cacheguard/cacheguard/internal/waittest"
)

// Exception describes how a contender behaves differently.
type Exception struct {
	KeepsNothing bool // each call loads
	EachLoads    bool // callers in one process don't share a load
	// The first answer after a change is the old value, and a load follows in the background.
	StaleOnce bool
	// The old value is returned until the message about the change has arrived, in the same
	// process, too.
	HearsLater   bool
	WritesBehind bool // a value is stored in Redis, under the key itself, after it was returned
	// A caller that gets the lock (SET NX) loads without looking again, even if another load has
	// just ended.
	LooksOnce bool
}

// Each runs the checks for each contender on the Redis at addr, which has no data.
func Each(t *testing.T, addr string, all []contender.Contender, except map[string]Exception) {
	for name := range except {
		if _, err := contender.Named(all, name); err != nil {
			t.Error(err)
		}
	}
	for _, c := range all {
		t.Run(c.Name, func(t *testing.T) {
			if !except[c.Name].KeepsNothing {
				t.Run("answers", func(t *testing.T) { answers(t, addr, c, except[c.Name]) })
			}
			t.Run("crowd", func(t *testing.T) { crowd(t, addr, c, except[c.Name]) })
		})
	}
}

func open(
	t *testing.T, addr string, c contender.Contender, load func(key string) (string, bool, error),
) (contender.Protection, *redis.Client) {
	t.Helper()
	rdb := redis.NewClient(&redis.Options{Addr: addr, ContextTimeoutEnabled: true})
	t.Cleanup(func() { _ = rdb.Close() })
	p, err := c.Open(t.Context(), contender.Rig{
		Redis: rdb, TTL: time.Minute, LockTTL: 30 * time.Second, PollTime: 5 * time.Millisecond,
		Load: func(_ context.Context, key string) (string, bool, error) { return load(key) },
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	return p, rdb
}

// answers checks that a contender returns the origin's value, caches it, drops it on a change,
// caches that there is no value, and returns an error if the origin fails.
func answers(t *testing.T, addr string, c contender.Contender, e Exception) {
	errOrigin := errors.New("the origin failed")
	var version, loads atomic.Int64
	version.Store(1)
	p, rdb := open(t, addr, c, func(key string) (string, bool, error) {
		loads.Add(1)
		switch {
		case strings.HasSuffix(key, ":missing"):
			return "", false, nil
		case strings.HasSuffix(key, ":failing"):
			return "", false, errOrigin
		}
		return string(rune('0' + version.Load())), true, nil
	})
	ask := func(key, want string, found bool, loadsWant int64) {
		t.Helper()
		if v, ok, err := p.Get(t.Context(), c.Name+":"+key); v != want || ok != found ||
			err != nil || loads.Load() != loadsWant {
			t.Errorf("%s: %q, %v, %v after %d loads; want %q, %v after %d", key, v, ok, err,
				loads.Load(), want, found, loadsWant)
		}
	}
	ask("a", "1", true, 1)
	ask("a", "1", true, 1)
	if e.WritesBehind { // otherwise a late write would undo the change
		waittest.Until(t, "the value is in Redis", func() bool {
			return rdb.Exists(t.Context(), c.Name+":a").Val() == 1
		})
	}
	version.Store(2)
	if err := p.Invalidate(t.Context(), c.Name+":a"); err != nil {
		t.Error(err)
	}
	if e.StaleOnce {
		if v, ok, err := p.Get(t.Context(), c.Name+":a"); v != "1" || !ok || err != nil {
			t.Errorf("after a change: %q, %v, %v; want what was before it", v, ok, err)
		}
	}
	if e.StaleOnce || e.HearsLater {
		waittest.Until(t, "the new value is returned", func() bool {
			v, ok, err := p.Get(t.Context(), c.Name+":a")
			return v == "2" && ok && err == nil
		})

	}
	ask("a", "2", true, 2)
	ask("missing", "", false, 3)
	ask("missing", "", false, 3)
	if e.WritesBehind { // otherwise the write would happen in the next test
		waittest.Until(t, "that there is nothing is in Redis", func() bool {
			return rdb.Exists(t.Context(), c.Name+":missing").Val() == 1
		})
	}
	if _, _, err := p.Get(t.Context(), c.Name+":failing"); err == nil ||
		!strings.Contains(err.Error(), errOrigin.Error()) {
		t.Errorf("a load that fails: %v", err)
	}
}

// crowd checks that a contender loads once for all callers of one process.
func crowd(t *testing.T, addr string, c contender.Contender, e Exception) {
	const callers = 10
	var loads atomic.Int64
	release := make(chan struct{})
	p, rdb := open(t, addr, c, func(string) (string, bool, error) {
		if n := loads.Add(1); n == 1 && !e.EachLoads && !e.LooksOnce ||
			n == callers && e.EachLoads {
			close(release)
		}
		<-release
		return "value", true, nil
	})
	if e.LooksOnce { // then it loads once for callers that ask for the lock while it is held
		rdb.AddHook(&lockCounter{want: callers, reached: release})
	}
	var all sync.WaitGroup
	for range callers {
		all.Go(func() {
			if v, found, err := p.Get(t.Context(), c.Name+":crowd"); v != "value" || !found ||
				err != nil {
				t.Errorf("%q, %v, %v", v, found, err)
			}
		})
	}
	all.Wait()
	if e.WritesBehind {
		waittest.Until(t, "the value is in Redis", func() bool {
			return rdb.Exists(t.Context(), c.Name+":crowd").Val() == 1
		})
	}
	want := int64(1)
	if e.EachLoads {
		want = callers
	}
	if n := loads.Load(); n != want {
		t.Errorf("%d loads, want %d", n, want)
	}
}

// A lockCounter closes reached when Redis has answered want commands SET NX.
type lockCounter struct {
	want    int64
	reached chan struct{}
	seen    atomic.Int64
}

func (l *lockCounter) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		if args := cmd.Args(); cmd.Name() == "set" && args[len(args)-1] == "nx" &&
			l.seen.Add(1) == l.want {
			close(l.reached)
		}
		return err
	}
}

func (l *lockCounter) DialHook(next redis.DialHook) redis.DialHook { return next }

func (l *lockCounter) ProcessPipelineHook(
	next redis.ProcessPipelineHook,
) redis.ProcessPipelineHook {
	return next
}
