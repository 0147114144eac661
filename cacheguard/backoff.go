package cacheguard

import (
	"math"
	"sync"
	"time"
)

// backoff is for how long nobody in the fleet repeats a load that has failed.
//
// Where there is a value that can be served, the origin is left alone for Options.Backoff, growing with the failures
// in a row, but not beyond that value's end; where there is none, for ErrorTTL, so that callers notice soon that the
// origin is back.
func (o *Options[V]) backoff(failures int, keeps time.Duration) time.Duration {
	short := max(o.ErrorTTL, 0)
	if keeps <= 0 {
		return short
	}
	const growth, most, jitter = 1.5, 3, 0.2
	grown := float64(o.Backoff) * min(math.Pow(growth, float64(max(failures-1, 0))), most)
	return max(min(jittered(time.Duration(grown), jitter), keeps), short)
}

// grace is how much longer than the others the process whose load has failed leaves the origin alone, so that one sick
// replica doesn't win every turn.
func grace(backoff time.Duration) time.Duration { return min(backoff/10, 100*time.Millisecond) }

// refreshPauses remembers of which stale values this process need not ask for the lease for a while, because another
// process has it or because the load has failed not long ago. Without it each read of a stale value would cost two
// steps. It is only used with that very value in hand, so it can't hold up a load after an Invalidate or a Set.
type refreshPauses struct {
	mu    sync.Mutex // guards what follows
	byKey map[string]refreshPause
	swept time.Time
}

type refreshPause struct {
	seen  string // the id of the value
	until time.Time
	err   error // of the load that failed; nil if another process loads
}

// pauseWithoutLeases is how long a stale value is served without asking for the lease again when the store gives none,
// for want of memory or rights.
const pauseWithoutLeases = time.Second

// maxRefreshPauses bounds the memory. What is not remembered is asked for.
const maxRefreshPauses = 4096

// remember does nothing if the key was changed since that count was taken, before the store was asked for what is remembered:
// the answer may be from before the change.
func (rs *refreshPauses) remember(changed *changes, key string, count uint64, seen []byte, d time.Duration, err error) {
	if d <= 0 || len(seen) == 0 {
		return
	}
	now := time.Now()
	rs.mu.Lock()
	defer rs.mu.Unlock()
	if changed.count(key) != count { // who counts a change now has the key forgotten after this
		return
	}
	if _, known := rs.byKey[key]; !known && len(rs.byKey) >= maxRefreshPauses {
		if now.Sub(rs.swept) > time.Second { // not for each of thousands
			rs.swept = now
			for k, r := range rs.byKey {
				if now.After(r.until) {
					delete(rs.byKey, k)
				}
			}
		}
		if len(rs.byKey) >= maxRefreshPauses {
			return
		}
	}
	if rs.byKey == nil {
		rs.byKey = make(map[string]refreshPause)
	}
	rs.byKey[key] = refreshPause{seen: string(seen), until: now.Add(d), err: err}
}

// find returns whether the value is not to be refreshed now, and the error if that is because a load has failed.
func (rs *refreshPauses) find(key string, seen []byte) (paused bool, err error) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	r, ok := rs.byKey[key]
	if !ok || r.seen != string(seen) || !time.Now().Before(r.until) {
		return false, nil
	}
	return true, r.err
}

func (rs *refreshPauses) forget(key string) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	delete(rs.byKey, key)
}

func (rs *refreshPauses) clear() {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	clear(rs.byKey)
}
