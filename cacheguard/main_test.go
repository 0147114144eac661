package cacheguard_test

import (
	"fmt"
	"os"
	"testing"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/internal/redistest"
)

// TestMain makes the test binary a replica of a fleet when a test has started it as one.
func TestMain(m *testing.M) {
	if config := os.Getenv(replicaEnv); config != "" {
		os.Exit(replicaMain(config, os.Stdin, os.Stdout))
	}
	if os.Getenv("CACHEGUARD_TEST") != "soak" {
		os.Exit(redistest.Main(m))
	}
	wrong := cacheguard.WatchRuns() // of what many tests do by chance: a step that the explorer lacks is found by the hour
	code := redistest.Main(m)
	for _, what := range wrong() {
		fmt.Fprintln(os.Stderr, "a run and the explorer's driver differ:", what)
		code = max(code, 1)
	}
	os.Exit(code)
}
