package redisstore_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/internal/childproc"
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
		a.inTime(t, "v", soon)
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

// The log alone, and an error alone, name the server and the cause. If go-redis repeats a dial, the
// step itself knows only that its time is over.
func TestTroubleIsTold(t *testing.T) {
	t.Parallel()
	nobody := func(t *testing.T) string {
		port, err := childproc.ReservePort()
		must(t, err)
		t.Cleanup(port.Release)
		return port.Addr()
	}
	for name, c := range map[string]struct {
		options func(t *testing.T) redis.Options
		cause   string
		writes  bool // only writes fail: the log has no line about reads and messages
		changes bool // an error of a change names the cause, too
	}{
		"wrong port": {
			func(t *testing.T) redis.Options { return redis.Options{Addr: nobody(t)} },
			"can't be reached: connection refused", false, true,
		},
		"unknown host": {
			func(t *testing.T) redis.Options {
				// A name server of the machine may be slow, or not be there.
				dial := func(_ context.Context, network, _ string) (net.Conn, error) {
					return nil, &net.OpError{
						Op: "dial", Net: network, Err: &net.DNSError{
							Err: "no such host", Name: "redis.invalid", IsNotFound: true,
						},
					}
				}
				return redis.Options{Addr: "redis.invalid:6379", Dialer: dial}
			},
			"can't be reached: DNS doesn't know the host name", false, true,
		},
		"no TLS there": {
			func(t *testing.T) redis.Options {
				return redis.Options{
					Addr:      redistest.Start(t).Addr(),
					TLSConfig: &tls.Config{ServerName: "localhost"},
				}
			},
			"can't be reached: ", false, true,
		},
		"wrong password": {
			func(t *testing.T) redis.Options {
				return redis.Options{
					Addr: redistest.Start(t).Addr(), Username: "who", Password: "wrong-password",
				}
			},
			"authentication failed", false, true,
		},
		"black hole": {
			func(t *testing.T) redis.Options {
				proxy := redistest.StartProxy(t, redistest.Start(t).Addr())
				proxy.Blackhole(true)
				return redis.Options{Addr: proxy.Addr()}
			},
			"connected, and no answer in time", false, true,
		},
		"missing right": {
			func(t *testing.T) redis.Options {
				return *newUser(t, newClient(t, redistest.Start(t).Addr()), "-evalsha",
					"-eval").Options()
			},
			"the Redis user lacks a right", false, true,
		},
		"full memory": {
			func(t *testing.T) redis.Options {
				return redis.Options{
					Addr: redistest.Start(t, "--maxmemory", "1", "--maxmemory-policy",
						"noeviction").Addr(),
				}
			},
			"its memory is full (maxmemory)", true, false, // removals still work
		},
		"a replica": {
			func(t *testing.T) redis.Options {
				host, port, err := net.SplitHostPort(nobody(t))
				must(t, err)
				return redis.Options{Addr: redistest.Start(t, "--replicaof", host, port).Addr()}
			},
			// go-redis tries again; if it does so until its time is over, nobody knows why.
			"it is read-only: a replica", true, false,
		},
	} {
		for _, careful := range []bool{true, false} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				opts := c.options(t)
				opts.ContextTimeoutEnabled = careful
				r := newReplica(t, opts.Addr, "cg", func(s *site) {
					s.redis = opts
					switch {
					case name == "black hole": // a slow machine can connect in half of it
						s.store.OpTimeout = outageOp
					case !c.writes && name != "missing right" && name != "wrong password":
						s.store.OpTimeout = 5 * shortOp // the server doesn't answer at once
					}
				})
				const key = "a-secret-key"
				o := newOrigin("v")
				for i := range 5 { // until the breaker is open, and one more call
					r.get(t, fmt.Sprint(key, i), o.load).is(t, "v")
				}
				r.log.AwaitSome(t, "server="+opts.Addr, c.cause, "means=",
					"see=docs/operations.md#")
				if !c.writes && r.log.Count("store can't be used for reading", c.cause) != 1 {
					t.Errorf("no line, or more than one, says that and why the cache can't read:\n%s",
						r.log.With())
				}
				if !c.writes && name != "missing right" {
					r.log.AwaitSome(t, "messages don't arrive", "server="+opts.Addr, c.cause)
				}
				// On a busy machine the last step may have failed for another reason.
				waittest.Until(t, "a read says the server and the cause", func() bool {
					_, _, err := r.store.Get(t.Context(),
						cacheguard.Key{Cache: "test", Key: key}, nil)
					if c.writes {
						return err == nil
					}
					return err != nil && strings.Contains(err.Error(), opts.Addr) &&
						strings.Contains(err.Error(), c.cause)
				})
				var err error
				waittest.Until(t, "a change says the server and the cause", func() bool {
					err = r.cache.Invalidate(t.Context(), key)
					return !c.changes || err != nil && strings.Contains(err.Error(), opts.Addr) &&
						strings.Contains(err.Error(), c.cause)
				})
				if lines := r.log.With(key); len(lines) > 0 {
					t.Errorf("the log has a key: %s", lines)
				}
				if lines := r.log.With("wrong-password"); len(lines) > 0 ||
					err != nil && strings.Contains(err.Error(), "wrong-password") {
					t.Errorf("the password is told: %s, %v", lines, err)
				}
			})
		}
	}
}
