package redislock_test

import (
	"context"
	"encoding/json"
	"testing"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/cacheguard/cacheguard/cacheguard/lock"
	"github.com/cacheguard/cacheguard/cacheguard/lock/locktest"
	"github.com/cacheguard/cacheguard/cacheguard/lock/redislock"
	"github.com/cacheguard/cacheguard/internal/redistest"
)

// TestMain fails if a locker leaves a goroutine behind.
func TestMain(m *testing.M) {
	redis.SetLogger(silent{})
	goleak.VerifyTestMain(runner{redistest.Wrap(m)},
		// This goroutine sleeps for a second before it notices that its client was closed.
		goleak.IgnoreAnyFunction("github.com/redis/go-redis/v9/internal/pool.(*ConnPool).tryDial"))
}

// runner makes this process a holder of locks if a test has started it as one.
type runner struct{ tests redistest.Runner }

func (r runner) Run() int { return locktest.Main(r.tests, openSite) }

// silent drops the log of go-redis, which has a line for each connection that a test refuses.
type silent struct{}

func (silent) Printf(context.Context, string, ...any) {}

// site contains the address and the options of a locker. It is sent to child processes as text.
type site struct {
	Addrs    []string
	Cluster  bool
	Sentinel bool
	Options  redislock.Options
}

// client returns the client of one process.
func (s site) client() redis.UniversalClient {
	switch {
	case s.Cluster:
		return redis.NewClusterClient(&redis.ClusterOptions{
			Addrs: s.Addrs, ContextTimeoutEnabled: true,
		})
	case s.Sentinel:
		return redis.NewFailoverClient(&redis.FailoverOptions{
			MasterName: redistest.SentinelMaster, SentinelAddrs: s.Addrs,
			ContextTimeoutEnabled: true,
		})
	default:
		return redis.NewClient(&redis.Options{Addr: s.Addrs[0], ContextTimeoutEnabled: true})
	}
}

// config returns the site as text.
func (s site) config() string {
	s.Options.Logger = nil
	text, err := json.Marshal(s)
	if err != nil {
		panic(err)
	}
	return string(text)
}

// connect dials, because a busy machine takes longer for this than OpTimeout.
func connect(rdb redis.UniversalClient) { _ = rdb.Ping(context.Background()).Err() }

func openSite(config string) (lock.Locker, func(), error) {
	var s site
	if err := json.Unmarshal([]byte(config), &s); err != nil {
		return nil, nil, err
	}
	rdb := s.client()
	connect(rdb)
	l, err := redislock.New(rdb, s.Options)
	if err != nil {
		return nil, nil, err
	}
	return l, func() { _ = l.Close(); _ = rdb.Close() }, nil
}
