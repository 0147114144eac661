package zktest

import (
	"errors"
	"fmt"
	"sync"

	"github.com/cacheguard/cacheguard/internal/childproc"
)

// TB is the part of testing.TB that is needed here.
type TB = childproc.TB

// Start starts a ZooKeeper for one test, with extra arguments, and stops it when the test ends. Without a ZooKeeper the
// test is skipped, or fails if it runs under CACHEGUARD_TEST=full or soak.
func Start(tb TB, args ...string) *Server {
	tb.Helper()
	s, err := NewServer(args...)
	if err != nil {
		giveUp(tb, err)
		return nil
	}
	tb.Cleanup(func() {
		if err := s.Stop(); err != nil {
			tb.Errorf("zktest: stop: %v", err)
		}
	})
	return s
}

// shared is the one server of a test process, which takes half a second to start.
var shared struct {
	mu     sync.Mutex // guards server, also while it starts: whoever asks has to wait for it
	server *Server
}

// Shared returns a ZooKeeper that all tests of this process use, with what others have left in it. One that kills or
// pauses the server does better with Start; the next caller gets it running again in any case.
//
// The server ends with the test process on Linux; elsewhere, and where goroutines are counted, TestMain has to call Wrap.
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
	_ = s.Resume() // one that isn't paused takes no harm, and elsewhere it can't be paused
	return s, nil
}

// Runner is what *testing.M is to TestMain.
type Runner interface{ Run() int }

// Wrap returns a Runner that runs m and stops the shared server before it returns:
//
//	func TestMain(m *testing.M) { goleak.VerifyTestMain(zktest.Wrap(m)) }
func Wrap(m Runner) Runner { return stopsShared{m} }

type stopsShared struct{ tests Runner }

func (s stopsShared) Run() int {
	code := s.tests.Run()
	shared.mu.Lock()
	defer shared.mu.Unlock()
	if shared.server == nil {
		return code
	}
	err := shared.server.Stop()
	shared.server = nil
	if err != nil && code == 0 {
		fmt.Println("zktest: stop of the shared server:", err)
		return 1
	}
	return code
}

func giveUp(tb TB, err error) {
	tb.Helper()
	if errors.Is(err, ErrNoServer) {
		childproc.Missing(tb, "needs a real ZooKeeper", "there is no java on the PATH, or no zookeeper.jar")
		return
	}
	tb.Fatalf("%s needs a real ZooKeeper: %v", tb.Name(), err)
}
