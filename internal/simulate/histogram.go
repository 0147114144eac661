package simulate

import "math/bits"

// Histogram counts durations in buckets. The width of a bucket is at most 1/64 of its value, so the
// error of a quantile is at most 1/128. The zero value is empty.
type Histogram struct {
	counts []int64
	total  int64
	sum    float64
	max    int64
}

// below is the number of values that have a bucket of their own. After them, half as many buckets
// follow for each power of two.
const (
	belowBits = 7
	below     = 1 << belowBits
	half      = below / 2
)

func bucketOf(v int64) int {
	if v < below {
		return int(v)
	}
	shift := bits.Len64(uint64(v)) - belowBits
	return below + (shift-1)*half + int(v>>shift) - half
}

// middleOf returns the value that represents a bucket.
func middleOf(bucket int) int64 {
	if bucket < below {
		return int64(bucket)
	}
	shift := (bucket-below)/half + 1
	from := int64(half+(bucket-below)%half) << shift
	return from + (int64(1)<<shift-1)/2
}

// Add counts v n times. A negative v is counted as 0.
func (h *Histogram) Add(v, n int64) {
	if n <= 0 {
		return
	}
	v = max(v, 0)
	b := bucketOf(v)
	if b >= len(h.counts) {
		h.counts = append(h.counts, make([]int64, b+1-len(h.counts))...)
	}
	h.counts[b] += n
	h.total += n
	h.sum += float64(v) * float64(n)
	h.max = max(h.max, v)
}

// Total returns the number of counted durations.
func (h *Histogram) Total() int64 { return h.total }

// Mean returns the mean. It is exact except for rounding.
func (h *Histogram) Mean() float64 {
	if h.total == 0 {
		return 0
	}
	return h.sum / float64(h.total)
}

// Max returns the largest duration. It is exact.
func (h *Histogram) Max() int64 { return h.max }

// Quantile returns the value below which a share q of the durations lies. An empty Histogram
// returns 0.
func (h *Histogram) Quantile(q float64) int64 {
	left := int64(q * float64(h.total))
	for b, n := range h.counts {
		if left < n {
			return min(middleOf(b), h.max)
		}
		left -= n
	}
	return h.max
}
