package systemtest_test

import (
	"os"
	"testing"

	"github.com/cacheguard/cacheguard/internal/protocol/drivetest"
	"github.com/cacheguard/cacheguard/internal/redistest"
)

// TestMain makes the test binary a replica of a fleet when a test has started it as one.
func TestMain(m *testing.M) {
	if config := os.Getenv(replicaEnv); config != "" {
		os.Exit(replicaMain(config, os.Stdin, os.Stdout))
	}
	run := func() int { return redistest.Main(m) }
	if redistest.Soak() {
		os.Exit(drivetest.Watch(run))
	}
	os.Exit(run())
}
