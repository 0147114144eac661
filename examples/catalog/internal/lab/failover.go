package lab

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/cacheguard/cacheguard/examples/catalog/stage"
)

// failOver replaces Redis by a server that has none of the data. This server plays the role of a
// replica that was promoted before the lock had reached it, or of a server that was restarted
// without a disk. If the lock is on several masters, only one of them loses its data.
func (r *run) failOver() {
	if r.locksAtMasters() {
		r.loseVote()
		return
	}
	r.link.failOver(r.world.Spare)
	r.tell(0, 0, KindFailover, "the server that answers now is empty")
}

// loadingInAFailover is the first load, during which the failover happens. This load goes on until
// another load could have cached its value.
func (r *run) loadingInAFailover(ctx context.Context, took time.Duration) error {
	// With a single Redis the failover must be over before the lock is renewed.
	if !r.locksAtMasters() {
		// The middle between two polls of waiting requests, so that few commands are cut off.
		between := spin/2 - took/2%spin
		if err := r.wait(ctx, took/2+between); err != nil {
			return err
		}
	}
	r.failOver()
	r.rename()
	if err := r.overtaken(ctx); err != nil {
		return err
	}
	return r.wait(ctx, took/2)
}

// overtaken waits until another request has cached its value. If another request can get the lock,
// that request gets it at once, so overtaken needn't wait for long.
func (r *run) overtaken(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, 5*time.Second+5*r.settings.Load, errNobody)
	defer cancel()
	select {
	case <-r.cached:
		return nil
	case <-r.over:
		return stage.ErrHalted
	case <-ctx.Done():
		if cause := context.Cause(ctx); cause != errNobody {
			return cause
		}
		return nil
	}
}

// locksAtMasters reports whether the stage's lock is on several masters.
func (r *run) locksAtMasters() bool { return r.needs() == stage.NeedsMasters }

// votes returns the number of masters that the first holder can reach: a majority, and no more.
func (r *run) votes() int { return len(r.world.Masters)/2 + 1 }

// isAway reports whether no request can reach this master. In a failover the masters beyond the
// majority are away until the first holder has its lock.
func (r *run) isAway(master int) bool {
	if r.settings.Fault != Failover || master < r.votes() {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return !r.voteLost
}

// loseVote brings the masters back that were away, and makes one of the masters that voted lose its
// vote. It deletes the lock of this run on this master. For this run the deletion has the effect of
// a restart without data. Other runs notice nothing.
func (r *run) loseVote() {
	rdb := redis.NewClient(&redis.Options{Addr: r.world.Masters[r.votes()-1], MaxRetries: -1})
	defer rdb.Close()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	note := "a master that voted comes back empty, and one that was away is there"
	if err := rdb.Del(ctx, stage.VoteKey(r.key)).Err(); err != nil {
		note = err.Error()
	}
	r.mu.Lock()
	r.voteLost = true
	r.mu.Unlock()
	r.tell(0, 0, KindLostVote, note)
}
