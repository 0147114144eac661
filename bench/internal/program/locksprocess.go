package program

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/cacheguard/cacheguard/cacheguard/lock"
)

var _ = []struct{}{
	known[nothing](openHolders{}), known[begun](toAcquire{}), known[bool](toWork{}),
	known[bool](toSay(0)), known[bool](toGiveBack(0)),
}

// openHolders opens a locker for the holders of one process.
type openHolders struct {
	Locker, Where string
	Lease         time.Duration
}

const toOpen = 20 // tries to open a locker

func (o openHolders) do(ctx context.Context, w *worker) (_ nothing, err error) {
	ctx = context.WithoutCancel(ctx) // the locker outlives the job
	// A try can fail, because another process may have been stopped in the middle of a write.
	for range toOpen {
		var l lock.Locker
		var stop func()
		if l, stop, err = openLocks(ctx, o.Locker, o.Where, o.Lease); err == nil {
			w.atEnd(stop)
			w.holders = &holders{locker: l, patience: 20 * o.Lease, held: map[int64]lock.Lock{}}
			return nothing{}, nil
		}
	}
	return nothing{}, err
}

// holders are the holders of one process.
type holders struct {
	locker   lock.Locker
	patience time.Duration // the time limit for a lock, and for Unlock

	mu   sync.Mutex // guards the fields below
	last int64      // hold
	held map[int64]lock.Lock
}

// begun is a hold that has begun. If Hold is 0, another holder has the lock, or the lock was
// acquired too late.
type begun struct{ Hold, Token int64 }

// toAcquire waits for a lock, or tries to get it. A holder that has got the lock relies on it until
// toGiveBack.
type toAcquire struct {
	Name string
	Try  bool
}

func (o toAcquire) do(ctx context.Context, w *worker) (b begun, err error) {
	h := w.holders
	acquire := h.locker.Lock
	if o.Try {
		acquire = h.locker.TryLock
	}
	within, cancel := context.WithTimeout(ctx, h.patience)
	got, err := acquire(within, o.Name)
	cancel()
	switch {
	case errors.Is(err, lock.ErrHeld) || err != nil && ctx.Err() != nil:
		return b, nil
	case err != nil:
		return b, err
	case got.Err() != nil || ctx.Err() != nil:
		_, err := h.unlock(got)
		return b, err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.last++
	h.held[h.last] = got
	return begun{h.last, got.Token()}, nil
}

func (h *holders) of(hold int64) lock.Lock {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.held[hold]
}

// toWork makes a holder work for a time, as long as it has the lock. The answer is whether it acts
// on the protected resource. It acts if it still has the lock, or if it doesn't check.
type toWork struct {
	Hold     int64
	For      time.Duration
	Careless bool
}

func (o toWork) do(ctx context.Context, w *worker) (acts bool, err error) {
	got := w.holders.of(o.Hold)
	// The end of the run has cut off this order, and toGiveBack may have overtaken it.
	if ctx.Err() != nil {
		return false, nil
	}
	under, cancel := lock.Context(ctx, got)
	await(under, o.For)
	cancel()
	return o.Careless || got.Err() == nil, nil
}

// toSay asks whether Err of a hold is nil.
type toSay int64

func (hold toSay) do(_ context.Context, w *worker) (believes bool, err error) {
	got := w.holders.of(int64(hold))
	return got != nil && got.Err() == nil, nil
}

// toGiveBack makes a holder give back its lock. Before this job is sent, the referee has recorded
// that the holder no longer relies on the lock. The answer is whether the lock was lost.
type toGiveBack int64

func (hold toGiveBack) do(_ context.Context, w *worker) (lost bool, err error) {
	h := w.holders
	h.mu.Lock()
	got := h.held[int64(hold)]
	delete(h.held, int64(hold))
	h.mu.Unlock()
	return h.unlock(got)
}

// unlock gives a lock back. It doesn't end with the job.
func (h *holders) unlock(got lock.Lock) (lost bool, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), h.patience)
	defer cancel()
	if err = got.Unlock(ctx); errors.Is(err, lock.ErrLost) {
		return true, nil
	}
	return false, err
}

// await waits for d, or until ctx ends.
func await(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
