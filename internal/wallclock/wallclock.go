// Package wallclock tells tests and the benchmark by how much the machine's clock was set while
// they ran. A server on this machine ends leases and TTLs by this clock, and a process ends its
// lease by the monotonic clock, which nobody sets. In virtual machines the machine's clock may be
// corrected by some milliseconds at any time.
package wallclock

import "time"

// SetSince returns how far the machine's clock was set forward since began, or back if the result
// is negative. began is a result of time.Now in this process.
func SetSince(began time.Time) time.Duration {
	now := time.Now()
	return now.Round(0).Sub(began.Round(0)) - now.Sub(began)
}

// CatchUp waits as long as the machine's clock was set forward since began. Then everything has
// also ended on the monotonic clock that has ended on the machine's clock.
func CatchUp(began time.Time) {
	if set := SetSince(began); set > 0 {
		<-time.After(set)
	}
}

// Pass waits until d has passed on both clocks, the monotonic one and the machine's.
func Pass(d time.Duration) {
	began := time.Now()
	for left := d; left > 0; left = d - time.Since(began) - min(SetSince(began), 0) {
		<-time.After(left)
	}
}
