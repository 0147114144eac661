package contender

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"
)

// FlightLock is the name of the best textbook solution: callers of a process share one call, so
// each process asks for the lock once.
const FlightLock = "singleflight+lock"

var flightLock = Contender{
	Name: FlightLock,
	What: "x/sync/singleflight in each process, and under it a lock that polls: SET NX PX with a token, GET, load, SET, delete by script",
	Note: "It looks again after a half to a whole of -poll, at random. The lock is not renewed, nothing stops a SET after a change, and Redis' errors are returned.",
	Open: func(ctx context.Context, r Rig) (Protection, error) {
		return &flightLocked{single{ReadThrough: ReadThrough{r}}},
			errors.Join(r.Redis.Ping(ctx).Err(), DeleteIfMine.Load(ctx, r.Redis).Err())
	},
}

// DeleteIfMine gives a lock back: it deletes the key if the key still has the token.
var DeleteIfMine = redis.NewScript(
	`if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0`)

type flightLocked struct{ single }

func (f *flightLocked) Get(ctx context.Context, key string) (string, bool, error) {
	return f.fly(key, func() (string, bool, error) { return f.locked(ctx, key) })
}

// locked looks for the value, asks for the lock and looks again, until it has the value or the
// lock.
func (f *flightLocked) locked(ctx context.Context, key string) (string, bool, error) {
	lock, token := key+":lock", uuid.NewString()
	for {
		if v, found, err := f.Look(ctx, key); !errors.Is(err, redis.Nil) {
			return v, found, err
		}
		free, err := f.Redis.SetNX(ctx, lock, token, f.LockTTL).Result()
		if err != nil {
			return "", false, err
		}
		if free {
			break
		}
		select {
		case <-time.After(f.PollTime/2 + rand.N(f.PollTime/2)):
		case <-ctx.Done():
			return "", false, ctx.Err()
		}
	}
	// Another process may have loaded between the look and the lock.
	v, found, err := f.ReadThrough.Get(ctx, key)
	return v, found, errors.Join(err, DeleteIfMine.Run(ctx, f.Redis, []string{lock}, token).Err())
}
