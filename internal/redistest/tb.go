package redistest

import (
	"errors"
	"os"
	"slices"
	"strings"
)

// TB is the part of testing.TB that is needed here.
type TB interface {
	Helper()
	Name() string
	Cleanup(func())
	Skipf(format string, args ...any)
	Fatalf(format string, args ...any)
	Errorf(format string, args ...any)
}

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
	tb.Cleanup(func() {
		if err := s.Stop(); err != nil {
			tb.Errorf("redistest: stop: %v", err)
		}
	})
	return s
}

// Full reports whether CACHEGUARD_TEST asks for every test: those that need an
// outside program then fail without it.
func Full() bool { return asked("full") || Soak() }

// Soak reports whether CACHEGUARD_TEST asks for the long runs as well.
func Soak() bool { return asked("soak") }

func asked(word string) bool {
	return slices.ContainsFunc(strings.Split(os.Getenv("CACHEGUARD_TEST"), ","), func(w string) bool {
		return strings.TrimSpace(w) == word
	})
}

func giveUp(tb TB, err error) {
	tb.Helper()
	if errors.Is(err, ErrNoServer) && !Full() {
		tb.Skipf("%s is skipped: it needs a real Redis, and there is no redis-server on the PATH", tb.Name())
		return
	}
	tb.Fatalf("%s needs a real Redis: %v", tb.Name(), err)
}
