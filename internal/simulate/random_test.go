package simulate

import (
	"math"
	"slices"
	"testing"
)

// near fails unless got is within so many standard errors of want.
func near(t *testing.T, what string, got, want, standardError float64) {
	t.Helper()
	if math.IsNaN(got) || math.Abs(got-want) > 5*standardError {
		t.Errorf("%s is %v, want %v, give or take %v", what, got, want, 5*standardError)
	}
}

// moments are the mean and the variance of so many draws.
func moments(n int, draw func() float64) (mean, variance float64) {
	sum, squares := 0.0, 0.0
	for range n {
		v := draw()
		sum, squares = sum+v, squares+v*v
	}
	mean = sum / float64(n)
	return mean, squares/float64(n) - mean*mean
}

func TestCountsAreDrawnWithTheirMeanAndVariance(t *testing.T) {
	const n = 100_000
	r := newRandom(7)
	for _, mean := range []float64{0.01, 0.7, 12, 29, 31, 5000} {
		m, v := moments(n, func() float64 { return float64(r.poisson(mean)) })
		near(t, "the mean of a Poisson draw", m, mean, math.Sqrt(mean/n))
		near(t, "its variance", v, mean, math.Sqrt((2*mean*mean+mean)/n)+0.1/n)
	}
	for _, c := range []struct {
		n int64
		p float64
	}{{1, 0.3}, {10, 0.9}, {1000, 0.001}, {1000, 0.5}, {1_000_000, 0.00002}, {50, 1}, {50, 0}} {
		m, v := moments(n, func() float64 { return float64(r.binomial(c.n, c.p)) })
		mean := float64(c.n) * c.p
		variance := mean * (1 - c.p)
		near(t, "the mean of a binomial draw", m, mean, math.Sqrt(variance/n))
		near(t, "its variance", v, variance, math.Sqrt((2*variance*variance+variance)/n))
	}
	m, _ := moments(n, func() float64 { return r.lognormal(100, 0.5) })
	near(t, "the mean of a lognormal draw", m, 100, 100*math.Sqrt((math.Exp(0.25)-1)/n))
}

func TestEventsComeInOrder(t *testing.T) {
	r := newRandom(3)
	var q events
	type done struct {
		at    int64
		order int
	}
	var got []done
	for i := range 2000 {
		at := r.Int64N(100)
		q.plan(at, func() { got = append(got, done{at, i}) })
		if i%3 == 0 && i > 1000 {
			q.next().do()
		}
	}
	from := len(got)
	for !q.empty() {
		q.next().do()
	}
	if len(got) != 2000 {
		t.Fatalf("%d events of 2000", len(got))
	}
	if !slices.IsSortedFunc(got[from:], func(a, b done) int {
		if a.at != b.at {
			return int(a.at - b.at)
		}
		return a.order - b.order
	}) {
		t.Error("events come out of order")
	}
}
