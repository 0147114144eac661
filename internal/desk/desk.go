// Package desk lets a load run a part of its work on the goroutine of the caller that began the
// load. An HTTP handler has to run where the server called it: only there do its panics, with their
// stacks, reach the code that expects them, and its ResponseWriter is valid only while the server's
// call lasts.
//
// The caller opens a Desk, passes it in the context of its call, and closes it when the call has
// returned. While the call waits for the load, it runs the job that the load brings.
package desk

import (
	"context"
	"sync"
)

// Desk is where one caller accepts one job at a time.
type Desk struct {
	// The load asks Caller. It is set before the desk is passed along. If it is nil, the caller may
	// refresh and hears nothing.
	Caller Caller

	client context.Context // ends when the caller has left while a job is running
	jobs   chan func()
	closed chan struct{}
	left   bool // a job has called Leave; used only by the caller's goroutine
}

// Caller is the caller that has opened a desk.
type Caller interface {
	// Refreshes reports whether the caller may refresh the stale value that it was answered with.
	// The load asks because loads of different callers could make different values.
	Refreshes(value any) bool

	// Parts reports whether a stale value is one of several, each for some callers. Then callers
	// that may refresh it wait for the value that replaces it, and the other callers have what they
	// need. All callers of one key return the same for a value.
	Parts(value any) bool

	// Hears is called on the caller's goroutine with the latest word that the load has announced,
	// and with each word after that. It returns true when the caller has got what it needs.
	Hears(word any) bool
}

type key struct{}

// Open returns a desk. While a job is running, the caller has left when client ends; before that,
// the call's own context decides.
func Open(client context.Context) *Desk {
	return &Desk{client: client, jobs: make(chan func()), closed: make(chan struct{})}
}

// Close says that the caller accepts no more jobs. It is called once.
func (d *Desk) Close() { close(d.closed) }

// Do lets the caller run the job, and returns when the job has begun. It returns false if the desk
// is closed. It must not be called on the caller's own goroutine.
func (d *Desk) Do(job func()) bool {
	select {
	case d.jobs <- job:
		return true
	case <-d.closed:
		return false
	}
}

// MayRefresh reports whether the caller with this context may refresh this stale value.
func MayRefresh(ctx context.Context, value any) bool {
	d := From(ctx)
	return d == nil || d.Caller == nil || d.Caller.Refreshes(value)
}

// Parts reports whether the caller with this context says that a stale value is one of several.
func Parts(ctx context.Context, value any) bool {
	d := From(ctx)
	return d != nil && d.Caller != nil && d.Caller.Parts(value)
}

// Leave is called by a job: the caller has got what it needs, and doesn't wait for the load's
// result.
func (d *Desk) Leave() { d.left = true }

// With returns a context that has the desk. A nil desk hides the one that the context has.
func With(ctx context.Context, d *Desk) context.Context { return context.WithValue(ctx, key{}, d) }

// Crowd is the callers in this process that wait for a load.
type Crowd interface {
	// Announce tells them something before the load has ended. Callers that come later hear only
	// the latest word.
	Announce(word any)

	// Made says that the load's result is to be stored even if all callers leave from now on.
	Made()
}

// Load is what a load offers to the job that it has brought. It is safe for concurrent use. A nil
// Load offers nothing.
// offers nothing.
type Load struct {
	crowd Crowd

	mu    sync.Mutex // guards the fields below
	slot  func()     // returns the load's slot; nil: the load has none
	kept  bool
	ended bool
}

type loadKey struct{}

// WithLoad returns a context for a load that other callers wait for. slot returns the load's slot,
// which a job may keep; it may be nil. End must be called when the load has returned.
func WithLoad(ctx context.Context, crowd Crowd, slot func()) (context.Context, *Load) {
	l := &Load{crowd: crowd, slot: slot}
	return context.WithValue(ctx, loadKey{}, l), l
}

// LoadOf returns the load with this context, or nil.
func LoadOf(ctx context.Context) *Load {
	l, _ := ctx.Value(loadKey{}).(*Load)
	return l
}

// Announce tells a word to all callers in this process that wait for the load.
func (l *Load) Announce(word any) {
	if l != nil {
		l.crowd.Announce(word)
	}
}

// Made says that the load has its result, before the load returns: the result is stored even if all
// callers leave from now on.
func (l *Load) Made() {
	if l != nil {
		l.crowd.Made()
	}
}

// Keep lets a job keep the load's slot after the load has ended, and returns the function that
// returns the slot. It returns nil if the load no longer has a slot.
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

// End returns the slot, unless the job keeps it.
func (l *Load) End() {
	l.mu.Lock()
	l.ended = true
	kept := l.kept
	l.mu.Unlock()
	if !kept {
		l.release()
	}
}

// Keeps reports whether the job keeps the load's slot.
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
