package zktest

import "github.com/cacheguard/cacheguard/internal/childproc"

// TB is the part of testing.TB that this package needs.
type TB = childproc.TB

var kit = childproc.Kit[*Server]{
	Needs: childproc.Needs{
		Kit: "zktest", Server: "a real ZooKeeper",
		Absent: ErrNoServer, Why: "there is no java on the PATH, or no zookeeper.jar",
	},
	New: NewServer,
	Reuse: func(s *Server) error {
		if s.Pid() == 0 {
			return s.Restart()
		}
		_ = s.Resume() // does nothing to a server that isn't paused
		return nil
	},
}

// Start starts a ZooKeeper for one test, with extra arguments, and stops it when the test ends.
// Without a ZooKeeper the test is skipped, or fails if it runs under CACHEGUARD_TEST=full or soak.
func Start(tb TB, args ...string) *Server {
	tb.Helper()
	return kit.Start(tb, args...)
}

// Shared returns a ZooKeeper that all tests of this process use. It still has the nodes of earlier
// tests. If a test kills or pauses the server, Start is better, but the next caller of Shared gets
// a running server in any case.
//
// On Linux the server ends with the test process. On other systems, and if a package counts
// goroutines, TestMain has to call Wrap.
func Shared(tb TB) *Server {
	tb.Helper()
	return kit.Shared(tb)
}

// Runner is the interface of *testing.M that TestMain uses.
type Runner = childproc.Runner

// Wrap returns a Runner that runs m and stops the shared server before it returns:
//
//	func TestMain(m *testing.M) { goleak.VerifyTestMain(zktest.Wrap(m)) }
func Wrap(m Runner) Runner { return kit.Wrap(m) }
