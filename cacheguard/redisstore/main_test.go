package redisstore_test

import (
	"context"
	"testing"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/cacheguard/cacheguard/internal/redistest"
)

// TestMain fails if a store, a cache or a proxy leaves a goroutine behind.
func TestMain(m *testing.M) {
	redis.SetLogger(silent{})
	goleak.VerifyTestMain(redistest.Wrap(m),
		// tryDial sleeps for a second before it finds out that its client was closed.
		goleak.IgnoreAnyFunction("github.com/redis/go-redis/v9/internal/pool.(*ConnPool).tryDial"),
		// It goes on dialling, or looking up a host that doesn't exist, for a client that was
		// closed.
		goleak.IgnoreAnyFunction(
			"github.com/redis/go-redis/v9/internal/pool.(*ConnPool).queuedNewConn.func2"))
}

// silent drops the log of go-redis, which has a line for each connection that a test refuses.
type silent struct{}

func (silent) Printf(context.Context, string, ...any) {}
