package program

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/singleflight"
)

// pollLeast and pollMost are how long a process waits, at random, before it looks again.
const (
	pollLeast = 50 * time.Millisecond
	pollMost  = 100 * time.Millisecond
)

// polling is the lock of the textbook under a flight for each process: SET NX PX, look again, load, store, give it back;
// who doesn't get the lock looks for a value from time to time.
func polling(ctx context.Context, r *rig) (getter, func(), error) {
	var g singleflight.Group
	return func(ctx context.Context, key string) error {
		v, err, _ := g.Do(key, func() (any, error) { return r.poll(ctx, key) })
		s, _ := v.(string)
		return r.check(s, err)
	}, func() {}, errors.Join(r.warm(ctx), deleteIfMine.Load(ctx, r.rdb).Err())
}

func (r *rig) poll(ctx context.Context, key string) (string, error) {
	lock, token := key+":lock", uuid.NewString()
	for {
		if v, err := r.rdb.Get(ctx, key).Result(); !errors.Is(err, redis.Nil) {
			return v, err
		}
		free, err := r.rdb.SetNX(ctx, lock, token, lockTTL).Result()
		if err != nil {
			return "", err
		}
		if free {
			break
		}
		select {
		case <-time.After(pollLeast + rand.N(pollMost-pollLeast)):
		case <-ctx.Done():
			return "", ctx.Err()
		}
	}
	v, err := r.readThrough(ctx, key)
	return v, errors.Join(err, deleteIfMine.Run(ctx, r.rdb, []string{lock}, token).Err())
}
