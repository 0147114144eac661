package tenure

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// Keeper has the tenures of one locker, and runs the work for them. Make it with [NewKeeper].
type Keeper struct {
	life  context.Context // ends with Close; no caller's context is its parent
	close context.CancelFunc

	mu      sync.Mutex // guards the fields below
	idle    *sync.Cond // signals that busy is 0
	busy    int        // number of acquisitions, renewals and goroutines
	tenures map[*tenure]struct{}
}

// NewKeeper returns a keeper without tenures.
func NewKeeper() *Keeper {
	k := &Keeper{tenures: make(map[*tenure]struct{})}
	k.life, k.close = context.WithCancel(context.Background())
	k.idle = sync.NewCond(&k.mu)
	return k
}

// Enter begins an acquisition, or returns ErrClosed. The context that it returns ends with ctx and
// when the keeper is closed. leave ends the acquisition. If you call Begin, call leave after it.
// Close waits for leave.
func (k *Keeper) Enter(ctx context.Context) (within context.Context, leave func(), err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.life.Err() != nil {
		return nil, nil, ErrClosed
	}
	within, cancel := context.WithCancelCause(ctx)
	k.busy++ // not earlier, because the methods of the caller's ctx may panic
	stop := context.AfterFunc(k.life, func() { cancel(ErrClosed) })
	return within, func() { stop(); cancel(nil); k.done() }, nil
}

// Why returns the reason why a context of Enter has ended: ErrClosed, or an error that wraps the
// error of the caller's context.
func Why(within context.Context) error {
	err, cause := within.Err(), context.Cause(within)
	switch cause {
	case ErrClosed, err:
		return cause
	default:
		return fmt.Errorf("%w: %w", err, cause)
	}
}

// Begin begins a tenure. Call it after Enter and before leave.
func (k *Keeper) Begin(terms Terms) *Hold {
	t := &tenure{
		keeper: k, terms: terms, holds: 1,
		lost: make(chan struct{}), released: make(chan struct{}),
	}
	if terms.Most > 0 {
		t.last = time.Now().Add(terms.Most)
	}
	t.until = t.bounded(terms.Until)
	k.mu.Lock()
	k.tenures[t] = struct{}{}
	k.mu.Unlock()
	if k.life.Err() != nil { // Close has ended only the tenures that existed at that time
		t.lose()
	}

	t.mu.Lock()
	defer t.mu.Unlock()
	if t.check() == nil {
		if terms.Renew != nil && terms.Every > 0 && !terms.Until.IsZero() {
			// The first renewal begins before the end of the lock, and sets the timer for the end.
			t.renewal = time.AfterFunc(t.pause(), t.renew)
		} else {
			t.expireInTime()
		}
	}
	return newHold(t)
}

// Again returns another hold of the lock that ctx carries. It returns nil if ctx carries no held
// lock with this name, and ErrLost if that lock was lost.
func (k *Keeper) Again(ctx context.Context, name string) (*Hold, error) {
	t, _ := ctx.Value(carried{k, name}).(*tenure)
	if t == nil {
		return nil, nil
	}
	switch err := t.again(); err {
	case nil:
		return newHold(t), nil
	case ErrNotHeld:
		return nil, nil
	default:
		return nil, err
	}
}

// Go runs work on a goroutine for which Close waits.
func (k *Keeper) Go(work func()) {
	k.occupy()
	go func() {
		defer k.done()
		work()
	}()
}

// Do runs work, and Close waits for it.
func (k *Keeper) Do(work func()) {
	k.occupy()
	defer k.done()
	work()
}

// Close ends running acquisitions, and reports all held locks to their holders as lost. The holders
// then have the rest of their leases to stop their work. Close waits until no work is running any
// longer. A second Close also waits.
func (k *Keeper) Close() {
	k.mu.Lock()
	k.close()
	var held []*tenure
	for t := range k.tenures {
		held = append(held, t)
	}
	k.mu.Unlock()
	for _, t := range held {
		t.lose()
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	for k.busy > 0 {
		k.idle.Wait()
	}
}

// Closed returns a channel that is closed by Close.
func (k *Keeper) Closed() <-chan struct{} { return k.life.Done() }

// occupy begins work for which Close waits, and done ends it.
func (k *Keeper) occupy() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.busy++
}

func (k *Keeper) done() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.busy--; k.busy == 0 {
		k.idle.Broadcast()
	}
}

func (k *Keeper) forget(t *tenure) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.tenures, t)
}
