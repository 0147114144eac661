package locktest

import (
	"os"

	"github.com/cacheguard/cacheguard/cacheguard/lock"
)

// processEnv has the configuration of a child process.
const processEnv = "CACHEGUARD_LOCKTEST_PROCESS"

// mainCalled says that a test binary that is started once more becomes a process of a fleet.
var mainCalled bool

// Main is for TestMain: it runs the tests, unless a case has started this test binary as one more
// process of its fleet. Then it opens a locker, with the Fleet's configuration, carries out what
// the case tells it, closes it, and returns the exit code.
//
//	os.Exit(locktest.Main(m, open))
//
// If TestMain does more, that is for the tests, let Run do it: an m of one's own will do.
func Main(m interface{ Run() int }, open func(config string) (locker lock.Locker, close func(), err error)) int {
	if config := os.Getenv(processEnv); config != "" {
		return processMain(config, open, os.Stdin, os.Stdout)
	}
	mainCalled = true
	return m.Run()
}
