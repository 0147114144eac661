package childproc

import (
	"os"
	"slices"
	"strings"
)

// TB is the part of testing.TB that this package needs.
type TB interface {
	Helper()
	Name() string
	Cleanup(func())
	Skipf(format string, args ...any)
	Fatalf(format string, args ...any)
	Errorf(format string, args ...any)
}

// Full reports whether CACHEGUARD_TEST asks for every test. If it does, tests that need an outside
// program fail without this program.
func Full() bool { return asked("full") || Soak() }

// Soak reports whether CACHEGUARD_TEST also asks for the long runs.
func Soak() bool { return asked("soak") }

func asked(word string) bool {
	return slices.ContainsFunc(strings.Split(os.Getenv("CACHEGUARD_TEST"), ","),
		func(w string) bool {
			return strings.TrimSpace(w) == word
		})
}

// Missing skips a test because a program that the test needs is missing. Under Full it fails the
// test. For instance, needs is "needs a real Redis", and because is "there is no redis-server on
// the PATH".
func Missing(tb TB, needs, because string) {
	tb.Helper()
	if Full() {
		tb.Fatalf("%s %s: %s", tb.Name(), needs, because)
		return
	}
	tb.Skipf("%s is skipped: it %s, and %s", tb.Name(), needs, because)
}
