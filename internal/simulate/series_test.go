package simulate

import (
	"math"
	"testing"
	"time"
)

// The slices have all loads between them, each its own share of the time, and show when Redis was
// away.
func TestSeries(t *testing.T) {
	c := Default()
	c.Replicas, c.Keys, c.Low, c.High, c.Time, c.Deploys = 20, 1000, 500, 500, time.Hour, 0
	c.FailoverAt, c.FailoverFor, c.Slices = 30*time.Minute, time.Minute, 60
	r, err := Run(t.Context(), c, Policies[3])
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Series) != c.Slices {
		t.Fatalf("%d slices, want %d", len(r.Series), c.Slices)
	}
	sum := 0.0
	for i, s := range r.Series {
		if s.At != time.Duration(i)*time.Minute {
			t.Errorf("slice %d begins at %v", i, s.At)
		}
		sum += s.Loads * 60
		if i != 30 && (s.Loads >= r.Series[30].Loads || s.P99 >= r.Series[30].P99) {
			t.Errorf("without Redis %+v, and at %v %+v", r.Series[30], s.At, s)
		}
	}
	if math.Abs(sum-float64(r.Loads)) > 1 {
		t.Errorf("the slices have %v loads, and there were %d", sum, r.Loads)
	}
	c.Slices, c.Steps = 7, 1000
	if r, err = Run(t.Context(), c, Policies[0]); err != nil || r.Until >= c.Time ||
		len(r.Series) == 0 || len(r.Series) > 7 {
		t.Errorf("cut short after %v: %d slices, %v", r.Until, len(r.Series), err)
	}
	c.Slices = 3601
	if err := c.Validate(); err == nil {
		t.Error("more slices than seconds")
	}
}
