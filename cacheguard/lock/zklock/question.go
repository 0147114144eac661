package zklock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/google/uuid"
)

// question is one call's request for a lock. It has at most one node in the queue.
type question struct {
	l    *Locker
	name string
	dir  string // the node of the name
	call string // the start of the names of this call's nodes

	node     string                // the node in the queue, or ""
	creating <-chan answer[string] // a creation that has no reply so far, or nil
	doubt    bool                  // a creation whose reply was lost may have been carried out

	// alive is when q sent its last successful request, that is, a request whose reply showed that
	// ZooKeeper's leader considers the session alive.
	alive time.Time

	token   int64           // the number of the transaction that created node
	changed <-chan zk.Event // reports the next change of node; nil if it isn't watched

	released chan struct{} // closed when the lock is given back
}

func (l *Locker) question(name string) *question {
	return &question{
		l: l, name: name, dir: dirOf(l.opts.Prefix, name),
		call:     beforeCall + uuid.NewString() + beforeTurn,
		released: make(chan struct{}),
	}
}

// path returns the path of the call's node.
func (q *question) path() string { return q.dir + "/" + q.node }

// turn calls turnNow within OpTimeout, with retries.
func (q *question) turn(ctx context.Context) (before string, err error) {
	ctx, cancel := q.l.step(ctx)
	defer cancel()
	err = q.l.retry(ctx, func() error { before, err = q.turnNow(ctx); return err })
	return before, err
}

// turnNow gets q into the queue, if q isn't there yet, and returns the node directly before q's
// node. If it returns "", q has the lock.
func (q *question) turnNow(ctx context.Context) (before string, err error) {
	var slow time.Duration // how long the last replies took, if that was too long
	defer func() {
		if err != nil && slow > 0 {
			err = fmt.Errorf("answers that took %v are too slow for a Lease of %v: %w",
				slow.Round(time.Millisecond), q.l.opts.Lease, err)
		}
	}()
	// most is the limit for replies: after slower ones, the first validity of the lock would be too
	// short.
	for most := q.l.opts.Lease / 24; ; {
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
		// After a client has created a node, it never reads an older state. So every node before
		// q's node is in the list.
		before, there := beforeIn(nodes, q.node)
		took := time.Since(q.alive)
		switch {
		case !there || q.changed == nil:
			// The session of the node has ended, or somebody removed the node.
			q.node, q.changed = "", nil
		case before != "" || took < most:
			return before, nil
		case !fresh:
			// Too slow even without a creation: accept up to Lease/8, which leaves time for one
			// verification as slow.
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

// see returns the nodes in the queue. If q's own node isn't watched, see watches it at the same
// time.
func (q *question) see(ctx context.Context) ([]string, error) {
	select {
	case <-q.changed: // another client wrote to the node, or the node is gone
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

// enter gets q into the queue. fresh reports that enter has just created q's node, or has just
// found it as the leader knows it. Then no sync is needed.
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
		// If the directory is gone again, create it again.
		if err != nil && !errors.Is(err, zk.ErrNoNode) {
			return false, err
		}
		fresh = q.node != ""
	}
	return fresh, nil
}

// create creates the node. If a creation is already running, create waits for its reply instead,
// because two creations could make two nodes.
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

// created records the reply to a creation.
func (q *question) created(a answer[string]) error {
	q.creating = nil
	switch {
	case a.err == nil:
		q.node = a.value[len(q.dir)+1:]
	case errors.Is(a.err, zk.ErrNoNode), errors.Is(a.err, zk.ErrNoAuth),
		errors.Is(a.err, zk.ErrInvalidACL):
		// It wasn't created.
	default:
		q.doubt = true
	}
	return a.err
}

// find returns the nodes that belong to this call, as ZooKeeper's leader knows them. If a creation
// returned an error, ZooKeeper may have carried it out nevertheless. In this case the node exists
// by now or will never exist: as soon as a session has moved to another server or another
// connection, ZooKeeper ignores requests from the old connection.
func (q *question) find(ctx context.Context) ([]string, error) {
	if err := q.sync(ctx); err != nil {
		return nil, err
	}
	nodes, err := q.l.list(ctx, q.dir)
	return ofCall(nodes, q.call), err
}

// sync makes sure that the next read is up to date, and records that the session is alive.
func (q *question) sync(ctx context.Context) error {
	asked := time.Now()
	err := q.l.sync(ctx, q.dir)
	if err == nil {
		q.alive = asked
	}
	return err
}

// taken reports whether any call is in the queue.
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
	// The server may lag behind the leader, so the nodes of this list may be gone already.
	if err := q.l.sync(ctx, q.dir); err != nil {
		return false, err
	}
	nodes, err = q.l.list(ctx, q.dir)
	return anyIn(nodes), err
}
