package pgtest

import (
	"errors"
	"fmt"
	"sync"

	"github.com/cacheguard/cacheguard/internal/childproc"
)

// TB is the part of testing.TB that is needed here.
type TB = childproc.TB

// Start starts a server for one test, with extra settings, and stops it when the test ends. Without a PostgreSQL the
// test is skipped, or fails if it runs under CACHEGUARD_TEST=full or soak.
func Start(tb TB, settings ...string) *Server {
	tb.Helper()
	s, err := NewServer(settings...)
	if err != nil {
		giveUp(tb, err)
		return nil
	}
	tb.Cleanup(func() {
		if err := s.Stop(); err != nil {
			tb.Errorf("pgtest: stop: %v", err)
		}
	})
	return s
}

func giveUp(tb TB, err error) {
	tb.Helper()
	if errors.Is(err, ErrNoServer) {
		childproc.Missing(tb, "needs a real PostgreSQL", "neither postgres nor psql is on the PATH")
		return
	}
	tb.Fatalf("%s needs a real PostgreSQL: %v", tb.Name(), err)
}

// shared is the one server of a test process: making a cluster takes a second.
var shared struct {
	mu     sync.Mutex // guards server, also while it starts: whoever asks has to wait for it
	server *Server
}

// Shared returns a server that all tests of this process use, with what they have left there, so that each makes tables
// of its own. One that kills or pauses a server, or changes its settings, does so with Start.
//
// The server ends with the test process on Linux; elsewhere, and where goroutines are counted, TestMain has to call Wrap.
func Shared(tb TB) *Server {
	tb.Helper()
	shared.mu.Lock()
	defer shared.mu.Unlock()
	if shared.server == nil {
		s, err := NewServer()
		if err != nil {
			giveUp(tb, err)
			return nil
		}
		shared.server = s
	}
	return shared.server
}

// Runner is what *testing.M is to TestMain.
type Runner interface{ Run() int }

// Wrap returns a Runner that runs m and stops the shared server before it returns:
//
//	func TestMain(m *testing.M) { goleak.VerifyTestMain(pgtest.Wrap(m)) }
func Wrap(m Runner) Runner { return stopsShared{m} }

type stopsShared struct{ tests Runner }

func (s stopsShared) Run() int {
	code := s.tests.Run()
	shared.mu.Lock()
	defer shared.mu.Unlock()
	if shared.server == nil {
		return code
	}
	if err := shared.server.Stop(); err != nil && code == 0 {
		fmt.Println("pgtest: stop of the shared server:", err)
		return 1
	}
	return code
}
