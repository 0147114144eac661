package coretest_test

import (
	"os"
	"testing"

	"github.com/cacheguard/cacheguard/internal/protocol/drivetest"
	"github.com/cacheguard/cacheguard/internal/redistest"
)

func TestMain(m *testing.M) {
	run := func() int { return redistest.Main(m) }
	if redistest.Soak() {
		os.Exit(drivetest.Watch(run))
	}
	os.Exit(run())
}
