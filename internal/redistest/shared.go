package redistest

import (
	"context"
	"fmt"
	"sync"

	"github.com/cacheguard/cacheguard/internal/childproc"
)

// shared is the one server of a test process: starting one for each of some
// hundred tests would take longer than the tests.
var shared struct {
	mu     sync.Mutex // guards server, also while it starts: whoever asks has to wait for it
	server *Server
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
	s, err := sharedServer()
	if err != nil {
		giveUp(tb, err)
		return nil
	}
	return s
}

func sharedServer() (*Server, error) {
	shared.mu.Lock()
	defer shared.mu.Unlock()
	if shared.server == nil {
		s, err := NewServer()
		if err != nil {
			return nil, err
		}
		shared.server = s
		return s, nil
	}
	s := shared.server
	if s.Pid() == 0 {
		return s, s.Restart()
	}
	// One that isn't paused takes no harm, and elsewhere it can't be paused.
	_ = s.Resume()
	ctx, cancel := context.WithTimeout(context.Background(), childproc.StartTimeout)
	defer cancel()
	if _, err := do(ctx, s.Addr(), "FLUSHALL"); err != nil {
		return nil, fmt.Errorf("redistest: shared server: %w", err)
	}
	return s, nil
}

// stopShared stops the shared server, if there is one.
func stopShared() error {
	shared.mu.Lock()
	defer shared.mu.Unlock()
	if shared.server == nil {
		return nil
	}
	s := shared.server
	shared.server = nil
	return s.Stop()
}

// Runner is what *testing.M is to TestMain.
type Runner interface{ Run() int }

// Main runs the tests of a package and stops the shared server. It returns
// the exit code:
//
//	func TestMain(m *testing.M) { os.Exit(redistest.Main(m)) }
func Main(m Runner) int { return Wrap(m).Run() }

// Wrap returns a Runner that runs m and stops the shared server before it
// returns, for those who look at what is left afterwards:
//
//	func TestMain(m *testing.M) { goleak.VerifyTestMain(redistest.Wrap(m)) }
func Wrap(m Runner) Runner { return stopsShared{m} }

type stopsShared struct{ tests Runner }

func (s stopsShared) Run() int {
	code := s.tests.Run()
	if err := stopShared(); err != nil && code == 0 {
		fmt.Println("redistest: stop of the shared server:", err)
		return 1
	}
	return code
}
