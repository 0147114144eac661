package main

import (
	"context"
	"io"
	"os"
	"testing"

	"github.com/cacheguard/cacheguard/internal/zktest"
)

// asCommand has a test's own program be the command, to be killed.
const asCommand = "CATALOG_TEST_COMMAND"

func TestMain(m *testing.M) {
	if os.Getenv(asCommand) != "" {
		go func() { // its standard input ends with the process that has started it, however that ends
			_, _ = io.Copy(io.Discard, os.Stdin)
			os.Exit(1)
		}()
		os.Exit(run(context.Background(), os.Args[1:], os.Stdout, os.Stderr))
	}
	zktest.SuppressRace()
	os.Exit(zktest.Wrap(m).Run())
}
