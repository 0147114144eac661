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

// maxEvents bounds what a Recorder keeps of events; its counts have no bound.
const maxEvents = 10_000

// Recorder is a cacheguard.Observer that keeps what it is told. The zero Recorder is ready to use;
// it must not be copied. Several caches can share one. It is safe for concurrent use, but for
// Await, which may call tb.Fatalf and so belongs on the test's goroutine.
type Recorder struct {
	mu     sync.Mutex // guards all below
	events []cacheguard.Event
	counts map[cacheguard.EventKind]int
	more   signal
}

var _ cacheguard.Observer = (*Recorder)(nil)

// Observe keeps an event. The cache calls it.
func (r *Recorder) Observe(_ context.Context, e cacheguard.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.counts == nil {
		r.counts = make(map[cacheguard.EventKind]int)
	}
	r.counts[e.Kind]++
	if len(r.events) == 2*maxEvents { // making room seldom is cheap
		r.events = slices.Delete(r.events, 0, maxEvents)
	}
	r.events = append(r.events, e)
	r.more.tell()
}

// Count is how many events of a kind there were.
func (r *Recorder) Count(kind cacheguard.EventKind) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.counts[kind]
}

// Events are the events of these kinds, or without any all, oldest first: those among the latest
// 10,000.
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

// Await returns when there were n events of a kind. If that doesn't come true within a minute it
// fails the test with tb.Fatalf.
func (r *Recorder) Await(tb testing.TB, kind cacheguard.EventKind, n int) {
	tb.Helper()
	await(tb, &r.mu, &r.more,
		func() bool { return r.counts[kind] >= n },
		func() string {
			return fmt.Sprintf("awaited %d of %q, saw %d (%s)", n, kind, r.counts[kind], r.summary())
		})
}

// String is how many events there were of each kind, for a test's messages.
func (r *Recorder) String() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.summary()
}

// summary needs the mutex.
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
