package sqllock_test

import (
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/cacheguard/cacheguard/cacheguard/lock/locktest"
	"github.com/cacheguard/cacheguard/internal/pgtest"
)

func TestMain(m *testing.M) {
	os.Exit(locktest.Main(tests{m}, openProcess))
}

// tests runs the tests, and fails if a locker leaves a goroutine behind.
type tests struct{ m *testing.M }

func (t tests) Run() int {
	code := pgtest.Wrap(t.m).Run()
	if code == 0 {
		if err := goleak.Find(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	return code
}
