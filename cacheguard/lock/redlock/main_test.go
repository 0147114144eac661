package redlock_test

import (
	"context"
	"encoding/json"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/cacheguard/cacheguard/cacheguard/lock"
	"github.com/cacheguard/cacheguard/cacheguard/lock/locktest"
	"github.com/cacheguard/cacheguard/cacheguard/lock/redlock"
	"github.com/cacheguard/cacheguard/internal/redistest"
)

// TestMain fails if a locker or a proxy leaves a goroutine behind.
func TestMain(m *testing.M) {
	redis.SetLogger(silent{})
	goleak.VerifyTestMain(runner{redistest.Wrap(m)},
		// This goroutine sleeps for a second before it notices that its client was closed.
		goleak.IgnoreAnyFunction("github.com/redis/go-redis/v9/internal/pool.(*ConnPool).tryDial"))
}

// runner makes this process a holder of locks if a test has started it as one.
type runner struct{ tests redistest.Runner }

func (r runner) Run() int { return locktest.Main(r.tests, openProcess) }

// process is the configuration with which another process opens a locker. Its clients have default
// options.
type process struct {
	Addrs []string
	Lease time.Duration
}

func (p process) config() string {
	text, err := json.Marshal(p)
	if err != nil {
		panic(err)
	}
	return string(text)
}

func openProcess(config string) (lock.Locker, func(), error) {
	var p process
	if err := json.Unmarshal([]byte(config), &p); err != nil {
		return nil, nil, err
	}
	var masters []redis.UniversalClient
	for _, addr := range p.Addrs {
		masters = append(masters, redis.NewClient(&redis.Options{Addr: addr}))
	}
	connect(masters)
	l, err := redlock.New(masters,
		redlock.Options{Prefix: suitePrefix, Lease: p.Lease, Logger: quiet})
	if err != nil {
		return nil, nil, err
	}
	l.SetNodeTimeout(timeoutOf(p.Lease))
	return l, func() {
		_ = l.Close()
		for _, m := range masters {
			_ = m.Close()
		}
	}, nil
}

// connect dials the masters, because a busy machine takes longer for this than the timeout of a
// request. It doesn't wait for more than a majority, because the others may be away.
func connect(masters []redis.UniversalClient) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	replied := make(chan bool, len(masters))
	var all sync.WaitGroup
	for _, m := range masters {
		all.Go(func() {
			if m.Ping(ctx).Err() == nil {
				replied <- true
			}
		})
	}
	go func() { all.Wait(); cancel() }()
	for range quorumOf(len(masters)) {
		select {
		case <-replied:
		case <-ctx.Done():
			return
		}
	}
}

// silent drops the log of go-redis, which has a line for each connection that a test refuses.
type silent struct{}

func (silent) Printf(context.Context, string, ...any) {}
