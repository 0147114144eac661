package cacheguard_test

import (
	"os"
	"os/exec"
	"testing"

	"github.com/cacheguard/cacheguard/internal/redistest"
)

// TestRunsAreWatched has some tests run in a process of their own, where what their runs do is
// compared with what the driver in the protocol's explorer does, as under CACHEGUARD_TEST=soak in
// all tests.
func TestRunsAreWatched(t *testing.T) {
	if redistest.Soak() {
		t.Skip("skipped: all tests are watched")
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^(TestGetMany|TestNoSlotWhileFollowing|TestPollingWithoutMessages)$")
	cmd.Env = append(os.Environ(), "CACHEGUARD_TEST=soak")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v:\n%s", err, out)
	}
}
