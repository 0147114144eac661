package pgtest

import "github.com/cacheguard/cacheguard/internal/childproc"

// TB is the part of testing.TB that this package needs.
type TB = childproc.TB

var kit = childproc.Kit[*Server]{
	Needs: childproc.Needs{
		Kit: "pgtest", Server: "a real PostgreSQL",
		Absent: ErrNoServer, Why: "neither postgres nor psql is on the PATH",
	},
	New:   NewServer,
	Reuse: func(*Server) error { return nil },
}

// Start starts a server for one test, with extra settings, and stops it when the test ends. Without
// a PostgreSQL the test is skipped, or fails if it runs under CACHEGUARD_TEST=full or soak.
func Start(tb TB, settings ...string) *Server {
	tb.Helper()
	return kit.Start(tb, settings...)
}

// Shared returns a server that all tests of this process use. The tables of earlier tests are still
// there, so each test makes its own tables. If a test kills or pauses a server, or changes its
// settings, it must use Start.
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
//	func TestMain(m *testing.M) { goleak.VerifyTestMain(pgtest.Wrap(m)) }
func Wrap(m Runner) Runner { return kit.Wrap(m) }
