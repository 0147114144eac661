package program

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// mostPatience is how long nobody may have had the lock, or answered.
const mostPatience = time.Minute

var errSilent = fmt.Errorf("nothing was heard for %v", mostPatience)

// conductor tells contenders when to ask for a lock and when to give it back, and hears when they
// did. All that is measured they measure themselves.
type conductor struct {
	ctx    context.Context
	cancel context.CancelFunc
	rdb    *redis.Client
	fleet  fleet
	name   string // of the lock
	got    chan acquired
}

// acquired is who has the lock, since when.
type acquired struct {
	who int
	at  int64
	err error
}

// conduct starts processes, and returns when they are ready.
func conduct(ctx context.Context, s *server, locker string, processes int) (*conductor, error) {
	ctx, cancel := context.WithCancel(ctx)
	fleet, err := startFleet(ctx, processes, func(int) job[nothing] { return openLocker{s.addr, locker} })
	if err != nil {
		cancel()
		return nil, err
	}
	return &conductor{
		ctx: ctx, cancel: cancel, rdb: s.rdb, fleet: fleet, got: make(chan acquired),
		name: fmt.Sprintf("handover:%s:%x", locker, rand.Uint64()),
	}, nil
}

// stop ends the processes.
func (c *conductor) stop() error {
	defer c.cancel()
	return c.fleet.stop()
}

// has has a contender do something, and waits for that.
func has[A any](c *conductor, who int, j job[A]) (A, error) {
	ctx, cancel := context.WithTimeoutCause(c.ctx, mostPatience, errSilent)
	defer cancel()
	answer, err := ask(ctx, c.fleet[who%len(c.fleet)], j)
	if err != nil {
		err = fmt.Errorf("contender %d, %T: %w", who, j, err)
	}
	return answer, err
}

// wants has a contender ask for the lock, and doesn't wait for it.
func (c *conductor) wants(who int) {
	go func() {
		at, err := ask(c.ctx, c.fleet[who%len(c.fleet)], job[int64](toLock{who, c.name}))
		if err != nil {
			err = fmt.Errorf("contender %d, told to lock: %w", who, err)
		}
		select {
		case c.got <- acquired{who, at, err}:
		case <-c.ctx.Done():
		}
	}()
}

// next waits until a contender has the lock.
func (c *conductor) next() (acquired, error) {
	timer := time.NewTimer(mostPatience)
	defer timer.Stop()
	select {
	case a := <-c.got:
		return a, a.err
	case <-timer.C:
		return acquired{}, errSilent
	case <-c.ctx.Done():
		return acquired{}, c.ctx.Err()
	}
}

// upTo is a random time.
func upTo(most time.Duration) time.Duration { return rand.N(most + 1) }

// handovers has the lock change hands n times, after a time that is not counted in which everybody
// had it once or so.
func (c *conductor) handovers(contenders, n int, hold, spread time.Duration) (took []int64, counted traffic, err error) {
	for who := range contenders {
		c.wants(who)
		await(c.ctx, upTo(2*spread/time.Duration(contenders)))
	}
	first, err := c.next()
	if err != nil {
		return nil, counted, err
	}
	holder := first.who
	for i := -contenders; i < n; i++ {
		if i == 0 {
			if counted, err = c.count(); err != nil {
				return nil, counted, err
			}
		}
		await(c.ctx, hold+upTo(spread))
		before := holder
		one, next, err := c.handover(before)
		if err != nil {
			return nil, counted, err
		}
		if i >= 0 {
			took = append(took, one)
		}
		holder = next
		await(c.ctx, upTo(spread))
		c.wants(before)
	}
	after, err := c.count()
	return took, after.minus(counted), err
}

// handover has the holder give the lock back, and returns who has it next and how long that took:
// from just before Unlock was called to when Lock had returned.
func (c *conductor) handover(holder int) (took int64, next int, err error) {
	if err := c.noOther(); err != nil {
		return 0, 0, err
	}
	from, err := has(c, holder, job[int64](toUnlock(holder)))
	if err != nil {
		return 0, 0, err
	}
	to, err := c.next()
	switch {
	case err != nil:
		return 0, 0, err
	case to.at < from:
		return 0, 0, fmt.Errorf("contender %d had the lock %v before contender %d gave it back", to.who, time.Duration(from-to.at), holder)
	}
	return to.at - from, to.who, nil
}

// noOther returns an error if a contender has the lock that nobody waits for.
func (c *conductor) noOther() error {
	select {
	case a := <-c.got:
		return cmp.Or(a.err, fmt.Errorf("contender %d has the lock, which another one holds", a.who))
	default:
		return nil
	}
}

// settle is how long no message may have arrived before the count is true.
const settle = 20 * time.Millisecond

// count says what was counted so far, when all messages have arrived.
func (c *conductor) count() (n traffic, err error) {
	for before := int64(-1); err == nil && n.Messages != before; {
		before = n.Messages
		await(c.ctx, settle)
		n, err = c.countNow()
	}
	return n, err
}

func (c *conductor) countNow() (n traffic, err error) {
	all, err := askAll(c.ctx, c.fleet, func(int) job[traffic] { return toCount(0) })
	if err != nil {
		return n, err
	}
	for _, one := range all {
		n = n.plus(one)
	}
	n.commands, n.pings, err = countCommands(c.ctx, c.rdb)
	return n, cmp.Or(err, c.noOther())
}

// repeat has one contender have the lock and give it back n times.
func (c *conductor) repeat(n int) (took []int64, counted traffic, err error) {
	before, err := c.count()
	if err != nil {
		return nil, counted, err
	}
	took, err = has(c, 0, job[[]int64](toRepeat{c.name, n}))
	if err != nil {
		return nil, counted, err
	}
	after, err := c.count()
	return took, after.minus(before), err
}

var _ = []struct{}{
	known[nothing](openLocker{}), known[int64](toLock{}), known[int64](toUnlock(0)),
	known[traffic](toCount(0)), known[[]int64](toRepeat{}),
}

// openLocker opens a locker, which the other jobs of this file use.
type openLocker struct{ Redis, Locker string }

func (o openLocker) do(ctx context.Context, w *worker) (nothing, error) {
	of := append(w.peers.lockers(), floor)
	i := slices.IndexFunc(of, func(l Locker) bool { return l.Name == o.Locker })
	if i < 0 {
		return nothing{}, fmt.Errorf("there is no locker %q", o.Locker)
	}
	rdb := w.dial(redis.Options{Addr: o.Redis, PoolSize: 10000}) // a connection for each that waits
	w.meter = &meter{listens: true}
	rdb.AddHook(w.meter)
	lock, stop, err := of[i].Open(context.WithoutCancel(ctx), rdb) // what is opened outlives the job
	if err != nil {
		return nothing{}, err
	}
	w.atEnd(stop)
	w.hands = &hands{lock: lock, held: map[int]func(context.Context) error{}}
	return nothing{}, nil
}

// hands are the contenders for a lock in one process.
type hands struct {
	lock LockFunc

	mu   sync.Mutex                          // guards held
	held map[int]func(context.Context) error // how to give it back, by who has it
}

// toLock has a contender ask for the lock. The answer is when Lock had returned: nanoseconds since
// 1970 by the wall clock, the one clock whose readings a program may compare with those of another
// process everywhere.
type toLock struct {
	Who  int // of all contenders
	Name string
}

func (o toLock) do(ctx context.Context, w *worker) (at int64, err error) {
	held, release := context.WithCancel(context.WithoutCancel(ctx)) // some locks end with their context
	stop := context.AfterFunc(ctx, release)
	defer stop()
	unlock, err := w.hands.lock(held, o.Name)
	at = time.Now().UnixNano()
	w.hands.mu.Lock()
	defer w.hands.mu.Unlock()
	w.hands.held[o.Who] = func(ctx context.Context) error {
		defer release()
		return unlock(ctx)
	}
	return at, err
}

// toUnlock has a contender give the lock back. The answer is when, just before it did.
type toUnlock int

func (who toUnlock) do(ctx context.Context, w *worker) (at int64, err error) {
	w.hands.mu.Lock()
	unlock := w.hands.held[int(who)]
	w.hands.mu.Unlock()
	at = time.Now().UnixNano()
	return at, unlock(ctx)
}

// toCount asks what was counted so far.
type toCount int

// traffic is what crossed the wire. Processes count what they send and hear, Redis the rest.
type traffic struct{ Trips, Messages, commands, pings int64 }

func (a traffic) plus(b traffic) traffic {
	return traffic{a.Trips + b.Trips, a.Messages + b.Messages, a.commands + b.commands, a.pings + b.pings}
}

func (a traffic) minus(b traffic) traffic {
	return a.plus(traffic{-b.Trips, -b.Messages, -b.commands, -b.pings})
}

func (toCount) do(_ context.Context, w *worker) (traffic, error) {
	return traffic{Trips: w.meter.trips.Load(), Messages: w.meter.messages.Load()}, nil
}

// toRepeat has one contender lock and unlock, one after the other. The answer is how long each pair
// took.
type toRepeat struct {
	Name  string
	Pairs int
}

func (o toRepeat) do(ctx context.Context, w *worker) (took []int64, err error) {
	for range o.Pairs {
		began := time.Now()
		unlock, err := w.hands.lock(ctx, o.Name)
		if err != nil {
			return took, err
		}
		if err := unlock(ctx); err != nil {
			return took, err
		}
		took = append(took, time.Since(began).Nanoseconds())
	}
	return took, nil
}
