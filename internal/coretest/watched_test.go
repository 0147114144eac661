package coretest_test

import (
	"os"
	"os/exec"
	"testing"

	"github.com/cacheguard/cacheguard/internal/redistest"
)

// TestRunsAreWatched runs some tests in a separate process. There the steps of their runs are
// compared with the steps of the driver in the protocol's explorer, as in all tests under
// CACHEGUARD_TEST=soak.
func TestRunsAreWatched(t *testing.T) {
	if redistest.Soak() {
		t.Skip("skipped: all tests are watched")
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0],
		"-test.run=^(TestGetMany|TestNoSlotWhileFollowing|TestPollingWithoutMessages)$")
	cmd.Env = append(os.Environ(), "CACHEGUARD_TEST=soak")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v:\n%s", err, out)
	}
}
