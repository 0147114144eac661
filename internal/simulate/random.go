package simulate

import (
	"math"
	"math/rand/v2"
)

// random draws the random numbers of the model. One seed always gives the same numbers.
type random struct{ *rand.Rand }

func newRandom(seed uint64) random {
	return random{rand.New(rand.NewPCG(seed, 0x9e3779b97f4a7c15))}
}

// exponential draws a time with this mean in nanoseconds.
func (r random) exponential(mean float64) float64 { return r.ExpFloat64() * mean }

// walked is the largest mean for which a count is drawn exactly. For a larger mean, a rounded
// normal distribution with the same mean and variance is used.
const walked = 30

// poisson draws a count with this mean.
func (r random) poisson(mean float64) int64 {
	switch {
	case mean <= 0:
		return 0
	case mean > walked:
		return r.normal(mean, mean)
	}
	p := math.Exp(-mean)
	draw := r.Float64()
	var n int64
	for draw >= p && p > 0 {
		draw -= p
		n++
		p *= mean / float64(n)
	}
	return n
}

// binomial draws how many of n events happen, each with probability p.
func (r random) binomial(n int64, p float64) int64 {
	switch {
	case n <= 0 || p <= 0:
		return 0
	case p >= 1:
		return n
	case p > 0.5:
		return n - r.binomial(n, 1-p)
	}
	mean := float64(n) * p
	if mean > walked {
		return min(r.normal(mean, mean*(1-p)), n)
	}
	one := math.Exp(float64(n) * math.Log1p(-p)) // the probability that no event happens
	odds := p / (1 - p)
	draw := r.Float64()
	var k int64
	for draw >= one && k < n {
		draw -= one
		k++
		one *= odds * float64(n-k+1) / float64(k)
	}
	return k
}

func (r random) normal(mean, variance float64) int64 {
	return max(0, int64(math.Round(mean+math.Sqrt(variance)*r.NormFloat64())))
}

// lognormal draws a time with this mean. The time's logarithm has this standard deviation.
func (r random) lognormal(mean, sigma float64) float64 {
	if sigma == 0 {
		return mean
	}
	return mean * math.Exp(sigma*r.NormFloat64()-sigma*sigma/2)
}
