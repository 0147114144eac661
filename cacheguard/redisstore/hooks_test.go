package redisstore_test

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/cacheguard/redisstore"
	"github.com/cacheguard/cacheguard/internal/redistest"
	"github.com/cacheguard/cacheguard/internal/waittest"
)

// seeing is a hook that counts the commands that it sees, as a hook for traces or metrics does.
type seeing struct {
	mu   sync.Mutex // guards the fields below
	seen map[string]int64
}

func (s *seeing) see(cmds ...redis.Cmder) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, cmd := range cmds {
		s.seen[strings.ToUpper(cmd.Name())]++
	}
}

func (s *seeing) DialHook(next redis.DialHook) redis.DialHook { return next }

func (s *seeing) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		s.see(cmd)
		return next(ctx, cmd)
	}
}

func (s *seeing) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		s.see(cmds...)
		return next(ctx, cmds)
	}
}

// careless is a hook that needs a value of the caller's context.
type careless struct{ seeing }

type callerKey struct{}

func (c *careless) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		_ = ctx.Value(callerKey{}).(string)
		return next(ctx, cmd)
	}
}

// A hook that panics without a caller's context ends no goroutine of the store's own: a panic there
// would end the process.
func TestHookThatPanics(t *testing.T) {
	t.Parallel()
	rdb := newClient(t, redistest.Start(t).Addr())
	rdb.AddHook(&careless{seeing{seen: map[string]int64{}}})
	s := newStore(t, rdb, redisstore.Options{OpTimeout: patience})
	restored := make(chan struct{}, 10)
	defer s.Listen("test", func(m cacheguard.Message) {
		if m.Kind == cacheguard.MessageRestored {
			restored <- struct{}{}
		}
	})()
	k := cacheguard.Key{Cache: "test", Key: "k"}
	ask := cacheguard.LeaseAsk{Token: cacheguard.ID{1}, TTL: time.Minute}
	ctx := context.WithValue(t.Context(), callerKey{}, "me")
	if _, err := s.Lease(ctx, k, ask); err != nil { // which begins to listen
		t.Errorf("with the value: %v", err)
	}
	waittest.Next(t, "that messages arrive", restored)
	for range 20 {
		if _, err := s.Lease(t.Context(), k, ask); err == nil ||
			!strings.Contains(err.Error(), "a hook of the client panicked") {
			t.Fatalf("without the value: %v", err)
		}
		for _, tags := range [][]string{nil, {}, {"t"}} { // direct reads
			if _, _, err := s.Get(t.Context(), k, tags); err == nil ||
				!strings.Contains(err.Error(), "a hook of the client panicked") {
				t.Fatalf("a read without the value, tags %q: %v", tags, err)
			}
		}
	}
	if open, _ := s.Breakers(); open != 0 { // Redis has not failed
		t.Errorf("%d breakers are open", open)
	}
}

// With all options of a client, its hooks see the commands that are sent to Redis.
func TestHooksSeeEveryCommand(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	for _, keepsToContexts := range []bool{true, false} {
		for _, when := range []string{"before", "after", "later"} {
			if !keepsToContexts && when != "before" {
				continue // an exception that New's documentation names
			}
			t.Run(fmt.Sprintf("ContextTimeoutEnabled %v, added %s", keepsToContexts, when), func(
				t *testing.T,
			) {
				t.Parallel()
				proxy := redistest.StartProxy(t, server.Addr())
				rdb := redis.NewClient(&redis.Options{
					Addr: proxy.Addr(), ContextTimeoutEnabled: keepsToContexts,
					ReadTimeout: time.Minute, // after it, go-redis would repeat a command unseen
				})
				t.Cleanup(func() { _ = rdb.Close() })
				hook := &seeing{seen: map[string]int64{}}
				if when == "before" {
					rdb.AddHook(hook)
				}
				r := newReplica(t, "", newPrefix(), func(s *site) { s.rdb = rdb })
				if when == "after" {
					rdb.AddHook(hook)
				}
				r.listens(t)
				o := newOrigin("v")
				if when == "later" {
					r.get(t, "before", o.load).is(t, "v")
					rdb.AddHook(hook)
				}
				hook.mu.Lock()
				clear(hook.seen)
				hook.mu.Unlock()
				proxy.ResetCounts()

				r.get(t, "k", o.load).is(t, "v")
				r.get(t, "k", o.load).is(t, "v")
				must(t, r.cache.Invalidate(t.Context(), "k"))
				must(t, r.cache.InvalidateTags(t.Context(), "tag"))
				var all sync.WaitGroup
				for i := range 32 { // in batches
					all.Go(func() { r.get(t, fmt.Sprint("key ", i%16), o.load).is(t, "v") })
				}
				all.Wait()

				sent := proxy.Counts()
				// Commands of new connections and of the subscription are not counted.
				maps.DeleteFunc(sent, func(name string, _ int64) bool {
					return name == "HELLO" || name == "CLIENT" ||
						strings.HasSuffix(name, "SUBSCRIBE") || name == "PING"
				})
				hook.mu.Lock()
				defer hook.mu.Unlock()
				maps.DeleteFunc(hook.seen, func(name string, _ int64) bool {
					return name == "HELLO" || name == "CLIENT" || name == "PING"
				})
				if len(sent) == 0 || !maps.Equal(sent, hook.seen) {
					t.Errorf("Redis got %v, the hook saw %v", sent, hook.seen)
				}
			})
		}
	}
}
