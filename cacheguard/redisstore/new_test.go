package redisstore_test

import (
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/cacheguard/cacheguard/cacheguard/redisstore"
)

func TestNewRefuses(t *testing.T) {
	ring := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"one": "127.0.0.1:1"}})
	t.Cleanup(func() { _ = ring.Close() })
	cluster := func(change func(*redis.ClusterOptions)) redis.UniversalClient {
		opts := &redis.ClusterOptions{Addrs: []string{"127.0.0.1:1"}}
		change(opts)
		rdb := redis.NewClusterClient(opts)
		t.Cleanup(func() { _ = rdb.Close() })
		return rdb
	}
	good := newClient(t, "127.0.0.1:1")
	for name, c := range map[string]struct {
		rdb  redis.UniversalClient
		opts redisstore.Options
		says []string // each in a separate line
	}{
		"nil": {nil, redisstore.Options{}, []string{"client is nil"}},
		"nil client": {
			(*redis.Client)(nil), redisstore.Options{}, []string{"client is nil"},
		},
		"nil cluster client": {
			(*redis.ClusterClient)(nil), redisstore.Options{}, []string{"client is nil"},
		},
		"ring": {ring, redisstore.Options{}, []string{"shards while one is down"}},
		"cluster, replicas": {cluster(func(o *redis.ClusterOptions) { o.ReadOnly = true }),
			redisstore.Options{},
			[]string{"ReadOnly"}},
		"cluster, by latency": {cluster(func(o *redis.ClusterOptions) { o.RouteByLatency = true }),
			redisstore.Options{},
			[]string{"RouteByLatency"}},
		"cluster, at random": {cluster(func(o *redis.ClusterOptions) { o.RouteRandomly = true }),
			redisstore.Options{},
			[]string{"RouteRandomly"}},
		"brace":         {good, redisstore.Options{Prefix: "a{b"}, []string{`Prefix "a{b"`}},
		"closing brace": {good, redisstore.Options{Prefix: "a}b"}, []string{`Prefix "a}b"`}},
		"short timeout": {
			good, redisstore.Options{OpTimeout: time.Microsecond}, []string{"OpTimeout is 1µs"},
		},
		"negative timeout": {
			good, redisstore.Options{OpTimeout: -time.Second}, []string{"OpTimeout is -1s"},
		},
		"everything at once": {
			ring, redisstore.Options{Prefix: "{}", OpTimeout: 1},
			[]string{"Ring", "Prefix", "OpTimeout"},
		},
		"nil and more": {
			nil, redisstore.Options{Prefix: "{}", OpTimeout: 1},
			[]string{"nil", "Prefix", "OpTimeout"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			s, err := redisstore.New(c.rdb, c.opts)
			if err == nil || s != nil {
				t.Fatalf("New gave %v, %v; want an error and no store", s, err)
			}
			lines := strings.Split(err.Error(), "\n")
			if len(lines) != len(c.says) {
				t.Fatalf("New reports %d problems; want %d: %v", len(lines), len(c.says), err)
			}
			for i, line := range lines {
				if !strings.HasPrefix(line, "redisstore: ") || !strings.Contains(line, c.says[i]) {
					t.Errorf("New says %q; want something about %q", line, c.says[i])
				}
			}
		})
	}
}

func TestNewAccepts(t *testing.T) {
	sentinel := redis.NewFailoverClient(&redis.FailoverOptions{
		MasterName: "m", SentinelAddrs: []string{"127.0.0.1:1"},
	})
	t.Cleanup(func() { _ = sentinel.Close() })
	for name, rdb := range map[string]redis.UniversalClient{
		"single server": defaultClient(t, "127.0.0.1:1"),
		"cluster":       clusterClient(t, "127.0.0.1:1"),
		"sentinel":      sentinel, "own": own{defaultClient(t, "127.0.0.1:1")},
	} {
		s, err := redisstore.New(rdb,
			redisstore.Options{Prefix: "a:b", OpTimeout: 2 * time.Millisecond})
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		must(t, s.Close())
		must(t, s.Close())
	}
}

// A store doesn't change the user's client.
func TestNewLeavesClientAlone(t *testing.T) {
	rdb := defaultClient(t, "127.0.0.1:1")
	before := *rdb.Options()
	newStore(t, rdb, redisstore.Options{})
	after := rdb.Options()
	if after.ContextTimeoutEnabled || after.ReadTimeout != before.ReadTimeout ||
		after.WriteTimeout != before.WriteTimeout {
		t.Errorf("the client's options became %+v", after)
	}
}
