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

// Locker implements lock.Locker by the Redlock algorithm. It is safe for concurrent use. Make one
// for each process.
type Locker struct {
	masters []*master
	opts    Options
	keeper  *tenure.Keeper
	id      string // of those who wait here
	lines   lines
	turns   chan struct{}         // to renew a lock or give it back: has room for mostAtOnce
	aside   chan struct{}         // of those whose turn is over, who wait for silent masters: has room for mostAside
	asked   atomic.Bool           // all masters, and their answers were waited for
	twins   atomic.Pointer[twins] // masters that were one server when both were heard last, or nil

	messages messages
}

var (
	_ lock.Locker = (*Locker)(nil)
	_ lock.Seizer = (*Locker)(nil)
)

// New makes a locker on a client for each of at least three masters: servers that share nothing,
// neither data nor fate. Each is a client of a single server; those of a cluster, a Ring and of
// sentinels are refused, and so are two for one address. If two of them turn out to be one server,
// by two names of it, Warm and the first calls fail. An even number is no better than one less, but
// is on the way when a master is added (see the package documentation). New reports every problem
// at once and never dials. The clients stay the caller's: Close doesn't close them.
//
// Give them ContextTimeoutEnabled and MaxRetries -1. Of others the locker makes itself a view with
// these, which has the same connections and no hooks, for go-redis keeps those to itself. A client
// of a type of your own should end its calls with their context and not repeat them: nobody waits
// for it longer than NodeTimeout, except Close.
func New(masters []redis.UniversalClient, opts Options) (*Locker, error) {
	errs := checkMasters(masters)
	opts, wrong := opts.withDefaults()
	if errs = append(errs, wrong...); len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	l := &Locker{opts: opts, keeper: tenure.NewKeeper(), id: rand.Text()[:waiterSize], turns: make(chan struct{}, mostAtOnce), aside: make(chan struct{}, mostAside)}
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

// Lock waits until a majority of the masters have given it the lock. If no majority answers, that
// is its error at once; when it already waits it rides that out for up to one Lease. Those who wait
// in one process take turns, and so do the processes, in the order in which they came, as nearly as
// that can be without anybody who decides.
func (l *Locker) Lock(ctx context.Context, name string) (lock.Lock, error) {
	return l.enter(ctx, name, l.wait)
}

// TryLock is Lock without the wait for another holder. When several ask at once and none gets a
// majority, it asks a few times more.
func (l *Locker) TryLock(ctx context.Context, name string) (lock.Lock, error) {
	return l.enter(ctx, name, l.try)
}

func (l *Locker) enter(ctx context.Context, name string, acquire func(context.Context, string) (*tenure.Hold, error)) (lock.Lock, error) {
	held, err := l.keeper.Acquire(ctx, "redlock", name, func(ctx context.Context) (*tenure.Hold, error) {
		return acquire(ctx, name)
	})
	if err != nil {
		return nil, err
	}
	return held, nil
}

// attempt is what one try to get a lock has come to.
type attempt struct {
	held *tenure.Hold // it is ours
	err  error        // no majority answered, or not in time
	t    *tally
	took time.Duration

	claim *claim        // that was given back
	given <-chan answer // what the masters say to that
}

// attempt asks all masters once. What isn't enough is given back, aside.
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
		a.err = fmt.Errorf("%w: on %d of %d masters the key %q has no end, or one that no lease has, so no locker has left it like that; delete it there to free the lock, or take the lock by SeizeUnsafely",
			lock.ErrHeld, t.endless, t.masters, c.key)
	}
	if w.force { // what it took isn't given back: its holder has to hear of it first, before another may have it
		return a
	}
	a.given = c.giveBack(ctx)
	a.claim = c
	return a
}

// begin begins the tenure of a lock that a majority has given.
func (l *Locker) begin(c *claim, until time.Time) *tenure.Hold {
	return l.keeper.Begin(tenure.Terms{
		Name: c.name, Until: until,
		Renew: c.renew, Every: l.opts.Lease / 3, Most: l.opts.MaxHold,
		Release: c.release,
	})
}

// mostAtOnce is how many locks are renewed and given back at the same moment. Thousands, as after
// this process stood still, would wait for each other's connections until NodeTimeout is over.
const mostAtOnce = 16

// mostAside is how many more wait for masters that were silent before. When these speak again, all
// of them come at once, and too many would keep each other from an answer until NodeTimeout is
// over, again and again until their locks have ended.
const mostAside = 256

// turn is to renew a lock or to give it back: a place in turns, then perhaps one in aside. One
// goroutine uses it.
type turn struct {
	l    *Locker
	room chan struct{} // where it has a place; nil: nowhere
}

// turn waits until a lock may be renewed or given back. A turn takes NodeTimeout at most.
func (l *Locker) turn(ctx context.Context) *turn {
	select {
	case l.turns <- struct{}{}:
		return &turn{l, l.turns}
	case <-ctx.Done():
		return &turn{l, nil}
	}
}

// stepAside leaves the turn to another, if there is room to wait beside it.
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

// clear waits until what a try got of the lock is given back, by all masters that were not away
// already.
func (a attempt) clear(ctx context.Context) {
	a.claim.collect(ctx, a.given, &tally{masters: a.t.masters, away: a.t.away}, func(t *tally) bool { return !t.pendingThere() })
}

// try asks until somebody has the lock. What it got of it is given back before it returns ErrHeld:
// else one who tries after that could meet it, and be refused for nobody.
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

// SeizeUnsafely takes the lock of a name on all masters, whoever holds it, and breaks the promise
// that at most one does. It fails if no majority answers. Two who do so at once may each be left
// without a majority: both are told of it at their next renewal. See lock.Seizer.
func (l *Locker) SeizeUnsafely(ctx context.Context, name string) (lock.Lock, error) {
	held, err := l.keeper.Take(ctx, "redlock", name, func(ctx context.Context) (*tenure.Hold, error) {
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

// Close ends the calls that wait, with lock.ErrClosed, and has the locks that are held be Lost:
// their holders have one Lease to stop, and Unlock still works. It waits until nothing is done in
// the background any more. A second Close does nothing.
func (l *Locker) Close() error {
	l.keeper.Close()
	l.messages.close()
	return nil
}

// channel is where releases are told of.
func (l *Locker) channel() string { return l.opts.channel() }

func (o Options) channel() string { return o.Prefix + ":released" }
