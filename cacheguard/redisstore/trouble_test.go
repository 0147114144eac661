package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/cacheguard/cacheguard/internal/redistest"
	"github.com/cacheguard/cacheguard/internal/waittest"
)

// A Redis that answers with errors is treated like no Redis: callers get the results of coalesced
// loads, and nothing is stored. The log has one line about the beginning, whatever the number of
// calls, and one line about the end.
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
		"can't save to disk": {
			begin: failToSave,
			end: func(ctx context.Context, admin *redis.Client) error {
				return admin.ConfigSet(ctx, "save", "").Err()
			},
			says: "MISCONF",
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
			var all []answer
			for i := range calls {
				a := r.get(t, fmt.Sprint(i), o.load)
				all = append(all, a)
				a.is(t, "v")
				if !a.res.Degraded {
					t.Errorf("a caller who was served without Redis wasn't told so")
				}
			}
			o.loaded(t, calls)
			if lines := r.log.With("store can't be used"); len(lines) != 1 {
				t.Errorf("%d lines of the log tell of %d calls; want 1:\n%s", len(lines), calls,
					lines)
			}
			if lines := r.log.With("store can't be used", trouble.says); len(lines) == 0 {
				t.Errorf("the log doesn't say %s", trouble.says)
			}

			must(t, trouble.end(ctx, admin))
			began := time.Now()
			waittest.Until(t, "values are stored again", func() bool {
				r.get(t, "after", o.load).is(t, "v")
				res, err := r.cache.Peek(ctx, "after")
				return err == nil && res.Value == "v"
			})

			figures(t, "Redis says "+trouble.says, calls, time.Since(began), all...)
			if lines := r.log.With("store can be used again"); len(lines) != 1 {
				t.Errorf("%d lines of the log tell of the end; want 1", len(lines))
			}
		})
	}
}

// failToSave makes Redis fail to save to disk, as with a full disk, by putting a folder in place of
// the file.
func failToSave(ctx context.Context, admin *redis.Client) error {
	where, err := admin.ConfigGet(ctx, "dir").Result()
	if err != nil {
		return err
	}
	file, err := admin.ConfigGet(ctx, "dbfilename").Result()
	if err != nil {
		return err
	}
	err = errors.Join(os.Mkdir(filepath.Join(where["dir"], file["dbfilename"]), 0o700),
		admin.ConfigSet(ctx, "save", "3600 1").Err(), admin.BgSave(ctx).Err())
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for err == nil {
		var info string
		if info, err = admin.Info(ctx, "persistence").Result(); strings.Contains(info,
			"rdb_last_bgsave_status:err") {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return err
}

// A Redis that is busy with an endless script first answers nobody, and then answers BUSY to
// everybody. Callers get results of loads all the time. When the script has been killed, all is as
// before.
func TestRedisIsBusy(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, "--busy-reply-threshold", "100")
	r := newReplica(t, server.Addr(), newPrefix())
	r.listens(t)
	must(t, r.cache.Set(t.Context(), "before", "v"))
	rude := redis.NewClient(&redis.Options{Addr: server.Addr(), ReadTimeout: -1, MaxRetries: -1})
	defer rude.Close()
	ended := make(chan error, 1)
	go func() { ended <- rude.Eval(context.Background(), "while true do end", nil).Err() }()
	admin := newClient(t, server.Addr())
	waittest.Until(t, "Redis is busy", func() bool {
		err := admin.Ping(t.Context()).Err()
		return err != nil && strings.HasPrefix(err.Error(), "BUSY")
	})

	const calls = 10
	o := newOrigin("v")
	var all []answer
	for i := range calls {
		a := r.get(t, fmt.Sprint(i), o.load)
		a.inTime(t, "v")
		all = append(all, a)
	}
	o.loaded(t, calls)
	if lines := r.log.With("store can't be used for reading"); len(lines) != 1 {
		t.Errorf("%d lines of the log tell of %d calls; want 1:\n%s", len(lines), calls, lines)
	}
	must(t, admin.ScriptKill(t.Context()).Err())
	began := time.Now()
	waittest.Next(t, "the script ends", ended)
	waittest.Until(t, "values are stored again", func() bool {
		r.get(t, "after", o.load).is(t, "v")
		res, err := r.cache.Peek(t.Context(), "after")
		return err == nil && res.Value == "v"
	})

	figures(t, "Redis says BUSY", calls, time.Since(began), all...)
	r.get(t, "before", mustNotLoad(t)).hit(t, "v")
}

// If the memory is full, a waiting process can't be added to the list of waiters, so it gets no
// message. It asks again, long before the lease would be over.
func TestFullMemoryHoldsNobodyUp(t *testing.T) {
	t.Parallel()
	server, prefix := redistest.Start(t), newPrefix()
	long := func(s *site) { s.cache.LeaseTTL, s.cache.LoadTimeout = time.Hour, time.Hour }
	first, second := newReplica(t, server.Addr(), prefix, long),
		newReplica(t, server.Addr(), prefix, long)
	second.listens(t)
	o := newOrigin("v")
	letGo := o.hold()
	leads := first.ask(t, 1, "k", o.load)
	waittest.Next(t, "the first replica loads", o.began)
	must(t, newClient(t, server.Addr()).ConfigSet(t.Context(), "maxmemory", "1").Err())
	waits := second.ask(t, 1, "k", o.load)
	second.waits(t)
	letGo()
	leads.got(t, "v")
	waits.got(t, "v")
}
