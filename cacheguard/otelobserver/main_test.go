package otelobserver_test

import (
	"os"
	"testing"

	"github.com/cacheguard/cacheguard/internal/redistest"
)

// TestMain makes the test binary a replica of a fleet when a test has started it as one.
func TestMain(m *testing.M) {
	if config := os.Getenv(replicaEnv); config != "" {
		os.Exit(replicaMain(config))
	}
	os.Exit(redistest.Main(m))
}
