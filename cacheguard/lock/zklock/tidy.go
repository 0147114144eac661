package zklock

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/cacheguard/cacheguard/internal/report"
)

var leftLine = report.Line{Level: slog.LevelError, Text: "zklock: a node can't be removed",
	Means: "the lock stays taken until the session of this process ends", See: "locks-cant-be-had"}

// When a call has given up, tidy removes all its nodes in the background, including nodes that
// ZooKeeper may still create for it. Otherwise another call on the same session would wait for
// these nodes for ever. tidy goes on until the nodes are removed or the connection is closed, and
// then closes done.
func (l *Locker) tidy(q *question) (done <-chan struct{}) {
	finished := make(chan struct{})
	if q.node == "" && q.creating == nil && !q.doubt {
		close(finished)
		return finished
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.dirty++
	go func() {
		defer func() {
			close(finished)
			l.mu.Lock()
			defer l.mu.Unlock()
			if l.dirty--; l.dirty == 0 && l.idle != nil {
				close(l.idle)
				l.idle = nil
			}
		}()
		q.tidy()
	}()
	return finished
}

// cleaned returns a channel that is closed when nothing is left to tidy.
func (l *Locker) cleaned() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.dirty == 0 {
		none := make(chan struct{})
		close(none)
		return none
	}
	if l.idle == nil {
		l.idle = make(chan struct{})
	}
	return l.idle
}

// tidy removes the nodes of a call that has ended. Nothing else uses the question any more.
func (q *question) tidy() {
	closed, said := closedConn{conn: q.l.conn}, false
	for wait := firstPause; ; wait = min(2*wait, mostPause) {
		// Call answered first: then empty sees every node that was created before.
		answered := q.answered()
		err := q.empty()
		if err == nil && answered || closed.after(err) {
			return
		}
		if closed.found > 0 {
			wait = firstPause
		}
		if err != nil && !unreachable(err) && !said {
			leftLine.Log(context.Background(), q.l.opts.Logger, "node", q.call, "error", err)
			said = true
		}
		time.Sleep(wait)
	}
}

// answered reports whether no creation is running any more.
func (q *question) answered() bool {
	select {
	case a := <-q.creating: // a nil channel never receives
		_ = q.created(a)
	default:
	}
	return q.creating == nil
}

// empty removes the nodes that exist now.
func (q *question) empty() error {
	ctx, cancel := q.l.step(context.Background())
	defer cancel()
	nodes := []string{q.node}
	if q.node == "" || q.doubt || q.creating != nil {
		var err error
		if nodes, err = q.find(ctx); err != nil {
			return err
		}
	}
	var errs []error
	for _, node := range nodes {
		if _, err := q.l.remove(ctx, q.dir+"/"+node); err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}
