package simulate

import (
	"math"
	"time"
)

// Slice has the results of one part of the time. Its JSON has times in nanoseconds.
type Slice struct {
	At    time.Duration `json:"atNanos"`        // when it began
	Loads float64       `json:"loadsPerSecond"` // loads that began at the origin
	P99   int64         `json:"p99Nanos"`       // latency of all requests that were answered
}

// sliceOf returns the index of a moment's slice.
func (s *simulation) sliceOf(at int64) int {
	return max(0, min(int(float64(at)/float64(s.Config.Time)*float64(s.Slices)), s.Slices-1))
}

// series returns the results of each slice. If the simulation was cut short, it returns only the
// slices before the cut.
func (s *simulation) series() []Slice {
	if s.Slices == 0 {
		return nil
	}
	length := s.Config.Time / time.Duration(s.Slices)
	all := make([]Slice, s.sliceOf(s.end-1)+1)
	for i := range all {
		all[i].At, all[i].P99 = time.Duration(i)*length, s.slices[i].Quantile(0.99)
	}
	for second, n := range s.loads.seconds {
		all[min(s.sliceOf(int64(second)*int64(time.Second)), len(all)-1)].Loads += float64(n)
	}
	for i := range all {
		lasts := min(length, time.Duration(s.end)-all[i].At)
		all[i].Loads /= math.Max(1, lasts.Seconds())
	}
	return all
}
