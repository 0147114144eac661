//go:build !unix

package systemtest_test

import "testing"

func TestProcesses(t *testing.T) {
	t.Skip("TestProcesses is skipped: it needs the signals of Unix to kill and to stop processes")
}
