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

// Locker implements lock.Locker on ZooKeeper. It is safe for concurrent use.
type Locker struct {
	conn    *zk.Conn
	opts    Options
	keeper  *tenure.Keeper
	watches watches

	mu    sync.Mutex // guards what follows
	dirty int        // questions whose nodes are being removed
	idle  chan struct{}
}

var (
	_ lock.Locker = (*Locker)(nil)
	_ lock.Seizer = (*Locker)(nil)
)

// New makes a locker on a connection of go-zookeeper. It reports every invalid option at once and
// asks nothing of ZooKeeper. The connection stays the caller's, may be used for other things, and
// its events needn't be read. Its session timeout goes into Options.Lease.
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

// Lock waits until it has the lock. If ZooKeeper can't be asked, that is its error, after OpTimeout
// at the latest; when it already waits it rides that out for up to one Lease, unless the connection
// was closed.
func (l *Locker) Lock(ctx context.Context, name string) (lock.Lock, error) {
	return l.acquire(ctx, name, true)
}

// TryLock is Lock without the wait.
func (l *Locker) TryLock(ctx context.Context, name string) (lock.Lock, error) {
	return l.acquire(ctx, name, false)
}

func (l *Locker) acquire(ctx context.Context, name string, wait bool) (lock.Lock, error) {
	held, err := l.keeper.Acquire(ctx, "zklock", name, func(ctx context.Context) (*tenure.Hold, error) {
		return l.ask(ctx, l.question(name), wait)
	})
	if err != nil {
		return nil, err
	}
	return held, nil
}

// ask gets in line until it has the lock, or gives up: then no node of it stays behind.
func (l *Locker) ask(ctx context.Context, q *question, wait bool) (*tenure.Hold, error) {
	if !wait { // a look costs less than a node that has to be removed again
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
		case <-l.tidy(q): // or the next TryLock finds the node of this one
		case <-within.Done():
		}
		return nil, lock.ErrHeld
	}
	return l.begin(q), nil
}

// SeizeUnsafely takes the lock of a name, whoever holds it, and breaks the promise that at most one
// does. The nodes of all who stand before it are removed, the holder's last: the holder hears of it
// at once, unless it is cut off, and those who wait get in line again. See lock.Seizer.
func (l *Locker) SeizeUnsafely(ctx context.Context, name string) (lock.Lock, error) {
	held, err := l.keeper.Take(ctx, "zklock", name, func(ctx context.Context) (*tenure.Hold, error) {
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

// Close ends the calls that wait, with lock.ErrClosed, and has the locks that are held be Lost:
// their holders have one Lease to stop, after which the nodes are removed, if Unlock hasn't done
// so; close the connection when you are done with it, and they go with its session. Close waits
// until nothing else is done in the background, but no longer than OpTimeout for nodes that can't
// be removed because ZooKeeper can't be reached: this goes on until it can, or until the connection
// is closed. A second Close does nothing.
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
