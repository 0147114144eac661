package program

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"

	"github.com/cacheguard/cacheguard/bench/internal/contender"
	"github.com/cacheguard/cacheguard/cacheguard/lock/redislock"
)

// Locker is a way to lock names by one Redis, as handover compares them.
type Locker struct {
	Name      string
	OwnClient bool // it asks Redis with a client of its own, whose trips and messages nobody counts

	// Open makes it ready to be used in this process. The client is closed by whoever made it,
	// after stop.
	Open func(ctx context.Context, rdb *redis.Client) (lock LockFunc, stop func(), err error)
}

// LockFunc waits until it has the lock of a name, and returns what gives it back.
type LockFunc func(ctx context.Context, name string) (unlock func(context.Context) error, err error)

// lockTTL is how long a lock outlives its holder, where that can be chosen.
const lockTTL = 10 * time.Second

// lockers are those of this module, and what one writes without a library.
var lockers = []Locker{
	{Name: "redislock", Open: ours(redislock.Options{})},
	{Name: "redislock-fair", Open: ours(redislock.Options{Fair: true})},
	{Name: "list", Open: list},
	{Name: "poll", Open: poll},
	{Name: "broadcast", Open: broadcast},
}

// floor is the least that a lock costs that nobody else wants. It knows no others, and not whose it
// is.
var floor = Locker{Name: "set+del", Open: func(ctx context.Context, rdb *redis.Client) (LockFunc, func(), error) {
	return func(ctx context.Context, name string) (func(context.Context) error, error) {
		err := rdb.SetArgs(ctx, name, "held", redis.SetArgs{Mode: "NX", TTL: lockTTL}).Err()
		return func(ctx context.Context) error { return rdb.Del(ctx, name).Err() }, err
	}, func() {}, rdb.Ping(ctx).Err()
}}

// ours is redislock.
func ours(opts redislock.Options) func(context.Context, *redis.Client) (LockFunc, func(), error) {
	return func(ctx context.Context, rdb *redis.Client) (LockFunc, func(), error) {
		opts.Lease, opts.Logger = lockTTL, slog.New(slog.NewTextHandler(io.Discard, nil))
		l, err := redislock.New(rdb, opts)
		if err != nil {
			return nil, nil, err
		}
		if err := l.Warm(ctx); err != nil {
			_ = l.Close()
			return nil, nil, err
		}
		return func(ctx context.Context, name string) (func(context.Context) error, error) {
			held, err := l.Lock(ctx, name)
			if err != nil {
				return nil, err
			}
			return held.Unlock, nil
		}, func() { _ = l.Close() }, nil
	}
}

// pollEvery is what the libraries' examples show.
const pollEvery = 100 * time.Millisecond

// poll is the pattern from the textbook: SET NX PX with a token of its own until it works, and a
// script that deletes what has the token.
func poll(ctx context.Context, rdb *redis.Client) (LockFunc, func(), error) {
	never := func() <-chan struct{} { return nil }
	return polled(rdb, contender.DeleteIfMine, never), func() {}, rdb.Ping(ctx).Err()
}

// polled asks again and again, and when it is told that a lock is free: by the channel that freed
// has returned before it last asked, so that no release after that goes unheard.
func polled(rdb *redis.Client, release *redis.Script, freed func() <-chan struct{}) LockFunc {
	return func(ctx context.Context, name string) (func(context.Context) error, error) {
		token := uuid.NewString()
		tick := time.NewTicker(pollEvery)
		defer tick.Stop()
		for {
			next := freed()
			free, err := rdb.SetNX(ctx, name, token, lockTTL).Result()
			if err != nil {
				return nil, err
			}
			if free {
				return func(ctx context.Context) error {
					return release.Run(ctx, rdb, []string{name}, token, freeChannel).Err()
				}, nil
			}
			select {
			case <-next:
			case <-tick.C:
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}
	}
}

var deleteAndTell = redis.NewScript(`
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
redis.call('PUBLISH', ARGV[2], KEYS[1])
return redis.call('DEL', KEYS[1])`)

const freeChannel = "handover:free"

// broadcast is poll whose releases are told in a channel that all processes listen to: all who wait
// ask then.
func broadcast(ctx context.Context, rdb *redis.Client) (LockFunc, func(), error) {
	sub := rdb.Subscribe(ctx, freeChannel)
	if _, err := sub.Receive(ctx); err != nil {
		_ = sub.Close()
		return nil, nil, err
	}
	var mu sync.Mutex // guards freed
	freed := make(chan struct{})
	var listening sync.WaitGroup
	listening.Go(func() {
		for range sub.Channel() {
			mu.Lock()
			close(freed)
			freed = make(chan struct{})
			mu.Unlock()
		}
	})
	stop := func() { _ = sub.Close(); listening.Wait() }
	return polled(rdb, deleteAndTell, func() <-chan struct{} {
		mu.Lock()
		defer mu.Unlock()
		return freed
	}), stop, nil
}

// list is the floor of a hand-over: a list with one entry, which Redis itself gives to whoever has
// waited longest. There is no lease: a holder that dies takes the lock along.
func list(ctx context.Context, rdb *redis.Client) (LockFunc, func(), error) {
	return func(ctx context.Context, name string) (func(context.Context) error, error) {
		entry := name + ":entry"
		first, err := rdb.SetNX(ctx, name, "made", 0).Result()
		if err == nil && first {
			err = rdb.LPush(ctx, entry, "free").Err()
		}
		for err == nil && ctx.Err() == nil {
			if err = rdb.BLPop(ctx, time.Second, entry).Err(); err == nil {
				return func(ctx context.Context) error { return rdb.LPush(ctx, entry, "free").Err() }, nil
			} else if errors.Is(err, redis.Nil) {
				err = nil // a second is over
			}
		}
		return nil, errors.Join(err, ctx.Err())
	}, func() {}, rdb.Ping(ctx).Err()
}
