package zklock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/google/uuid"
)

// question is one call's wish for a lock. It has at most one node in line.
type question struct {
	l    *Locker
	name string
	dir  string // the node of the name
	call string // begins the names of this call's nodes

	node     string                // in line, or ""
	creating <-chan answer[string] // a creation without an answer so far, or nil
	doubt    bool                  // a creation may have been carried out whose answer was lost

	// alive is when a request was sent at which ZooKeeper's leader knew that the session lives.
	alive time.Time

	token   int64           // the number of the transaction that created node
	changed <-chan zk.Event // tells of the next change of node; nil if it isn't watched

	released chan struct{} // closed when the lock is given back
}

func (l *Locker) question(name string) *question {
	return &question{
		l: l, name: name, dir: dirOf(l.opts.Prefix, name), call: beforeCall + uuid.NewString() + beforeTurn,
		released: make(chan struct{}),
	}
}

// path is that of the question's node.
func (q *question) path() string { return q.dir + "/" + q.node }

// turn is turnNow, bounded by OpTimeout.
func (q *question) turn(ctx context.Context) (before string, err error) {
	ctx, cancel := q.l.step(ctx)
	defer cancel()
	err = q.l.retry(ctx, func() error { before, err = q.turnNow(ctx); return err })
	return before, err
}

// turnNow gets in line, if q isn't there, and returns who is directly before it: nobody means that
// it has the lock.
func (q *question) turnNow(ctx context.Context) (before string, err error) {
	var slow time.Duration // how long the answers took that came too late
	defer func() {
		if err != nil && slow > 0 {
			err = fmt.Errorf("answers that took %v are too slow for a Lease of %v: %w", slow.Round(time.Millisecond), q.l.opts.Lease, err)
		}
	}()
	for most := q.l.opts.Lease / 24; ; { // or too little of the first Until would be left
		fresh, err := q.enter(ctx)
		if err != nil {
			return "", err
		}
		if !fresh {
			if err := q.sync(ctx); err != nil {
				return "", err
			}
		}
		nodes, err := q.see(ctx)
		if err != nil {
			return "", err
		}
		// Who has created a node reads of no state before that, so nobody is before q whom it
		// doesn't see.
		before, there := beforeIn(nodes, q.node)
		took := time.Since(q.alive)
		switch {
		case !there || q.changed == nil: // its session ended, or somebody removed it
			q.node, q.changed = "", nil
		case before != "" || took < most:
			return before, nil
		case !fresh: // this is how ZooKeeper answers: what is left is enough for one verification that takes as long
			most, slow = q.l.opts.Lease/8, took
		}
	}
}

// oust removes the node of another call.
func (q *question) oust(ctx context.Context, node string) error {
	ctx, cancel := q.l.step(ctx)
	defer cancel()
	return q.l.retry(ctx, func() error {
		_, err := q.l.remove(ctx, q.dir+"/"+node)
		return err
	})
}

// see returns the nodes that are in line. It watches q's own if that isn't watched, at the same
// time.
func (q *question) see(ctx context.Context) ([]string, error) {
	select {
	case <-q.changed: // somebody wrote there, or it is gone
		q.changed = nil
	default:
	}
	if q.changed != nil {
		return q.l.list(ctx, q.dir)
	}
	path := q.path()
	looked := begin(func() (seen, error) { return q.l.look(path) })
	nodes, err := q.l.list(ctx, q.dir)
	if err != nil {
		return nil, err
	}
	own, err := outcome(ctx, looked)
	switch {
	case errors.Is(err, zk.ErrNoNode):
		return nodes, nil
	case err != nil:
		return nil, err
	}
	q.token, q.changed = own.stat.Czxid, own.changed
	return nodes, nil
}

// enter gets in line. fresh says that it did so just now.
func (q *question) enter(ctx context.Context) (fresh bool, err error) {
	if q.doubt {
		nodes, err := q.find(ctx)
		if err != nil {
			return false, err
		}
		q.doubt = false
		if len(nodes) > 0 {
			q.node, fresh = nodes[0], true
		}
	}
	for q.node == "" {
		err := q.create(ctx)
		if errors.Is(err, zk.ErrNoNode) {
			err = q.l.mkdir(ctx, q.dir)
		}
		if err != nil && !errors.Is(err, zk.ErrNoNode) { // one that was made and is gone again is made again
			return false, err
		}
		fresh = q.node != ""
	}
	return fresh, nil
}

// create creates the node, or waits on for the answer to that: with two under way there could be
// two nodes.
func (q *question) create(ctx context.Context) error {
	if q.creating == nil {
		q.alive = time.Now()
		q.creating = begin(func() (string, error) {
			return q.l.conn.Create(q.dir+"/"+q.call, nil, zk.FlagEphemeralSequential, q.l.opts.ACL)
		})
	}
	select {
	case a := <-q.creating:
		return q.created(a)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// created notes the answer to a creation.
func (q *question) created(a answer[string]) error {
	q.creating = nil
	switch {
	case a.err == nil:
		q.node = a.value[len(q.dir)+1:]
	case errors.Is(a.err, zk.ErrNoNode), errors.Is(a.err, zk.ErrNoAuth), errors.Is(a.err, zk.ErrInvalidACL): // it wasn't
	default:
		q.doubt = true
	}
	return a.err
}

// find returns the nodes that belong to this call, as ZooKeeper's leader knows them. A creation
// that was answered with an error, so that it may have been carried out all the same, is seen by
// now or never: a session that has moved to another server, or another connection, hears no more of
// the one before.
func (q *question) find(ctx context.Context) ([]string, error) {
	if err := q.sync(ctx); err != nil {
		return nil, err
	}
	nodes, err := q.l.list(ctx, q.dir)
	return ofCall(nodes, q.call), err
}

// sync has the next read be up to date, and notes that the session is alive.
func (q *question) sync(ctx context.Context) error {
	asked := time.Now()
	err := q.l.sync(ctx, q.dir)
	if err == nil {
		q.alive = asked
	}
	return err
}

// taken reports whether somebody stands in line.
func (q *question) taken(ctx context.Context) (taken bool, err error) {
	ctx, cancel := q.l.step(ctx)
	defer cancel()
	err = q.l.retry(ctx, func() error { taken, err = q.takenNow(ctx); return err })
	return taken, err
}

func (q *question) takenNow(ctx context.Context) (bool, error) {
	nodes, err := q.l.list(ctx, q.dir)
	if err != nil || !anyIn(nodes) {
		return false, err
	}
	// The server may be behind: those who were there may have gone.
	if err := q.l.sync(ctx, q.dir); err != nil {
		return false, err
	}
	nodes, err = q.l.list(ctx, q.dir)
	return anyIn(nodes), err
}
