package program

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cacheguard/cacheguard/internal/redistest"
)

// TestInterrupted checks that an interrupted run says so, and that none of its processes stays.
func TestInterrupted(t *testing.T) {
	// This skips the test without a redis-server, because then no server could stay.
	redistest.Start(t)
	for _, args := range [][]string{
		{"cold", "-processes", "2", "-callers", "5", "-load", "2s"},
		{"killed", "-processes", "2", "-callers", "5", "-load", "2s", "-patience", "10s"},
		{"stampede", "-processes", "2", "-callers", "5", "-load", "2s"},
		{"expiry", "-processes", "2"},
		{"growth", "-processes", "1,2", "-load", "2s"},
		{"hits", "-time", "2s"},
		{"handover", "-contenders", "4", "-processes", "2", "-handovers", "10000"},
		{"locks", "-lockers", "redlock", "-goroutines", "5", "-time", "1m"},
	} {
		t.Run(args[0], func(t *testing.T) {
			before := children(t)
			ctx, interrupt := context.WithCancel(t.Context())
			defer interrupt()
			var said strings.Builder
			done := make(chan int, 1)
			go func() {
				done <- run(ctx, testPeers, args, strings.NewReader(""), io.Discard, &said)
			}()
			// Until it has started a server and a replica.
			for len(others(children(t), before)) < 2 {
				select {
				case code := <-done:
					t.Fatalf("exit code %d: %s", code, said.String())
				default:
				}
			}
			interrupt()
			if code := <-done; code != 1 || !strings.Contains(said.String(), "interrupted") {
				t.Errorf("exit code %d: %q", code, said.String())
			}
			if left := others(children(t), before); len(left) > 0 {
				t.Errorf("processes that are left: %q", left)
			}
		})
	}
}

// children returns the processes that this process has started and that still run.
func children(t *testing.T) (pids []string) {
	t.Helper()
	lists, err := filepath.Glob("/proc/self/task/*/children")
	if err != nil {
		t.Fatal(err)
	}
	for _, list := range lists {
		if b, err := os.ReadFile(list); err == nil { // a thread may end meanwhile
			pids = append(pids, strings.Fields(string(b))...)
		}
	}
	return pids
}

func others(pids, known []string) []string {
	return slices.DeleteFunc(slices.Clone(pids), func(pid string) bool {
		return slices.Contains(known, pid)
	})
}
