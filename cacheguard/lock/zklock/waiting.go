package zklock

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"
)

const (
	// The first pause between two tries while ZooKeeper can't be reached; each next one is twice as
	// long.
	firstPause = 10 * time.Millisecond
	mostPause  = time.Second / 2
)

// await waits in the queue until it is q's turn. It watches only the node directly before q's, so
// that a call that leaves wakes only one other call. If ZooKeeper can't be reached, await keeps
// trying for one Lease and then returns the error. If the connection was closed, it returns after
// five tries.
func (q *question) await(ctx context.Context, before string) error {
	var trouble time.Time // the time since which there has been no reply
	closed := closedConn{conn: q.l.conn}
	for wait := firstPause; ; wait = min(2*wait, mostPause) {
		var err error
		if before != "" { // otherwise the node before q's node isn't known
			err = q.gone(ctx, before)
		}
		if err == nil {
			before, err = q.turn(ctx)
		}
		ended := closed.after(err)
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err == nil && before == "":
			return nil
		case err == nil:
			trouble, wait = time.Time{}, firstPause/2
			continue
		case !unreachable(err), ended:
			return err
		case trouble.IsZero():
			trouble = time.Now()
		case time.Since(trouble) > q.l.opts.Lease:
			return err
		}
		pause(ctx, wait/2+rand.N(wait))
	}
}

// gone waits until the node of another call may be gone.
func (q *question) gone(ctx context.Context, node string) error {
	path := q.dir + "/" + node
	changed := q.l.watches.on(path)
	if changed == nil {
		var err error
		if changed, err = q.l.watch(ctx, path); err != nil || changed == nil {
			return err
		}
	}
	for {
		// The watch reports the end of the node. The loop also checks from time to time whether the
		// node still exists, so that a Lock notices when ZooKeeper can't be reached any more.
		timer := time.NewTimer(q.l.opts.Lease/3 + rand.N(q.l.opts.Lease/3))
		select {
		case <-changed:
			timer.Stop()
			return nil
		case <-q.changed: // q's own node
			timer.Stop()
			q.changed = nil
			return nil
		case <-ctx.Done():
			timer.Stop()
			return context.Cause(ctx)
		case <-timer.C:
		}
		within, cancel := q.l.step(ctx)
		there, err := aside(within, func() (bool, error) {
			there, _, err := q.l.conn.Exists(path)
			return there, err
		})
		cancel()
		if err != nil || !there {
			return err
		}
	}
}

// watch watches the node of another call. It returns nil if the node doesn't exist any more.
func (l *Locker) watch(ctx context.Context, path string) (<-chan zk.Event, error) {
	ctx, cancel := l.step(ctx)
	defer cancel()
	return aside(ctx, func() (<-chan zk.Event, error) {
		other, err := l.look(path)
		switch {
		case errors.Is(err, zk.ErrNoNode):
			return nil, nil
		case err == nil:
			l.watches.add(path, other.changed) // even if no call waits for it any more
		}
		return other.changed, err
	})
}

// watches are the watches on the nodes of other calls. go-zookeeper can't remove a watch, so a call
// that gives up leaves its watch here, and the next call that waits for the same node uses it. If
// watches weren't reused, each request for a held lock would leave one more watch.
type watches struct {
	mu sync.Mutex // guards m
	// By path; a channel gets one event and is closed, so any number may receive from it.
	m map[string]<-chan zk.Event
}

// on returns a watch on a node that has not reported anything yet, or nil.
func (w *watches) on(path string) <-chan zk.Event {
	w.mu.Lock()
	defer w.mu.Unlock()
	select {
	case <-w.m[path]: // a nil channel never receives
		delete(w.m, path)
	default:
	}
	return w.m[path]
}

// add adds a watch, and removes the watches that are over.
func (w *watches) add(path string, changed <-chan zk.Event) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.m == nil {
		w.m = make(map[string]<-chan zk.Event)
	}
	for path, changed := range w.m {
		select {
		case <-changed:
			delete(w.m, path)
		default:
		}
	}
	w.m[path] = changed
}
