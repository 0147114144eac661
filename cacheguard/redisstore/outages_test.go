package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/internal/redistest"
	"github.com/cacheguard/cacheguard/internal/waittest"
)

// theatre has the parts of a trouble: a server, the proxy of the writer, the writer's client, and
// the administrator's client.
type theatre struct {
	server      *redistest.Server
	proxy       *redistest.Proxy
	rdb         *redis.Client
	admin, rude *redis.Client
	done        chan error // the errors of goroutines that run until the end
}

// troubles are the ways in which Redis can't be told of changes, by the writer or by all.
var troubles = map[string]struct {
	args       []string // arguments of the server
	begin, end func(ctx context.Context, x *theatre) error
}{
	"refused": {
		begin: func(_ context.Context, x *theatre) error {
			err := x.proxy.Refuse(true)
			x.proxy.Cut()
			return err
		},
		end: func(_ context.Context, x *theatre) error { return x.proxy.Refuse(false) },
	},
	"silent": {
		begin: func(_ context.Context, x *theatre) error { x.proxy.Blackhole(true); return nil },
		end:   func(_ context.Context, x *theatre) error { x.proxy.Blackhole(false); return nil },
	},
	"slow": {
		begin: func(_ context.Context, x *theatre) error {
			x.proxy.Slow(2 * time.Second)
			return nil
		},
		end: func(_ context.Context, x *theatre) error { x.proxy.Slow(0); return nil },
	},
	"cut again and again": {
		begin: func(_ context.Context, x *theatre) error {
			x.done = make(chan error)
			go func() {
				for tick := time.NewTicker(time.Millisecond); ; <-tick.C {
					x.proxy.Cut()
					select {
					case x.done <- nil:
						tick.Stop()
						return
					default:
					}
				}
			}()
			return nil
		},
		end: func(_ context.Context, x *theatre) error { return <-x.done },
	},
	"replies lost": {
		begin: func(_ context.Context, x *theatre) error {
			for range 4 {
				x.proxy.DropReply(func(c redistest.Command) bool {
					return strings.HasPrefix(c.Name, "EVAL")
				}, redistest.Hangup)
			}
			return nil
		},
		end: func(context.Context, *theatre) error { return nil },
	},
	"out of memory": {begin: configured("maxmemory", "1"), end: configured("maxmemory", "0")},
	"read-only": {
		begin: func(ctx context.Context, x *theatre) error {
			return x.admin.ReplicaOf(ctx, "127.0.0.1", "1").Err()
		},
		end: func(ctx context.Context, x *theatre) error {
			return x.admin.ReplicaOf(ctx, "NO", "ONE").Err()
		},
	},
	"no replicas to write to": {
		begin: configured("min-replicas-to-write", "1"),
		end:   configured("min-replicas-to-write", "0"),
	},
	"no rights":   {begin: user("-eval", "-evalsha"), end: user("+eval", "+evalsha")},
	"no messages": {begin: user("resetchannels"), end: user("allchannels")},
	"busy": {
		args: []string{"--busy-reply-threshold", "10"},
		begin: func(ctx context.Context, x *theatre) error {
			x.done = make(chan error, 1)
			go func() {
				x.done <- x.rude.Eval(context.WithoutCancel(ctx), "while true do end", nil).Err()
			}()
			return until(ctx, func() bool {
				err := x.admin.Ping(ctx).Err()
				return err != nil && strings.HasPrefix(err.Error(), "BUSY")
			})
		},
		end: func(ctx context.Context, x *theatre) error {
			err := x.admin.ScriptKill(ctx).Err()
			<-x.done
			return err
		},
	},
	"stopped": {
		begin: func(_ context.Context, x *theatre) error { return x.server.Pause() },
		end:   func(_ context.Context, x *theatre) error { return x.server.Resume() },
	},
	"killed": {
		args:  []string{"--appendonly", "yes", "--appendfsync", "always"},
		begin: func(_ context.Context, x *theatre) error { x.server.Kill(); return nil },
		end:   func(_ context.Context, x *theatre) error { return x.server.Restart() },
	},
	"pool used up": {
		begin: func(ctx context.Context, x *theatre) error {
			x.done = make(chan error, x.rdb.Options().PoolSize)
			for range cap(x.done) {
				go func() { x.done <- x.rdb.BLPop(context.WithoutCancel(ctx), 0, "queue").Err() }()
			}
			return until(ctx, func() bool {
				clients, err := x.admin.ClientList(ctx).Result()
				return err == nil && strings.Count(clients, "cmd=blpop") == cap(x.done)
			})
		},
		end: func(ctx context.Context, x *theatre) (err error) {
			for range cap(x.done) {
				err = errors.Join(err, x.admin.RPush(ctx, "queue", "go on").Err())
			}
			for range cap(x.done) {
				err = errors.Join(err, <-x.done)
			}
			return err
		},
	},
}

func configured(option, value string) func(context.Context, *theatre) error {
	return func(ctx context.Context, x *theatre) error {
		return x.admin.ConfigSet(ctx, option, value).Err()
	}
}

func user(rules ...any) func(context.Context, *theatre) error {
	return func(ctx context.Context, x *theatre) error {
		return x.admin.Do(ctx, append([]any{"ACL", "SETUSER", "writer"}, rules...)...).Err()
	}
}

func until(ctx context.Context, ok func() bool) error {
	for tick := time.NewTicker(time.Millisecond); !ok(); {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// changesOf are the kinds of changes. Each is made for a key while the store is in trouble. The
// key's value has the key as its tags.
var changesOf = map[string]func(context.Context, *cacheguard.Cache[string], string) error{
	"invalidated": func(ctx context.Context, c *cacheguard.Cache[string], key string) error {
		return c.Invalidate(ctx, key)
	},
	"marked": func(ctx context.Context, c *cacheguard.Cache[string], key string) error {
		return c.MarkStale(ctx, key)
	},
	"by tag": func(ctx context.Context, c *cacheguard.Cache[string], key string) error {
		return c.InvalidateTags(ctx, key)
	},
	"by soft tag": func(ctx context.Context, c *cacheguard.Cache[string], key string) error {
		return c.MarkStaleTags(ctx, key)
	},
	"set": func(ctx context.Context, c *cacheguard.Cache[string], key string) error {
		return c.Set(ctx, key, "new")
	},
	"updated": func(ctx context.Context, c *cacheguard.Cache[string], key string) error {
		_, err := c.Update(ctx, key, func(context.Context) (string, error) { return "new", nil })
		return err
	},
}

// Whatever prevents changes from reaching Redis, they arrive when the trouble is over. Until then
// the process that made the changes doesn't serve the old values. CACHEGUARD_TEST=soak has 300
// rounds of each trouble, and reports how many took longer than a second.
func TestChangesArriveAfterTrouble(t *testing.T) {
	t.Parallel()
	rounds := 2
	if redistest.Soak() {
		rounds = 300
	}
	for name, trouble := range troubles {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx := t.Context()
			x := &theatre{
				server: redistest.Start(t,
					append(trouble.args, "--user", "writer", "on", "nopass", "allkeys",
						"allchannels", "allcommands")...),
			}
			x.admin = newClient(t, x.server.Addr())
			x.rude = redis.NewClient(&redis.Options{
				Addr: x.server.Addr(), ReadTimeout: -1, MaxRetries: -1,
			})
			t.Cleanup(func() { _ = x.rude.Close() })
			x.proxy = redistest.StartProxy(t, x.server.Addr())
			x.rdb = redis.NewClient(&redis.Options{
				Addr: x.proxy.Addr(), Username: "writer", Password: "any",
				ContextTimeoutEnabled: true, PoolSize: 8,
			})
			t.Cleanup(func() { _ = x.rdb.Close() })
			prefix := newPrefix()
			// Zero means the default.
			writer := newReplica(t, "", prefix, func(s *site) {
				s.rdb, s.store.OpTimeout, s.cache.LeaseTTL = x.rdb, outageOp, 0
				if redistest.Soak() {
					s.store.OpTimeout = 0
				}
			})
			reader := newReplica(t, x.server.Addr(), prefix)
			var pending atomic.Int64
			late := 0
			var took []time.Duration
			for n := range rounds {
				keys := make(map[string]string)
				for what := range changesOf {
					key := fmt.Sprint(what, " ", n)
					keys[what] = key
					must(t,
						reader.cache.SetEntry(ctx, key, cacheguard.Entry[string]{
							Value: "old", TTL: time.Hour, Tags: []string{key},
							SoftTags: []string{key},
						}))
				}
				must(t, trouble.begin(ctx, x))
				var all sync.WaitGroup
				for what, change := range changesOf {
					all.Go(func() {
						err := change(ctx, writer.cache, keys[what])
						switch {
						case errors.Is(err, cacheguard.ErrPending):
							pending.Add(1)
						case err != nil:
							t.Errorf("%s: %v", what, err)
						}
					})
				}
				all.Wait()
				if rand.N(2) == 0 {
					for _, key := range keys {
						writer.get(t, key, newOrigin("new").load).is(t, "new")
					}
				}
				must(t, trouble.end(ctx, x))
				began := time.Now()
				for _, key := range keys {
					waittest.Until(t, key+" is not what it was", func() bool {
						res, err := reader.cache.Peek(ctx, key)
						return err == nil &&
							(res.Value != "old" || res.Status != cacheguard.StatusHit)
					})

				}
				took = append(took, time.Since(began))
				if took[n] > time.Second {
					late++
				}
				must(t, writer.cache.Flush(ctx))
				for _, key := range keys {
					reader.get(t, key, newOrigin("new").load).is(t, "new")
				}
				if (n+1)%100 != 0 && n+1 < rounds {
					continue
				}
				sorted := slices.Sorted(slices.Values(took))
				t.Logf("%s: %d rounds, %d of %d changes pending; none old after %v, 99 %% %v, longest %v; %d later than 1s",
					name, n+1, pending.Load(), (n+1)*len(changesOf),
					sorted[n/2].Round(time.Millisecond), sorted[n*99/100].Round(time.Millisecond),
					sorted[n].Round(time.Millisecond), late)
			}
		})
	}
}
