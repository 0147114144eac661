package locktest_test

import (
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/cacheguard/cacheguard/cacheguard/lock/locktest"
)

func TestMain(m *testing.M) {
	os.Exit(locktest.Main(leakless{m}, openProcess))
}

// leakless runs the tests, and then fails if goroutines of the tests are still running.
type leakless struct{ m *testing.M }

func (l leakless) Run() int {
	code := l.m.Run()
	if err := goleak.Find(); err != nil && code == 0 {
		println("locktest:", err.Error())
		return 1
	}
	return code
}
