package redistest

import (
	"context"
	"fmt"

	"github.com/cacheguard/cacheguard/internal/childproc"
)

// TB is the part of testing.TB that this package needs.
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
		// Resume does nothing to a server that isn't paused. On systems other than Unix it can't be
		// paused.
		_ = s.Resume()
		ctx, cancel := context.WithTimeout(context.Background(), childproc.StartTimeout)
		defer cancel()
		if _, err := do(ctx, s.Addr(), "FLUSHALL"); err != nil {
			return fmt.Errorf("redistest: shared server: %w", err)
		}
		return nil
	},
}

// Start starts a redis-server for one test, with extra arguments, and stops it when the test ends.
// Without a redis-server the test is skipped, or fails if it runs under CACHEGUARD_TEST=full or
// soak.
func Start(tb TB, args ...string) *Server {
	tb.Helper()
	return kit.Start(tb, args...)
}

// Shared returns a redis-server that all tests of this process use. It has no data, because each
// call removes all data, but scripts that were loaded stay. So tests that use it must not run in
// parallel. They must restore the configuration. If a test kills or pauses the server, Start is
// better, but the next caller of Shared gets a running server in any case.
//
// On Linux the server ends with the test process. On other systems, and if a package counts
// goroutines, TestMain has to call Main or Wrap.
func Shared(tb TB) *Server {
	tb.Helper()
	return kit.Shared(tb)
}

// StartProxy starts a proxy for one test, on its own loopback port, to the server at target. The
// server need not run. The proxy is closed when the test ends. The test fails if the proxy has
// closed a connection for a breach of protocol.
func StartProxy(tb TB, target string) *Proxy {
	tb.Helper()
	p, err := NewProxy(target)
	if err != nil {
		tb.Fatalf("%s needs a proxy: %v", tb.Name(), err)
		return nil
	}
	tb.Cleanup(func() {
		if err := p.Close(); err != nil {
			tb.Errorf("the proxy closed a connection: %v", err)
		}
	})
	return p
}

// Runner is the interface of *testing.M that TestMain uses.
type Runner = childproc.Runner

// Main runs the tests of a package and stops the shared server. It returns the exit code:
//
//	func TestMain(m *testing.M) { os.Exit(redistest.Main(m)) }
func Main(m Runner) int { return Wrap(m).Run() }

// Wrap returns a Runner that runs m and stops the shared server before it returns. Use it if
// goroutines are checked after the tests:
//
//	func TestMain(m *testing.M) { goleak.VerifyTestMain(redistest.Wrap(m)) }
func Wrap(m Runner) Runner { return kit.Wrap(m) }

// Full reports whether CACHEGUARD_TEST asks for every test. If it does, tests that need an outside
// program fail without this program.
func Full() bool { return childproc.Full() }

// Soak reports whether CACHEGUARD_TEST also asks for the long runs.
func Soak() bool { return childproc.Soak() }
