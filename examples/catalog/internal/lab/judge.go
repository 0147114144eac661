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

// closeOnce closes a channel that may be closed already. The caller holds r.mu.
func closeOnce(c chan struct{}) {
	select {
	case <-c:
	default:
		close(c)
	}
}

// note records a point, until the run is judged. A request whose client has left may still be
// running by then.
func (r *run) note(me who, point stage.Point) {
	r.mu.Lock()
	if r.ended {
		r.mu.Unlock()
		return
	}
	now := time.Now()
	wrong, stale := false, false
	switch point {
	case stage.Hit, stage.Miss:
		r.looks(me.request)
	case stage.Acquired:
		r.arrives(me)
		if !r.hasLock() {
			break
		}
		r.acquired[me] = now
		r.report.Holders = max(r.report.Holders, r.holding())
		if r.holding() > 1 {
			closeOnce(r.another)
		}
	case stage.Load:
		closeOnce(r.begun)
	case stage.Unlock, stage.Compared:
		r.deleting[me] = now
	case stage.NotMine, stage.Aborted:
		delete(r.acquired, me)
		r.releases(me)
	case stage.Unlocked:
		wrong = r.deletedAnothers(me)
		delete(r.acquired, me)
		r.releases(me)
	case stage.Fill:
		r.filling[me] = r.announced
	case stage.Filled:
		// A store that refuses late values doesn't report when it begins to write.
		announced, known := r.filling[me]
		stale = known && r.loaded[me] < announced
		if r.loaded[me] > 1 {
			closeOnce(r.cached)
		}
	case stage.Refused:
		r.report.Refused++
	case stage.Wait:
		r.arrives(me)
		r.waited[me] = true
		r.report.Waited = len(r.waited)
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

// releases records that a request has no lock any more. The caller holds r.mu.
func (r *run) releases(me who) {
	if me == r.first && me != (who{}) {
		closeOnce(r.released)
	}
}

// arrives records that a request is in the line, or has the lock. The caller holds r.mu.
func (r *run) arrives(me who) {
	if arrived := r.arrived[me.request]; arrived != nil {
		closeOnce(arrived)
	}
}

// looks records that a request has looked into the cache. The caller holds r.mu.
func (r *run) looks(request int) {
	r.looked[request] = true
	r.overlaps()
}

// asks records that a load of a replica has begun, or that one of its requests has ended. The
// caller holds r.mu.
func (r *run) asks(replica int) {
	if replica > 0 {
		r.askers[replica] = true
		r.overlaps()
	}
}

// overlaps lets the loads of loadsOverlap end when that shows the stage's flaw. The caller holds
// r.mu.
func (r *run) overlaps() {
	if len(r.looked) == r.settings.Requests && len(r.askers) == r.settings.Replicas {
		closeOnce(r.overlap)
	}
}

// hasLock reports whether the stage has a lock that must have only one holder. A lock in the
// process can have one holder in each process. A lease can be taken from a load that goes on,
// because the value of this load is refused.
func (r *run) hasLock() bool {
	return r.settings.Stage != "local" && r.settings.Stage != "cacheguard"
}

// holding returns the number of requests that have the lock and don't give it back at the moment. A
// request that gives the lock back may have deleted it before it can report that. The caller holds
// r.mu.
func (r *run) holding() (n int) {
	for w := range r.acquired {
		if _, gives := r.deleting[w]; !gives {
			n++
		}
	}
	return n
}

// release records that a replica has no lock. The caller holds r.mu.
func (r *run) release(replica int) {
	for w := range r.acquired {
		if w.replica == replica {
			delete(r.acquired, w)
		}
	}
}

// deletedAnothers reports whether a request has deleted the lock of another request. This is the
// case if the other request got the lock later than this one, and before this one began to delete
// it. The caller holds r.mu.
func (r *run) deletedAnothers(me who) bool {
	mine, since := r.acquired[me], r.deleting[me]
	for other, got := range r.acquired {
		if other != me && got.After(mine) && got.Before(since) {
			return true
		}
	}
	return false
}

// judge checks the cache and the lock after the run, and completes the report.
func (r *run) judge(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, patience)
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

	rdb := redis.NewClient(&redis.Options{Addr: r.link.server(), MaxRetries: -1})
	defer rdb.Close()
	r.report.LockLeft = r.lockLeft(ctx, rdb)
	if r.report.Stuck == 0 {
		if r.report.Died == r.report.Requests { // the shop may wait for a lock of the dead
			ctx, cancel = context.WithTimeout(ctx, 2*time.Second)
			defer cancel()
		}
		if value, err := r.shop.cache.Get(ctx, r.key); err == nil {
			r.report.Cached = value
		}
	}
	r.report.Verdict = r.report.verdict()
}

// setQuiet ends the reporting of events. Later events are no part of the run.
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

// isQueue reports whether waiting requests form a line. In a line one wake-up for each request is
// enough.
func (r *Report) isQueue() bool { return r.Stage == "herd" || r.Stage == "predecessor" }

// verdict returns one sentence about the run.
func (r *Report) verdict() string {
	parts := []string{counted(r.Loads, "load", "loads")}
	add := func(when bool, format string, args ...any) {
		if when {
			parts = append(parts, fmt.Sprintf(format, args...))
		}
	}
	add(r.Stuck > 0 &&
		r.LockLeft == -1, "dead lock: %s for a lock that has no end",
		counted(r.Stuck, "request waits", "requests wait"))
	add(r.Stuck > 0 &&
		r.LockLeft != -1, "%s", counted(r.Stuck, "request still waits", "requests still wait"))
	add(r.WrongDeletes > 0, "the lock of another request was deleted %s",
		counted(r.WrongDeletes, "time", "times"))
	add(r.Holders > 1, "%d requests had the lock at once", r.Holders)
	add(r.isQueue() &&
		r.Wakeups > 2*r.Waited, "%d wake-ups for %d waiting requests: they grow with the square of their number",
		r.Wakeups, r.Waited)
	add(r.Refused > 0, "%s refused", counted(r.Refused, "late value was", "late values were"))
	stale := r.Stuck == 0 && r.Cached != r.Origin && r.Cached != ""
	add(stale, "a stale value is served: %s, and the origin has %s", r.Cached, r.Origin)
	add(r.StaleAnswers > 0 &&
		!stale, "%s the value from before the rename",
		counted(r.StaleAnswers, "later request got", "later requests got"))
	add(r.Failed > 0, "%s got an error", counted(r.Failed, "request", "requests"))
	add(r.Died > 0, "%s died with their replica", counted(r.Died, "request", "requests"))
	if len(parts) == 1 {
		parts = append(parts, "all requests got the current value")
	}
	return strings.Join(parts, "; ") + "."
}

// counted returns a number with its noun.
func counted(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}
