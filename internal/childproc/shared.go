package childproc

import (
	"fmt"
	"sync"
)

// Shared is the one server of a test process: starting one for each of some hundred tests would
// take longer than the tests. It ends with the test process on Linux; elsewhere, and where
// goroutines are counted, TestMain has to wrap its tests.
type Shared[S interface{ Stop() error }] struct {
	Kit   string            // the package, for what is printed
	Start func() (S, error) // starts a server
	Reuse func(S) error     // has a server that others have used be as the next test expects it

	mu      sync.Mutex // guards what follows, also while a server starts: whoever asks has to wait for it
	server  S
	running bool
}

// Server returns the server, started or made ready.
func (s *Shared[S]) Server() (S, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.running {
		return s.server, s.Reuse(s.server)
	}
	server, err := s.Start()
	if err == nil {
		s.server, s.running = server, true
	}
	return server, err
}

// stop stops the server, if there is one.
func (s *Shared[S]) stop() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.running {
		return nil
	}
	s.running = false
	return s.server.Stop()
}

// Runner is what *testing.M is to TestMain.
type Runner interface{ Run() int }

// Wrap returns a Runner that runs m and stops the server before it returns.
func (s *Shared[S]) Wrap(m Runner) Runner { return runner(func() int { return s.run(m) }) }

func (s *Shared[S]) run(m Runner) int {
	code := m.Run()
	if err := s.stop(); err != nil && code == 0 {
		fmt.Printf("%s: stop of the shared server: %v\n", s.Kit, err)
		return 1
	}
	return code
}

type runner func() int

func (r runner) Run() int { return r() }

// ForOneTest has a server that was just started be stopped when the test ends.
func ForOneTest(tb TB, kit string, server interface{ Stop() error }) {
	tb.Cleanup(func() {
		if err := server.Stop(); err != nil {
			tb.Errorf("%s: stop: %v", kit, err)
		}
	})
}
