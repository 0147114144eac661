package simulate

import "time"

// Result has the results of one policy. Each request is answered once: fresh, loaded, stale, or
// with an error.
type Result struct {
	Policy string `json:"policy"`
	// The simulated time; shorter than planned if the simulation took too many steps.
	Until time.Duration `json:"untilNanos"`

	Requests int64 `json:"requests"`
	Fresh    int64 `json:"fresh"`  // found a fresh value
	Loaded   int64 `json:"loaded"` // found no fresh value, and got the result of a load
	Stale    int64 `json:"stale"`
	Errors   int64 `json:"errors"`
	// Errors of requests that were lost when their process restarted.
	Lost     int64 `json:"lost"`
	Failover int64 `json:"failover"` // errors of loads without Redis
	Open     int64 `json:"open"`     // not answered yet when the simulation was cut short

	Loads          int64   `json:"loads"`
	LoadsPerSecond float64 `json:"loadsPerSecond"`
	// The largest number of loads that began in a second.
	PeakLoads int64 `json:"peakLoads"`
	// The same outside the failover and the minute after it.
	CalmPeakLoads int64 `json:"calmPeakLoads"`
	// The largest number of loads of one key between two values, outside the failover.
	MostOfOne int `json:"mostOfOne"`
	// The largest number of loads at the origin at once, without loads that wait there.
	LoadsAtOnce  int   `json:"loadsAtOnce"`
	LoadWait     int64 `json:"loadWaitNanos"` // longest time in the origin's queue
	Commands     int64 `json:"commands"`
	PeakCommands int64 `json:"peakCommands"` // in a second
	Messages     int64 `json:"messages"`     // deliveries, one for each process
	PeakMessages int64 `json:"peakMessages"`
	// Share of the busiest second; above 1 work is left over.
	RedisBusy     float64 `json:"redisBusy"`
	RedisBusyMean float64 `json:"redisBusyMean"`

	Series []Slice `json:"series,omitempty"`

	All    Latency `json:"all"`
	Missed Latency `json:"missed"` // latency of requests that found no value

	OneByOne     int     `json:"oneByOneKeys"`     // number of keys that are simulated one by one
	OneByOnePart float64 `json:"oneByOneRequests"` // their share of requests
	// The largest expected number of requests during a load of any other key.
	Overlap float64 `json:"bulkOverlap"`
}

// Latency is the time from the arrival of a request to its answer, in nanoseconds.
type Latency struct {
	P50  int64 `json:"p50Nanos"`
	P99  int64 `json:"p99Nanos"`
	P999 int64 `json:"p999Nanos"`
	Max  int64 `json:"maxNanos"`
}

func (h *Histogram) latency() Latency {
	return Latency{
		P50: h.Quantile(0.5), P99: h.Quantile(0.99), P999: h.Quantile(0.999), Max: h.Max(),
	}
}

// meter counts by second.
type meter struct {
	total   int64
	seconds []int64
}

func (m *meter) add(now, n int64) {
	if now < 0 || n == 0 {
		return
	}
	m.total += n
	second := int(now / int64(time.Second))
	for second >= len(m.seconds) {
		m.seconds = append(m.seconds, 0)
	}
	m.seconds[second] += n
}

// spread counts n over a time that begins now.
func (m *meter) spread(now, length, n int64) {
	for at, left := now, n; left > 0; {
		end := min((at/int64(time.Second)+1)*int64(time.Second), now+length)
		part := left
		if end < now+length {
			part = min(left, n*(end-at)/length)
		}
		m.add(at, part)
		at, left = end, left-part
	}
}

func (m *meter) peak() (most int64) {
	for _, n := range m.seconds {
		most = max(most, n)
	}
	return most
}
