// Package desk lets a load run a part of its work on the goroutine of the caller that began the
// load. An HTTP handler has to run on the goroutine on which the server called it. Only on this
// goroutine do its panics, with their stacks, reach the code that expects them. Its ResponseWriter
// is valid only while the server's call lasts.
//
// The caller opens a Desk, passes it in the context of its call, and closes it when the call has
// returned. While the call waits for the load, the caller's goroutine runs the job that the load
// brings.
package desk

import (
	"context"
	"sync"
)

// Desk lets one caller accept one job at a time.
type Desk struct {
	// The load asks Caller. Set Caller before you pass the desk to a call. If Caller is nil, the
	// caller may refresh values, and gets no announced words.
	Caller Caller

	// While a job runs, the end of this context means that the caller has left.
	client context.Context
	jobs   chan func()
	closed chan struct{}
	left   bool // a job has called Leave; only the caller's goroutine uses this field
}

// Caller is the caller that has opened a desk.
type Caller interface {
	// Refreshes reports whether the caller may refresh the stale value that it got as its answer.
	// The load asks because loads of different callers could make different values. behind says
	// that the refresh would run after the caller has got the stale value.
	Refreshes(value any, behind bool) bool

	// Parts reports whether a stale value is one of several values, each for some callers. If it
	// is, callers that may refresh the value wait for the new one, and the other callers already
	// have what they need. For one value, Parts of all callers must return the same.
	Parts(value any) bool

	// Hears is called on the caller's goroutine with the latest word that the load has announced,
	// and with each word after that. It returns true when the caller has got what it needs.
	Hears(word any) bool
}

type key struct{}

// Open returns a desk. While a job runs, the end of client means that the caller has left. Before a
// job runs, the call's own context decides.
func Open(client context.Context) *Desk {
	return &Desk{client: client, jobs: make(chan func()), closed: make(chan struct{})}
}

// Close closes the desk: the caller accepts no more jobs. Call Close once.
func (d *Desk) Close() { close(d.closed) }

// Do lets the caller run the job, and returns when the job has begun. It returns false if the desk
// is closed. Do must not be called on the caller's own goroutine.
func (d *Desk) Do(job func()) bool {
	select {
	case d.jobs <- job:
		return true
	case <-d.closed:
		return false
	}
}

// MayRefresh reports whether the caller with this context may refresh this stale value: see
// [Caller].
func MayRefresh(ctx context.Context, value any, behind bool) bool {
	d := From(ctx)
	return d == nil || d.Caller == nil || d.Caller.Refreshes(value, behind)
}

// Parts reports whether the caller with this context says that a stale value is one of several.
func Parts(ctx context.Context, value any) bool {
	d := From(ctx)
	return d != nil && d.Caller != nil && d.Caller.Parts(value)
}

// A job calls Leave when the caller has got what it needs. The caller then doesn't wait for the
// load's result.
func (d *Desk) Leave() { d.left = true }

// With returns a context that has the desk. A nil desk hides the desk that ctx has.
func With(ctx context.Context, d *Desk) context.Context { return context.WithValue(ctx, key{}, d) }

// Crowd has the callers in this process that wait for a load.
type Crowd interface {
	// Announce tells the callers a word before the load has ended. Callers that come later hear
	// only the latest word.
	Announce(word any)

	// Made is called when the load has its result. From then on the result is stored even if all
	// callers leave.
	Made()
}

// Load has the functions that a load offers to the job that it has brought. It is safe for
// concurrent use. A nil Load offers nothing.
type Load struct {
	crowd Crowd

	mu    sync.Mutex // guards the fields below
	slot  func()     // gives the load's slot back; nil: the load has none
	kept  bool
	ended bool
}

type loadKey struct{}

// WithLoad returns a context for a load for which other callers wait. The function slot returns the
// load's slot, and may be nil. A job may keep the slot. Call End when the load has returned.
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

// Made is called before the load returns, when the load has its result. From then on the result is
// stored even if all callers leave.
func (l *Load) Made() {
	if l != nil {
		l.crowd.Made()
	}
}

// Keep lets a job keep the load's slot after the load has ended, and returns a function that gives
// the slot back. It returns nil if the load has no slot, if the load has ended, or if a job keeps
// the slot already.
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
