package simulate

import (
	"math"
	"testing"
)

// TestRedisIsAQueue compares with the waiting time of a queue with Poisson arrivals and a constant
// service time: half of share * service / (1 - share). It is the same whether commands come one by
// one, as a stream, or both.
func TestRedisIsAQueue(t *testing.T) {
	const service, n = 10_000, 400_000
	for _, c := range []struct {
		single, stream float64
	}{{0.5, 0}, {0.9, 0}, {0.2, 0.6}, {0.6, 0.2}, {0.01, 0.8}} {
		r := newRandom(11)
		var q redis
		q.carry(0, 1e9, 1e9, stream{share: c.stream, service: service})
		now, sum, most := 0.0, 0.0, int64(0)
		for range n {
			now += r.exponential(service / c.single)
			at := int64(now)
			wait := q.serve(r, at, service) - at - service
			sum += float64(wait)
			most = max(most, wait)
		}
		share := c.single + c.stream
		want := share * service / (1 - share) / 2
		if got := sum / n; math.Abs(got/want-1) > 0.05 {
			t.Errorf("with shares of %v and %v commands wait for %v on average, want %v", c.single,
				c.stream, got, want)
		}
		if most < int64(want) {
			t.Errorf("nobody waits longer than %d", most)
		}
	}
}

// TestStreamOfTwoKinds is Pollaczek and Khinchin: the wait is the sum of share * service of each
// kind, by 2 (1 - share).
func TestStreamOfTwoKinds(t *testing.T) {
	r := newRandom(12)
	var q redis
	q.carry(0, 1e9, 1e9, stream{0.3, 7_000}, stream{0.4, 600_000})
	sum := 0.0
	const n = 400_000
	for range n {
		sum += float64(q.wait(r, 0))
	}
	if want := (0.3*7_000 + 0.4*600_000) / 2 / 0.3; math.Abs(sum/n/want-1) > 0.03 {
		t.Errorf("waits are %v on average, want %v", sum/n, want)
	}
}

func TestMoreThanRedisCanDoWaits(t *testing.T) {
	r := newRandom(13)
	var q redis
	const second = int64(1e9)
	q.carry(0, second, second/2, stream{0.985, 10_000})
	first := q.wait(r, 0)
	q.carry(second, second, second/2, stream{1.5, 10_000})
	if second := q.wait(r, second); first == 0 || second < first {
		t.Errorf("waits of %d and %d when more and more is asked", first, second)
	}
	if q.free > second+second/2 {
		t.Errorf("%d of work is left, of those who gave up too", q.free-second)
	}
	q.carry(4*second, second, second/2, stream{0.1, 10_000})
	if wait := q.wait(r, 4*second); wait > 1_000_000 {
		t.Errorf("a wait of %d when the work is done", wait)
	}
}
