package zklock

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/cacheguard/cacheguard/cacheguard/lock"
	"github.com/cacheguard/cacheguard/internal/tenure"
)

// Locker implements [lock.Locker] on ZooKeeper. It is safe for concurrent use.
type Locker struct {
	conn    *zk.Conn
	opts    Options
	keeper  *tenure.Keeper
	watches watches

	mu    sync.Mutex // guards the fields below
	dirty int        // number of calls whose nodes are being removed
	idle  chan struct{}
}

var (
	_ lock.Locker = (*Locker)(nil)
	_ lock.Seizer = (*Locker)(nil)
)

// New makes a locker on a connection of go-zookeeper. It reports all invalid options in one error
// and sends no requests to ZooKeeper. The connection stays the caller's. It may also be used for
// other purposes, and its events needn't be read. Set Options.Lease to the session timeout of the
// connection.
func New(conn *zk.Conn, opts Options) (*Locker, error) {
	opts, err := opts.withDefaults()
	if conn == nil {
		err = errors.Join(errors.New("zklock: the connection is nil"), err)
	}
	if err != nil {
		return nil, err
	}
	return &Locker{conn: conn, opts: opts, keeper: tenure.NewKeeper()}, nil
}

// Lock waits until it has acquired the lock. If ZooKeeper can't be reached, Lock returns an error
// after OpTimeout at the latest. A call that is already waiting for the lock tolerates such errors
// for up to one Lease, unless the connection was closed.
func (l *Locker) Lock(ctx context.Context, name string) (lock.Lock, error) {
	return l.acquire(ctx, name, true)
}

// TryLock is like Lock, but doesn't wait.
func (l *Locker) TryLock(ctx context.Context, name string) (lock.Lock, error) {
	return l.acquire(ctx, name, false)
}

func (l *Locker) acquire(ctx context.Context, name string, wait bool) (lock.Lock, error) {
	held, err := l.keeper.Acquire(ctx, "zklock", name, func(
		ctx context.Context,
	) (*tenure.Hold, error) {
		return l.ask(ctx, l.question(name), wait)
	})
	if err != nil {
		return nil, err
	}
	return held, nil
}

// ask waits in the queue until it has the lock, or until it gives up. After it has given up, its
// nodes are removed, if necessary in the background.
func (l *Locker) ask(ctx context.Context, q *question, wait bool) (*tenure.Hold, error) {
	if !wait { // reading the queue costs less than a node that has to be removed again
		switch taken, err := q.taken(ctx); {
		case err != nil:
			return nil, err
		case taken:
			return nil, lock.ErrHeld
		}
	}
	before, err := q.turn(ctx)
	if err == nil && before != "" && wait {
		err = q.await(ctx, before)
		before = ""
	}
	switch {
	case err != nil:
		l.tidy(q)
		return nil, err
	case before != "":
		within, cancel := l.step(ctx)
		defer cancel()
		select {
		case <-l.tidy(q): // otherwise the next TryLock could find the node of this call
		case <-within.Done():
		}
		return nil, lock.ErrHeld
	}
	return l.begin(q), nil
}

// SeizeUnsafely takes the lock of a name even if another holder has it, and breaks the promise that
// at most one holder has the lock. It removes all nodes before its own node, the holder's node
// last. The holder learns of the loss at once, unless it is cut off, and the waiting calls go to
// the end of the queue. See [lock.Seizer].
func (l *Locker) SeizeUnsafely(ctx context.Context, name string) (lock.Lock, error) {
	held, err := l.keeper.Take(ctx, "zklock", name, func(
		ctx context.Context,
	) (*tenure.Hold, error) {
		q := l.question(name)
		for {
			before, err := q.turn(ctx)
			switch {
			case err == nil && before == "":
				return l.begin(q), nil
			case err == nil:
				err = q.oust(ctx, before)
			}
			if err != nil {
				l.tidy(q)
				return nil, err
			}
		}
	})
	if err != nil {
		return nil, err
	}
	return held, nil
}

// Close ends the waiting calls with lock.ErrClosed, and closes the Lost channel of each held lock.
// The holders have one Lease to stop their work. After that their nodes are removed, if Unlock
// hasn't removed them yet. When you no longer need the connection, close it, because its session
// ends then and the nodes are removed. Close waits until nothing else runs in the background. If
// nodes can't be removed because ZooKeeper can't be reached, Close waits no longer than OpTimeout:
// the removal goes on until ZooKeeper can be reached or the connection is closed. A second Close
// has no further effect.
func (l *Locker) Close() error {
	l.keeper.Close()
	timeout := time.NewTimer(l.opts.OpTimeout)
	defer timeout.Stop()
	select {
	case <-l.cleaned():
	case <-timeout.C:
	}
	return nil
}
