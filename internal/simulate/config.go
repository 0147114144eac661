package simulate

import (
	"errors"
	"fmt"
	"time"
)

// Config describes a fleet, its requests and its disturbances.
type Config struct {
	Seed uint64 `json:"seed"`

	Replicas int `json:"replicas"`
	Keys     int `json:"keys"`
	// Exponent: the key of rank i is requested i^-Zipf times as often as the first key.
	Zipf float64 `json:"zipf"`
	// Requests per second of the whole fleet at the beginning of a day.
	Low  float64       `json:"low"`
	High float64       `json:"high"` // requests per second half a day later
	Day  time.Duration `json:"dayNanos"`
	Time time.Duration `json:"timeNanos"`

	TTL    time.Duration `json:"ttlNanos"`
	Jitter float64       `json:"jitter"` // each TTL is shortened by up to this share
	Stale  time.Duration `json:"staleNanos"`
	Beta   float64       `json:"beta"` // beta of early refresh

	Load time.Duration `json:"loadNanos"` // mean
	// Standard deviation of the logarithm of a load's time.
	Sigma       float64       `json:"sigma"`
	LoadTimeout time.Duration `json:"loadTimeoutNanos"`
	// Loads that the origin runs at a time; the others wait there; 0: no limit.
	Capacity int `json:"capacity"`
	// Largest number of loads that wait at the origin; it refuses further loads; 0: no limit.
	Queue int `json:"queue"`
	// Loads that the fleet begins at a time, in policies with a budget.
	Budget int `json:"budget"`

	Lease     time.Duration `json:"leaseNanos"` // renewed after each third while the process lives
	Lock      time.Duration `json:"lockNanos"`  // never renewed
	PollLeast time.Duration `json:"pollLeastNanos"`
	PollMost  time.Duration `json:"pollMostNanos"`

	Deploys    int           `json:"deploys"` // spread over Time
	DeployTime time.Duration `json:"deployTimeNanos"`
	Down       time.Duration `json:"downNanos"` // how long a replica restarts

	FailoverAt  time.Duration `json:"failoverAtNanos"`
	FailoverFor time.Duration `json:"failoverForNanos"` // 0: no failover
	// The failover loses what was written before it.
	Loses bool `json:"loses"`
	// The time after which a command is given up.
	Timeout time.Duration `json:"timeoutNanos"`
	// Without Redis requests fail instead of loading.
	FailClosed bool `json:"failClosed"`

	// Largest number of expiries that are simulated one by one, of the most popular keys.
	OneByOne int `json:"oneByOne"`

	// Largest number of steps of a policy; a simulation that needs more is cut short.
	Steps int `json:"steps"`

	Slices int `json:"slices,omitempty"` // the number of parts of Time in Result.Series

	Costs Costs `json:"costs"`
}

// Costs are the times of the steps.
type Costs struct {
	// Round trip with an idle network and client, without the server's own time.
	RoundTrip time.Duration `json:"roundTripNanos"`
	// The server's time for GET, and any plain command.
	Get      time.Duration `json:"getNanos"`
	Script   time.Duration `json:"scriptNanos"`   // for the lease's script
	Fill     time.Duration `json:"fillNanos"`     // for the script that stores
	Message  time.Duration `json:"messageNanos"`  // for each process that a message goes to
	Delivery time.Duration `json:"deliveryNanos"` // from the server to the waiting process
	// Mean delay that scheduling adds whenever a process is woken.
	Noise time.Duration `json:"noiseNanos"`
	Wake  time.Duration `json:"wakeNanos"` // processor time for each caller that is woken
}

// Default returns the default configuration of the command. Its costs were measured on one machine
// with two cores and Redis 7.0.15 on the loopback device: a round trip between idle processes, and
// the processor time of the server for a command among many. The cost of a message is the cost of a
// write to each subscriber's connection: PUBLISH took 4.7 µs for each of 100 subscribers, 6.4 µs
// for each of 500, and 7.1 µs for each of 1000. Noise, Wake and Sigma are assumed.
func Default() Config {
	return Config{
		Seed: 1, Replicas: 500, Keys: 1_000_000, Zipf: 1, Low: 5_000, High: 30_000,
		Day: 24 * time.Hour, Time: 24 * time.Hour,
		TTL: 10 * time.Minute, Jitter: 0.1, Stale: 5 * time.Minute, Beta: 1,
		Load: 100 * time.Millisecond, Sigma: 0.3, LoadTimeout: 30 * time.Second, Capacity: 500,
		Queue: 10_000, Budget: 200,
		Lease: 3 * time.Second, Lock: 10 * time.Second, PollLeast: 50 * time.Millisecond,
		PollMost: 100 * time.Millisecond,
		Deploys:  1, DeployTime: 10 * time.Minute, Down: 5 * time.Second,
		FailoverAt: 12 * time.Hour, FailoverFor: 10 * time.Second, Timeout: 250 * time.Millisecond,
		OneByOne: 300_000, Steps: 20_000_000,
		Costs: Costs{
			RoundTrip: 70 * time.Microsecond, Get: 7 * time.Microsecond,
			Script: 10 * time.Microsecond, Fill: 15 * time.Microsecond,
			Message: 6 * time.Microsecond, Delivery: 80 * time.Microsecond,
			Noise: 20 * time.Microsecond, Wake: 2 * time.Microsecond,
		},
	}
}

// mostTTLs is the largest number of TTLs in a run.
const mostTTLs = 20_000

// Validate returns the errors in a configuration, joined. Each error names its field.
func (c Config) Validate() error {
	var errs []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	check(c.Replicas >= 1 &&
		c.Replicas <= 10_000, "Replicas is %d, it must be from 1 to 10000", c.Replicas)
	check(c.Keys >= 1 && c.Keys <= 10_000_000, "Keys is %d, it must be from 1 to 10000000", c.Keys)
	check(c.Zipf >= 0 && c.Zipf <= 3, "Zipf is %v, it must be from 0 to 3", c.Zipf)
	check(c.High > 0 &&
		c.High <= 200_000, "High is %v, it must be above 0, and at most 200000", c.High)
	check(c.Low >= 0 &&
		c.Low <= c.High, "Low is %v, it must be from 0 to High, which is %v", c.Low, c.High)
	check(c.Time >= time.Second &&
		c.Time <= 7*24*time.Hour, "Time is %v, it must be from 1s to 168h", c.Time)
	check(c.Day >= time.Second, "Day is %v, it must be 1s at least", c.Day)
	check(c.TTL >= time.Second && c.TTL <= 24*time.Hour &&
		c.Time/max(c.TTL, 1) <= mostTTLs,
		"TTL is %v, it must be from 1s to 24h, and Time, which is %v, at most %d times as long",
		c.TTL, c.Time, mostTTLs)
	check(c.Jitter >= 0 && c.Jitter < 1, "Jitter is %v, it must be from 0 to below 1", c.Jitter)
	check(c.Stale >= time.Second &&
		c.Stale <= 24*time.Hour, "Stale is %v, it must be from 1s to 24h", c.Stale)
	check(c.Beta > 0 && c.Beta <= 100, "Beta is %v, it must be above 0, and at most 100", c.Beta)
	check(c.LoadTimeout <= time.Hour, "LoadTimeout is %v, it must be at most 1h", c.LoadTimeout)
	check(c.Load > 0 &&
		c.Load <= c.LoadTimeout,
		"Load is %v, it must be above 0, and at most LoadTimeout, which is %v", c.Load,
		c.LoadTimeout)
	check(c.Sigma >= 0 && c.Sigma <= 3, "Sigma is %v, it must be from 0 to 3", c.Sigma)
	check(c.Capacity >= 0, "Capacity is %d, it must be at least 0", c.Capacity)
	check(c.Queue >= 0, "Queue is %d, it must be at least 0", c.Queue)
	check(c.Budget >= 1, "Budget is %d, it must be at least 1", c.Budget)
	check(c.Steps >= 1000 &&
		c.Steps <= 1_000_000_000, "Steps is %d, it must be from 1000 to 1000000000", c.Steps)
	check(c.Slices >= 0 &&
		time.Duration(c.Slices)*time.Second <= c.Time,
		"Slices is %d, it must be from 0 to one for each second of Time, which is %v", c.Slices,
		c.Time)
	check(c.Lease >= 10*time.Millisecond, "Lease is %v, it must be 10ms at least", c.Lease)
	check(c.Lock >= 10*time.Millisecond, "Lock is %v, it must be 10ms at least", c.Lock)
	check(c.PollLeast >= time.Millisecond, "PollLeast is %v, it must be 1ms at least", c.PollLeast)
	check(c.PollMost >= c.PollLeast, "PollMost is %v, it must be at least PollLeast, which is %v",
		c.PollMost, c.PollLeast)
	check(c.Deploys >= 0 && c.Deploys <= 100, "Deploys is %d, it must be from 0 to 100", c.Deploys)
	check(c.DeployTime >= 0, "DeployTime is %v, it must not be negative", c.DeployTime)
	check(c.Down >= 0 &&
		(c.Down*2 <= c.DeployTime || c.Deploys == 0),
		"Down is %v, it must be from 0 to half of DeployTime, which is %v", c.Down, c.DeployTime)
	check(c.FailoverAt >= 0, "FailoverAt is %v, it must not be negative", c.FailoverAt)
	check(c.FailoverFor >= 0 &&
		c.FailoverFor <= time.Hour, "FailoverFor is %v, it must be from 0 to 1h", c.FailoverFor)
	check(c.Timeout >= time.Millisecond, "Timeout is %v, it must be 1ms at least", c.Timeout)
	check(c.OneByOne >= 0 &&
		c.OneByOne <= 20_000_000, "OneByOne is %d, it must be from 0 to 20000000", c.OneByOne)
	for _, cost := range []struct {
		name  string
		value time.Duration
	}{
		{"RoundTrip", c.Costs.RoundTrip}, {"Get", c.Costs.Get}, {"Script", c.Costs.Script},
		{"Fill", c.Costs.Fill},
		{"Message", c.Costs.Message}, {"Delivery", c.Costs.Delivery}, {"Noise", c.Costs.Noise},
		{"Wake", c.Costs.Wake},
	} {
		check(cost.value >= 0 &&
			cost.value <= time.Second, "Costs.%s is %v, it must be from 0 to 1s", cost.name,
			cost.value)
	}
	return errors.Join(errs...)
}
