package program

import (
	"slices"
	"time"
)

// mostWithin returns how many of these moments at most lie in any time of this length, its end left
// out.
func mostWithin(moments []int64, length time.Duration) (most int) {
	sorted := slices.Sorted(slices.Values(moments))
	first := 0
	for i, at := range sorted {
		for at-sorted[first] >= int64(length) {
			first++
		}
		most = max(most, i-first+1)
	}
	return most
}
