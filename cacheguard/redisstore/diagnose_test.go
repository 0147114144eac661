package redisstore_test

import (
	"context"
	"errors"
	"io"
	"maps"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/cacheguard/redisstore"
	"github.com/cacheguard/cacheguard/internal/redistest"
)

// diagnosed returns the diagnosis of a store on this client.
func diagnosed(t *testing.T, rdb redis.UniversalClient) redisstore.Diagnosis {
	t.Helper()
	d := newStore(t, rdb,
		redisstore.Options{Prefix: "cg", OpTimeout: patience}).Diagnose(t.Context())
	t.Logf("\n%s", d)
	return d
}

// broken returns the names of the parts that don't work.
func broken(d redisstore.Diagnosis) (names []string) {
	for _, p := range d.Parts {
		if p.Err != nil {
			names = append(names, p.Name)
		}
	}
	return names
}

// If a server has no fault, the diagnosis says that everything works, and leaves the server as it
// was.
func TestDiagnose(t *testing.T) {
	t.Parallel()
	for name, open := range map[string]func(t *testing.T) (rdb, admin redis.UniversalClient,
		mode string){
		"server": func(t *testing.T) (redis.UniversalClient, redis.UniversalClient, string) {
			admin := newClient(t, redistest.Start(t).Addr())
			return newClient(t, admin.Options().Addr), admin, "standalone"
		},
		"least rights": func(t *testing.T) (redis.UniversalClient, redis.UniversalClient, string) {
			admin := newClient(t, redistest.Start(t).Addr())
			return newUser(t, admin, "+type", "+zrem"), admin, "standalone"
		},
		"cluster": func(t *testing.T) (redis.UniversalClient, redis.UniversalClient, string) {
			rdb := redis.NewClusterClient(&redis.ClusterOptions{
				Addrs: redistest.StartCluster(t, 3, 0).Addrs(), ContextTimeoutEnabled: true,
			})
			t.Cleanup(func() { _ = rdb.Close() })
			return rdb, rdb, "cluster"
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rdb, admin, mode := open(t)
			d := diagnosed(t, rdb)
			must(t, d.Err())
			if !strings.Contains(d.Server, " ") || d.Mode != mode || d.Role != "master" ||
				d.Trip <= 0 || d.Message <= 0 || d.Clock.Abs() > time.Minute {
				t.Errorf("%+v", d)
			}
			if name == "server" && d.Eviction != "noeviction" {
				t.Errorf("eviction: %q", d.Eviction)
			}
			// The cluster's clock has none, either.
			if n, err := admin.DBSize(t.Context()).Result(); err != nil || n > 1 {
				keys, _ := admin.Keys(t.Context(), "*").Result()
				t.Errorf("it left %d keys (%v): %q", n, err, keys)
			}
		})
	}
}

// If the caller's context ends during a diagnosis, nothing is left for good either.
func TestDiagnoseIsInterrupted(t *testing.T) {
	t.Parallel()
	admin := newClient(t, redistest.Start(t).Addr())
	rdb := newClient(t, admin.Options().Addr)
	var left atomic.Int32
	var interrupt func()
	rdb.AddHook(answered(func(string) {
		if left.Add(-1) == 0 {
			interrupt()
		}
	}))
	store := newStore(t, rdb, redisstore.Options{OpTimeout: patience})
	for after := int32(1); ; after += 3 {
		ctx, cancel := context.WithCancel(t.Context())
		interrupt = cancel
		left.Store(after)
		_ = store.Diagnose(ctx)
		interrupted := ctx.Err() != nil
		cancel()
		keys, err := admin.Keys(t.Context(), "*").Result()
		must(t, err)
		for _, key := range keys {
			if ttl, err := admin.TTL(t.Context(), key).Result(); err != nil || ttl == -1 {
				t.Fatalf("interrupted after %d commands it left %s for good (%v)", after, key, err)
			}
		}
		if !interrupted {
			return
		}
	}
}

// If the caller's context ends before anything was written, the diagnosis sends nothing more.
func TestDiagnoseEndsWithItsContext(t *testing.T) {
	t.Parallel()
	proxy := redistest.StartProxy(t, redistest.Start(t).Addr())
	rdb := newClient(t, proxy.Addr())
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	rdb.AddHook(answered(func(command string) {
		if command == "ping" {
			cancel()
		}
	}))
	d := newStore(t, rdb, redisstore.Options{OpTimeout: patience}).Diagnose(ctx)
	sent := proxy.Counts()
	maps.DeleteFunc(sent, func(name string, _ int64) bool { // those of new connections
		return name == "HELLO" || name == "CLIENT"
	})
	if want := map[string]int64{"PING": 1}; !maps.Equal(sent, want) {
		t.Errorf("it sent %v, want %v", sent, want)
	}
	if err := d.Err(); !errors.Is(err, context.Canceled) {
		t.Errorf("it says %v", err)
	}
}

// If a server has a fault, the diagnosis names it and a remedy.
func TestDiagnoseCrippled(t *testing.T) {
	t.Parallel()
	user := func(change ...any) func(t *testing.T) redis.UniversalClient {
		return func(t *testing.T) redis.UniversalClient {
			return newUser(t, newClient(t, redistest.Start(t).Addr()),
				append([]any{"+type", "+zrem"}, change...)...)
		}
	}
	for name, test := range map[string]struct {
		open   func(t *testing.T) redis.UniversalClient
		broken []string // the names of all parts that report the reason
		says   []string
	}{
		"a node of a cluster": {
			func(t *testing.T) redis.UniversalClient {
				return newClient(t, redistest.StartCluster(t, 3, 0).Addrs()[0])
			},
			[]string{"is a server for this client"}, []string{"redis.NewClusterClient"},
		},
		"a replica": {
			func(t *testing.T) redis.UniversalClient {
				host, port, err := net.SplitHostPort(redistest.Start(t).Addr())
				must(t, err)
				return newClient(t, redistest.Start(t, "--replicaof", host, port).Addr())
			},
			[]string{"is a server for this client"}, []string{"this is a replica"},
		},
		"no scripts": {
			user("-evalsha", "-eval"), []string{"tells the time", "gives leases"},
			[]string{"lacks +evalsha"},
		},
		"no pings": {
			user("-ping"), []string{"answers", "has all rights"},
			[]string{"lacks +ping", "ACL SETUSER"},
		},
		"no time": {
			user("-time"), []string{"tells the time", "gives leases"}, []string{"lacks +time"},
		},
		"no ranges": {
			user("-setrange"), []string{"changes values"}, []string{"lacks +setrange"},
		},
		"no sorted sets": {
			user("-zadd"), []string{"changes values by tag"}, []string{"lacks +zadd"},
		},
		"no counting": {
			user("-pubsub|numsub"), []string{"has all rights"}, []string{"lacks +pubsub|numsub"},
		},
		"no subscribing": {
			user("-subscribe"), []string{"brings messages"}, []string{"lacks +subscribe"},
		},
		"no channel": {
			user("resetchannels"), []string{"brings messages"}, []string{"lacks &cg:"},
		},
		"no keys": {
			user("resetkeys", "~other:*"), []string{"reads values", "gives leases"},
			[]string{"lacks ~cg:*"},
		},
		"two rights": {user("-setrange", "-zadd"), []string{"has all rights"}, []string{
			"lacks +setrange +zadd", "user ", "ACL SETUSER cacheguard +setrange +zadd\n",
		}},
		"no permits": {user("-zrem"), []string{"keeps budgets"}, []string{"lacks +zrem"}},
		"a wrong password": {
			func(t *testing.T) redis.UniversalClient {
				rdb := redis.NewClient(&redis.Options{
					Addr: redistest.Start(t).Addr(), Password: "wrong", Username: "who",
					ContextTimeoutEnabled: true,
				})
				t.Cleanup(func() { _ = rdb.Close() })
				return rdb
			},
			[]string{"answers"}, []string{"WRONGPASS", `as user "who"`},
		},
		"no password": {
			func(t *testing.T) redis.UniversalClient {
				return newClient(t, redistest.Start(t, "--requirepass", "right").Addr())
			},
			[]string{"answers"}, []string{"no password was given here"},
		},
		"nobody": {
			// no port that was free a moment ago, because another test may have taken it
			func(t *testing.T) redis.UniversalClient { return newClient(t, "127.0.0.1:1") },
			[]string{"answers"}, []string{"refused"},
		},
		"something else": {
			func(t *testing.T) redis.UniversalClient { return newClient(t, stranger(t)) },
			[]string{"answers"}, nil,
		},
		"full memory": {
			func(t *testing.T) redis.UniversalClient {
				return newClient(t,
					redistest.Start(t, "--maxmemory", "1mb", "--maxmemory-policy",
						"noeviction").Addr())
			},
			[]string{"stores values", "changes values"}, []string{
				"OOM", "noeviction", "of 1.0 MiB used", "Set and Update: ",
				"may fail the next time",
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rdb := test.open(t)
			began := time.Now()
			d := diagnosed(t, rdb)
			text := d.String()
			if slices.Equal(broken(d), []string{"is a server for this client"}) {
				s := newStore(t, rdb, redisstore.Options{Prefix: "cg", OpTimeout: patience})
				if err := s.Warm(t.Context()); err == nil ||
					!strings.Contains(err.Error(), test.says[0]) {
					t.Errorf("Warm: %v", err)
				}
				if _, err := s.Claim(t.Context(), cacheguard.Key{Cache: "c", Key: "k"},
					cacheguard.ID{1}, time.Second); err == nil ||
					!strings.Contains(err.Error(), test.says[0]) {
					t.Errorf("a step: %v", err)
				}
			}
			for _, part := range test.broken {
				if !slices.Contains(broken(d), part) {
					t.Errorf("it %s, it says", part)
				}
			}
			for _, words := range test.says {
				if !strings.Contains(text, words) {
					t.Errorf("it doesn't say %q", words)
				}
			}
			if d.Err() == nil {
				t.Error("no error")
			}
			addr := ""
			if c, ok := rdb.(*redis.Client); ok {
				addr = c.Options().Addr
			}
			if !strings.Contains(text, addr) || !strings.Contains(text, "prefix ") ||
				strings.Contains(text, "trip  0s") {
				t.Errorf("it doesn't say whom it asked, or says what it doesn't know:\n%s", text)
			}
			// If it waited for messages, it would wait four times for half a minute.
			if took := time.Since(began); took > time.Minute &&
				strings.HasPrefix(name, "no channel") {
				t.Errorf("it took %v", took)
			}
		})
	}
}

// stranger is a server that isn't Redis.
func stranger(t *testing.T) (addr string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if errors.Is(err, net.ErrClosed) {
				return
			}
			if err == nil {
				_, _ = io.WriteString(conn, "HTTP/1.1 400 Bad Request\r\n\r\n")
				_ = conn.Close()
			}
		}
	}()
	return l.Addr().String()
}

func TestOlder(t *testing.T) {
	t.Parallel()
	for version, want := range map[string]bool{
		"6.0.20": true, "5.0": true, "6": false, "6.2": false, "6.2.0": false, "7.0.15": false,
		"10.1": false, "255.255.255": false, "": false, "unstable": false,
	} {
		if got := redisstore.Older(version, "6.2"); got != want {
			t.Errorf("%q is older than 6.2: %v", version, got)
		}
	}
}

// If a right for messages is missing, the diagnosis reports it at once and doesn't wait for a
// message.
func TestDiagnoseWaitsForNoRight(t *testing.T) {
	t.Parallel()
	for name, rule := range map[string]string{
		"no channel": "resetchannels", "no subscribing": "-subscribe",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rdb := newUser(t, newClient(t, redistest.Start(t).Addr()), rule)
			s := newStore(t, rdb, redisstore.Options{Prefix: "cg", OpTimeout: time.Hour})
			ctx, cancel := context.WithTimeout(t.Context(), longLease)
			defer cancel()
			d := s.Diagnose(ctx)
			if err := ctx.Err(); err != nil || !slices.Contains(broken(d), "brings messages") {
				t.Errorf("%v: broken are %q", err, broken(d))
			}
		})
	}
}
