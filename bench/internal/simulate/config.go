package simulate

import (
	"errors"
	"fmt"
	"time"
)

// Config is a fleet, what is asked of it, and what happens to it.
type Config struct {
	Seed uint64 `json:"seed"`

	Replicas int           `json:"replicas"`
	Keys     int           `json:"keys"`
	Zipf     float64       `json:"zipf"` // exponent: the key of rank i is asked for i^-Zipf as often as the first one
	Low      float64       `json:"low"`  // requests a second of the whole fleet, at the beginning of a day
	High     float64       `json:"high"` // and half a day later
	Day      time.Duration `json:"dayNanos"`
	Time     time.Duration `json:"timeNanos"`

	TTL    time.Duration `json:"ttlNanos"`
	Jitter float64       `json:"jitter"` // each TTL is shortened by up to this share
	Stale  time.Duration `json:"staleNanos"`
	Beta   float64       `json:"beta"` // of early refresh

	Load        time.Duration `json:"loadNanos"` // mean
	Sigma       float64       `json:"sigma"`     // standard deviation of the logarithm of a load's time
	LoadTimeout time.Duration `json:"loadTimeoutNanos"`
	Capacity    int           `json:"capacity"` // loads the origin runs at a time, the others wait there; 0: no limit
	Queue       int           `json:"queue"`    // loads that wait at the origin at most, beyond them it refuses
	Budget      int           `json:"budget"`   // loads the fleet begins at a time, in policies that have one

	Lease     time.Duration `json:"leaseNanos"` // renewed at a third while the process lives
	Lock      time.Duration `json:"lockNanos"`  // never renewed
	PollLeast time.Duration `json:"pollLeastNanos"`
	PollMost  time.Duration `json:"pollMostNanos"`

	Deploys    int           `json:"deploys"` // spread over Time
	DeployTime time.Duration `json:"deployTimeNanos"`
	Down       time.Duration `json:"downNanos"` // how long a replica restarts

	FailoverAt  time.Duration `json:"failoverAtNanos"`
	FailoverFor time.Duration `json:"failoverForNanos"` // 0: no failover
	Loses       bool          `json:"loses"`            // what was written before it
	Timeout     time.Duration `json:"timeoutNanos"`     // after which a command is given up
	FailClosed  bool          `json:"failClosed"`       // without Redis requests fail instead of loading

	OneByOne int `json:"oneByOne"` // most expiries to simulate one by one, of the keys that are asked for most

	Steps int `json:"steps"` // most steps of a policy: one that needs more is cut short

	Costs Costs `json:"costs"`
}

// Costs are what each step takes.
type Costs struct {
	RoundTrip time.Duration `json:"roundTripNanos"` // of an idle network and client, without the server's own time
	Get       time.Duration `json:"getNanos"`       // the server's time for GET, and any plain command
	Script    time.Duration `json:"scriptNanos"`    // for the lease's script
	Fill      time.Duration `json:"fillNanos"`      // for the script that stores
	Message   time.Duration `json:"messageNanos"`   // for each process that a message goes to
	Delivery  time.Duration `json:"deliveryNanos"`  // from the server to who waits
	Noise     time.Duration `json:"noiseNanos"`     // mean of what scheduling adds whenever a process is woken
	Wake      time.Duration `json:"wakeNanos"`      // processor time for each caller that is woken
}

// Default is what the command simulates unless told otherwise. Its costs are those of one machine with two cores and
// Redis 7.0.15 on the loopback device: a round trip between idle processes, and the processor time of the server for a
// command among many. A message's are those of a write to each subscriber's connection: PUBLISH took 4.7 µs for each of
// 100 subscribers, 6.4 of 500 and 7.1 of 1000. Noise, Wake and Sigma are assumed.
func Default() Config {
	return Config{
		Seed: 1, Replicas: 500, Keys: 1_000_000, Zipf: 1, Low: 5_000, High: 30_000, Day: 24 * time.Hour, Time: 24 * time.Hour,
		TTL: 10 * time.Minute, Jitter: 0.1, Stale: 5 * time.Minute, Beta: 1,
		Load: 100 * time.Millisecond, Sigma: 0.3, LoadTimeout: 30 * time.Second, Capacity: 500, Queue: 10_000, Budget: 200,
		Lease: 3 * time.Second, Lock: 10 * time.Second, PollLeast: 50 * time.Millisecond, PollMost: 100 * time.Millisecond,
		Deploys: 1, DeployTime: 10 * time.Minute, Down: 5 * time.Second,
		FailoverAt: 12 * time.Hour, FailoverFor: 10 * time.Second, Timeout: 250 * time.Millisecond,
		OneByOne: 300_000, Steps: 20_000_000,
		Costs: Costs{
			RoundTrip: 70 * time.Microsecond, Get: 7 * time.Microsecond, Script: 10 * time.Microsecond, Fill: 15 * time.Microsecond,
			Message: 6 * time.Microsecond, Delivery: 80 * time.Microsecond, Noise: 20 * time.Microsecond, Wake: 2 * time.Microsecond,
		},
	}
}

// mostTTLs is how many TTLs a run may take.
const mostTTLs = 20_000

// Validate returns everything that is wrong with a configuration, joined.
func (c Config) Validate() error {
	var errs []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	check(c.Replicas >= 1 && c.Replicas <= 10_000, "there are %d replicas, it must be 1 to 10000", c.Replicas)
	check(c.Keys >= 1 && c.Keys <= 10_000_000, "there are %d keys, it must be 1 to 10000000", c.Keys)
	check(c.Zipf >= 0 && c.Zipf <= 3, "the exponent is %v, it must be from 0 to 3", c.Zipf)
	check(c.Low >= 0 && c.High >= c.Low && c.High > 0 && c.High <= 200_000, "%v to %v requests a second; it must go from 0 at least up to 200000 at most", c.Low, c.High)
	check(c.Time >= time.Second && c.Time <= 7*24*time.Hour && c.Day >= time.Second, "the time is %v of days of %v, it must be 1s to 168h of days of 1s or more", c.Time, c.Day)
	check(c.TTL >= time.Second && c.TTL <= 24*time.Hour && c.Time/max(c.TTL, 1) <= mostTTLs, "the TTL is %v, it must be 1s to 24h, and the time at most %d times as long", c.TTL, mostTTLs)
	check(c.Jitter >= 0 && c.Jitter < 1, "the jitter is %v, it must be from 0 to below 1", c.Jitter)
	check(c.Stale >= time.Second && c.Stale <= 24*time.Hour, "the stale window is %v, it must be 1s to 24h", c.Stale)
	check(c.Beta > 0 && c.Beta <= 100, "beta is %v, it must be above 0, and at most 100", c.Beta)
	check(c.Load > 0 && c.Load <= c.LoadTimeout && c.LoadTimeout <= time.Hour, "a load takes %v and at most %v, it must be above 0 and within 1h", c.Load, c.LoadTimeout)
	check(c.Sigma >= 0 && c.Sigma <= 3, "sigma is %v, it must be from 0 to 3", c.Sigma)
	check(c.Capacity >= 0 && c.Queue >= 0 && c.Budget >= 1, "the capacity is %d, the queue %d and the budget %d, they must be at least 0, 0 and 1", c.Capacity, c.Queue, c.Budget)
	check(c.Steps >= 1000 && c.Steps <= 1_000_000_000, "%d steps, it must be 1000 to 1000000000", c.Steps)
	check(c.Lease >= 10*time.Millisecond && c.Lock >= 10*time.Millisecond, "the lease is %v and the lock %v, they must be 10ms at least", c.Lease, c.Lock)
	check(c.PollLeast >= time.Millisecond && c.PollMost >= c.PollLeast, "a poll comes each %v to %v, it must be 1ms at least", c.PollLeast, c.PollMost)
	check(c.Deploys >= 0 && c.Deploys <= 100 && c.DeployTime >= 0 && c.Down >= 0, "%d deploys of %v, replicas are down for %v; it must be 0 to 100, and no negative time", c.Deploys, c.DeployTime, c.Down)
	check(c.Down*2 <= c.DeployTime || c.Deploys == 0, "a replica is down for %v of a deploy of %v, it must be half of it at most", c.Down, c.DeployTime)
	check(c.FailoverFor >= 0 && c.FailoverAt >= 0 && c.FailoverFor <= time.Hour, "the failover takes %v, it must be 0 to 1h", c.FailoverFor)
	check(c.Timeout >= time.Millisecond, "the timeout is %v, it must be 1ms at least", c.Timeout)
	check(c.OneByOne >= 0 && c.OneByOne <= 20_000_000, "%d expiries one by one, it must be 0 to 20000000", c.OneByOne)
	for name, cost := range map[string]time.Duration{
		"round trip": c.Costs.RoundTrip, "get": c.Costs.Get, "script": c.Costs.Script, "fill": c.Costs.Fill,
		"message": c.Costs.Message, "delivery": c.Costs.Delivery, "noise": c.Costs.Noise, "wake": c.Costs.Wake,
	} {
		check(cost >= 0 && cost <= time.Second, "the cost of a %s is %v, it must be from 0 to 1s", name, cost)
	}
	return errors.Join(errs...)
}
