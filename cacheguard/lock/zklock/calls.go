package zklock

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/go-zookeeper/zk"
)

// errNoAnswer is the end of a step that took longer than OpTimeout.
var errNoAnswer = errors.New("no answer from ZooKeeper in time")

// aside runs a request on a goroutine of its own: go-zookeeper knows no contexts, and a request may
// take as long as its connection takes to break. When ctx ends first the request goes on, and
// nobody hears what became of it.
func aside[T any](ctx context.Context, request func() (T, error)) (T, error) {
	return outcome(ctx, begin(request))
}

// answer is what became of a request.
type answer[T any] struct {
	value T
	err   error
}

// begin begins a request.
func begin[T any](request func() (T, error)) <-chan answer[T] {
	answered := make(chan answer[T], 1)
	go func() {
		value, err := request()
		answered <- answer[T]{value, err}
	}()
	return answered
}

// outcome waits for an answer.
func outcome[T any](ctx context.Context, answered <-chan answer[T]) (T, error) {
	select {
	case a := <-answered:
		return a.value, a.err
	case <-ctx.Done():
		var none T
		return none, context.Cause(ctx)
	}
}

// step bounds a step by OpTimeout.
func (l *Locker) step(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, l.opts.OpTimeout, errNoAnswer)
}

// broken reports whether an error says that the connection or the session ended, or that there is
// none just now, as while ZooKeeper elects a leader: the same may succeed with the next one, and
// what it was about may have been done.
func broken(err error) bool {
	for _, b := range []error{zk.ErrConnectionClosed, zk.ErrNoServer, zk.ErrSessionExpired, zk.ErrSessionMoved, zk.ErrClosing} {
		if errors.Is(err, b) {
			return true
		}
	}
	var failed net.Error // that of a write is handed on as it is
	return errors.As(err, &failed)
}

// unreachable reports whether an error is one of those that pass, when ZooKeeper can be reached
// again.
func unreachable(err error) bool { return broken(err) || errors.Is(err, errNoAnswer) }

// retry does something again until it succeeds, fails for another reason than a connection that
// broke, or ctx ends: a broken connection is given until then to come back, unless it is closed.
func (l *Locker) retry(ctx context.Context, do func() error) error {
	closed := closedConn{conn: l.conn}
	for wait := firstPause; ; wait = min(2*wait, mostPause) {
		err := do()
		if !broken(err) || closed.after(err) {
			return err
		}
		pause(ctx, wait)
		if ctx.Err() != nil {
			return err
		}
	}
}

// closedConn finds out that a connection was closed for good. go-zookeeper doesn't tell, but on one
// that isn't closed, and isn't connected either, a request waits for it to be.
type closedConn struct {
	conn  *zk.Conn
	found int // how often in a row it looked closed
}

// after reports whether the connection is closed, given the error of its last request.
func (c *closedConn) after(err error) bool {
	if !errors.Is(err, zk.ErrConnectionClosed) || c.conn.State() != zk.StateDisconnected {
		c.found = 0
		return false
	}
	c.found++
	return c.found == 5
}

// pause lets some time pass, or less if ctx ends.
func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// sync has what is read next be at least as new as what ZooKeeper's leader knows now. The leader
// answers only for a session that has not ended.
func (l *Locker) sync(ctx context.Context, path string) error {
	_, err := aside(ctx, func() (string, error) { return l.conn.Sync(path) })
	return err
}

// list returns the children of a node; one that isn't there has none.
func (l *Locker) list(ctx context.Context, path string) ([]string, error) {
	return aside(ctx, func() ([]string, error) {
		nodes, _, err := l.conn.Children(path)
		if errors.Is(err, zk.ErrNoNode) {
			return nil, nil
		}
		return nodes, err
	})
}

// seen is a node as it was, and what will tell of its next change.
type seen struct {
	stat    *zk.Stat
	changed <-chan zk.Event
}

// look reads a node and watches it. The watch stands until the node changes, is removed, or the
// session ends.
func (l *Locker) look(path string) (seen, error) {
	_, stat, changed, err := l.conn.GetW(path)
	return seen{stat, changed}, err
}

// remove removes a node, and reports whether it was there.
func (l *Locker) remove(ctx context.Context, path string) (was bool, err error) {
	_, err = aside(ctx, func() (struct{}, error) { return struct{}{}, l.conn.Delete(path, -1) })
	if errors.Is(err, zk.ErrNoNode) {
		return false, nil
	}
	return err == nil, err
}

// mkdir makes the node of a name, and those above it that aren't there. ZooKeeper removes the node
// itself when it has stood empty for a while; those above it stay.
func (l *Locker) mkdir(ctx context.Context, dir string) error {
	_, err := aside(ctx, func() (struct{}, error) {
		_, err := l.conn.CreateContainer(dir, nil, zk.FlagContainer, l.opts.ACL)
		if !errors.Is(err, zk.ErrNoNode) {
			return struct{}{}, unlessThere(dir, err)
		}
		for at := 1; at < len(dir); at++ {
			if dir[at] != '/' {
				continue
			}
			_, err := l.conn.Create(dir[:at], nil, zk.FlagPersistent, l.opts.ACL)
			if err := unlessThere(dir[:at], err); err != nil {
				return struct{}{}, err
			}
		}
		_, err = l.conn.CreateContainer(dir, nil, zk.FlagContainer, l.opts.ACL)
		return struct{}{}, unlessThere(dir, err)
	})
	return err
}

// unlessThere is the error of creating a node, if it isn't there now.
func unlessThere(path string, err error) error {
	if err == nil || errors.Is(err, zk.ErrNodeExists) {
		return nil
	}
	return fmt.Errorf("creating %s: %w", path, err)
}
