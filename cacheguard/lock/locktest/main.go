package locktest

import (
	"os"

	"github.com/cacheguard/cacheguard/cacheguard/lock"
)

// processEnv is the environment variable with the configuration of a child process.
const processEnv = "CACHEGUARD_LOCKTEST_PROCESS"

// mainCalled is true if TestMain has called Main. Otherwise this test binary can't be started again
// as a process of a fleet.
var mainCalled bool

// Main is for TestMain. It normally runs the tests. If a case has started this test binary as
// another process of its fleet, Main instead opens a locker with the Fleet's configuration, carries
// out the case's orders, closes the locker, and returns the exit code.
//
//	os.Exit(locktest.Main(m, open))
//
// If TestMain has other tasks, do them in the Run method of your own m.
func Main(
	m interface{ Run() int },
	open func(config string) (locker lock.Locker, close func(), err error),
) int {
	if config := os.Getenv(processEnv); config != "" {
		return processMain(config, open, os.Stdin, os.Stdout)
	}
	mainCalled = true
	return m.Run()
}
