// Package waittest waits in tests for what must happen. Its limit is only for tests that fail: no
// test passes because of it.
package waittest

import "time"

// Patience is the longest wait. It is long, because the machine may be busy.
const Patience = time.Minute

const pollInterval = time.Millisecond

// TB is the part of testing.TB that this package needs.
type TB interface {
	Helper()
	Fatalf(format string, args ...any)
}

// Until returns when holds returns true, and asks it every millisecond. It is for the state of
// something that can't be waited for, such as another process. After Patience the test fails.
func Until(tb TB, what string, holds func() bool) {
	tb.Helper()
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	limit := time.After(Patience)
	for !holds() {
		select {
		case <-tick.C:
		case <-limit:
			tb.Fatalf("after %v still waiting: %s", Patience, what)
			return
		}
	}
}

// Next returns the next value of a channel, or the zero value if the channel is closed. After
// Patience the test fails.
func Next[T any](tb TB, what string, c <-chan T) (v T) {
	tb.Helper()
	select {
	case v = <-c:
	case <-time.After(Patience):
		tb.Fatalf("after %v still waiting: %s", Patience, what)
	}
	return v
}
