package redisstore_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/cacheguard/cacheguard/internal/redistest"
)

// A Redis that answers, but with an error, is like none: callers are served by loads, coalesced, and nothing is
// stored. One line of the log tells of the beginning, whatever the number of calls, and one of the end.
func TestRedisInTrouble(t *testing.T) {
	t.Parallel()
	for name, trouble := range map[string]struct {
		begin, end func(ctx context.Context, admin *redis.Client) error
		says       string
	}{
		"out of memory": {
			begin: func(ctx context.Context, admin *redis.Client) error {
				return admin.ConfigSet(ctx, "maxmemory", "1").Err()
			},
			end: func(ctx context.Context, admin *redis.Client) error {
				return admin.ConfigSet(ctx, "maxmemory", "0").Err()
			},
			says: "OOM",
		},
		"read-only": {
			begin: func(ctx context.Context, admin *redis.Client) error {
				return admin.ReplicaOf(ctx, "127.0.0.1", "1").Err()
			},
			end: func(ctx context.Context, admin *redis.Client) error {
				return admin.ReplicaOf(ctx, "NO", "ONE").Err()
			},
			says: "READONLY",
		},
		"no replicas to write to": {
			begin: func(ctx context.Context, admin *redis.Client) error {
				return admin.ConfigSet(ctx, "min-replicas-to-write", "1").Err()
			},
			end: func(ctx context.Context, admin *redis.Client) error {
				return admin.ConfigSet(ctx, "min-replicas-to-write", "0").Err()
			},
			says: "NOREPLICAS",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx := t.Context()
			admin := newClient(t, redistest.Start(t).Addr())
			r := newReplica(t, admin.Options().Addr, newPrefix())
			r.listens(t)
			must(t, r.cache.Set(ctx, "before", "v"))

			must(t, trouble.begin(ctx, admin))
			r.get(t, "before", mustNotLoad(t)).hit(t, "v")
			const calls = 10
			o := newOrigin("v")
			for i := range calls {
				a := r.get(t, fmt.Sprint(i), o.load)
				a.is(t, "v")
				if !a.res.Degraded {
					t.Errorf("a caller who was served without Redis wasn't told so")
				}
			}
			o.loaded(t, calls)
			if lines := r.log.lines("store can't be used"); len(lines) != 1 {
				t.Errorf("%d lines of the log tell of %d calls; want 1:\n%s", len(lines), calls, lines)
			}
			if lines := r.log.lines("store can't be used", trouble.says); len(lines) == 0 {
				t.Errorf("the log doesn't say %s", trouble.says)
			}

			must(t, trouble.end(ctx, admin))
			await(t, "values are stored again", func() bool {
				r.get(t, "after", o.load).is(t, "v")
				res, err := r.cache.Peek(ctx, "after")
				return err == nil && res.Value == "v"
			})
			if lines := r.log.lines("store can be used again"); len(lines) != 1 {
				t.Errorf("%d lines of the log tell of the end; want 1", len(lines))
			}
		})
	}
}
