package stage

import (
	"context"
	"errors"

	"github.com/redis/go-redis/v9"
)

// watch is like watchdog, with an unlock in a transaction: WATCH the lock, GET it, and if it is the
// request's own lock, DEL it in MULTI and EXEC. If the lock was written in between, EXEC does
// nothing.
//
// Its flaws: the watchdog writes the lock, too. If it does so between WATCH and EXEC, the lock
// isn't given back, and all requests wait until it expires. An unlock also takes three trips more
// than a script.
type watch struct{ watchdog }

func (w *watch) unlock(ctx context.Context) error {
	defer w.stop()
	mine := true
	err := w.Redis.Watch(ctx, func(tx *redis.Tx) error {
		holder, err := tx.Get(ctx, w.name).Result()
		if err != nil && err != redis.Nil {
			return err
		}
		if mine = holder == w.value; !mine {
			return nil
		}
		if err := w.At(ctx, Compared); err != nil {
			return err
		}
		_, err = tx.TxPipelined(ctx, func(p redis.Pipeliner) error {
			return p.Del(ctx, w.name).Err()
		})
		return err
	}, w.name)
	switch {
	case errors.Is(err, redis.TxFailedErr):
		return w.At(ctx, Aborted)
	case err != nil:
		return err
	case !mine:
		return w.At(ctx, NotMine)
	}
	return w.At(ctx, Unlocked)
}
