package redlock

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/cacheguard/cacheguard/cacheguard/lock"
	"github.com/cacheguard/cacheguard/internal/tenure"
)

// Locker implements [lock.Locker] with the Redlock algorithm. It is safe for concurrent use. Make
// one for each process.
type Locker struct {
	masters []*master
	opts    Options
	keeper  *tenure.Keeper
	id      string // the id of this process among the waiting processes
	lines   lines
	// The turns to renew locks or give them back; has room for mostAtOnce.
	turns chan struct{}
	// The locks that gave up their turn and wait for silent masters; has room for mostAside.
	aside chan struct{}
	// Whether a first request was sent to all masters and waited for all replies.
	asked atomic.Bool
	twins atomic.Pointer[twins] // two masters that were one server when both replied last, or nil

	// These are constants, except in tests.
	warmTimeout, mostPause time.Duration

	messages messages
}

var (
	_ lock.Locker = (*Locker)(nil)
	_ lock.Seizer = (*Locker)(nil)
)

// New makes a locker on at least three masters: servers that share no data and don't fail together.
// Give New one client for each master. Each must be a client of a single server. New refuses
// clients of a cluster, of a Ring and of sentinels, and two clients with the same address. If two
// masters are one server with two names, [Locker.Warm] returns an error, and so does each Lock or
// TryLock to which both names reply. An even number of masters tolerates no more failures than the
// odd number below it. It is only needed temporarily, while you add, remove or replace masters (see
// docs/locks.md). New reports all problems in one error and never dials. The clients belong to the
// caller: Close doesn't close them.
//
// Set ContextTimeoutEnabled and MaxRetries -1 in the clients' options. For other clients the locker
// makes a copy with these settings, which uses the same connections. Hooks that are added to such a
// client after New see hardly any of the locker's commands. If you pass a client type of your own,
// its calls should end with their context and not be retried. The locker waits for such a call no
// longer than NodeTimeout, except in Close.
func New(masters []redis.UniversalClient, opts Options) (*Locker, error) {
	errs := checkMasters(masters)
	opts, wrong := opts.withDefaults()
	if err := errors.Join(append(errs, wrong...)...); err != nil {
		return nil, err
	}
	l := &Locker{
		opts: opts, keeper: tenure.NewKeeper(), id: rand.Text()[:waiterSize],
		turns: make(chan struct{}, mostAtOnce), aside: make(chan struct{}, mostAside),
		warmTimeout: warmTimeout, mostPause: mostPause,
	}
	l.lines.init(len(masters))
	l.messages.lines, l.messages.logger = &l.lines, opts.Logger
	for i, rdb := range masters {
		m, err := newMaster(i, rdb, opts)
		if err != nil {
			return nil, err
		}
		m.debts = tenure.NewDebts(l.keeper, opts.NodeTimeout)
		l.masters = append(l.masters, m)
	}
	return l, nil
}

// Lock waits until a majority of the masters have granted the lock. If no majority replies within
// NodeTimeout, Lock returns an error. A call that is already waiting for the lock tolerates such
// errors for up to one Lease. The waiting calls of one process take turns. The processes take turns
// too, in the order in which they came, as closely as that is possible without a central queue.
func (l *Locker) Lock(ctx context.Context, name string) (lock.Lock, error) {
	return l.enter(ctx, name, l.wait)
}

// TryLock is like Lock, but doesn't wait for another holder. If several callers ask at the same
// moment and none of them gets a majority, TryLock tries again a few times.
func (l *Locker) TryLock(ctx context.Context, name string) (lock.Lock, error) {
	return l.enter(ctx, name, l.try)
}

func (l *Locker) enter(
	ctx context.Context, name string, acquire func(context.Context, string) (*tenure.Hold, error),
) (lock.Lock, error) {
	held, err := l.keeper.Acquire(ctx, "redlock", name, func(
		ctx context.Context,
	) (*tenure.Hold, error) {
		return acquire(ctx, name)
	})
	if err != nil {
		return nil, err
	}
	return held, nil
}

// attempt is the result of one try to get a lock.
type attempt struct {
	held *tenure.Hold // the lock, if it was granted
	err  error        // no majority replied, or it replied too late
	t    *tally
	took time.Duration

	claim *claim        // the claim, if it was given back
	given <-chan answer // the masters' replies to the release
}

// attempt sends one request to all masters. If it doesn't get the lock, it gives its votes back in
// the background.
func (l *Locker) attempt(ctx context.Context, name string, w wish) attempt {
	began := time.Now()
	c := l.claim(name)
	t := c.acquire(ctx, w)
	a := attempt{t: t, took: time.Since(began)}
	switch until := began.Add(l.opts.validity()); {
	case l.isTwice(ctx, &a):
	case t.won() && time.Now().Before(until):
		a.held = l.begin(c, until)
		return a
	case t.won():
		a.err = fmt.Errorf("the masters took %v to answer, of a lease of %v", a.took, l.opts.Lease)
	case t.unusable():
		a.err = t.trouble()
	case t.stuck():
		a.err = fmt.Errorf(
			"%w: on %d of %d masters the key %q has no end, or one that no lease has, so no locker has left it like that; delete it there to free the lock, or take the lock by SeizeUnsafely",
			lock.ErrHeld, t.endless, t.masters, c.key)
	}
	// A lock that was taken isn't given back: its previous holder has to learn of the loss before
	// another call may have it.
	if w.force {
		return a
	}
	a.given = c.giveBack(ctx)
	a.claim = c
	return a
}

// begin begins the tenure of a lock that a majority has granted.
func (l *Locker) begin(c *claim, until time.Time) *tenure.Hold {
	return l.keeper.Begin(tenure.Terms{
		Name: c.name, Until: until,
		Renew: c.renew, Every: l.opts.Lease / 3, Most: l.opts.MaxHold,
		Release: c.release,
	})
}

// mostAtOnce is the number of locks that are renewed or given back at the same moment. If thousands
// of locks were renewed at once, for example after this process was stopped for a while, they would
// wait for each other's connections until NodeTimeout is over.
const mostAtOnce = 16

// mostAside is the number of additional locks that may wait for masters that didn't respond before.
// When these masters respond again, all these requests reach them at once. Too many requests at
// once would all be too slow for NodeTimeout. This would happen again and again until their locks
// have expired.
const mostAside = 256

// turn is the permission to renew a lock or to give it back. It is a place in turns, and later
// possibly a place in aside. Only one goroutine uses a turn.
type turn struct {
	l    *Locker
	room chan struct{} // turns or aside, where the turn has its place; nil: the turn has no place
}

// turn waits until a lock may be renewed or given back. A turn takes at most NodeTimeout.
func (l *Locker) turn(ctx context.Context) *turn {
	select {
	case l.turns <- struct{}{}:
		return &turn{l, l.turns}
	case <-ctx.Done():
		return &turn{l, nil}
	}
}

// stepAside gives the place in turns to another lock, if there is room in aside.
func (t *turn) stepAside() {
	if t.room != t.l.turns {
		return
	}
	select {
	case t.l.aside <- struct{}{}:
		t.done()
		t.room = t.l.aside
	default:
	}
}

// done ends the turn.
func (t *turn) done() {
	if t.room != nil {
		<-t.room
		t.room = nil
	}
}

// clear waits until all votes that a try got are given back. It doesn't wait for masters that were
// away already.
func (a attempt) clear(ctx context.Context) {
	a.claim.collect(ctx, a.given, &tally{masters: a.t.masters, away: a.t.away},
		func(t *tally) bool { return !t.pendingThere() })
}

// try makes at most nine attempts. It stops earlier if this call gets the lock, if another holder
// may have it, or after an error. After the ninth it also returns ErrHeld. It gives back its votes
// before it returns ErrHeld. Otherwise these votes could make a later TryLock fail although nobody
// has the lock.
func (l *Locker) try(ctx context.Context, name string) (*tenure.Hold, error) {
	for n := 0; ; n++ {
		a := l.attempt(ctx, name, wish{})
		switch {
		case a.held != nil:
			return a.held, nil
		case a.err != nil:
			return nil, a.err
		}
		a.clear(ctx)
		if n == mostTries || !a.t.split() && !a.t.met() {
			return nil, lock.ErrHeld
		}
		pause(ctx, backOff(n, a.took))
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
	}
}

// SeizeUnsafely takes the lock of a name on all masters even if another holder has it, and breaks
// the promise that at most one holder has the lock. It fails if no majority replies. If two callers
// use SeizeUnsafely at the same time, both can end up without a majority. They learn of that at
// their next renewal. See [lock.Seizer].
func (l *Locker) SeizeUnsafely(ctx context.Context, name string) (lock.Lock, error) {
	held, err := l.keeper.Take(ctx, "redlock", name, func(
		ctx context.Context,
	) (*tenure.Hold, error) {
		a := l.attempt(ctx, name, wish{force: true})
		if a.held == nil && a.err == nil {
			a.err = a.t.trouble()
		}
		return a.held, a.err
	})
	if err != nil {
		return nil, err
	}
	return held, nil
}

// Close ends the waiting calls with lock.ErrClosed, and closes the Lost channel of each held lock.
// The holders have the rest of their leases, normally at least two thirds of Lease, to stop their
// work, and their Unlock still works. Close waits until nothing runs in the background any more. A
// second Close has no further effect.
func (l *Locker) Close() error {
	l.keeper.Close()
	l.messages.close()
	return nil
}

// channel is the name of the channel for messages about releases.
func (l *Locker) channel() string { return l.opts.channel() }

func (o Options) channel() string { return o.Prefix + ":released" }
