package contender

import (
	"context"
	"errors"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/cacheguard/cacheguard/internal/redistest"
)

func TestMain(m *testing.M) { os.Exit(redistest.Main(m)) }

func rig(t *testing.T, addr string, load func(ctx context.Context, key string) (string, bool, error)) Rig {
	rdb := redis.NewClient(&redis.Options{Addr: addr, ContextTimeoutEnabled: true})
	t.Cleanup(func() { _ = rdb.Close() })
	return Rig{Redis: rdb, Load: load, TTL: time.Minute, LockTTL: 30 * time.Second, PollTime: 5 * time.Millisecond}
}

// Every contender answers with what the origin has, keeps it, forgets it on a change, keeps that there is nothing, and says
// so when the origin fails.
func TestEachContender(t *testing.T) {
	addr := redistest.Shared(t).Addr()
	errOrigin := errors.New("the origin failed")
	for _, c := range All() {
		if c.Name == "http-none" { // it keeps nothing
			continue
		}
		t.Run(c.Name, func(t *testing.T) {
			var version, loads atomic.Int64
			version.Store(1)
			p, err := c.Open(t.Context(), rig(t, addr, func(_ context.Context, key string) (string, bool, error) {
				loads.Add(1)
				switch key {
				case c.Name + ":missing":
					return "", false, nil
				case c.Name + ":failing":
					return "", false, errOrigin
				}
				return string(rune('0' + version.Load())), true, nil
			}))
			if err != nil {
				t.Fatal(err)
			}
			defer p.Close()
			ask := func(key, want string, found bool, loadsWant int64) {
				t.Helper()
				if v, ok, err := p.Get(t.Context(), c.Name+":"+key); v != want || ok != found || err != nil || loads.Load() != loadsWant {
					t.Errorf("%s: %q, %v, %v after %d loads; want %q, %v after %d", key, v, ok, err, loads.Load(), want, found, loadsWant)
				}
			}
			ask("a", "1", true, 1)
			ask("a", "1", true, 1)
			version.Store(2)
			if err := p.Invalidate(t.Context(), c.Name+":a"); err != nil {
				t.Error(err)
			}
			ask("a", "2", true, 2)
			ask("missing", "", false, 3)
			ask("missing", "", false, 3)
			if _, _, err := p.Get(t.Context(), c.Name+":failing"); err == nil || !strings.Contains(err.Error(), errOrigin.Error()) {
				t.Errorf("a load that fails: %v", err)
			}
		})
	}
}

// loadsAlone are those whose callers load each for itself.
var loadsAlone = map[string]bool{"none": true, "http-none": true}

// In one process all but the plainest load once for a crowd.
func TestCrowd(t *testing.T) {
	addr := redistest.Shared(t).Addr()
	for _, c := range All() {
		t.Run(c.Name, func(t *testing.T) {
			const callers = 10
			var loads atomic.Int64
			release := make(chan struct{})
			p, err := c.Open(t.Context(), rig(t, addr, func(context.Context, string) (string, bool, error) {
				if loads.Add(1) == callers || !loadsAlone[c.Name] {
					select {
					case <-release:
					default:
						close(release)
					}
				}
				<-release
				return "value", true, nil
			}))
			if err != nil {
				t.Fatal(err)
			}
			defer p.Close()
			var crowd sync.WaitGroup
			for range callers {
				crowd.Go(func() {
					if v, found, err := p.Get(t.Context(), "crowd:"+c.Name); v != "value" || !found || err != nil {
						t.Errorf("%q, %v, %v", v, found, err)
					}
				})
			}
			crowd.Wait()
			if n := loads.Load(); loadsAlone[c.Name] && n != callers || !loadsAlone[c.Name] && n != 1 {
				t.Errorf("%d loads", n)
			}
		})
	}
}

func TestNamed(t *testing.T) {
	if _, err := Named(All(), "none", "magic"); err == nil {
		t.Error("there is a contender magic")
	}
	seen := map[string]bool{}
	for _, c := range All() {
		if seen[c.Name] || c.What == "" {
			t.Errorf("%+v", c)
		}
		seen[c.Name] = true
	}
}
