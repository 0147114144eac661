package main

import (
	"context"
	"io"
	"os"
	"testing"

	"github.com/cacheguard/cacheguard/internal/zktest"
)

// asCommand is the environment variable that makes the test binary run as the command, so that a
// test can kill it.
const asCommand = "CATALOG_TEST_COMMAND"

func TestMain(m *testing.M) {
	if os.Getenv(asCommand) != "" {
		// Its standard input ends when the process that has started it ends, in whatever way.
		go func() {
			_, _ = io.Copy(io.Discard, os.Stdin)
			os.Exit(1)
		}()
		os.Exit(run(context.Background(), os.Args[1:], os.Stdout, os.Stderr))
	}
	zktest.SuppressRace()
	os.Exit(zktest.Wrap(m).Run())
}
