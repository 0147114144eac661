package simulate

import "math"

// zipf is the popularity of keys. Ranks begin at 1. The share of rank i is i^-s divided by the sum
// over all ranks.
type zipf struct {
	s   float64
	n   int
	sum float64
}

func newZipf(n int, s float64) zipf {
	z := zipf{s: s, n: n}
	z.sum = z.upTo(n)
	return z
}

// exactRanks is the number of ranks whose terms are added one by one. The sum of the later terms is
// an integral with two corrections, by the formula of Euler and Maclaurin. Its error is below 1e-12
// of the sum.
const exactRanks = 10_000

// upTo returns the sum of i^-s for the first n ranks.
func (z zipf) upTo(n int) float64 {
	sum := 0.0
	for i := min(n, exactRanks); i >= 1; i-- {
		sum += math.Pow(float64(i), -z.s)
	}
	if n > exactRanks {
		a, b := float64(exactRanks), float64(n)
		f := func(x float64) float64 { return math.Pow(x, -z.s) }
		slope := func(x float64) float64 { return -z.s * math.Pow(x, -z.s-1) }
		area := math.Log(b / a)
		if z.s != 1 { // Expm1 keeps its precision if s is nearly 1
			area = math.Pow(a, 1-z.s) * math.Expm1((1-z.s)*area) / (1 - z.s)
		}
		sum += area + (f(b)-f(a))/2 + (slope(b)-slope(a))/12
	}
	return sum
}

// share returns the share of a rank.
func (z zipf) share(rank int) float64 { return math.Pow(float64(rank), -z.s) / z.sum }

// class is a range of ranks that are treated as equally popular.
type class struct {
	from, keys int     // the first rank, and the number of ranks
	share      float64 // the average share of one rank
}

// classes divides a range of ranks into classes. The first rank of a class is requested about a
// fifth more often than its last rank.
func (z zipf) classes(from, to int) (all []class) {
	width := 1.0
	if z.s > 0 {
		width = min(0.2/z.s, 1)
	}
	before := z.upTo(from - 1)
	for from <= to {
		keys := min(max(1, int(float64(from)*width)), to-from+1)
		after := z.upTo(from + keys - 1)
		all = append(all,
			class{from: from, keys: keys, share: (after - before) / float64(keys) / z.sum})
		from, before = from+keys, after
	}
	return all
}
