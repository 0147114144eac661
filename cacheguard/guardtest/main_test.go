package guardtest_test

import (
	"testing"

	"go.uber.org/goleak"
)

// TestMain fails if the kit leaves a goroutine behind.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m,
		// It sleeps for a second before it sees that its client was closed.
		goleak.IgnoreAnyFunction("github.com/redis/go-redis/v9/internal/pool.(*ConnPool).tryDial"))
}
