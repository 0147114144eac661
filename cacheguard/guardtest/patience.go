package guardtest

import (
	"sync"
	"testing"
	"time"
)

// patience is the longest time for which a call of this package waits before it fails the test. It
// is long enough for a busy machine, and short compared to the ten minutes after which go test ends
// the tests.
const patience = time.Minute

// signal tells waiting goroutines that something has changed. It makes its channel only when a
// goroutine waits. So in a synctest bubble the channel belongs to the bubble, even if the signal's
// owner was made outside of it.
type signal struct {
	changed chan struct{}
}

func (s *signal) wait() <-chan struct{} {
	if s.changed == nil {
		s.changed = make(chan struct{})
	}
	return s.changed
}

func (s *signal) tell() {
	if s.changed != nil {
		close(s.changed)
		s.changed = nil
	}
}

// await returns when enough returns true. It calls enough again after each change, with mu held. If
// patience runs out, await fails the test with the text that missing returns. The text names what
// was awaited and what was seen. await calls missing with mu held.
func await(tb testing.TB, mu *sync.Mutex, more *signal, enough func() bool, missing func() string) {
	tb.Helper()
	timeout := time.NewTimer(patience)
	defer timeout.Stop()
	for {
		mu.Lock()
		done, changed := enough(), more.wait()
		mu.Unlock()
		if done {
			return
		}
		select {
		case <-changed:
		case <-timeout.C:
			mu.Lock()
			text := missing()
			mu.Unlock()
			tb.Fatalf("guardtest: %s within %v", text, patience)
		}
	}
}
