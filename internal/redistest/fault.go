package redistest

import (
	"context"
	"errors"
)

// Then says what becomes of the connection on which a command or a reply was
// lost.
type Then int

const (
	// Silence is the default and what a network does: a stream has no holes,
	// so nothing more passes in that direction, and the connection stays
	// open. A client that pipelines can't take another reply for the lost one.
	Silence Then = iota

	// GoOn loses the one command or reply only; what follows passes. The
	// client then takes the next reply for the lost one unless it gives the
	// connection up first: no network does that.
	GoOn

	// Hangup closes the connection, to the client and to the server.
	Hangup
)

// Fault is something armed in a Proxy that strikes one command, once. A fault
// waits on for another command if the connection ends between its taking a
// command and striking. Its methods are safe for concurrent use.
type Fault struct {
	proxy  *Proxy
	match  func(Command) bool
	action action
	then   Then
	gate   <-chan struct{}
	struck chan struct{}

	state   state   // guarded by proxy.mu
	command Command // guarded by proxy.mu; the one taken
}

type action int

const (
	dropCommand action = iota
	dropReply
	delayCommand
	delayReply
	holdBack
	duplicate
)

type state int

const (
	armed state = iota
	taken       // a command matched; its reply is awaited
	struck
	disarmed
)

// strikesCommand reports whether the fault strikes the command itself; the
// others strike when its reply comes.
func (f *Fault) strikesCommand() bool {
	switch f.action {
	case dropCommand, delayCommand, holdBack:
		return true
	}
	return false
}

// Struck is closed when the fault has struck.
func (f *Fault) Struck() <-chan struct{} { return f.struck }

// Command is the command the fault struck, or none before that.
func (f *Fault) Command() Command {
	f.proxy.mu.Lock()
	defer f.proxy.mu.Unlock()
	if f.state != struck {
		return Command{}
	}
	return f.command
}

// Disarm makes sure that the fault will not strike, and reports false if it
// already has.
func (f *Fault) Disarm() bool {
	f.proxy.mu.Lock()
	defer f.proxy.mu.Unlock()
	if f.state == struck {
		return false
	}
	f.state = disarmed
	f.proxy.forget(f)
	return true
}

// take claims the command for the fault, if it is still to be had.
func (f *Fault) take(c Command) bool {
	f.proxy.mu.Lock()
	defer f.proxy.mu.Unlock()
	if f.state != armed {
		return false
	}
	f.state = taken
	f.command = c.clone()
	return true
}

// strike reports whether the fault does strike: not if it was disarmed since
// it took its command. For a reply that comes in parts it is called, and
// true, for each.
func (f *Fault) strike() bool {
	f.proxy.mu.Lock()
	defer f.proxy.mu.Unlock()
	switch f.state {
	case struck:
		return true
	case taken:
		f.state = struck
		f.proxy.forget(f)
		close(f.struck)
		return true
	}
	return false
}

// rearm gives up the command the fault has taken but not struck.
func (f *Fault) rearm() {
	f.proxy.mu.Lock()
	defer f.proxy.mu.Unlock()
	if f.state == taken {
		f.state = armed
		f.command = Command{}
	}
}

// Held is a Fault that keeps a command to be sent later.
type Held struct{ Fault }

// ErrNotStruck is returned by Release as long as there is nothing to send.
var ErrNotStruck = errors.New("redistest: the fault hasn't struck")

// Release sends the kept command to the server, on a new connection of the
// proxy's own that no fault touches (database 0, no password), and returns
// the reply in RESP2: nil, string, int64 or []any; an error reply is a
// ReplyError. Each call sends it once more. It ends with ctx.
func (h *Held) Release(ctx context.Context) (any, error) {
	select {
	case <-h.struck:
		c := h.Command()
		return do(ctx, h.proxy.Target(), c.Name, c.Args...)
	default:
		return nil, ErrNotStruck
	}
}
