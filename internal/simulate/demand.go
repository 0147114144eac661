package simulate

import (
	"math"
	"time"
)

// demand is the requests of the whole fleet a second: a sine between the least, at the beginning,
// and the most.
type demand struct {
	low, high float64
	period    time.Duration
}

// at is the rate at a moment, in requests for each nanosecond.
func (d demand) at(now int64) float64 {
	turn := 2 * math.Pi * float64(now) / float64(d.period)
	return (d.low + (d.high-d.low)*(1-math.Cos(turn))/2) / 1e9
}

// during is how many requests are expected from one moment to another.
func (d demand) during(from, to int64) float64 {
	turn := 2 * math.Pi / float64(d.period)
	wave := (math.Sin(turn*float64(to)) - math.Sin(turn*float64(from))) / turn
	return ((d.low+d.high)/2*float64(to-from) - (d.high-d.low)/2*wave) / 1e9
}

// never is a moment after all others.
const never = math.MaxInt64 / 4

// next draws when something of this share is asked for next, from a moment on: candidates at the
// highest rate, of which those stand that the rate of their moment confirms.
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
