package cacheguard_test

import (
	"math"
	"testing"
	"time"

	"github.com/cacheguard/cacheguard/cacheguard"
)

// The share of loads that XFetch alone would begin, e^(1/beta) for each expiry, is what its paper
// says; that the lease makes one of them is TestOneRefreshForEachExpiry.
func TestEarly(t *testing.T) {
	const took, beta = 100 * time.Millisecond, 1.0
	for _, c := range []struct {
		left time.Duration
		draw float64
		want bool
	}{
		{0, 0.5, true},
		{took, math.Exp(-1) - 0.01, true},
		{took, math.Exp(-1) + 0.01, false},
		{37 * took, math.Exp(-36.9), false},
		{38 * took, 0, false}, // too far away for a draw to matter
		{time.Hour, 0.001, false},
	} {
		if got := cacheguard.Early(c.left, took, beta, func() float64 {
			return c.draw
		}); got != c.want {
			t.Errorf("%v left, draw %v: %v", c.left, c.draw, got)
		}
	}
	if cacheguard.Early(0, took, 0, func() float64 { return 0 }) {
		t.Error("refreshed early although that is off")
	}
}
