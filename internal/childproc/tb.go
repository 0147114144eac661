package childproc

import (
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

// Missing skips a test that needs something that isn't here, or fails it under
// Full: "needs a real Redis", "there is no redis-server on the PATH".
func Missing(tb TB, needs, because string) {
	tb.Helper()
	if Full() {
		tb.Fatalf("%s %s: %s", tb.Name(), needs, because)
		return
	}
	tb.Skipf("%s is skipped: it %s, and %s", tb.Name(), needs, because)
}
