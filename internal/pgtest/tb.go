package pgtest

import "github.com/cacheguard/cacheguard/internal/childproc"

// TB is the part of testing.TB that is needed here.
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

// Shared returns a server that all tests of this process use, with what they have left there, so
// that each makes tables of its own. One that kills or pauses a server, or changes its settings,
// does so with Start.
//
// The server ends with the test process on Linux; elsewhere, and where goroutines are counted,
// TestMain has to call Wrap.
func Shared(tb TB) *Server {
	tb.Helper()
	return kit.Shared(tb)
}

// Runner is what *testing.M is to TestMain.
type Runner = childproc.Runner

// Wrap returns a Runner that runs m and stops the shared server before it returns:
//
//	func TestMain(m *testing.M) { goleak.VerifyTestMain(pgtest.Wrap(m)) }
func Wrap(m Runner) Runner { return kit.Wrap(m) }
