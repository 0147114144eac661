package cacheguard

import (
	"math"
	"math/rand/v2"
	"time"
)

// drawsEarly is XFetch. It draws a number between 0 and 1, and reports whether this reader should
// refresh a value now. left is how long the value stays fresh, took is how long its load took, and
// beta is above 0. Vattani, Chierichetti, Lowenstein: Optimal Probabilistic Cache Stampede
// Prevention, VLDB 2015, figure 3: now - took * beta * ln(draw) >= expiry.
func drawsEarly(left, took time.Duration, beta float64, draw func() float64) bool {
	// If left is above this limit, no draw above 0 leads to a refresh: the smallest such draw is
	// 2^-53, and its logarithm is -36.7.
	if float64(left) > 37*beta*float64(took) {
		return false
	}
	return -float64(took)*beta*math.Log(draw()) >= float64(left)
}

// jittered shortens a duration by a random share of up to jitter, so that durations which begin
// together don't end together.
func jittered(d time.Duration, jitter float64) time.Duration {
	d -= time.Duration(float64(d) * jitter * rand.Float64())
	return max(d.Truncate(time.Millisecond), minTTL)
}
