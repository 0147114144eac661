package tenure

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// Keeper has the tenures of one locker, and the work that is done for them. Make one with
// NewKeeper.
type Keeper struct {
	life  context.Context // ends with Close; it is nobody's but the keeper's
	close context.CancelFunc

	mu      sync.Mutex // guards what follows
	idle    *sync.Cond // that busy is 0
	busy    int        // acquisitions, renewals and goroutines
	tenures map[*tenure]struct{}
}

// NewKeeper returns a keeper without tenures.
func NewKeeper() *Keeper {
	k := &Keeper{tenures: make(map[*tenure]struct{})}
	k.life, k.close = context.WithCancel(context.Background())
	k.idle = sync.NewCond(&k.mu)
	return k
}

// Enter begins an acquisition, or returns ErrClosed. The context it returns ends with ctx and when
// the keeper is closed; leave ends the acquisition, after Begin if there is one. Close waits for
// it.
func (k *Keeper) Enter(ctx context.Context) (within context.Context, leave func(), err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.life.Err() != nil {
		return nil, nil, ErrClosed
	}
	within, cancel := context.WithCancelCause(ctx)
	k.busy++ // not before: ctx is the caller's, and may panic
	stop := context.AfterFunc(k.life, func() { cancel(ErrClosed) })
	return within, func() { stop(); cancel(nil); k.done() }, nil
}

// Why says why a context of Enter has ended: ErrClosed, or an error that wraps that of the caller's
// context.
func Why(within context.Context) error {
	err, cause := within.Err(), context.Cause(within)
	switch cause {
	case ErrClosed, err:
		return cause
	default:
		return fmt.Errorf("%w: %w", err, cause)
	}
}

// Begin begins a tenure. It is called between Enter and leave.
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
	if k.life.Err() != nil { // Close has lost those it knew of
		t.lose()
	}

	t.mu.Lock()
	defer t.mu.Unlock()
	if t.check() == nil {
		if terms.Renew != nil && terms.Every > 0 && !terms.Until.IsZero() {
			t.renewal = time.AfterFunc(t.pause(), t.renew) // which is sooner than the end, and sees to that
		} else {
			t.expireInTime()
		}
	}
	return newHold(t)
}

// Again returns another hold of the lock that ctx carries, or nil if it carries none of this name
// that is held. It returns ErrLost if that was lost.
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

// Go runs work on a goroutine that Close waits for.
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

// Close ends acquisitions that are under way, has the locks that are held be lost to their holders,
// so that these have one lease to stop, and waits until nothing is done any more. Another Close
// waits, too.
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

// Closed is closed by Close.
func (k *Keeper) Closed() <-chan struct{} { return k.life.Done() }

// occupy begins what Close waits for, and done ends it.
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
