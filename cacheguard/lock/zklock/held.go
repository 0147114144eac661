package zklock

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/cacheguard/cacheguard/cacheguard/lock"
	"github.com/cacheguard/cacheguard/internal/report"
	"github.com/cacheguard/cacheguard/internal/tenure"
)

var endedLine = report.Line{Level: slog.LevelWarn, See: "locks-cant-be-had",
	Text:  "zklock: a session ended while a lock still counted as held: is Options.Lease more than the servers' session timeout?",
	Means: "two processes may have held the lock at the same time; the fence tells them apart"}

// ZooKeeper's leader counts a session's timeout from the last report that the session is alive. The
// server that a client is connected to reports its clients to the leader at the leader's next ping,
// up to half a tick later. Half a tick is a quarter of the shortest session timeout. So when the
// leader replies to a request, it knows of the session's requests that were sent at least a quarter
// of a Lease earlier. So the lock is valid for one Lease from the sending of one of these requests.
// A new call has sent no request so early, but the client sends a ping every third of the session
// timeout. So the first validity of a lock is shorter by a quarter and by a third of Lease.

// begin begins the tenure of a lock.
func (l *Locker) begin(q *question) *tenure.Hold {
	hold := l.keeper.Begin(tenure.Terms{
		Name: q.name, Token: q.token,
		Until: q.alive.Add(l.opts.Lease - l.opts.Lease/4 - l.opts.Lease/3),
		Renew: q.verify, Every: l.opts.Lease / 4, Most: l.opts.MaxHold,
		Release: q.release,
	})
	go q.guard(hold)
	return hold
}

// verify asks ZooKeeper's leader whether the session lives and the node exists, and returns the
// time until which the lock is valid.
func (q *question) verify(ctx context.Context) (until time.Time, held bool, err error) {
	ctx, cancel := q.l.step(ctx)
	defer cancel()
	before := q.alive
	err = q.sync(ctx)
	if errors.Is(err, zk.ErrSessionExpired) {
		return time.Time{}, false, nil
	}
	if err != nil {
		return time.Time{}, false, err
	}
	there, err := aside(ctx, func() (bool, error) {
		there, stat, err := q.l.conn.Exists(q.path())
		return there && stat.Czxid == q.token, err
	})
	if err != nil {
		q.alive = before // the next verification counts from the same time as this verification
	}
	return before.Add(q.l.opts.Lease), there, err
}

// guard makes the lock Lost at once when its node is gone or the session has ended. If the lock was
// lost for another reason and isn't unlocked for a Lease, guard removes the node. guard returns
// when the lock is given back or the node is gone.
func (q *question) guard(hold *tenure.Hold) {
	lost := hold.Lost()
	var linger <-chan time.Time
	for {
		select {
		case <-q.released:
			return
		case event := <-q.changed:
			// Another client wrote to the node, which doesn't end the lock.
			if event.Type == zk.EventNodeDataChanged && q.watchAgain() {
				continue
			}
			if errors.Is(event.Err, zk.ErrSessionExpired) && hold.Err() == nil {
				endedLine.Log(context.Background(), q.l.opts.Logger, "lease", q.l.opts.Lease)
			}
			hold.Lose()
			return
		case <-lost:
			lost = nil
			timer := time.NewTimer(q.l.opts.Lease)
			defer timer.Stop()
			linger = timer.C
		case <-linger:
			q.l.tidy(q)
			return
		}
	}
}

// watchAgain sets the watch again and reports whether the node exists. If ZooKeeper can't be asked,
// the node is no longer watched, but the lock is still verified.
func (q *question) watchAgain() bool {
	ctx, cancel := q.l.step(context.Background())
	defer cancel()
	own, err := aside(ctx, func() (seen, error) { return q.l.look(q.path()) })
	q.changed = own.changed
	return !errors.Is(err, zk.ErrNoNode)
}

// release removes the node. If ZooKeeper can't be reached, the removal goes on in the background.
func (q *question) release(ctx context.Context) error {
	close(q.released)
	ctx, cancel := q.l.step(ctx)
	defer cancel()
	var was, doubt bool
	err := q.l.retry(ctx, func() (err error) {
		was, err = q.l.remove(ctx, q.path())
		// If the node is gone after a try that failed, that try may have removed the node, and its
		// reply was lost.
		doubt = doubt || err != nil
		return err
	})
	switch {
	case err != nil:
		q.l.tidy(q)
		return err
	case !was && !doubt:
		return lock.ErrLost
	}
	return nil
}
