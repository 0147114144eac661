package zklock

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/go-zookeeper/zk"
)

// errNoAnswer is the cause if a step took longer than OpTimeout.
var errNoAnswer = errors.New("no answer from ZooKeeper in time")

// aside runs a request on a separate goroutine, because go-zookeeper doesn't support contexts, and
// a request may take until its connection breaks. If ctx ends first, the request goes on, and
// nobody receives its result.
func aside[T any](ctx context.Context, request func() (T, error)) (T, error) {
	return outcome(ctx, begin(request))
}

// answer is the result of a request.
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

// outcome waits for the result of a request.
func outcome[T any](ctx context.Context, answered <-chan answer[T]) (T, error) {
	select {
	case a := <-answered:
		return a.value, a.err
	case <-ctx.Done():
		var none T
		return none, context.Cause(ctx)
	}
}

// step limits a step to OpTimeout.
func (l *Locker) step(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, l.opts.OpTimeout, errNoAnswer)
}

// broken reports whether an error says that the connection or the session has ended, or that there
// is none at the moment, for example while ZooKeeper elects a leader. The same request may succeed
// on the next connection, and the failed one may have been carried out.
func broken(err error) bool {
	for _, b := range []error{
		zk.ErrConnectionClosed, zk.ErrNoServer, zk.ErrSessionExpired, zk.ErrSessionMoved,
		zk.ErrClosing,
	} {
		if errors.Is(err, b) {
			return true
		}
	}
	var failed net.Error // go-zookeeper returns the error of a write as it is
	return errors.As(err, &failed)
}

// unreachable reports whether an error will pass when ZooKeeper can be reached again.
func unreachable(err error) bool { return broken(err) || errors.Is(err, errNoAnswer) }

// retry calls do again until it succeeds, until it fails for a reason other than a broken
// connection, or until ctx ends. If a connection is broken, retry waits for it until ctx ends,
// unless the connection was closed.
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

// closedConn detects that a connection was closed for good, which go-zookeeper doesn't report.
// While a connection is broken but not closed, its requests wait until it is connected again. So if
// requests fail at once, the connection is closed.
type closedConn struct {
	conn  *zk.Conn
	found int // how many times in a row the connection looked closed
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

// pause waits for d, or until ctx ends.
func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// sync makes sure that the next read is at least as new as the leader's present state. ZooKeeper's
// leader replies only to a session that has not ended.
func (l *Locker) sync(ctx context.Context, path string) error {
	_, err := aside(ctx, func() (string, error) { return l.conn.Sync(path) })
	return err
}

// list returns the children of a node. If the node doesn't exist, it returns none.
func (l *Locker) list(ctx context.Context, path string) ([]string, error) {
	return aside(ctx, func() ([]string, error) {
		nodes, _, err := l.conn.Children(path)
		if errors.Is(err, zk.ErrNoNode) {
			return nil, nil
		}
		return nodes, err
	})
}

// seen is the state of a node together with the channel that reports its next change.
type seen struct {
	stat    *zk.Stat
	changed <-chan zk.Event
}

// look reads a node and watches it. The watch lasts until the node changes, until it is removed, or
// until the session ends.
func (l *Locker) look(path string) (seen, error) {
	_, stat, changed, err := l.conn.GetW(path)
	return seen{stat, changed}, err
}

// remove removes a node, and reports whether the node existed.
func (l *Locker) remove(ctx context.Context, path string) (was bool, err error) {
	_, err = aside(ctx, func() (struct{}, error) { return struct{}{}, l.conn.Delete(path, -1) })
	if errors.Is(err, zk.ErrNoNode) {
		return false, nil
	}
	return err == nil, err
}

// mkdir creates the node of a name, and the missing nodes above it. ZooKeeper removes the node of
// the name when it has been empty for a while. The nodes above it stay.
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

// unlessThere returns nil if the creation of a node succeeded or the node exists already. Otherwise
// it returns the error of the creation.
func unlessThere(path string, err error) error {
	if err == nil || errors.Is(err, zk.ErrNodeExists) {
		return nil
	}
	return fmt.Errorf("creating %s: %w", path, err)
}
