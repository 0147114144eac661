package guardtest

import (
	"sync"
	"testing"
	"time"
)

// patience is how long this package waits for anything before it fails the test. It is long for a
// busy machine, and short compared to the ten minutes after which go test ends everything.
const patience = time.Minute

// signal tells waiting goroutines that something has changed. It makes its channel only when a
// goroutine waits, so that in a synctest bubble the channel belongs to the bubble, wherever the
// signal's owner was made.
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
// time runs out, it calls missing with mu held, which says what was awaited and what was seen.
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
