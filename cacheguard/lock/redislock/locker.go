package redislock

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"

	"github.com/cacheguard/cacheguard/cacheguard/lock"
	"github.com/cacheguard/cacheguard/internal/redislink"
	"github.com/cacheguard/cacheguard/internal/tenure"
)

// Locker implements lock.Locker on Redis. It is safe for concurrent use. Make one for each process
// and client.
type Locker struct {
	link    *redislink.Link
	opts    Options
	process string // names this locker and its channel
	lease   any    // in ms, as scripts have it
	again   any    // in ms: for how long an Unlock may be sent again
	asked   atomic.Int64
	keeper  *tenure.Keeper
	debts   *tenure.Debts // locks that Redis may have given, or still have
	calls   *calls
}

var _ lock.Locker = (*Locker)(nil)

// New makes a locker on a client of a single server, of Sentinel, or of a cluster. It reports every
// invalid option at once and never dials. The client stays the caller's: Close doesn't close it.
// Give it ContextTimeoutEnabled: without, a cluster client is called aside, which costs a goroutine
// for each step.
func New(rdb redis.UniversalClient, opts Options) (*Locker, error) {
	opts, err := opts.withDefaults()
	link, wrong := redislink.New(rdb, opts.OpTimeout)
	if wrong != nil {
		err = errors.Join(fmt.Errorf("redislock: %w", wrong), err)
	}
	if err != nil {
		return nil, err
	}
	l := &Locker{
		link: link, opts: opts, process: uuid.NewString(), lease: millis(opts.Lease), again: millis(2 * opts.OpTimeout),
		keeper: tenure.NewKeeper(),
	}
	l.debts = tenure.NewDebts(l.keeper, firstPoll)
	l.calls = &calls{
		link: link, channel: l.channels() + l.process, logger: opts.Logger,
		refused: make(chan struct{}), ears: make(map[string]*ear),
	}
	return l, nil
}

// Lock waits until it has the lock. If Redis can't be used, that is its error, after OpTimeout at
// the latest; when it already waits it rides that out for up to one Lease.
func (l *Locker) Lock(ctx context.Context, name string) (lock.Lock, error) {
	return l.acquire(ctx, name, true)
}

// TryLock is Lock without the wait.
func (l *Locker) TryLock(ctx context.Context, name string) (lock.Lock, error) {
	return l.acquire(ctx, name, false)
}

func (l *Locker) acquire(ctx context.Context, name string, wait bool) (lock.Lock, error) {
	held, err := l.keeper.Acquire(ctx, "redislock", name, func(ctx context.Context) (*tenure.Hold, error) {
		return l.ask(ctx, l.question(name), wait)
	})
	if err != nil {
		return nil, err
	}
	return held, nil
}

// ask asks until it has the lock, or gives the question up: then nothing of it stays behind.
func (l *Locker) ask(ctx context.Context, q *question, wait bool) (*tenure.Hold, error) {
	if wait && l.calls.arrive() { // a place at once: otherwise only when it is known that there is need for one
		q.ear = l.calls.add(q.id)
		defer l.calls.remove(q.id)
	}
	a, err := l.put(ctx, q)
	if wait && errors.Is(err, errLate) { // this process stood still, which is no trouble with Redis
		a, err = l.put(ctx, q)
	}
	endless := errors.Is(err, lock.ErrHeld)
	switch {
	case err != nil && !(wait && endless && a.token > 0): // one with a token may have a holder, who renews it
		l.abandon(q)
		return nil, err
	case a.granted:
		return l.begin(q, a), nil
	case !wait:
		return nil, lock.ErrHeld
	}
	held, err := l.await(ctx, q, a, err)
	if err != nil {
		l.abandon(q)
		return nil, err
	}
	return held, nil
}

// begin begins the tenure of a lock that was granted.
func (l *Locker) begin(q *question, a answer) *tenure.Hold {
	return l.keeper.Begin(tenure.Terms{
		Name: q.name, Token: a.token, Until: a.until,
		Renew: func(ctx context.Context) (until time.Time, held bool, err error) { return l.renew(ctx, q) },
		Every: l.opts.Lease / 3, Most: l.opts.MaxHold,
		Release: func(ctx context.Context) error { return l.giveBack(ctx, q) }, Prompt: l.link.Prompt,
	})
}

// abandon gives back, aside, what a question may have been given without its asker hearing of it.
func (l *Locker) abandon(q *question) {
	l.keeper.Go(func() {
		q.asking.Wait() // or the release could overtake what it is to undo
		_ = l.giveBack(context.Background(), q)
	}) // what stays nevertheless ends by itself
}

// Warm dials, subscribes and loads the scripts ahead, so that the first contended lock doesn't pay
// for it. If the user lacks rights that locks need, its error names each of them; if the server is
// a replica, it says so. It is bounded by ctx alone.
func (l *Locker) Warm(ctx context.Context) error {
	ctx, leave, err := l.keeper.Enter(ctx)
	if err != nil {
		return fmt.Errorf("redislock: %w", err)
	}
	defer leave()
	rdb := l.link.Client()
	// First what says all that is missing.
	err = l.rules().Try(ctx, rdb, namesOfNobody(l.opts.Prefix).lock, l.channels()+"try", l.commands()...)
	for _, s := range scripts {
		if err == nil {
			_, err = redislink.Aside(ctx, func(ctx context.Context) (string, error) { return s.Load(ctx, rdb).Result() })
		}
	}
	switch {
	case err == nil:
		err = l.calls.ready(ctx)
	case ctx.Err() != nil:
		err = errors.Join(tenure.Why(ctx), err) // which names what it has waited for
	}
	if err != nil {
		return fmt.Errorf("redislock: warming up: %w", err)
	}
	return nil
}

// Close ends the calls that wait, with lock.ErrClosed, and has the locks that are held be Lost:
// their holders have one Lease to stop, and Unlock still works. It waits until nothing is done in
// the background any more. A second Close does nothing.
func (l *Locker) Close() error {
	l.keeper.Close()
	l.calls.close()
	return nil
}

// channels begins the name of each process' channel.
func (l *Locker) channels() string { return l.opts.Prefix + ":" }

// question is one call's wish for a lock.
type question struct {
	name  string
	names names
	id    string // is the owner of the lock, when it is granted; no two questions have the same
	ear   *ear   // for messages to this question; nil while it doesn't wait

	lock, line, seen, fence, owner any // names and id as scripts have them

	asking sync.WaitGroup // steps under way
	place  atomic.Value   // string: among those who wait, once it has one
}

func (l *Locker) question(name string) *question {
	id, n := l.process+"/"+strconv.FormatInt(l.asked.Add(1), 36), namesOf(l.opts.Prefix, name)
	return &question{name: name, names: n, id: id, lock: n.lock, line: n.line, seen: n.seen, fence: n.fence, owner: id}
}
