package lab

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/cacheguard/cacheguard/examples/catalog/stage"
)

// closeOnce closes a channel that may be closed. It is called with r.mu held.
func closeOnce(c chan struct{}) {
	select {
	case <-c:
	default:
		close(c)
	}
}

// note keeps account of a point.
func (r *run) note(me who, point stage.Point) {
	r.mu.Lock()
	now := time.Now()
	wrong, stale := false, false
	switch point {
	case stage.Acquired:
		if !r.hasLock() {
			break
		}
		if len(r.acquired) > 0 {
			closeOnce(r.another)
		}
		r.acquired[me] = now
		r.report.Holders = max(r.report.Holders, len(r.acquired))
	case stage.Load:
		closeOnce(r.begun)
	case stage.Unlock, stage.Compared:
		r.deleting[me] = now
	case stage.NotMine, stage.Aborted:
		delete(r.acquired, me)
	case stage.Unlocked:
		wrong = r.deletedAnothers(me)
		delete(r.acquired, me)
	case stage.Fill:
		r.filling[me] = r.announced
	case stage.Filled:
		announced, known := r.filling[me] // a store that refuses late values doesn't say when it begins
		stale = known && r.loaded[me] < announced
	case stage.Refused:
		r.report.Refused++
	case stage.Woken, stage.Announced:
		r.report.Wakeups++
	}
	if wrong {
		r.report.WrongDeletes++
	}
	if stale {
		r.report.StaleWrites++
	}
	r.mu.Unlock()
	if wrong {
		r.tell(me.replica, me.request, KindWrongDelete, "")
	}
	if stale {
		r.tell(me.replica, me.request, KindStaleWrite, "")
	}
}

// hasLock reports whether the stage has a lock of which there is to be one holder. A lock in the process has one in each,
// and a lease may be taken from a load that goes on: its value is refused.
func (r *run) hasLock() bool { return r.settings.Stage != "local" && r.settings.Stage != "cacheguard" }

// release notes that a replica has no lock. It is called with r.mu held.
func (r *run) release(replica int) {
	for w := range r.acquired {
		if w.replica == replica {
			delete(r.acquired, w)
		}
	}
}

// deletedAnothers reports whether the lock that a request has deleted was another's: one who had got it later than this one, and
// before this one began to delete it. It is called with r.mu held.
func (r *run) deletedAnothers(me who) bool {
	mine, since := r.acquired[me], r.deleting[me]
	for other, got := range r.acquired {
		if other != me && got.After(mine) && got.Before(since) {
			return true
		}
	}
	return false
}

// judge looks at what is left, and says what it was.
func (r *run) judge(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	r.setQuiet()
	r.mu.Lock()
	r.report.Loads, r.report.LoadsAtOnce = r.loads, r.atOnce
	if r.version > 0 {
		r.report.Origin = versionText(r.version)
	}
	slices.Sort(r.waits)
	r.report.Waits = waitsOf(r.waits)
	r.mu.Unlock()

	rdb := redis.NewClient(&redis.Options{Addr: r.world.Redis, MaxRetries: -1})
	defer rdb.Close()
	switch left, err := rdb.PTTL(ctx, "lock:"+r.key).Result(); {
	case err != nil || left == -2:
	case left == -1:
		r.report.LockLeft = -1
	default:
		r.report.LockLeft = ms(left)
	}
	if r.report.Stuck == 0 {
		if value, err := r.shop.cache.Get(ctx, r.key); err == nil {
			r.report.Cached = value
		}
	}
	r.report.Verdict = r.report.verdict()
}

// setQuiet ends the telling: what comes now is no part of the run.
func (r *run) setQuiet() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ended = true
}

func waitsOf(sorted []float64) Waits {
	if len(sorted) == 0 {
		return Waits{Each: []float64{}}
	}
	at := func(q float64) float64 { return sorted[int(q*float64(len(sorted)-1))] }
	return Waits{P50: at(0.5), P90: at(0.9), Max: sorted[len(sorted)-1], Each: sorted}
}

// verdict is the run in one sentence.
func (r *Report) verdict() string {
	loads := fmt.Sprintf("%d loads", r.Loads)
	if r.Loads == 1 {
		loads = "1 load"
	}
	parts := []string{loads}
	add := func(when bool, format string, args ...any) {
		if when {
			parts = append(parts, fmt.Sprintf(format, args...))
		}
	}
	add(r.Stuck > 0 && r.LockLeft == -1, "dead lock: %d requests wait for a lock that has no end", r.Stuck)
	add(r.Stuck > 0 && r.LockLeft != -1, "%d requests still wait", r.Stuck)
	add(r.WrongDeletes > 0, "%d times the lock of another was deleted", r.WrongDeletes)
	add(r.Holders > 1, "%d had the lock at once", r.Holders)
	add(r.Refused > 0, "%d late values were refused", r.Refused)
	add(r.Stuck == 0 && r.Cached != r.Origin && r.Cached != "", "a stale value is served: %s, and the origin has %s", r.Cached, r.Origin)
	add(r.Failed > 0, "%d requests got an error", r.Failed)
	add(r.Died > 0, "%d requests died with their replica", r.Died)
	if len(parts) == 1 {
		parts = append(parts, "all were answered with what is so")
	}
	return strings.Join(parts, "; ") + "."
}
