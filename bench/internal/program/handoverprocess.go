package program

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

var _ = []struct{}{
	known[nothing](openLocker{}), known[int64](toLock{}), known[int64](toUnlock(0)), known[traffic](toCount(0)),
	known[[]int64](toRepeat{}),
}

// openLocker opens a locker, which the other jobs of this file use.
type openLocker struct{ Redis, Locker string }

func (o openLocker) do(ctx context.Context, w *worker) (nothing, error) {
	of := append(w.peers.lockers(), floor)
	i := slices.IndexFunc(of, func(l Locker) bool { return l.Name == o.Locker })
	if i < 0 {
		return nothing{}, fmt.Errorf("there is no locker %q", o.Locker)
	}
	rdb := w.dial(redis.Options{Addr: o.Redis, PoolSize: 10000}) // a locker may have a connection for each that waits
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
