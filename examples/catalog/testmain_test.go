package main

import (
	"context"
	"os"
	"testing"

	"github.com/cacheguard/cacheguard/internal/zktest"
)

// asCommand has a test's own program be the command, to be killed.
const asCommand = "CATALOG_TEST_COMMAND"

func TestMain(m *testing.M) {
	if os.Getenv(asCommand) != "" {
		os.Exit(run(context.Background(), os.Args[1:], os.Stdout, os.Stderr))
	}
	zktest.SuppressRace()
	os.Exit(zktest.Wrap(m).Run())
}
