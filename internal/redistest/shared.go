package redistest

import (
	"context"
	"fmt"

	"github.com/cacheguard/cacheguard/internal/childproc"
)

var shared = childproc.Shared[*Server]{
	Kit:   "redistest",
	Start: func() (*Server, error) { return NewServer() },
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
	s, err := shared.Server()
	if err != nil {
		giveUp(tb, err)
		return nil
	}
	return s
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
func Wrap(m Runner) Runner { return shared.Wrap(m) }
