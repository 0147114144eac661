package redistest

import (
	"context"
	"errors"

	"github.com/cacheguard/cacheguard/internal/faultproxy"
)

// Then is the state of a connection after a command or a reply was lost on it.
type Then = faultproxy.Then

// These are the states. Silence is the default.
const (
	Silence = faultproxy.Silence
	GoOn    = faultproxy.GoOn
	Hangup  = faultproxy.Hangup
)

// Fault is a fault of a Proxy that strikes one command, once. If the connection ends after the
// fault has taken a command and before it strikes, the fault waits for another command. Its methods
// are safe for concurrent use.
type Fault struct {
	proxy  *Proxy
	match  func(Command) bool
	action action
	then   Then
	gate   <-chan struct{}
	struck chan struct{}

	state   state   // guarded by proxy.mu
	command Command // the command that the fault has taken; guarded by proxy.mu
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

// strikesCommand reports whether the fault strikes the command itself. Other faults strike when the
// command's reply comes.
func (f *Fault) strikesCommand() bool {
	switch f.action {
	case dropCommand, delayCommand, holdBack:
		return true
	}
	return false
}

// Struck returns a channel that is closed when the fault has struck.
func (f *Fault) Struck() <-chan struct{} { return f.struck }

// Command returns the command that the fault has struck, or the zero Command before that.
func (f *Fault) Command() Command {
	f.proxy.mu.Lock()
	defer f.proxy.mu.Unlock()
	if f.state != struck {
		return Command{}
	}
	return f.command
}

// Disarm makes sure that the fault will not strike. If it has already struck, Disarm returns false.
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

// take claims the command for the fault. It returns false if the fault is no longer armed.
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

// strike reports whether the fault strikes. If the fault was disarmed after it took its command, it
// doesn't strike. If a reply comes in parts, strike is called for each part, and returns true for
// each.
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

// rearm gives up the command that the fault has taken but not struck.
func (f *Fault) rearm() {
	f.proxy.mu.Lock()
	defer f.proxy.mu.Unlock()
	if f.state == taken {
		f.state = armed
		f.command = Command{}
	}
}

// Held is a Fault that keeps a command, which can be sent later.
type Held struct{ Fault }

// ErrNotStruck is the error of Release as long as there is no command to send.
var ErrNotStruck = errors.New("redistest: the fault hasn't struck")

// Release sends the kept command to the server, on a new connection of the proxy on which no fault
// strikes (database 0, no password). It returns the reply in RESP2: nil, string, int64 or []any. An
// error reply is a ReplyError. Each call sends the command once more. Release ends with ctx.
func (h *Held) Release(ctx context.Context) (any, error) {
	select {
	case <-h.struck:
		c := h.Command()
		return do(ctx, h.proxy.Target(), c.Name, c.Args...)
	default:
		return nil, ErrNotStruck
	}
}
