package cacheguard

import (
	"math"
	"time"
)

// backoff returns the time during which no process of the fleet repeats a load that has failed.
// failures is the number of failures in a row. keeps is the time for which the old value can still
// be served.
//
// If there is a value that can be served, the pause is Options.Backoff, which grows with the
// failures in a row. But the pause ends when the value can't be served any longer, and lasts at
// least ErrorTTL. If there is no value, callers get errors. So the pause is only ErrorTTL, and
// callers notice soon that the origin works again.
func (o *Options[V]) backoff(failures int, keeps time.Duration) time.Duration {
	short := max(o.ErrorTTL, 0)
	if keeps <= 0 {
		return short
	}
	const growth, most, jitter = 1.5, 3, 0.2
	grown := float64(o.Backoff) * min(math.Pow(growth, float64(max(failures-1, 0))), most)
	return max(min(jittered(time.Duration(grown), jitter), keeps), short)
}

// grace returns how much longer than the other processes a process waits after its own load has
// failed. So a healthy process gets the next try. Without grace a single sick process could win
// every try.
func grace(backoff time.Duration) time.Duration { return min(backoff/10, 100*time.Millisecond) }

// recorded returns how long the store keeps the outcome of a load that has failed or whose result
// is not stored. The time is at least twice the back-off, so that the next failure finds the
// outcome and the back-off can grow. It is also longer than a waiting process waits before it asks
// again, so that a lost message doesn't cost a second load.
func (o *Options[V]) recorded(backoff time.Duration) time.Duration {
	return max(2*backoff, o.LeaseTTL+time.Second)
}

// remembered returns how long this process keeps the error value itself, which says more than its
// text. The process keeps it during the back-off, and as long as calls may wait for the load. The
// back-off begins when the store is told of it, which may be as late as the end of the lease.
func (o *Options[V]) remembered(backoff time.Duration) time.Duration {
	return backoff + o.LeaseTTL + time.Second
}

// pauseWithoutLeases is how long a process serves a stale value before it asks for the lease again,
// if the store can't give leases, for instance because its memory is full.
const pauseWithoutLeases = time.Second

// pause keeps this process, for the time d, from refreshing in the background the value that a miss
// has seen. If the reason is a failed load, err is the load's error. Then callers get the value
// while it may be served, and don't load either.
func (c *Cache[V]) pause(m *miss[V], d time.Duration, err error) {
	c.refreshPauses.Remember(&c.changed, m.asked.changed, m.key.Key, m.had.id, d, err)
}
