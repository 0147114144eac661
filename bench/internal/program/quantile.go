package program

import "slices"

// quantile returns the q-quantile of values, 0 of none. It leaves the order alone.
func quantile(values []int64, q float64) int64 {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	return sorted[min(int(q*float64(len(sorted))), len(sorted)-1)]
}

// median of an even number of values is the mean of the two in the middle. Of none it is 0.
func median[T int64 | float64](values []T) T {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	n := len(sorted)
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}
