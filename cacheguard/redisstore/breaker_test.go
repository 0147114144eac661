package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/cacheguard/redisstore"
	"github.com/cacheguard/cacheguard/internal/redistest"
	"github.com/cacheguard/cacheguard/internal/waittest"
)

// faulty is a client's hook that loses the answers of commands, and counts the commands that
// callers wait for. It doesn't count the probes, the commands that set connections up, the step
// that gives a lease back, and the reads of last generations after messages have begun to arrive.
type faulty struct {
	down   atomic.Bool // every command
	deaf   atomic.Bool // the probes alone
	says   atomic.Pointer[string]
	sent   atomic.Int64
	probes []string
	behind []string
}

func newFaulty(rdb *redis.Client) *faulty {
	f := &faulty{}
	for _, script := range []string{redisstore.ClockScript, redisstore.ProbeScript} {
		f.probes = append(f.probes, script, redis.NewScript(script).Hash())
	}
	f.behind = []string{redisstore.ReleaseScript, redis.NewScript(redisstore.ReleaseScript).Hash()}
	rdb.AddHook(f)
	return f
}

func (f *faulty) DialHook(next redis.DialHook) redis.DialHook { return next }

func (f *faulty) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		args := cmd.Args()
		probe := len(args) > 1 && slices.Contains(f.probes, fmt.Sprint(args[1]))
		behind := len(args) > 1 && slices.Contains(f.behind, fmt.Sprint(args[1]))
		if !probe && !behind && args[0] != "hello" && args[0] != "client" {
			f.sent.Add(1)
		}
		err := error(nil)
		switch {
		case f.down.Load() || (probe && f.deaf.Load()):
			err = io.ErrUnexpectedEOF
		case f.says.Load() != nil:
			err = said(*f.says.Load())
		default:
			return next(ctx, cmd)
		}
		cmd.SetErr(err)
		return err
	}
}

func (f *faulty) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if first := cmds[0].Name(); first != "client" && first != "zrange" {
			f.sent.Add(int64(len(cmds)))
		}
		err := error(nil)
		switch {
		case f.down.Load():
			err = io.ErrUnexpectedEOF
		case f.says.Load() != nil:
			err = said(*f.says.Load())
		default:
			return next(ctx, cmds)
		}
		for _, cmd := range cmds {
			cmd.SetErr(err)
		}
		return err
	}
}

// said is an error that Redis has answered.
type said string

func (e said) Error() string { return string(e) }
func (e said) RedisError()   {}

// P7: after a few failures no caller waits for a Redis that doesn't answer, and no caller has to
// find out that Redis answers again.
func TestBreaker(t *testing.T) {
	t.Parallel()
	server := miniredis.RunT(t)
	rdb := newClient(t, server.Addr())
	f := newFaulty(rdb)
	r := newReplica(t, "", newPrefix(), func(s *site) { s.rdb = rdb })
	o := newOrigin("v")
	r.get(t, "k", o.load).is(t, "v")

	f.down.Store(true)
	for range 10 {
		if a := r.get(t, "k", o.load); !a.res.Degraded {
			t.Fatalf("got %+v from a Redis that doesn't answer", a.res)
		}
	}
	before := f.sent.Load()
	for range 100 {
		r.get(t, "k", o.load).is(t, "v")
	}
	if n := f.sent.Load() - before; n > 0 {
		t.Errorf("%d commands were sent for callers to a Redis that doesn't answer", n)
	}
	if n := r.log.Count("Redis doesn't answer"); n != 1 {
		t.Errorf("that Redis doesn't answer was logged %d times; want once", n)
	}
	if lines := r.log.With("takes no writes"); len(lines) > 0 { // writes are not the problem
		t.Errorf("of a Redis that doesn't answer the log says %q", lines)
	}

	f.down.Store(false)
	waittest.Until(t, "Redis is used again", func() bool {
		return !r.get(t, "new", o.load).res.Degraded
	})
	r.get(t, "new", mustNotLoad(t)).hit(t, "v")
	r.log.Await(t, 1, "Redis answers again")
}

// A change of many keys takes several trips. If Redis doesn't answer the first one, nobody waits
// for the others.
func TestManyChangesWaitOnceForRedis(t *testing.T) {
	t.Parallel()
	const trip = 256
	rdb := newClient(t, miniredis.RunT(t).Addr())
	f := newFaulty(rdb)
	store := newStore(t, rdb, redisstore.Options{Prefix: newPrefix()})
	keys := make([]cacheguard.Key, 3*trip+1)
	for i := range keys {
		keys[i] = cacheguard.Key{Cache: "c", Key: strconv.Itoa(i)}
	}
	f.down.Store(true)
	var failed cacheguard.KeyErrors
	if err := store.Invalidate(t.Context(), keys); !errors.As(err, &failed) ||
		len(failed) != len(keys) {
		t.Errorf("of %d changes %d failed", len(keys), len(failed))
	}
	if n := f.sent.Load(); n != 2*trip {
		t.Errorf("%d commands were sent to a Redis that doesn't answer, want two times one trip of %d",
			n, trip)
	}
}

// A change must reach Redis if there is a way. So it is sent although the breaker is open, and its
// answer closes the breaker.
func TestChangesPassAnOpenBreaker(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(ctx context.Context,
		c *cacheguard.Cache[string]) error{
		"invalidate": func(ctx context.Context, c *cacheguard.Cache[string]) error {
			return c.Invalidate(ctx, "k")
		},
		"invalidate many": func(ctx context.Context, c *cacheguard.Cache[string]) error {
			return c.Invalidate(ctx, "k", "l", "m")
		},
		"set": func(ctx context.Context, c *cacheguard.Cache[string]) error {
			return c.Set(ctx, "k", "new")
		},
		"update": func(ctx context.Context, c *cacheguard.Cache[string]) error {
			_, err := c.Update(ctx, "k", func(context.Context) (string, error) {
				return "new", nil
			})
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := miniredis.RunT(t)
			rdb := newClient(t, server.Addr())
			f := newFaulty(rdb)
			r := newReplica(t, "", newPrefix(), func(s *site) { s.rdb = rdb })
			o := newOrigin("old")
			r.get(t, "k", o.load).is(t, "old")
			f.down.Store(true)
			for range 5 {
				r.get(t, "k", o.load)
			}
			f.deaf.Store(true)
			f.down.Store(false)
			if a := r.get(t, "k", o.load); !a.res.Degraded {
				t.Errorf("the breaker is not open: %+v", a.res)
			}
			must(t, change(t.Context(), r.cache))
			o = newOrigin("new")
			if a := r.get(t, "k", o.load); a.res.Degraded || a.res.Value != "new" || a.err != nil {
				t.Errorf("after a change that was answered: %+v, %v", a.res, a.err)
			}
		})
	}
}

// If Redis answers with an error at once, callers lose no time. So the steps that still work go on.
func TestAnswersKeepTheBreakerClosed(t *testing.T) {
	t.Parallel()
	server := miniredis.RunT(t)
	rdb := newClient(t, server.Addr())
	f := newFaulty(rdb)
	r := newReplica(t, "", newPrefix(), func(s *site) { s.rdb = rdb })
	o := newOrigin("v")
	r.get(t, "k", o.load).is(t, "v")
	text := "ERR something is wrong"
	f.says.Store(&text)
	for range 20 {
		r.get(t, "other", o.load).is(t, "v")
	}
	f.says.Store(nil)
	r.get(t, "k", mustNotLoad(t)).hit(t, "v")
	if lines := r.log.With("doesn't answer"); len(lines) > 0 {
		t.Errorf("logged %q", lines)
	}
}

// If a server refuses all clients, the log doesn't say that the server doesn't answer. It gives the
// reason of the refusal. The breaker opens only if the client goes on trying, because then callers
// wait.
func TestTurnedAway(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		args    []string
		options redis.Options
		cause   string
		timeout time.Duration
	}{
		"wrong password": {
			[]string{"--requirepass", "right"}, redis.Options{Password: "wrong"},
			"authentication failed", opTimeout,
		},
		"no password": {
			[]string{"--requirepass", "right"}, redis.Options{}, "no password was given", opTimeout,
		},
		"too many clients": {
			[]string{"--maxclients", "1"}, redis.Options{}, "too many clients", time.Second,
		},
		"and a password": {
			[]string{"--maxclients", "1"}, redis.Options{Password: "any"}, "too many clients",
			time.Second,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t, c.args...)
			if c.cause == "too many clients" {
				rdb := newClient(t, server.Addr())
				// And not the one that waited for the server.
				waittest.Until(t, "this client has the only connection", func() bool {
					conn := rdb.Conn()
					t.Cleanup(func() { _ = conn.Close() })
					return conn.Ping(t.Context()).Err() == nil
				})
			}
			c.options.Addr = server.Addr()
			r := newReplica(t, "", newPrefix(), func(s *site) {
				s.redis, s.store.OpTimeout = c.options, c.timeout
			})
			if c.cause == "too many clients" {
				// A step sees only that its connection is closed. The subscription knows why.
				r.store.Listening()
				waittest.Until(t, "the subscription is turned away", func() bool {
					_, _, err := r.store.Deafness()
					return err != nil && strings.Contains(err.Error(), c.cause)
				})
			}
			for range 10 {
				r.get(t, "k", newOrigin("v").load).is(t, "v")
			}
			if lines := r.log.With("Redis doesn't answer"); len(lines) > 0 {
				t.Errorf("the log says %q", lines)
			}
			open, _ := r.store.Breakers()
			if crowded := c.cause == "too many clients"; crowded != (open > 0) ||
				r.log.Count("no more connections", c.cause) != open {
				t.Errorf("%d breakers are open, and the log says %q", open, r.log.With())
			}
			if n := r.log.Count("store can't be used for reading", c.cause); n != 1 && open == 0 {
				t.Errorf("%d lines say %q:\n%s", n, c.cause, r.log.With())
			}
		})
	}
}

// If a caller's own time is over, this is no sign that Redis is down.
func TestImpatientCallersKeepTheBreakerClosed(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	p := redistest.StartProxy(t, server.Addr())
	r := newReplica(t, p.Addr(), newPrefix())
	r.get(t, "k", newOrigin("v").load).is(t, "v")
	for range 5 {
		gate := make(chan struct{})
		fault := p.DelayReply(redistest.IsCommand("GET", "MGET"), gate)
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Millisecond)
		// A value that came in the last moment, in another way, is right, too.
		if v, err := r.cache.Get(ctx, "k", mustNotLoad(t)); v != "v" &&
			!errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %q, %v", v, err)
		}
		cancel()
		close(gate)
		fault.Disarm()
	}
	if lines := r.log.With("doesn't answer"); len(lines) > 0 {
		t.Errorf("logged %q", lines)
	}
}

// P7: when Redis stops under load, no call waits for longer than OpTimeout. Once the breaker is
// open, a call takes as long as its load.
func TestRedisStopsUnderLoad(t *testing.T) {
	t.Parallel()
	for kind, client := range clientKinds {
		if kind == "cluster" {
			continue // TestRedisDownAtStart tests this kind; one server is no cluster
		}
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t)
			const op = outageOp
			r := newReplica(t, "", newPrefix(), func(s *site) {
				s.rdb, s.store.OpTimeout = client(t, server.Addr()), op
				s.cache.MaxLoads = -1
			})
			r.listens(t)
			o := newOrigin("v")
			r.get(t, "k", o.load).is(t, "v")
			must(t, server.Pause())
			var longest time.Duration
			for range 10 {
				for _, a := range r.ask(t, 50, "k", o.load).wait(t) {
					a.inTime(t, "v", 5*op)
					longest = max(longest, a.took)
				}
			}
			var took []time.Duration
			for range 200 {
				began := time.Now()
				if v, err := r.cache.Get(t.Context(), "k", o.load); v != "v" || err != nil {
					t.Fatal(v, err)
				}
				took = append(took, time.Since(began))
			}
			slices.Sort(took)
			t.Logf("longest call %v, then median %v", longest, took[len(took)/2])
			if median := took[len(took)/2]; median > op*2/5 { // without the breaker it would be op
				t.Errorf("with the breaker open the median call takes %v", median)
			}
			must(t, server.Resume())
			began := time.Now()
			waittest.Until(t, "Redis is used again", func() bool {
				return !r.get(t, "new", o.load).res.Degraded
			})
			t.Logf("normal %v after it was continued", time.Since(began))
		})
	}
}

// The log names exactly the missing right, also when Redis refuses a command inside a script and
// doesn't name the command.
func TestMissingRightsAreNamed(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	admin := newClient(t, server.Addr())
	prefix := newPrefix()
	for _, c := range []struct {
		name   string
		change []any
		call   func(ctx context.Context, s *redisstore.Store) error
		want   string
	}{
		{"get", named(prefix, "-get"), getting, "+get:"},
		{"mget", named(prefix, "-mget"), gettingBoth, "+mget:"},
		{
			"keys", []any{"resetkeys", "~other:*", "&" + prefix + ":*"}, getting,
			"~" + prefix + ":*:",
		},
		{"scripts", named(prefix, "-evalsha", "-eval"), leasing, "+evalsha:"},
		{"inside a script", named(prefix, "-mget"), leasing, "+mget:"},
		{"set inside a script", named(prefix, "-set"), leasing, "+set:"},
		{"getrange to mark", named(prefix, "-getrange"), func(
			ctx context.Context, s *redisstore.Store,
		) error {
			return s.MarkStale(ctx, []cacheguard.Key{{Cache: "test", Key: "k"}}, 10,
				make([]byte, 8))
		}, "+getrange:"},
		{"getrange to claim", named(prefix, "-getrange"), func(
			ctx context.Context, s *redisstore.Store,
		) error {
			_, err := s.Claim(ctx, cacheguard.Key{Cache: "test", Key: "k"}, cacheguard.ID{1},
				time.Second)
			return err
		}, "+getrange:"},
		{"getrange to fill", named(prefix, "-getrange"), func(
			ctx context.Context, s *redisstore.Store,
		) error {
			_, err := s.Fill(ctx, cacheguard.Key{Cache: "test", Key: "k"}, cacheguard.Grant{},
				make([]byte, 80), time.Second)
			return err
		}, "+getrange:"},
		{"getrange to lease", named(prefix, "-getrange"), func(
			ctx context.Context, s *redisstore.Store,
		) error {
			_, err := s.Lease(ctx, cacheguard.Key{Cache: "test", Key: "k"}, cacheguard.LeaseAsk{
				Token: cacheguard.ID{1}, TTL: time.Second, Seen: make([]byte, 16),
			})
			return err
		}, "+getrange:"},
		{"publish", named(prefix, "-publish"), invalidating, "+publish:"},
		{
			"channel", named(prefix, "resetchannels"), invalidating,
			"&" + prefix + ":messages &" + prefix + ":messages:*:",
		},
	} {
		rdb := newUser(t, admin, c.change...)
		s := newStore(t, rdb, redisstore.Options{Prefix: prefix, OpTimeout: opTimeout})
		if err := c.call(t.Context(), s); err == nil ||
			!strings.Contains(err.Error(), "lacks "+c.want) {
			t.Errorf("%s: got %v; want that the user lacks %s", c.name, err, c.want)
		}
	}
}

func gettingBoth(ctx context.Context, s *redisstore.Store) error {
	_, _, err := s.Get(ctx, cacheguard.Key{Cache: "test", Key: "k"}, []string{})
	return err
}

func getting(ctx context.Context, s *redisstore.Store) error {
	_, _, err := s.Get(ctx, cacheguard.Key{Cache: "test", Key: "k"}, nil)
	return err
}

func leasing(ctx context.Context, s *redisstore.Store) error {
	_, err := s.Lease(ctx, cacheguard.Key{Cache: "test", Key: "k"},
		cacheguard.LeaseAsk{Token: cacheguard.ID{1}, TTL: time.Second})
	return err
}

func invalidating(ctx context.Context, s *redisstore.Store) error {
	return s.Invalidate(ctx, []cacheguard.Key{{Cache: "test", Key: "k"}})
}

// P7: a Redis answers reads and refuses writes. The client repeats a write until the step's time is
// over. Callers lose this time only until the store knows that writes are refused.
func TestRedisTakesNoWrites(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ begin, end []any }{
		"read-only": {[]any{"REPLICAOF", "127.0.0.1", "1"}, []any{"REPLICAOF", "NO", "ONE"}},
		"too few replicas": {
			[]any{"CONFIG", "SET", "min-replicas-to-write", "1"},
			[]any{"CONFIG", "SET", "min-replicas-to-write", "0"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			admin := newClient(t, redistest.Start(t).Addr())
			const op = 6 * time.Second
			r := newReplica(t, admin.Options().Addr, newPrefix(), func(s *site) {
				s.store.OpTimeout = op
				// Three pauses of the client take longer than the time in which a refusal counts
				// as a quick answer.
				s.redis.MinRetryBackoff, s.redis.MaxRetryBackoff = op/10, op/10
			})
			r.listens(t)
			must(t, r.cache.Set(t.Context(), "before", "v"))
			must(t, admin.Do(t.Context(), c.begin...).Err())
			o := newOrigin("v")
			miss := func(i int) answer {
				a := r.get(t, strconv.Itoa(i), o.load)
				a.is(t, "v")
				for range 5 {
					r.get(t, "before", mustNotLoad(t)).hit(t, "v")
				}
				return a
			}
			for i := range 6 {
				miss(i)
			}
			var took []time.Duration
			for i := range 50 {
				took = append(took, miss(i).took)
			}
			slices.Sort(took)
			t.Logf("then a miss takes %v, at most %v", took[len(took)/2], took[len(took)-1])
			// Without the breaker the median would be more than three pauses of the client.
			if median := took[len(took)/2]; median > op/4 {
				t.Errorf("a miss takes %v at the median", median)
			}
			if n := r.log.Count("redisstore: Redis takes no writes"); n != 1 {
				t.Errorf("that Redis takes no writes was logged %d times; want once", n)
			}
			must(t, admin.Do(t.Context(), c.end...).Err())
			waittest.Until(t, "leases are asked for again", func() bool {
				return !r.get(t, "new", o.load).res.Degraded
			})
			r.log.Await(t, 1, "takes writes again")
		})
	}
}
