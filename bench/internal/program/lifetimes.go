package program

import "time"

// lifetimes counts the loads that replaced each version, of those that began in a time. One that
// was asked for with a version in hand replaces that. One that was asked for with nothing replaces
// the newest version whose TTL was over by then, so that a second load which comes right after the
// first counts as one too many.
func lifetimes(loads []load, in period, ttl time.Duration) map[version]int {
	const slack = 0.9 // a value's TTL is counted in milliseconds and on Redis' clock
	expired := func(at int64) (newest version) {
		for _, l := range loads {
			if l.Made > newest && int64(l.Made)+int64(slack*float64(ttl)) <= at {
				newest = l.Made
			}
		}
		return newest
	}
	count := make(map[version]int)
	for _, l := range loads {
		switch {
		case !in.has(l.Begin):
		case l.Replaces != 0:
			count[l.Replaces]++
		default:
			count[expired(l.Begin)]++
		}
	}
	return count
}
