package simulate

import (
	"context"
	"time"
)

// Burst is a stampede on one machine: the callers of all processes request one cold key at the same
// moment.
type Burst struct {
	Seed      uint64
	Processes int
	Callers   int // callers in each process
	Cores     int
	Load      time.Duration
	PollLeast time.Duration
	PollMost  time.Duration

	RoundTrip time.Duration // without the processor time of both ends
	Noise     time.Duration
	Delivery  time.Duration // time of a message
	Start     time.Duration // processor time for each caller to begin
	Wake      time.Duration // processor time for each caller to be woken with the result
	Client    time.Duration // processor time for a command and its answer
	Command   time.Duration // processor time of Redis for a plain command
	Script    time.Duration // processor time of Redis for a script
	Message   time.Duration // processor time of Redis for each process that a message goes to
}

// BurstResult has the results of a burst.
type BurstResult struct {
	Latency  []int64 // latency of each caller, in nanoseconds
	Loads    int64
	Commands int64
}

// Run simulates a burst under a policy.
func (b Burst) Run(p Policy) BurstResult {
	s := &simulation{
		policy: p, random: newRandom(b.Seed), demand: demand{low: 1, high: 1, period: time.Hour},
		end: never,
	}
	s.Config = Config{
		TTL: time.Hour, Load: b.Load, LoadTimeout: time.Hour, Lease: time.Minute, Lock: time.Minute,
		Timeout:   time.Hour,
		PollLeast: b.PollLeast, PollMost: b.PollMost,
		Costs: Costs{
			RoundTrip: b.RoundTrip, Get: b.Command, Script: b.Script, Fill: b.Script,
			Message: b.Message, Delivery: b.Delivery,
			Noise: b.Noise, Wake: b.Wake,
		},
	}
	s.replicas = newReplicas(b.Processes)
	s.host = &host{
		cores: make([]int64, b.Cores), client: int64(b.Client), wake: int64(b.Wake),
		ready: make([]int64, b.Processes),
	}
	s.keys = make([]key, 1)
	k := &s.keys[0]
	for _, r := range s.Perm(b.Processes) {
		if p.Share {
			f := s.begin(k, int32(r), b.Callers)
			f.sends = s.host.run(0, int64(b.Start+b.Client/2))
			s.host.ready[r] = s.host.run(f.sends, int64(b.Start)*int64(b.Callers-1))
			s.ask(f)
			continue
		}
		for range b.Callers {
			f := s.begin(k, int32(r), 1)
			f.sends = s.host.run(0, int64(b.Start+b.Client/2))
			s.host.ready[r] = f.sends
			s.ask(f)
		}
	}
	_ = s.run(context.Background()) // there is no error, because each caller has only a few steps
	return BurstResult{Latency: s.host.took, Loads: s.loads.total, Commands: s.commands.total}
}
