package simulate

import (
	"context"
	"time"
)

// simulation is one run of one policy.
type simulation struct {
	Config
	policy Policy
	random
	demand demand
	events
	now, end int64

	redis    redis
	origin   gate
	budget   gate
	replicas replicas
	keys     []key
	host     *host // nil: each process has its own machine
	outage   outage
	bulk     *bulk // nil: all keys are simulated one by one

	loads, commands, messages meter
	// Nanoseconds of the server's time in this slot, for commands that are simulated one by one.
	served      int64
	loadWait    int64
	arrived     int64
	all, missed Histogram
	slices      []Histogram // latencies of all requests, by slice
	result      Result
}

// Run simulates one policy.
func Run(ctx context.Context, c Config, p Policy) (Result, error) {
	if err := c.Validate(); err != nil {
		return Result{}, err
	}
	s := newSimulation(c, p)
	if err := s.run(ctx); err != nil {
		return Result{}, err
	}
	s.bulk.finish()
	return s.report(), nil
}

func newSimulation(c Config, p Policy) *simulation {
	s := &simulation{
		Config: c, policy: p, random: newRandom(c.Seed),
		end:    int64(c.Time) / slotOf(c.TTL) * slotOf(c.TTL),
		demand: demand{low: c.Low, high: c.High, period: c.Day},
	}
	s.origin.cap, s.origin.queue = c.Capacity, c.Queue
	if p.Limit {
		s.budget.cap = c.Budget
	}
	s.replicas = newReplicas(c.Replicas)
	s.slices = make([]Histogram, c.Slices)
	s.bulk = newBulk(s)
	s.planOutage()
	s.planDeploys()
	s.planSlots()
	for i := range s.keys {
		s.settle(&s.keys[i])
	}
	return s
}

// run runs one event after another, until no event is left or there were too many.
func (s *simulation) run(ctx context.Context) error {
	for steps := 0; !s.empty(); steps++ {
		if steps%100_000 == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		if s.Steps > 0 && steps >= s.Steps {
			s.end = min(s.end, s.now)
			break
		}
		e := s.next()
		s.now = e.at
		e.do()
	}
	return nil
}

// after plans an event in d nanoseconds.
func (s *simulation) after(d int64, do func()) { s.plan(s.now+d, do) }

// noise draws the delay that scheduling adds.
func (s *simulation) noise() int64 { return int64(s.exponential(float64(s.Costs.Noise))) }

// settle draws a state for a key from the average over time, as if the simulation had already been
// running.
func (s *simulation) settle(k *key) {
	gap := 1 / (k.share * s.demand.at(0))
	if ttl := float64(s.TTL); s.Float64() < ttl/(ttl+gap) {
		s.value(k, 1+int64(s.Float64()*ttl))
		s.early(k, int64(s.Load))
		return
	}
	if old := s.exponential(gap); s.policy.Stale && old < float64(s.Stale) {
		k.staleUntil = int64(s.Stale) - int64(old)
	}
	s.expect(k, 0)
}

// expect plans the first request from a moment on that finds no fresh value.
func (s *simulation) expect(k *key, from int64) {
	turn := k.turn
	if at := s.demand.next(s.random, k.share, from); at < s.end {
		s.plan(at, func() {
			if k.turn == turn {
				s.request(k)
			}
		})
	}
}

// value gives a key a value that is fresh for the time ttl, and plans the first request after the
// value has expired.
func (s *simulation) value(k *key, ttl int64) {
	if left := k.freshUntil; left > s.now {
		s.bulk.fresh(s.now, left, -k.share)
	}
	s.countStale(k)
	k.turn++
	k.wasFresh = k.freshTime(s.now)
	k.loads = 0
	k.filled, k.freshUntil, k.arriving = s.now, s.now+ttl, false
	if s.policy.Stale {
		k.staleUntil = k.freshUntil + int64(s.Stale)
	}
	if s.bulk == nil {
		return
	}
	s.bulk.fresh(s.now, k.freshUntil, k.share)
	s.expect(k, k.freshUntil)
}

func (s *simulation) report() Result {
	r := s.result
	r.Policy = s.policy.Name
	r.Loads, r.PeakLoads, r.LoadsAtOnce, r.LoadWait = s.loads.total, s.loads.peak(), s.origin.most,
		s.loadWait
	r.CalmPeakLoads = s.calmPeak()
	r.Until = time.Duration(s.end)
	r.LoadsPerSecond = float64(r.Loads) / max(1, r.Until.Seconds())
	r.Commands, r.PeakCommands = s.commands.total, s.commands.peak()
	r.Messages, r.PeakMessages = s.messages.total, s.messages.peak()
	r.Requests = s.arrived
	r.Open = r.Requests - r.Fresh - r.Loaded - r.Stale - r.Errors
	r.All, r.Missed = s.all.latency(), s.missed.latency()
	r.Series = s.series()
	if s.bulk != nil {
		s.bulk.report(&r)
	}
	return r
}

// calmPeak returns the largest number of loads that began in a second, outside the failover and the
// minute after it.
func (s *simulation) calmPeak() (most int64) {
	for second, n := range s.loads.seconds {
		at := int64(second) * int64(time.Second)
		if at+int64(time.Second) <= s.outage.from || at >= s.outage.to+int64(time.Minute) ||
			s.outage.to == 0 {
			most = max(most, n)
		}
	}
	return most
}

// slotOf returns the length of a slot: a second, or a twentieth of a short TTL.
func slotOf(ttl time.Duration) int64 { return int64(min(time.Second, ttl/20)) }
