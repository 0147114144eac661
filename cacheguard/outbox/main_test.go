package outbox_test

import (
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/cacheguard/cacheguard/internal/pgtest"
	"github.com/cacheguard/cacheguard/internal/redistest"
)

func TestMain(m *testing.M) {
	if config, ok := os.LookupEnv(childEnv); ok {
		os.Exit(child(config))
	}
	os.Exit(tests{m}.Run())
}

// tests fails if a box leaves a goroutine behind.
type tests struct{ m *testing.M }

func (t tests) Run() int {
	code := redistest.Wrap(pgtest.Wrap(t.m)).Run()
	if code == 0 {
		if err := goleak.Find(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	return code
}
