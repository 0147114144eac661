package redislock_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/cacheguard/cacheguard/cacheguard/lock/redislock"
	"github.com/cacheguard/cacheguard/internal/logtest"
	"github.com/cacheguard/cacheguard/internal/redistest"
)

// separate returns a client whose messages come over another connection.
type separate struct {
	redis.UniversalClient
	messages *redis.Client
}

func (s separate) Subscribe(ctx context.Context, channels ...string) *redis.PubSub {
	return s.messages.Subscribe(ctx, channels...)
}

// While messages don't arrive, waiting calls poll. The log has one line about the lost messages,
// and a connection that is only silent is noticed.
func TestMessagesBreak(t *testing.T) {
	for name, breaks := range map[string]func(t *testing.T, p *redistest.Proxy) (heal func()){
		"cut": func(t *testing.T, p *redistest.Proxy) func() {
			must(t, p.Refuse(true))
			p.Cut()
			return func() { must(t, p.Refuse(false)) }
		},
		"silent": func(t *testing.T, p *redistest.Proxy) func() {
			p.Blackhole(true)
			return func() { p.Cut(); p.Blackhole(false) }
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const prefix, name = "breaks", "n"
			addr := redistest.Start(t).Addr()
			wire := redistest.StartProxy(t, addr)
			var log logtest.Lines
			opts := redislock.Options{Prefix: prefix, Lease: time.Hour, OpTimeout: 3 * time.Second}
			a := locker(t, addr, opts)
			opts.Logger = log.Logger()
			b := open(t, separate{client(t, addr), client(t, wire.Addr())}, opts)
			must(t, b.Warm(t.Context()))
			held := locked(t, a, name)
			waits := calls(t.Context(), b, name)
			line(t, client(t, addr), prefix, name, 1)

			heal := breaks(t, wire)
			log.AwaitSome(t, "messages don't arrive")
			unlock(t, held)
			held = waits.lock(t) // the call has polled, because the lease is an hour
			heal()
			log.AwaitSome(t, "messages arrive again")
			waits = calls(t.Context(), a, name)
			line(t, client(t, addr), prefix, name, 1)
			unlock(t, held)
			held = waits.lock(t)
			waits = calls(t.Context(), b, name)
			line(t, client(t, addr), prefix, name, 1)
			unlock(t, held)
			unlock(t, waits.lock(t)) // a message on the new connection has woken the call
			// On a busy machine messages may stop once more.
			for i, line := range log.With("messages") {
				if strings.Contains(line, "don't arrive") != (i%2 == 0) {
					t.Errorf("line %d about messages is: %s", i+1, line)
				}
			}
		})
	}
}

// If a message is lost although its connection is intact, the hand-over takes a third of the lease
// longer.
func TestMessageIsLost(t *testing.T) {
	const prefix, name, lease = "lost", "n", 3 * time.Second
	addr := redistest.Shared(t).Addr()
	opts := redislock.Options{Prefix: prefix, Lease: lease}
	a, b := locker(t, addr, opts), locker(t, addr, opts)
	held := locked(t, a, name)
	began := time.Now() // before the request after which the call rests
	waits := calls(t.Context(), b, name)
	line(t, client(t, addr), prefix, name, 1)
	// No waiting call is told.
	must(t, client(t, addr).Del(t.Context(), redislock.LockName(prefix, name)).Err())
	next := waits.lock(t)
	if took := time.Since(began); took < lease/10 {
		t.Errorf("it was woken after %v, by whom?", took)
	}
	unlock(t, next)
	if err := held.Unlock(context.Background()); err == nil {
		t.Error("the one that lost it could give it back")
	}
}

// Locks also work without the right to subscribe, and without the right to any channel.
func TestWithoutTheRightToSubscribe(t *testing.T) {
	const prefix, name = "rights", "n"
	server := redistest.Start(t)
	admin := client(t, server.Addr())
	must(t,
		admin.Do(t.Context(), "ACL", "SETUSER", "u", "on", "nopass", "~*", "+@all",
			"resetchannels").Err())
	opts := redislock.Options{
		Prefix: prefix, Lease: time.Hour, Logger: slog.New(slog.NewTextHandler(io.Discard, nil)),
	}
	free := locker(t, server.Addr(), opts)
	rdb := redis.NewClient(&redis.Options{
		Addr: server.Addr(), Username: "u", Password: "any", ContextTimeoutEnabled: true,
	})
	t.Cleanup(func() { _ = rdb.Close() })
	poor := open(t, rdb, opts)
	says(t, poor.Warm(t.Context()), "the Redis user lacks &"+prefix+":*", "NOPERM") // at once
	held := locked(t, free, name)
	waits := calls(t.Context(), poor, name)
	line(t, admin, prefix, name, 1)
	unlock(t, held)
	unlock(t, waits.lock(t))
}

// If the context ends first, the error of Warm names the step for which Warm waited, and the reason
// why this step isn't possible.
func TestWarmSaysWhatItWaitedFor(t *testing.T) {
	for name, is := range map[string]struct {
		silent func(redistest.Command) bool
		says   []string
	}{
		"scripts":   {redistest.IsCommand("SCRIPT"), []string{"script|load: no answer within"}},
		"a channel": {redistest.IsCommand("SUBSCRIBE"), []string{"subscribe: no answer"}},
		"its channel": {func(c redistest.Command) bool {
			return redistest.IsCommand("SUBSCRIBE")(c) && string(c.Args[0]) != "silent:try"
		}, []string{"subscribing to silent:", "no answer to a PING within"}},
	} {
		t.Run(name, func(t *testing.T) {
			wire := redistest.StartProxy(t, redistest.Shared(t).Addr())
			silent := wire.DropCommand(is.silent)
			ctx, leave := context.WithCancel(t.Context())
			defer leave()
			log := told(func(line string) {
				if name == "its channel" && strings.Contains(line, "messages don't arrive") {
					leave()
				}
			})
			l := open(t, client(t, wire.Addr()), redislock.Options{
				Prefix: "silent", OpTimeout: time.Second,
				Logger: slog.New(slog.NewTextHandler(log, nil)),
			})
			if name != "its channel" {
				go func() {
					<-silent.Struck()
					leave()
				}()
			}
			err := l.Warm(ctx)
			says(t, err, is.says...)
			if !errors.Is(err, context.Canceled) {
				t.Errorf("nothing about its context in: %v", err)
			}
		})
	}
}

// told is a logger that calls the function with each line.
type told func(line string)

func (f told) Write(line []byte) (int, error) {
	f(string(line))
	return len(line), nil
}

// The rights that the documentation names are enough.
func TestLeastRights(t *testing.T) {
	const prefix, name = "least", "n"
	server := redistest.Start(t)
	admin := client(t, server.Addr())
	grant(t, admin, strings.Fields(leastRights))
	opts := redislock.Options{Prefix: prefix, Fair: true}
	open := func() *redislock.Locker {
		rdb := redis.NewClient(&redis.Options{
			Addr: server.Addr(), Username: "u", Password: "any", ContextTimeoutEnabled: true,
			DisableIdentity: true,
		})
		t.Cleanup(func() { _ = rdb.Close() })
		l := open(t, rdb, opts)
		must(t, l.Warm(t.Context()))
		return l
	}
	a, b := open(), open()
	held := locked(t, a, name)
	waits := calls(t.Context(), b, name)
	line(t, admin, prefix, name, 1)
	unlock(t, held)
	unlock(t, waits.lock(t))
	if denied := admin.Do(t.Context(), "ACL", "LOG").Val(); len(denied.([]any)) > 0 {
		t.Errorf("denied: %v", denied)
	}
}

// The rights are also enough in a cluster, together with the right to ask which node has which
// slots.
func TestLeastRightsCluster(t *testing.T) {
	const prefix, name = "least", "n"
	cluster := redistest.StartCluster(t, 3, 0)
	for _, addr := range cluster.Addrs() {
		grant(t, client(t, addr), append(strings.Fields(leastRights), "+cluster|slots"))
	}
	open := func() *redislock.Locker {
		rdb := redis.NewClusterClient(&redis.ClusterOptions{
			Addrs: cluster.Addrs(), Username: "u", Password: "any", ContextTimeoutEnabled: true,
			DisableIdentity: true,
		})
		l := open(t, rdb, redislock.Options{Prefix: prefix, Fair: true})
		must(t, l.Warm(t.Context()))
		return l
	}
	a, b := open(), open()
	held := locked(t, a, name)
	waits := calls(t.Context(), b, name)
	operator := site{Addrs: cluster.Addrs(), Cluster: true}.client()
	t.Cleanup(func() { _ = operator.Close() })
	line(t, operator, prefix, name, 1)
	unlock(t, held)
	unlock(t, waits.lock(t))
}

const leastRights = "~least:* &least:* +get +set +del +pexpire +pttl +time +zadd +zrem +zpopmin +zrange +hset +hget +hdel " +
	"+publish +subscribe +ping +evalsha +eval +script|load"

// grant creates a user with these rights and no others.
func grant(t *testing.T, admin *redis.Client, rules []string) {
	t.Helper()
	args := []any{"ACL", "SETUSER", "u", "on", "nopass", "resetkeys", "resetchannels", "-@all"}
	for _, r := range rules {
		args = append(args, r)
	}
	must(t, admin.Do(t.Context(), args...).Err())
}
