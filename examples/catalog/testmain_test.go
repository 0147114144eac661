package main

import (
	"os"
	"testing"

	"github.com/cacheguard/cacheguard/internal/zktest"
)

func TestMain(m *testing.M) {
	zktest.SuppressRace()
	os.Exit(zktest.Wrap(m).Run())
}
