package guardtest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/cacheguard/cacheguard/cacheguard"
)

// maxEvents limits how many events a [Recorder] keeps. Its counts have no limit.
const maxEvents = 10_000

// Recorder is a [cacheguard.Observer] that records the events it receives. The zero Recorder is
// ready to use. It must not be copied. Several caches can share one Recorder. It is safe for
// concurrent use, except Await: that may call tb.Fatalf, so call it only on the test's goroutine.
type Recorder struct {
	mu     sync.Mutex // guards all below
	events []cacheguard.Event
	counts map[cacheguard.EventKind]int
	more   signal
}

var _ cacheguard.Observer = (*Recorder)(nil)

// Observe records an event. The cache calls it.
func (r *Recorder) Observe(_ context.Context, e cacheguard.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.counts == nil {
		r.counts = make(map[cacheguard.EventKind]int)
	}
	r.counts[e.Kind]++
	// Old events are removed seldom, because each removal copies the others.
	if len(r.events) == 2*maxEvents {
		r.events = slices.Delete(r.events, 0, maxEvents)
	}
	r.events = append(r.events, e)
	r.more.tell()
}

// Count returns how many events of a kind there were.
func (r *Recorder) Count(kind cacheguard.EventKind) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.counts[kind]
}

// Events returns the recorded events of these kinds, oldest first. Without kinds, it returns the
// events of all kinds. Only the latest 10,000 events of all kinds are kept.
func (r *Recorder) Events(kinds ...cacheguard.EventKind) []cacheguard.Event {
	r.mu.Lock()
	defer r.mu.Unlock()
	latest := r.events[max(0, len(r.events)-maxEvents):]
	var found []cacheguard.Event
	for _, e := range latest {
		if len(kinds) == 0 || slices.Contains(kinds, e.Kind) {
			found = append(found, e)
		}
	}
	return found
}

// Await returns when there were n events of a kind. If that doesn't happen within a minute, Await
// fails the test with tb.Fatalf.
func (r *Recorder) Await(tb testing.TB, kind cacheguard.EventKind, n int) {
	tb.Helper()
	await(tb, &r.mu, &r.more,
		func() bool { return r.counts[kind] >= n },
		func() string {
			return fmt.Sprintf("awaited %d of %q, saw %d (%s)", n, kind, r.counts[kind],
				r.summary())
		})
}

// String returns how many events there were of each kind, for a test's messages.
func (r *Recorder) String() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.summary()
}

// summary describes the counts. The caller holds the mutex.
func (r *Recorder) summary() string {
	var kinds []cacheguard.EventKind
	for kind := range r.counts {
		kinds = append(kinds, kind)
	}
	slices.Sort(kinds)
	words := make([]string, len(kinds))
	for i, kind := range kinds {
		words[i] = fmt.Sprintf("%v: %d", kind, r.counts[kind])
	}
	if len(words) == 0 {
		return "no events"
	}
	return strings.Join(words, ", ")
}
