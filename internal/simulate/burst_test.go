package simulate

import (
	"slices"
	"testing"
	"time"
)

func TestBurst(t *testing.T) {
	b := Burst{
		Seed: 1, Processes: 8, Callers: 50, Cores: 2, Load: 100 * time.Millisecond,
		PollLeast: 50 * time.Millisecond, PollMost: 100 * time.Millisecond,
		RoundTrip: 50 * time.Microsecond, Delivery: 80 * time.Microsecond,
		Start: 2 * time.Microsecond, Wake: 2 * time.Microsecond,
		Client: 20 * time.Microsecond, Command: 8 * time.Microsecond, Script: 15 * time.Microsecond,
		Message: 5 * time.Microsecond,
	}
	for name, loads := range map[string]int64{"none": 400, "local": 8, "lock": 1, "lease": 1} {
		r := b.Run(policy(t, name))
		if r.Loads != loads || len(r.Latency) != 400 || slices.Min(r.Latency) < int64(b.Load) {
			t.Errorf("%s: %d loads, want %d; %d callers got an answer, the first after %v", name,
				r.Loads, loads, len(r.Latency), time.Duration(slices.Min(r.Latency)))
		}
		// Two cores do what all callers and commands take, at the least; who polls is late by a
		// poll.
		most := slices.Max(r.Latency) - int64(b.Load)
		work := int64(b.Start*400)/2 + r.Commands*int64(b.Client+b.Command)/2
		if name != "lock" && (most < work || most > 3*work+int64(2*time.Millisecond)) ||
			name == "lock" && most > int64(b.PollMost+5*time.Millisecond) {
			t.Errorf("%s: the last caller has its answer %v after the load; the work takes %v",
				name, time.Duration(most), time.Duration(work))
		}
	}
}

func TestCoresShareTheWork(t *testing.T) {
	h := &host{cores: make([]int64, 2)}
	for i, want := range []int64{10, 10, 20, 20, 30} {
		if done := h.run(0, 10); done != want {
			t.Errorf("work %d is done at %d, want %d", i, done, want)
		}
	}
	if done := h.run(100, 10); done != 110 {
		t.Errorf("work of an idle host is done at %d, want 110", done)
	}
}
