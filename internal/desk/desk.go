// Package desk lets a load have a part of its work done by the goroutine of the caller that asked
// for it. An HTTP handler has to run where the server called it: there its panics, with their
// stacks, reach those who are waiting for them, and its ResponseWriter is good for as long as it
// runs.
//
// The caller opens a Desk, passes it along in the context of its call, and closes it when the call
// has returned. While the call waits for the load, it does the job that the load brings.
package desk

import (
	"context"
	"sync"
)

// Desk is where one caller takes one job at a time.
type Desk struct {
	// Caller is asked by the load. It is set before the desk is passed along. Nil: it may refresh,
	// and hears nothing.
	Caller Caller

	client context.Context // says when the caller has left while a job is done
	jobs   chan func()
	closed chan struct{}
	left   bool // a job has called Leave; for the caller's goroutine
}

// Caller is who has opened a desk.
type Caller interface {
	// Refreshes reports whether the caller may have a stale value refreshed that it was answered
	// with: another caller's load could make another value.
	Refreshes(value any) bool

	// Parts reports whether a stale value is one of several, each for some callers: those who may
	// refresh it wait for what takes its place, and the others have by it what they came for. All
	// callers of one key say the same of a value.
	Parts(value any) bool

	// Hears is called, by the caller's goroutine, with what the load that the caller waits for has
	// announced last, and with each word after that. It reports true when the caller has by that
	// what it came for.
	Hears(word any) bool
}

type key struct{}

// Open returns a desk. While a job is done, its caller has left when client ends; before that it is
// the context of the call that counts.
func Open(client context.Context) *Desk {
	return &Desk{client: client, jobs: make(chan func()), closed: make(chan struct{})}
}

// Close says that the caller takes no jobs any more. It is called once.
func (d *Desk) Close() { close(d.closed) }

// Do has the caller do the job, and returns when it has begun. It reports false if the desk is
// closed. It must not be called by the caller's own goroutine.
func (d *Desk) Do(job func()) bool {
	select {
	case d.jobs <- job:
		return true
	case <-d.closed:
		return false
	}
}

// MayRefresh reports whether the caller whose context this is may have this stale value refreshed.
func MayRefresh(ctx context.Context, value any) bool {
	d := From(ctx)
	return d == nil || d.Caller == nil || d.Caller.Refreshes(value)
}

// Parts reports whether the caller whose context this is knows a stale value for one of several.
func Parts(ctx context.Context, value any) bool {
	d := From(ctx)
	return d != nil && d.Caller != nil && d.Caller.Parts(value)
}

// Leave is for a job: the caller has what it came for, and doesn't wait for what becomes of the
// load.
func (d *Desk) Leave() { d.left = true }

// With returns a context that has the desk; nil hides one that is there.
func With(ctx context.Context, d *Desk) context.Context { return context.WithValue(ctx, key{}, d) }

// Crowd is those who wait for a load in this process.
type Crowd interface {
	// Announce tells them something before the load has ended. Who comes later hears the last word
	// alone.
	Announce(word any)

	// Made has the load's result stored whoever leaves from now on.
	Made()
}

// Load is what a load offers to the job that it has brought. It is safe for concurrent use, and nil
// offers nothing.
type Load struct {
	crowd Crowd

	mu    sync.Mutex // guards what follows
	slot  func()     // gives back the load's slot; nil: it has none
	kept  bool
	ended bool
}

type loadKey struct{}

// WithLoad returns a context for a load that others wait for, and whose slot, which may be nil, a
// job may keep. End is to be called when the load has returned.
func WithLoad(ctx context.Context, crowd Crowd, slot func()) (context.Context, *Load) {
	l := &Load{crowd: crowd, slot: slot}
	return context.WithValue(ctx, loadKey{}, l), l
}

// LoadOf returns the load whose context this is, or nil.
func LoadOf(ctx context.Context) *Load {
	l, _ := ctx.Value(loadKey{}).(*Load)
	return l
}

// Announce tells all who wait in this process for the load.
func (l *Load) Announce(word any) {
	if l != nil {
		l.crowd.Announce(word)
	}
}

// Made says that the load has its result, before it returns: it is stored, whoever leaves from now
// on.
func (l *Load) Made() {
	if l != nil {
		l.crowd.Made()
	}
}

// Keep has the load's slot outlast the load, for a job that goes on, and returns what gives the
// slot back. It returns nil if the load has no slot any more.
func (l *Load) Keep() (release func()) {
	if l == nil {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.slot == nil || l.ended || l.kept {
		return nil
	}
	l.kept = true
	return l.release
}

// End gives the slot back, unless the job keeps it.
func (l *Load) End() {
	l.mu.Lock()
	l.ended = true
	kept := l.kept
	l.mu.Unlock()
	if !kept {
		l.release()
	}
}

// Keeps reports whether the job has the load's slot.
func (l *Load) Keeps() bool {
	if l == nil {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.kept && l.slot != nil
}

func (l *Load) release() {
	l.mu.Lock()
	slot := l.slot
	l.slot = nil
	l.mu.Unlock()
	if slot != nil {
		slot()
	}
}

// From returns the context's desk, or nil.
func From(ctx context.Context) *Desk {
	d, _ := ctx.Value(key{}).(*Desk)
	return d
}
