package simulate

import (
	"math"
	"testing"
)

func TestHistogramIsExactWithinItsBound(t *testing.T) {
	for v := int64(0); v < math.MaxInt64/3; v = v + v/97 + 1 {
		if got := middleOf(bucketOf(v)); math.Abs(float64(got-v)) > float64(v)/128 {
			t.Fatalf("%d counts as %d, which is off by more than 1/128", v, got)
		}
	}
}

func TestHistogramQuantiles(t *testing.T) {
	var h Histogram
	if h.Quantile(0.5) != 0 || h.Mean() != 0 {
		t.Error("a histogram of nothing is not 0")
	}
	for v := int64(1); v <= 100_000; v++ {
		h.Add(v, 1)
	}
	h.Add(1_000_000, 100_000)
	h.Add(-5, 1)
	for _, c := range []struct {
		q    float64
		want int64
	}{{0.25, 50_000}, {0.4999, 99_980}, {0.51, 1_000_000}, {1, 1_000_000}} {
		if got := h.Quantile(c.q); math.Abs(float64(got-c.want)) > float64(c.want)/128+1 {
			t.Errorf("quantile %v is %d, want %d", c.q, got, c.want)
		}
	}
	if h.Total() != 200_001 || h.Max() != 1_000_000 || math.Abs(h.Mean()-525_000) > 10 {
		t.Errorf("total %d, most %d, mean %v", h.Total(), h.Max(), h.Mean())
	}
}
