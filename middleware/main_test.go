package middleware_test

import (
	"context"
	"testing"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/cacheguard/cacheguard/internal/redistest"
)

// TestMain fails if a cache or a store leaves a goroutine behind.
func TestMain(m *testing.M) {
	redis.SetLogger(silent{})
	goleak.VerifyTestMain(redistest.Wrap(m),
		// tryDial sleeps for a second before it finds out that its client was closed.
		goleak.IgnoreAnyFunction("github.com/redis/go-redis/v9/internal/pool.(*ConnPool).tryDial"))
}

// silent drops the log of go-redis, which has a line for each connection that a test refuses.
type silent struct{}

func (silent) Printf(context.Context, string, ...any) {}
