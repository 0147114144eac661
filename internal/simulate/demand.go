package simulate

import (
	"math"
	"time"
)

// demand is the rate of requests of the whole fleet. It is a sine between the lowest rate, at the
// beginning, and the highest rate.
type demand struct {
	low, high float64
	period    time.Duration
}

// at returns the rate at a moment, in requests per nanosecond.
func (d demand) at(now int64) float64 {
	turn := 2 * math.Pi * float64(now) / float64(d.period)
	return (d.low + (d.high-d.low)*(1-math.Cos(turn))/2) / 1e9
}

// during returns the expected number of requests between two moments.
func (d demand) during(from, to int64) float64 {
	turn := 2 * math.Pi / float64(d.period)
	wave := (math.Sin(turn*float64(to)) - math.Sin(turn*float64(from))) / turn
	return ((d.low+d.high)/2*float64(to-from) - (d.high-d.low)/2*wave) / 1e9
}

// never is a moment after all others.
const never = math.MaxInt64 / 4

// next draws the moment of the next request for keys with this share, from a moment on. It draws
// candidates at the highest rate, and accepts a candidate with a probability that depends on the
// rate at the candidate's moment (thinning).
func (d demand) next(r random, share float64, from int64) int64 {
	most := max(d.low, d.high) / 1e9
	if most*share <= 0 {
		return never
	}
	for at := float64(from); ; {
		at += r.exponential(1 / (most * share))
		if at >= never {
			return never
		}
		if d.low == d.high || r.Float64()*most < d.at(int64(at)) {
			return int64(at) + 1
		}
	}
}
