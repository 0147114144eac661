package stage

import (
	"context"
	"errors"

	"github.com/redis/go-redis/v9"
)

// watch is watchdog with an unlock in a transaction: WATCH the lock, GET it, and DEL it in MULTI
// and EXEC if it is one's own. If anybody has written it in between, EXEC does nothing.
//
// Its flaws: the watchdog writes it, too. Then the lock is not given back, and everybody waits
// until it ends. And an unlock takes three trips more than a script.
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
		_, err = tx.TxPipelined(ctx, func(p redis.Pipeliner) error { return p.Del(ctx, w.name).Err() })
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
