package childproc

import (
	"errors"
	"flag"
	"fmt"
	"runtime"
	"strconv"
	"sync"
)

// Stopper is one server or several servers.
type Stopper interface{ Stop() error }

// Needs describes the server that the tests of a kit need.
type Needs struct {
	Kit    string // the package, for printed messages
	Server string // "a real Redis"
	Absent error  // the error if there is no such server
	Why    string // why there is no server: "there is no redis-server on the PATH"
}

// ForOneTest is called with a server that was just started. When the test ends, it stops the
// server. If err is needs.Absent, there is no such server, and the test is skipped, or fails under
// CACHEGUARD_TEST=full or soak. For any other error the test fails.
func ForOneTest[S Stopper](tb TB, needs Needs, server S, err error) S {
	tb.Helper()
	if err != nil {
		needs.giveUp(tb, err)
		return *new(S)
	}
	tb.Cleanup(func() {
		if err := server.Stop(); err != nil {
			tb.Errorf("%s: stop: %v", needs.Kit, err)
		}
	})
	return server
}

func (n Needs) giveUp(tb TB, err error) {
	tb.Helper()
	if errors.Is(err, n.Absent) {
		Missing(tb, "needs "+n.Server, n.Why)
		return
	}
	tb.Fatalf("%s needs %s: %v", tb.Name(), n.Server, err)
}

// Kit gives tests the servers of one kind.
type Kit[S Stopper] struct {
	Needs
	New func(args ...string) (S, error) // starts a server
	// Prepares a server that other tests have used for the next test.
	Reuse func(S) error

	// Guards the fields below, also while a server starts, because other tests have to wait for the
	// server.
	mu      sync.Mutex
	shared  S
	running bool
}

// Start starts a server for one test, see ForOneTest.
func (k *Kit[S]) Start(tb TB, args ...string) S {
	tb.Helper()
	server, err := k.New(args...)
	return ForOneTest(tb, k.Needs, server, err)
}

// Shared returns the shared server of a test process. It starts the server, or prepares it for the
// next test. If each of some hundred tests started its own server, the starts would take longer
// than the tests. On Linux the server ends with the test process. On other systems, and if a
// package counts goroutines, TestMain has to wrap its tests.
func (k *Kit[S]) Shared(tb TB) S {
	tb.Helper()
	server, err := k.ready()
	if err != nil {
		k.giveUp(tb, err)
		return *new(S)
	}
	return server
}

func (k *Kit[S]) ready() (S, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.running {
		return k.shared, k.Reuse(k.shared)
	}
	server, err := k.New()
	if err == nil {
		k.shared, k.running = server, true
	}
	return server, err
}

// stop stops the shared server, if it was started.
func (k *Kit[S]) stop() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.running {
		return nil
	}
	k.running = false
	return k.shared.Stop()
}

// Runner is the interface of *testing.M that TestMain uses.
type Runner interface{ Run() int }

// sideBySide is how many parallel tests run at the same time, unless there are more processors or
// -parallel says otherwise. Tests with a server wait most of the time.
const sideBySide = 6

// Wrap returns a Runner that runs m and stops the shared server before it returns.
func (k *Kit[S]) Wrap(m Runner) Runner { return runner(func() int { return k.run(m) }) }

func (k *Kit[S]) run(m Runner) int {
	if runtime.GOMAXPROCS(0) < sideBySide && !flag.Parsed() {
		// m.Run parses the command line later, so a -parallel there replaces this value.
		_ = flag.Set("test.parallel", strconv.Itoa(sideBySide))
	}
	code := m.Run()
	if err := k.stop(); err != nil && code == 0 {
		fmt.Printf("%s: stop of the shared server: %v\n", k.Kit, err)
		return 1
	}
	return code
}

type runner func() int

func (r runner) Run() int { return r() }
