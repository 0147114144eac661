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

// Locker implements [lock.Locker] on Redis. It is safe for concurrent use. Make one for each
// process and client.
type Locker struct {
	link    *redislink.Link
	opts    Options
	process string // the name of this locker and of its channel
	lease   any    // in ms, as an argument of scripts
	again   any    // in ms: the time in which an Unlock may be sent again
	asked   atomic.Int64
	keeper  *tenure.Keeper
	debts   *tenure.Debts // releases that Redis hasn't confirmed
	calls   *calls
}

var _ lock.Locker = (*Locker)(nil)

// New makes a locker on a client of a single server, of Sentinel, or of a cluster. It reports all
// invalid options in one error and never dials. The client belongs to the caller: Close doesn't
// close it. Set ContextTimeoutEnabled in the client's options. Each step on a cluster client, or on
// a client type of your own, runs on a separate goroutine, which costs time.
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
		link: link, opts: opts, process: uuid.NewString(), lease: millis(opts.Lease),
		again:  millis(2 * opts.OpTimeout),
		keeper: tenure.NewKeeper(),
	}
	l.debts = tenure.NewDebts(l.keeper, firstPoll)
	l.calls = &calls{
		link: link, channel: l.channels() + l.process, logger: opts.Logger,
		refused: make(chan struct{}), ears: make(map[string]*ear),
	}
	return l, nil
}

// Lock waits until it has acquired the lock. If Redis can't be used, Lock returns the error of
// Redis after OpTimeout at the latest. A call that is already waiting for the lock tolerates such
// errors for up to one Lease.
func (l *Locker) Lock(ctx context.Context, name string) (lock.Lock, error) {
	return l.acquire(ctx, name, true)
}

// TryLock is like Lock, but doesn't wait.
func (l *Locker) TryLock(ctx context.Context, name string) (lock.Lock, error) {
	return l.acquire(ctx, name, false)
}

func (l *Locker) acquire(ctx context.Context, name string, wait bool) (lock.Lock, error) {
	held, err := l.keeper.Acquire(ctx, "redislock", name, func(
		ctx context.Context,
	) (*tenure.Hold, error) {
		return l.ask(ctx, l.question(name), wait)
	})
	if err != nil {
		return nil, err
	}
	return held, nil
}

// ask sends requests until it has the lock, or until it gives up. After it has given up, the lock
// or the place that the call may have in Redis is given back in the background.
func (l *Locker) ask(ctx context.Context, q *question, wait bool) (*tenure.Hold, error) {
	// The first request also takes a place in the queue if messages arrive already; otherwise only
	// later requests do.
	if wait && l.calls.arrive() {
		q.ear = l.calls.add(q.id)
		defer l.calls.remove(q.id)
	}
	a, err := l.put(ctx, q)
	if wait && errors.Is(err, errLate) { // this process was stopped; Redis works
		a, err = l.put(ctx, q)
	}
	endless := errors.Is(err, lock.ErrHeld)
	switch {
	case err != nil && !(wait && endless && a.token > 0):
		// The exception is an endless lock with a token: a call may wait for it, because its holder
		// may renew it.
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

// begin begins the tenure of a lock that was granted to this request.
func (l *Locker) begin(q *question, a answer) *tenure.Hold {
	return l.keeper.Begin(tenure.Terms{
		Name: q.name, Token: a.token, Until: a.until,
		Renew: func(ctx context.Context) (until time.Time, held bool, err error) {
			return l.renew(ctx, q)
		},
		Every: l.opts.Lease / 3, Most: l.opts.MaxHold,
		Release: func(ctx context.Context) error {
			return l.giveBack(ctx, q)
		}, Prompt: l.link.Prompt,
	})
}

// abandon gives back, in the background, a lock that Redis may have granted without the caller
// learning of it.
func (l *Locker) abandon(q *question) {
	l.keeper.Go(func() {
		q.asking.Wait() // otherwise the release could overtake the request that it is to undo
		_ = l.giveBack(context.Background(), q)
	}) // if the release fails, the lock expires by itself
}

// Warm dials, subscribes and loads the scripts in advance, so that the first contended lock needn't
// wait for these steps. If the user lacks rights that locks need, the error of Warm names each
// missing right (but not those for commands in scripts while the user can't run scripts). If the
// server is a replica, the error says that. Only ctx limits how long Warm takes.
func (l *Locker) Warm(ctx context.Context) error {
	ctx, leave, err := l.keeper.Enter(ctx)
	if err != nil {
		return fmt.Errorf("redislock: %w", err)
	}
	defer leave()
	rdb := l.link.Client()
	// The check of rights is first, because its error names all rights that are missing.
	err = l.rules().Try(ctx, rdb, namesOfNobody(l.opts.Prefix).lock, l.channels()+"try",
		l.commands()...)
	for _, s := range scripts {
		if err == nil {
			_, err = redislink.Aside(ctx, func(ctx context.Context) (string, error) {
				return s.Load(ctx, rdb).Result()
			})
		}
	}
	switch {
	case err == nil:
		err = l.calls.ready(ctx)
	case ctx.Err() != nil:
		err = errors.Join(tenure.Why(ctx), err) // err names the step for which Warm has waited
	}
	if err != nil {
		return fmt.Errorf("redislock: warming up: %w", err)
	}
	return nil
}

// Close ends the waiting calls with lock.ErrClosed, and closes the Lost channel of each held lock.
// The holders have the rest of their leases, normally at least two thirds of Lease, to stop their
// work, and their Unlock still works. Close waits until nothing runs in the background any more. A
// second Close has no further effect.
func (l *Locker) Close() error {
	l.keeper.Close()
	l.calls.close()
	return nil
}

// channels returns the start of the name of each process' channel.
func (l *Locker) channels() string { return l.opts.Prefix + ":" }

// question is one call's request for a lock, which may be sent several times.
type question struct {
	name  string
	names names
	id    string // the owner of the lock after it was granted; unique for each call
	ear   *ear   // receives messages for this call; nil while it doesn't wait

	lock, line, seen, fence, owner any // names and id as arguments of scripts

	asking sync.WaitGroup // running steps
	place  atomic.Value   // string: the place in the queue, once the call has one
}

func (l *Locker) question(name string) *question {
	id, n := l.process+"/"+strconv.FormatInt(l.asked.Add(1), 36), namesOf(l.opts.Prefix, name)
	return &question{
		name: name, names: n, id: id, lock: n.lock, line: n.line, seen: n.seen, fence: n.fence,
		owner: id,
	}
}
