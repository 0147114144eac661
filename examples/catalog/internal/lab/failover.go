package lab

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/cacheguard/cacheguard/examples/catalog/stage"
)

// failOver has a server answer that has none of what was written: it stands for the replica that
// was promoted before the lock had reached it, and for the server that was restarted without a
// disk. Where the lock is on several masters, it is one of them.
func (r *run) failOver() {
	if r.locksAtMasters() {
		r.loseVote()
		return
	}
	r.link.failOver(r.world.Spare)
	r.tell(0, 0, KindFailover, "the server that answers now is empty")
}

// loadingInAFailover is the first load, during which it happens. It goes on until another one could
// have cached its value.
func (r *run) loadingInAFailover(ctx context.Context, took time.Duration) error {
	if !r.locksAtMasters() { // there it must be over before the lock is renewed
		between := spin/2 - took/2%spin // the times at which those ask who wait: few commands are cut off in the middle
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

// overtaken waits until another request has cached its value. One that can get the lock gets it at
// once, so it need not wait for long.
func (r *run) overtaken(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, 2*time.Second+5*r.settings.Load, errNobody)
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

// votes is how many masters the first holder can reach: a majority, and no more.
func (r *run) votes() int { return len(r.world.Masters)/2 + 1 }

// isAway reports whether nobody reaches this master: in a failover the others are there after the
// first holder has its lock.
func (r *run) isAway(master int) bool {
	if r.settings.Fault != Failover || master < r.votes() {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return !r.voteLost
}

// loseVote brings the masters back that were away, and has one of those that voted forget it. To
// delete this run's lock there is what an empty restart would do to this run, and nothing to the
// others.
func (r *run) loseVote() {
	rdb := redis.NewClient(&redis.Options{Addr: r.world.Masters[r.votes()-1], MaxRetries: -1})
	defer rdb.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
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
