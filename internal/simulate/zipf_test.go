package simulate

import (
	"math"
	"testing"
	"time"
)

func TestZipfShares(t *testing.T) {
	for _, s := range []float64{0, 0.6, 1 - 1e-8, 1, 1 + 1e-12, 1.3} {
		const n = 300_000
		z := newZipf(n, s)
		exact := 0.0
		for i := 1; i <= n; i++ {
			exact += math.Pow(float64(i), -s)
		}
		if math.Abs(z.sum/exact-1) > 1e-12 {
			t.Errorf("exponent %v: the sum is %v, want %v", s, z.sum, exact)
		}
		all, next := 0.0, 1
		for _, c := range append(z.classes(1, 5000), z.classes(5001, n)...) {
			if c.from != next {
				t.Fatalf("exponent %v: a class from %d, want %d", s, c.from, next)
			}
			next += c.keys
			all += c.share * float64(c.keys)
			first, last := math.Pow(float64(c.from), -s)/exact, math.Pow(float64(next-1), -s)/exact
			if c.share > first*(1+1e-6) || c.share < last*(1-1e-6) || first > last*1.25 {
				t.Fatalf("exponent %v: ranks from %d to %d are asked for %v to %v, the class has %v",
					s, c.from, next-1, first, last, c.share)
			}
		}
		if next != n+1 || math.Abs(all-1) > 1e-9 {
			t.Errorf("exponent %v: classes of %d ranks have a share of %v", s, next-1, all)
		}
	}
}

// TestKeysAreAskedForByTheirShare counts which key the next requests are for.
func TestKeysAreAskedForByTheirShare(t *testing.T) {
	r := newRandom(5)
	z := newZipf(6, 1)
	d := demand{low: 100, high: 100, period: time.Hour}
	const end = 100 * int64(time.Second)
	for rank := 1; rank <= 6; rank++ {
		n := 0
		for at := d.next(r, z.share(rank), 0); at < end; at = d.next(r, z.share(rank), at) {
			n++
		}
		want := 1e4 * (1 / float64(rank)) / (1 + 1./2 + 1./3 + 1./4 + 1./5 + 1./6)
		near(t, "requests for a rank", float64(n), want, math.Sqrt(want))
	}
}

func TestDemandFollowsTheDay(t *testing.T) {
	d := demand{low: 10, high: 50, period: 1000 * time.Second}
	second := int64(time.Second)
	near(t, "the least", d.at(0)*1e9, 10, 1e-9)
	near(t, "the most", d.at(500*second)*1e9, 50, 1e-9)
	near(t, "a day", d.during(0, 1000*second), 30_000, 1e-6)
	r := newRandom(2)
	counted := [4]float64{}
	for at := d.next(r, 0.5, 0); at < 1000*second; at = d.next(r, 0.5, at) {
		counted[at*4/(1000*second)]++
	}
	for i, n := range counted {
		want := d.during(int64(i)*250*second, int64(i+1)*250*second) / 2
		near(t, "requests in a quarter", n, want, math.Sqrt(want))
	}
	if at := d.next(r, 0, 0); at < never {
		t.Errorf("what nobody wants is asked for at %d", at)
	}
}
