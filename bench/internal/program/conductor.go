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

// The run fails if for mostPatience no contender gets the lock, or a process doesn't answer.
const mostPatience = time.Minute

var errSilent = fmt.Errorf("nothing was heard for %v", mostPatience)

// conductor tells contenders when to ask for a lock and when to give it back. They report the times
// of these actions, because the contenders themselves measure all times.
type conductor struct {
	ctx    context.Context
	cancel context.CancelFunc
	rdb    *redis.Client
	fleet  fleet
	name   string // the name of the lock
	got    chan acquired
}

// acquired is the contender that has the lock, and the time since which it has it.
type acquired struct {
	who int
	at  int64
	err error
}

// conduct starts processes, and returns when they are ready.
func conduct(ctx context.Context, s *server, locker string, processes int) (*conductor, error) {
	ctx, cancel := context.WithCancel(ctx)
	fleet, err := startFleet(ctx, processes, func(int) job[nothing] {
		return openLocker{s.addr, locker}
	})
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

// has gives a contender a job, and waits until it is done.
func has[A any](c *conductor, who int, j job[A]) (A, error) {
	ctx, cancel := context.WithTimeoutCause(c.ctx, mostPatience, errSilent)
	defer cancel()
	answer, err := ask(ctx, c.fleet[who%len(c.fleet)], j)
	if err != nil {
		err = fmt.Errorf("contender %d, %T: %w", who, j, err)
	}
	return answer, err
}

// wants makes a contender ask for the lock, and doesn't wait until it has the lock.
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

// upTo returns a random time from 0 to most.
func upTo(most time.Duration) time.Duration { return rand.N(most + 1) }

// handovers hands the lock over n times. Before that there is a warm-up, which isn't counted, in
// which each contender has the lock about once.
func (c *conductor) handovers(
	contenders, n int, hold, spread time.Duration,
) (took []int64, counted traffic, err error) {
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
			if counted, err = c.count(settleAll); err != nil {
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
	after, err := c.count(settleAll)
	return took, after.minus(counted), err
}

// handover makes the holder give the lock back. It returns the next holder, and the time from just
// before the call of Unlock until Lock has returned.
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
		return 0, 0,
			fmt.Errorf("contender %d had the lock %v before contender %d gave it back", to.who,
				time.Duration(from-to.at), holder)
	}
	return to.at - from, to.who, nil
}

// noOther returns an error if another contender reports that it has the lock, although the holder
// hasn't given it back.
func (c *conductor) noOther() error {
	select {
	case a := <-c.got:
		return cmp.Or(a.err,
			fmt.Errorf("contender %d has the lock, which another one holds", a.who))
	default:
		return nil
	}
}

const (
	// settle is the time without a new message after which the count is complete.
	settle = 20 * time.Millisecond

	// settleAll is this time for a fleet. A message can reach one of its processes much later than
	// the others if the machine is busy.
	settleAll = 10 * settle
)

// count waits until no message has arrived for the given time, and returns the traffic so far.
func (c *conductor) count(without time.Duration) (n traffic, err error) {
	for before := int64(-1); err == nil && n.Messages != before; {
		before = n.Messages
		await(c.ctx, without)
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

// repeat makes one contender take the lock and give it back n times.
func (c *conductor) repeat(n int) (took []int64, counted traffic, err error) {
	before, err := c.count(settle)
	if err != nil {
		return nil, counted, err
	}
	took, err = has(c, 0, job[[]int64](toRepeat{c.name, n}))
	if err != nil {
		return nil, counted, err
	}
	after, err := c.count(settle)
	return took, after.minus(before), err
}

var _ = []struct{}{
	known[nothing](openLocker{}), known[int64](toLock{}), known[int64](toUnlock(0)),
	known[traffic](toCount(0)), known[[]int64](toRepeat{}),
}

// openLocker opens a locker. The other jobs of this file use it.
type openLocker struct{ Redis, Locker string }

func (o openLocker) do(ctx context.Context, w *worker) (nothing, error) {
	of := append(w.peers.lockers(), floor)
	i := slices.IndexFunc(of, func(l Locker) bool { return l.Name == o.Locker })
	if i < 0 {
		return nothing{}, fmt.Errorf("there is no locker %q", o.Locker)
	}
	// A connection for each waiting contender.
	rdb := w.dial(redis.Options{Addr: o.Redis, PoolSize: 10000})
	w.meter = &meter{listens: true}
	rdb.AddHook(w.meter)
	lock, stop, err := of[i].Open(context.WithoutCancel(ctx), rdb) // the locker outlives the job
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
	held map[int]func(context.Context) error // the function that gives the lock back, by contender
}

// toLock makes a contender ask for the lock. The answer is the time at which Lock had returned, in
// nanoseconds since 1970 by the wall clock. Only readings of the wall clock can be compared between
// processes on every system.
type toLock struct {
	Who  int // its number among all contenders
	Name string
}

func (o toLock) do(ctx context.Context, w *worker) (at int64, err error) {
	// Some locks end with their context.
	held, release := context.WithCancel(context.WithoutCancel(ctx))
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

// toUnlock makes a contender give the lock back. The answer is the time just before it does so.
type toUnlock int

func (who toUnlock) do(ctx context.Context, w *worker) (at int64, err error) {
	w.hands.mu.Lock()
	unlock := w.hands.held[int(who)]
	w.hands.mu.Unlock()
	at = time.Now().UnixNano()
	return at, unlock(ctx)
}

// toCount asks a process how many trips and messages it has counted so far.
type toCount int

// traffic is the network traffic. Processes count their trips and messages, and Redis counts the
// commands.
type traffic struct{ Trips, Messages, commands, pings int64 }

func (a traffic) plus(b traffic) traffic {
	return traffic{
		a.Trips + b.Trips, a.Messages + b.Messages, a.commands + b.commands, a.pings + b.pings,
	}
}

func (a traffic) minus(b traffic) traffic {
	return a.plus(traffic{-b.Trips, -b.Messages, -b.commands, -b.pings})
}

func (toCount) do(_ context.Context, w *worker) (traffic, error) {
	return traffic{Trips: w.meter.trips.Load(), Messages: w.meter.messages.Load()}, nil
}

// toRepeat makes one contender lock and unlock several times. The answer is the time that each pair
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
