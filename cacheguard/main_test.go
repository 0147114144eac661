package cacheguard_test

import (
	"os"
	"testing"

	"github.com/cacheguard/cacheguard/internal/protocol/drivetest"
	"github.com/cacheguard/cacheguard/internal/redistest"
)

func TestMain(m *testing.M) {
	if redistest.Soak() {
		os.Exit(drivetest.Watch(m.Run))
	}
	os.Exit(m.Run())
}
