package redistest

import (
	"context"
	"fmt"

	"github.com/cacheguard/cacheguard/internal/childproc"
)

// TB is the part of testing.TB that is needed here.
type TB = childproc.TB

var kit = childproc.Kit[*Server]{
	Needs: childproc.Needs{
		Kit: "redistest", Server: "a real Redis",
		Absent: ErrNoServer, Why: "there is no redis-server on the PATH",
	},
	New: NewServer,
	Reuse: func(s *Server) error {
		if s.Pid() == 0 {
			return s.Restart()
		}
		// One that isn't paused takes no harm, and elsewhere it can't be paused.
		_ = s.Resume()
		ctx, cancel := context.WithTimeout(context.Background(), childproc.StartTimeout)
		defer cancel()
		if _, err := do(ctx, s.Addr(), "FLUSHALL"); err != nil {
			return fmt.Errorf("redistest: shared server: %w", err)
		}
		return nil
	},
}

// Start starts a redis-server for one test, with extra arguments, and stops it
// when the test ends. Without a redis-server the test is skipped, or fails if
// it runs under CACHEGUARD_TEST=full or soak.
func Start(tb TB, args ...string) *Server {
	tb.Helper()
	return kit.Start(tb, args...)
}

// Shared returns a redis-server that all tests of this process use, without
// data; scripts that were loaded stay. A test that uses it doesn't run
// in parallel with another one that does, and leaves the configuration as it
// was. One that kills or pauses the server does better with Start; the next
// caller gets it running again in any case.
//
// The server ends with the test process on Linux; elsewhere, and where
// goroutines are counted, TestMain has to call Main or Wrap.
func Shared(tb TB) *Server {
	tb.Helper()
	return kit.Shared(tb)
}

// Runner is what *testing.M is to TestMain.
type Runner = childproc.Runner

// Main runs the tests of a package and stops the shared server. It returns
// the exit code:
//
//	func TestMain(m *testing.M) { os.Exit(redistest.Main(m)) }
func Main(m Runner) int { return Wrap(m).Run() }

// Wrap returns a Runner that runs m and stops the shared server before it
// returns, for those who look at what is left afterwards:
//
//	func TestMain(m *testing.M) { goleak.VerifyTestMain(redistest.Wrap(m)) }
func Wrap(m Runner) Runner { return kit.Wrap(m) }

// Full reports whether CACHEGUARD_TEST asks for every test: those that need an
// outside program then fail without it.
func Full() bool { return childproc.Full() }

// Soak reports whether CACHEGUARD_TEST asks for the long runs as well.
func Soak() bool { return childproc.Soak() }
