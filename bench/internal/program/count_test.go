package program

import (
	"maps"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

func TestQuantile(t *testing.T) {
	var thousand []int64
	for i := range int64(1000) {
		thousand = append(thousand, 1000-i)
	}
	for _, c := range []struct {
		values []int64
		q      float64
		want   int64
	}{
		{nil, 0.5, 0},
		{[]int64{7}, 0, 7},
		{[]int64{7}, 1, 7},
		{[]int64{3, 1, 2}, 0.5, 2},
		{thousand, 0.5, 501},
		{thousand, 0.99, 991},
		{thousand, 0.999, 1000},
		{thousand, 1, 1000},
	} {
		if got := quantile(c.values, c.q); got != c.want {
			t.Errorf("quantile of %d values at %v is %d, want %d", len(c.values), c.q, got, c.want)
		}
	}
	if thousand[0] != 1000 {
		t.Error("quantile has sorted its argument")
	}
}

func TestMedian(t *testing.T) {
	for _, c := range []struct {
		values []float64
		want   float64
	}{
		{nil, 0}, {[]float64{3}, 3}, {[]float64{5, 1}, 3}, {[]float64{9, 1, 2}, 2},
		{[]float64{4, 1, 100, 2}, 3},
	} {
		if got := median(c.values); got != c.want {
			t.Errorf("median of %v is %v, want %v", c.values, got, c.want)
		}
	}
}

func TestLifetimes(t *testing.T) {
	const ttl, all = 1000, 1 << 40
	whole := period{0, all}
	for name, c := range map[string]struct {
		loads []load
		in    period
		want  []int // loads of each lifetime, sorted
	}{
		"none": {nil, whole, nil},
		"one load each": {
			[]load{{0, 100, 100, 0}, {1100, 1200, 1200, 0}, {2200, 2300, 2300, 0}}, whole,
			[]int{1, 1, 1},
		},
		"a load each of three": {
			[]load{
				{0, 100, 100, 0}, {1100, 1200, 1200, 0}, {1101, 1201, 1201, 0},
				{1150, 1250, 1250, 0},
			}, whole, []int{1, 3},
		},
		"right after another": {
			[]load{{0, 100, 100, 0}, {1100, 1200, 1200, 0}, {1201, 1301, 1301, 0}}, whole,
			[]int{1, 2},
		},
		"refreshes": {
			[]load{{0, 100, 100, 0}, {600, 700, 700, 100}, {1300, 1400, 1400, 700}}, whole,
			[]int{1, 1, 1},
		},
		"the same one twice": {
			[]load{{0, 100, 100, 0}, {600, 700, 700, 100}, {650, 750, 750, 100}}, whole,
			[]int{1, 2},
		},
		"failed or running": {
			[]load{{0, 100, 100, 0}, {1100, 1200, 0, 0}, {1300, 0, 0, 0}}, whole, []int{1, 2},
		},
		"before the clock": {
			[]load{{0, 100, 100, 0}, {1100, 1200, 1200, 0}}, period{1000, all}, []int{1},
		},
		"after it": {
			[]load{{0, 100, 100, 0}, {1100, 1200, 1200, 0}}, period{0, 1100}, []int{1},
		},
	} {
		t.Run(name, func(t *testing.T) {
			got := slices.Sorted(maps.Values(lifetimes(c.loads, c.in, ttl)))
			if !slices.Equal(got, c.want) {
				t.Errorf("loads of each lifetime: %v, want %v", got, c.want)
			}
		})
	}
}

func TestMostWithin(t *testing.T) {
	for _, c := range []struct {
		moments []int64
		length  time.Duration
		want    int
	}{
		{nil, 10, 0},
		{[]int64{5}, 10, 1},
		{[]int64{10, 0, 20}, 10, 1},
		{[]int64{9, 0, 18}, 10, 2},
		{[]int64{0, 1, 2, 100, 101}, 10, 3},
		{[]int64{7, 7}, 1, 2},
	} {
		if got := mostWithin(c.moments, c.length); got != c.want {
			t.Errorf("of %v at most %d are within %d, want %d", c.moments, got, c.length, c.want)
		}
	}
}

func TestVersion(t *testing.T) {
	v := version(time.Unix(1_800_000_000, 0).UnixNano())
	for _, size := range []int{versionDigits, 1024} {
		value := v.value(size)
		if got, err := versionOf(value, size); len(value) != size || got != v || err != nil {
			t.Errorf("%d bytes of version %d are read as %d, %v", len(value), v, got, err)
		}
		if _, err := versionOf(value+".", size); err == nil {
			t.Error("a value of another size is taken for one")
		}
	}
}

func TestArrivalsWaitForNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		gate := make(chan struct{})
		arrived := make(chan int, 5)
		go func() {
			arrivals{
				Start: start, Interval: time.Second, Warm: 2, Count: 3, pause: time.Sleep,
			}.issue(t.Context(), func(k int, due time.Time) {
				if now := time.Since(start); now != max(time.Duration(k)*time.Second, 0) ||
					due != start.Add(time.Duration(k)*time.Second) {
					t.Errorf("request %d arrives after %v, is due at %v", k, now, due)
				}
				arrived <- k
				<-gate
			})
			close(arrived)
		}()
		synctest.Wait()
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if len(arrived) != 5 {
			t.Errorf("%d requests have arrived though none was answered, want 5", len(arrived))
		}
		close(gate)
		synctest.Wait()
	})
}

func TestTallies(t *testing.T) {
	at := func(n int64) int64 { return n * int64(time.Millisecond) }
	seen := sight{Start: at(1000), End: at(2000), Interval: 100 * time.Millisecond,
		Offset: 50 * time.Millisecond,
		Outage: period{at(1200), at(1400)}, Loads: []load{
			{Begin: at(900), End: at(950), Made: version(at(950))},
			{Begin: at(1300), End: at(1390), Replaces: version(at(950))},
			{Begin: at(1250), End: at(1340), Replaces: version(at(950))}, {
				Begin: at(1410), End: at(1470), Made: version(at(1470)), Replaces: version(at(950)),
			},
		}, Replicas: []record{
			{ // arrivals at 1000, 1100, ...
				Latency: []int64{at(1), at(2), at(3), at(90), at(5), at(6)},
				Kind:    []kind{fresh, fresh, stale, failed, stale, fresh},
				Made: []version{
					version(at(950)), version(at(950)), version(at(950)), 0, version(at(950)),
					version(at(1450)),
				},
			},
			{ // arrivals at 1050, 1150, ...
				Latency: []int64{at(7), at(8), at(4), at(9), at(30), at(1)},
				Kind:    []kind{fresh, fresh, failed, stale, fresh, fresh},
				Made: []version{
					version(at(950)), version(at(950)), 0, version(at(950)), version(at(1470)),
					version(at(1470)),
				},
			},
		}}
	s := steady{TTL: 100 * time.Millisecond, Load: 90 * time.Millisecond}

	o := outagePlan{steady: s, Backoff: 100 * time.Millisecond}.tally(seen)
	if o.Requests != 4 || o.Errors != 2 || o.Stale != 2 || o.Attempts != 2 ||
		o.MostPerBackoff != 2 || o.AtOnce != 1 {
		t.Errorf("outage: %+v", o)
	}
	if o.P50 != at(9) || o.Max != at(90) || o.ErrorP99 != at(90) {
		t.Errorf("outage, latencies: %+v", o)
	}
	if !o.Recovered || o.FirstFresh != at(80) || o.LastBad != at(5) {
		t.Errorf("outage, recovery: %+v", o)
	}

	e := expiryPlan{steady: s, Time: time.Second}.tally(seen)
	if e.Requests != 12 || e.Errors != 2 || e.Stale != 3 || e.Loads != 3 || e.Lifetimes != 1 ||
		e.Most != 3 || e.Max != at(90) {
		t.Errorf("expiry: %+v", e)
	}
	if e.PerTTL != 0.3 || e.Oldest != at(350) {
		t.Errorf("expiry: %+v", e)
	}
}
