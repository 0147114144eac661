package guardtest

import (
	"io"
	"testing"
)

// NewTestLog is where a fleet's caches log, as long as the test lasts.
func NewTestLog(tb testing.TB) io.Writer {
	log := &testLog{tb: tb}
	tb.Cleanup(log.end)
	return log
}

// NewLoss is a reply that is lost when struck is closed.
func NewLoss(tb testing.TB, struck <-chan struct{}) *Loss { return &Loss{tb: tb, struck: struck} }

// Kept is how many events the recorder has in memory.
func (r *Recorder) Kept() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.events)
}
