package redistest

import (
	"errors"

	"github.com/cacheguard/cacheguard/internal/childproc"
)

// TB is the part of testing.TB that is needed here.
type TB = childproc.TB

// Start starts a redis-server for one test, with extra arguments, and stops it
// when the test ends. Without a redis-server the test is skipped, or fails if
// it runs under CACHEGUARD_TEST=full or soak.
func Start(tb TB, args ...string) *Server {
	tb.Helper()
	s, err := NewServer(args...)
	if err != nil {
		giveUp(tb, err)
		return nil
	}
	childproc.ForOneTest(tb, "redistest", s)
	return s
}

// Full reports whether CACHEGUARD_TEST asks for every test: those that need an
// outside program then fail without it.
func Full() bool { return childproc.Full() }

// Soak reports whether CACHEGUARD_TEST asks for the long runs as well.
func Soak() bool { return childproc.Soak() }

func giveUp(tb TB, err error) {
	tb.Helper()
	if errors.Is(err, ErrNoServer) {
		childproc.Missing(tb, "needs a real Redis", "there is no redis-server on the PATH")
		return
	}
	tb.Fatalf("%s needs a real Redis: %v", tb.Name(), err)
}
