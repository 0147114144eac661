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

// Locker is a way to lock names with one Redis. handover compares Lockers.
type Locker struct {
	Name      string
	OwnClient bool // it uses its own client for Redis, whose trips and messages aren't counted

	// Open makes the locker ready for use in this process. The caller of Open first calls stop and
	// then closes the client.
	Open func(ctx context.Context, rdb *redis.Client) (lock LockFunc, stop func(), err error)
}

// LockFunc waits until it has the lock of a name, and returns the function that gives the lock
// back.
type LockFunc func(ctx context.Context, name string) (unlock func(context.Context) error, err error)

// lockTTL is the time that a lock lasts after its holder died, if it can be chosen.
const lockTTL = 10 * time.Second

// lockers are the lockers of this module, and lockers that people write without a library.
var lockers = []Locker{
	{Name: "redislock", Open: ours(redislock.Options{})},
	{Name: "redislock-fair", Open: ours(redislock.Options{Fair: true})},
	{Name: "list", Open: list},
	{Name: "poll", Open: poll},
	{Name: "broadcast", Open: broadcast},
}

// floor is the cheapest possible locker for a lock that no other contender wants. It ignores other
// contenders, and doesn't know its owner.
var floor = Locker{Name: "set+del", Open: func(
	ctx context.Context, rdb *redis.Client,
) (LockFunc, func(), error) {
	return func(ctx context.Context, name string) (func(context.Context) error, error) {
		err := rdb.SetArgs(ctx, name, "held", redis.SetArgs{Mode: "NX", TTL: lockTTL}).Err()
		return func(ctx context.Context) error { return rdb.Del(ctx, name).Err() }, err
	}, func() {}, rdb.Ping(ctx).Err()
}}

// ours returns the Open of redislock.
func ours(opts redislock.Options) func(context.Context, *redis.Client) (LockFunc, func(), error) {
	return func(ctx context.Context, rdb *redis.Client) (LockFunc, func(), error) {
		// A first request dials, which takes time on a busy machine. No hand-over takes so long
		// that the default would make a difference.
		opts.Lease, opts.OpTimeout = lockTTL, lockTTL
		opts.Logger = slog.New(slog.NewTextHandler(io.Discard, nil))
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

// pollEvery is the poll time in the libraries' examples.
const pollEvery = 100 * time.Millisecond

// poll is the textbook pattern. It repeats SET NX PX with its own token until that succeeds. A
// script deletes the key if it has this token.
func poll(ctx context.Context, rdb *redis.Client) (LockFunc, func(), error) {
	never := func() <-chan struct{} { return nil }
	return polled(rdb, contender.DeleteIfMine, never), func() {}, rdb.Ping(ctx).Err()
}

// polled asks again and again, and also when it learns that a lock is free. It calls freed before
// each request, and waits for the channel that freed returned. So it misses no release after its
// request.
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

// broadcast is like poll, but publishes each release on a channel to which all processes listen.
// After a release all waiting contenders ask.
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

// list is the cheapest possible hand-over: a lock is a list with one entry, and Redis itself gives
// the entry to the caller that has waited longest. There is no lease, so if a holder dies, its lock
// is lost for ever.
func list(ctx context.Context, rdb *redis.Client) (LockFunc, func(), error) {
	return func(ctx context.Context, name string) (func(context.Context) error, error) {
		entry := name + ":entry"
		first, err := rdb.SetNX(ctx, name, "made", 0).Result()
		if err == nil && first {
			err = rdb.LPush(ctx, entry, "free").Err()
		}
		for err == nil && ctx.Err() == nil {
			if err = rdb.BLPop(ctx, time.Second, entry).Err(); err == nil {
				return func(ctx context.Context) error {
					return rdb.LPush(ctx, entry, "free").Err()
				}, nil
			} else if errors.Is(err, redis.Nil) {
				err = nil // a second is over
			}
		}
		return nil, errors.Join(err, ctx.Err())
	}, func() {}, rdb.Ping(ctx).Err()
}
