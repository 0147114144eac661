package cacheguard

import (
	"math"
	"time"
)

// backoff is for how long nobody in the fleet repeats a load that has failed.
//
// Where there is a value that can be served, the origin is left alone for Options.Backoff, growing
// with the failures in a row, but not beyond that value's end; where there is none, for ErrorTTL,
// so that callers notice soon that the origin is back.
func (o *Options[V]) backoff(failures int, keeps time.Duration) time.Duration {
	short := max(o.ErrorTTL, 0)
	if keeps <= 0 {
		return short
	}
	const growth, most, jitter = 1.5, 3, 0.2
	grown := float64(o.Backoff) * min(math.Pow(growth, float64(max(failures-1, 0))), most)
	return max(min(jittered(time.Duration(grown), jitter), keeps), short)
}

// grace is how much longer than the others the process whose load has failed leaves the origin
// alone, so that one sick replica doesn't win every turn.
func grace(backoff time.Duration) time.Duration { return min(backoff/10, 100*time.Millisecond) }

// recorded is how long the store knows a failure: twice its back-off, so that the next one can
// grow, and longer than every timer of those who wait for the load, so that a lost message costs
// them no second one.
func (o *Options[V]) recorded(backoff time.Duration) time.Duration {
	return max(2*backoff, o.LeaseTTL+time.Second)
}

// remembered is how long this process knows the error itself: for the back-off, and for those who
// wait for the load.
func (o *Options[V]) remembered(backoff time.Duration) time.Duration {
	return max(backoff, o.LeaseTTL) + time.Second
}

// pauseWithoutLeases is how long a stale value is served without asking for the lease again when
// the store gives none, for want of memory or rights.
const pauseWithoutLeases = time.Second

// pause has this process not ask for the lease of the value that a miss has seen for a while; err
// is of the load that failed, if that is why.
func (c *Cache[V]) pause(m *miss[V], d time.Duration, err error) {
	c.refreshPauses.Remember(&c.changed, m.asked.changed, m.key.Key, m.had.id, d, err)
}
