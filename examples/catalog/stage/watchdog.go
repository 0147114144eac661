package stage

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"
)

// watchdog is like compare, with a goroutine that renews the lock for as long as it is held.
//
// Its flaw: if the whole process is stopped, its watchdog is stopped, too. The lock expires, and
// another request loads. When the first request goes on, it overwrites the new value with its old
// value, because nothing refuses the old value. Also, waiting requests still poll.
type watchdog struct {
	compare
	stop context.CancelFunc
	done chan struct{}
}

func newWatchdog(r *Replica, name string) *watchdog {
	return &watchdog{compare: *newCompare(r, name)}
}

var compareAndExpire = redis.NewScript(`
if redis.call('GET', KEYS[1]) == ARGV[1] then
  return redis.call('PEXPIRE', KEYS[1], ARGV[2])
end
return 0`)

func (w *watchdog) try(ctx context.Context) (bool, error) {
	mine, err := w.compare.try(ctx)
	if err != nil || !mine {
		return false, err
	}
	watching, stop := context.WithCancel(context.WithoutCancel(ctx))
	w.stop, w.done = stop, make(chan struct{})
	go w.watch(watching)
	return true, nil
}

// watch renews the lock every third of its time, until the lock is given back or gone, or the
// process ends.
func (w *watchdog) watch(ctx context.Context) {
	defer close(w.done)
	tick := time.NewTicker(w.LockTTL / 3)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		renewed, err := compareAndExpire.Run(ctx, w.Redis, []string{w.name}, w.value,
			w.LockTTL.Milliseconds()).Int()
		if err == nil && renewed == 0 || w.At(ctx, Renewed) != nil {
			return
		}
	}
}

func (w *watchdog) unlock(ctx context.Context) error {
	w.stop()
	<-w.done
	return w.compare.unlock(ctx)
}
