package knowledge

import (
	"sync"
	"time"
)

// recent keeps one item for each of some keys, for a limited time.
type recent[T any] struct {
	mu    sync.Mutex // guards the fields below
	byKey map[string]term[T]
	swept bool // a timer is set for sweep
}

type term[T any] struct {
	of    T
	until time.Time // when the item is no longer used
}

// put stores an item for a key, unless valid returns false. It also doesn't store the item if the
// key is new and there are already most keys. It reports whether the item was valid. No other
// goroutine can change the items while valid runs.
func (r *recent[T]) put(key string, of T, d time.Duration, most int, valid func() bool) bool {
	now := time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	if !valid() {
		return false
	}
	if _, known := r.byKey[key]; !known && len(r.byKey) >= most {
		return true
	}
	if r.byKey == nil {
		r.byKey = make(map[string]term[T])
	}
	r.byKey[key] = term[T]{of: of, until: now.Add(d)}
	if !r.swept {
		r.swept = true
		time.AfterFunc(sweepEvery, r.sweep)
	}
	return true
}

// sweepEvery is how often the items whose time is over are removed. An item may have a whole
// response, so it must not stay until its place is needed. There may be thousands of items, so they
// are not looked at more often.
const sweepEvery = time.Second

// sweep removes the items whose time is over, and does so again until there are none.
func (r *recent[T]) sweep() {
	now := time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	for k, t := range r.byKey {
		if now.After(t.until) {
			delete(r.byKey, k)
		}
	}
	if r.swept = len(r.byKey) > 0; r.swept {
		time.AfterFunc(sweepEvery, r.sweep)
	}
}

// get returns the item of a key. The item's time may be over.
func (r *recent[T]) get(key string) (t term[T], ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	t, ok = r.byKey[key]
	return t, ok
}

// Forget removes the item of a key.
func (r *recent[T]) Forget(key string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.byKey, key)
}

// Clear removes all items.
func (r *recent[T]) Clear() {
	r.mu.Lock()
	defer r.mu.Unlock()
	clear(r.byKey)
}

// Failures has the error values of loads that failed in this process. So callers in this process
// can examine the error itself and not only its text.
type Failures struct{ recent[failure] }

type failure struct {
	load [16]byte
	err  error
	// Between these times the back-off has ended for other processes, but not for this process.
	from, to time.Time
}

// maxFailures limits the memory. If an error isn't remembered, only its text is known.
const maxFailures = 1024

// Remember keeps the error of a load that has just failed, for the time keep. For this process the
// back-off lasts longer than for others, by the grace. current reports whether the key has not
// changed since the load began. If it has changed, a later load may have failed already. So the
// error is kept only if there is no other, and without the grace.
func (fs *Failures) Remember(
	key string, load [16]byte, err error, keep, backoff, grace time.Duration, current func() bool,
) {
	over := time.Now().Add(backoff)
	f := failure{load: load, err: err, from: over, to: over.Add(grace)}
	if !fs.put(key, f, keep, maxFailures, current) {
		f.to = over
		fs.put(key, f, keep, maxFailures, func() bool {
			other, ok := fs.byKey[key]
			return !ok || time.Now().After(other.until)
		})
	}
}

// EndGraces makes Recent return none of the errors that are known now.
func (fs *Failures) EndGraces() {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	for key, f := range fs.byKey {
		f.of.to = f.of.from
		fs.byKey[key] = f
	}
}

// Find returns the error of a load.
func (fs *Failures) Find(key string, load [16]byte) error {
	if f, ok := fs.get(key); ok && f.of.load == load {
		return f.of.err
	}
	return nil
}

// Recent returns the error of a load if its back-off has ended for other processes, but not yet for
// this process. During this time other processes may load the key first.
func (fs *Failures) Recent(key string) error {
	f, ok := fs.get(key)
	if now := time.Now(); !ok || now.Before(f.of.from) || !now.Before(f.of.to) {
		return nil
	}
	return f.of.err
}

// Pauses has the stale values for which this process need not ask for the lease for a while,
// because another process has the lease or because the load failed recently. Without Pauses each
// read of a stale value would cost two steps. A pause applies only to the value for which it was
// stored, so it can't delay a load after the value was changed.
type Pauses struct{ recent[pause] }

type pause struct {
	seen string // id of the value
	// error of the load that failed; nil if another process loads, or if the store gave no answer
	// about the lease.
	err error
}

// maxPauses limits the memory. If a value isn't remembered, the process asks for its lease.
const maxPauses = 4096

// Remember stores a pause. If the key was changed since the store was asked, it stores nothing,
// because the store's answer may be from before the change. count is the number of the key's
// changes before the store was asked.
func (ps *Pauses) Remember(
	changed *Changes, count uint64, key string, seen []byte, d time.Duration, err error,
) {
	if d <= 0 || len(seen) == 0 {
		return
	}
	ps.put(key, pause{seen: string(seen), err: err}, d, maxPauses, func() bool {
		// A change that is counted from now on removes the key's pause afterwards.
		return changed.Count(key) == count
	})
}

// Find reports whether this process must not refresh the value now. If the reason is a failed load,
// Find also returns the load's error.
func (ps *Pauses) Find(key string, seen []byte) (paused bool, err error) {
	p, ok := ps.get(key)
	if !ok || p.of.seen != string(seen) || !time.Now().Before(p.until) {
		return false, nil
	}
	return true, p.of.err
}
