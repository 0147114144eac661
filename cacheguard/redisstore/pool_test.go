package redisstore_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/internal/redistest"
	"github.com/cacheguard/cacheguard/internal/waittest"
)

// If the application has used up the pool, this is like a Redis that doesn't answer, until there is
// a free connection again.
func TestPoolExhausted(t *testing.T) {
	t.Parallel()
	for name, careful := range map[string]bool{"careful": true, "default": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t) // its own, because its clients are looked at
			rdb := redis.NewClient(&redis.Options{
				Addr: server.Addr(), PoolSize: 1, ContextTimeoutEnabled: careful,
			})
			t.Cleanup(func() { _ = rdb.Close() })
			admin := newClient(t, server.Addr())
			prefix := newPrefix()
			r := newReplica(t, "", prefix, func(s *site) {
				s.rdb, s.store.OpTimeout = rdb, outageOp
			})
			r.listens(t)

			queue := prefix + ":queue"
			blocked := make(chan error, 1)
			go func() { blocked <- rdb.BLPop(context.Background(), 0, queue).Err() }()
			waittest.Until(t, "the one connection is blocked", func() bool {
				clients, err := admin.ClientList(t.Context()).Result()
				return err == nil && strings.Contains(clients, "cmd=blpop") &&
					rdb.PoolStats().IdleConns == 0
			})

			o := newOrigin("v")
			letGo := o.hold()
			all := r.ask(t, 5, "k", o.load)
			all.arrived.Wait()
			letGo()
			for _, a := range all.wait(t) {
				a.inTime(t, "v", 5*outageOp)
			}
			o.loaded(t, 1)

			must(t, admin.RPush(t.Context(), queue, "go on").Err())
			began := time.Now()
			waittest.Next(t, "the blocking command ends", blocked)
			waittest.Until(t, "Redis is used again", func() bool {
				a := r.get(t, "k", o.load)
				a.is(t, "v")
				return a.res.Status == cacheguard.StatusHit
			})

			figures(t, "pool exhausted, "+name+" client", 1, time.Since(began), all.answers...)
		})
	}
}
