package program

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/cacheguard/cacheguard/bench/internal/contender"
	"github.com/cacheguard/cacheguard/internal/simulate"
)

// validated are the protections whose stampedes are run and simulated, each with its policy in the
// simulation.
var validated = []struct{ protection, policy string }{
	{"none", "none"}, {"singleflight", "local"}, {contender.FlightLock, "lock"},
	{"cacheguard", "lease"},
}

// comparison is one protection's stampede, run and simulated. Each slice has one value for each
// run. Times are in nanoseconds.
type comparison struct {
	Processes  int     `json:"processes"`
	Protection string  `json:"protection"`
	Loads      extent  `json:"loads"` // the least and the most loads of a round
	SimLoads   extent  `json:"simulatedLoads"`
	P99        []int64 `json:"p99Nanos"` // of whole requests
	SimP99     []int64 `json:"simulatedP99Nanos"`
	Overhead   []int64 `json:"overheadP99Nanos"` // the same without the load
	SimOver    []int64 `json:"simulatedOverheadP99Nanos"`
	// The difference between the simulated and the real median, as a share of the real median.
	Deviation float64 `json:"p99Deviation"`
	OverDev   float64 `json:"overheadP99Deviation"`
	Errors    int     `json:"errors"`
}

// extent is a range from least to most.
type extent struct {
	Least int `json:"least"`
	Most  int `json:"most"`
}

func (e extent) String() string { return span([]int{e.Least, e.Most}) }

func extentOf(of []int) extent { return extent{slices.Min(of), slices.Max(of)} }

// validation contains the settings of -validate.
type validation struct {
	Processes []int         `json:"processes"`
	Callers   int           `json:"callers"`
	Load      time.Duration `json:"loadNanos"`
	Rounds    int           `json:"rounds"`
	Runs      int           `json:"runs"`
}

// run compares real stampedes with simulated ones. Each run has fresh processes and measures the
// machine anew.
func (v validation) run(
	ctx context.Context, server *server,
) (all []comparison, measured []calibration, err error) {
	for _, processes := range v.Processes {
		p := plan{
			Processes: processes, Callers: v.Callers, Load: v.Load, Size: 1024, Rounds: v.Rounds,
			warmUp: 2,
		}
		compared := make([]comparison, len(validated))
		loads, simLoads := make([][]int, len(validated)), make([][]int, len(validated))
		for run := range v.Runs {
			c, err := p.calibrate(ctx, server)
			if err != nil {
				return nil, nil, err
			}
			measured = append(measured, c)
			for i, which := range validated {
				t, err := p.runOne(ctx, server, which.protection)
				if err != nil {
					return nil, nil, fmt.Errorf("%s: %w", which.protection, err)
				}
				one := &compared[i]
				one.Processes, one.Protection, one.Errors = processes, which.protection, one.Errors+
					t.Errors
				one.P99, one.Overhead = append(one.P99, t.P99+p.Load.Nanoseconds()),
					append(one.Overhead, t.P99)
				loads[i] = append(loads[i], t.Loads...)

				var took []int64
				for round := range v.Rounds {
					r := c.burst(p, uint64(run*v.Rounds+round)).Run(policyOf(which.policy))
					simLoads[i] = append(simLoads[i], int(r.Loads))
					for _, l := range r.Latency {
						took = append(took, l+c.Begin)
					}
				}
				p99 := quantile(took, 0.99)
				one.SimP99, one.SimOver = append(one.SimP99, p99),
					append(one.SimOver, p99-p.Load.Nanoseconds())
			}
		}
		for i := range compared {
			one := &compared[i]
			one.Loads, one.SimLoads = extentOf(loads[i]), extentOf(simLoads[i])
			one.Deviation, one.OverDev = deviation(one.SimP99, one.P99),
				deviation(one.SimOver, one.Overhead)
		}
		all = append(all, compared...)
	}
	return all, measured, nil
}

// deviation returns the difference between the simulated and the real median, as a share of the
// real median.
func deviation(simulated, ran []int64) float64 {
	a, b := median(simulated), median(ran)
	if b == 0 {
		return 0
	}
	return float64(a-b) / float64(b)
}

func policyOf(name string) simulate.Policy {
	for _, p := range simulate.Policies {
		if p.Name == name {
			return p
		}
	}
	return simulate.Policy{}
}

func (v validation) print(
	w io.Writer, about about, asJSON bool, all []comparison, measured []calibration,
) error {
	if asJSON {
		return printJSON(w,
			map[string]any{"about": about, "plan": v, "calibrations": measured, "results": all})
	}
	var s sheet
	s.say("stampedes of %v processes x %d callers, load %v, %d rounds x %d runs: run, and simulated\n%v\n\n",
		v.Processes, v.Callers, v.Load, v.Rounds, v.Runs, about)
	percent := func(share float64) string { return fmt.Sprintf("%+.0f%%", 100*share) }
	s.columns("processes", "protection", "errors", "loads", "simulated", "p99 ms", "simulated",
		"deviation",
		"of it beyond the load", "simulated", "deviation")
	for _, c := range all {
		s.row(c.Processes, c.Protection, c.Errors, c.Loads, c.SimLoads, tenths(c.P99, 1e6),
			tenths(c.SimP99, 1e6), percent(c.Deviation),
			tenths(c.Overhead, 1e6), tenths(c.SimOver, 1e6), percent(c.OverDev))
	}
	s.say(`
p99: the 99th percentile of whole requests, all rounds of a run together, load included; beyond the load: the same less the load.
Median of the runs (least to most); a deviation is that of the medians. Two rounds of each run come before those that count.
`)
	var starts, clients, servers, idles []int64
	for _, c := range measured {
		starts, clients, servers, idles = append(starts, c.Start), append(clients, c.Client),
			append(servers, c.Server), append(idles, c.Idle)
	}
	s.say("Measured before each run, without a stampede: a caller %s µs, its command %s µs and %s µs in Redis, an idle PING %s µs.\n",
		tenths(starts, 1e3), tenths(clients, 1e3), tenths(servers, 1e3), tenths(idles, 1e3))
	return s.printTo(w)
}

// tenths formats the median of the runs in the given unit, with the smallest and the largest value.
func tenths(ns []int64, unit float64) string {
	return figure(ns, "%.1f", func(n int64) float64 { return float64(n) / unit })
}

// calibration contains the times that the machine takes for the steps of a stampede. None of them
// is measured during a stampede.
type calibration struct {
	Start  int64 `json:"startNanos"`  // processor time for each caller
	Client int64 `json:"clientNanos"` // processor time for each of its commands
	Server int64 `json:"serverNanos"` // processor time of Redis for each command
	Script int64 `json:"scriptNanos"` // processor time of Redis for a script
	// Processor time of Redis for each process that gets a message.
	Message  int64 `json:"messageNanos"`
	Idle     int64 `json:"idleNanos"` // the time of a round trip when nothing else runs
	Delivery int64 `json:"deliveryNanos"`
	Late     int64 `json:"lateNanos"`  // the delay of a timer
	Begin    int64 `json:"beginNanos"` // the delay of the first caller
}

// calibrate measures these times with as many processes and callers as the stampede has.
func (p plan) calibrate(ctx context.Context, server *server) (c calibration, err error) {
	rdb := server.rdb
	if err := c.alone(ctx, rdb); err != nil {
		return c, err
	}
	all := int64(p.Processes * p.Callers)
	cores := int64(runtime.NumCPU())
	p.Load = 0
	noop, err := p.runOne(ctx, server, "noop")
	if err != nil {
		return c, err
	}
	before, err := serverTime(ctx, rdb)
	if err != nil {
		return c, err
	}
	ping, err := p.runOne(ctx, server, "ping")
	if err != nil {
		return c, err
	}
	after, err := serverTime(ctx, rdb)
	if err != nil {
		return c, err
	}
	// The 99th percentile of callers is done when 99 of 100 parts of the work are done.
	c.Begin = max(0, 2*noop.P50-noop.P99)
	c.Start = max(1, (noop.P99-c.Begin)*cores*100/99/all)
	c.Server = max(1, (after-before)/(all*int64(p.Rounds+p.warmUp)))
	c.Client = max(1, (ping.P99-c.Begin)*cores*100/99/all-c.Start-c.Server)
	c.Script = c.Server + max(0, c.Script)
	c.Message = c.Server / 2 // a message is only a write, a command is a read and a write
	return c, nil
}

// alone measures the times of steps while nothing else runs.
func (c *calibration) alone(ctx context.Context, rdb *redis.Client) error {
	const times = 1000
	ping, err := repeated(times, func() error { return rdb.Ping(ctx).Err() })
	if err != nil {
		return err
	}
	// This script has as many commands as the scripts of a lease.
	script := redis.NewScript(
		`redis.call('MGET', KEYS[1], KEYS[2]) redis.call('TIME') redis.call('SET', KEYS[1], ARGV[1], 'PX', 1000) return {'granted', '1', 0}`)
	if err := script.Load(ctx, rdb).Err(); err != nil {
		return err
	}
	run, err := repeated(times, func() error {
		return script.EvalSha(ctx, rdb, []string{"{calibrate}1", "{calibrate}2"}, "x").Err()
	})
	if err != nil {
		return err
	}
	c.Idle, c.Script = ping, run-ping

	sub := rdb.Subscribe(ctx, "calibrate")
	defer sub.Close()
	if _, err := sub.Receive(ctx); err != nil {
		return err
	}
	told, err := repeated(times, func() error {
		_, err := sub.ReceiveMessage(ctx)
		return err
	}, func() error { return rdb.Publish(ctx, "calibrate", "x").Err() })
	if err != nil {
		return err
	}
	c.Delivery = told
	const patience = 10 * time.Millisecond
	c.Late, err = repeated(50, func() error {
		timer := time.NewTimer(patience)
		<-timer.C
		return ctx.Err()
	})
	c.Late = max(0, c.Late-int64(patience))
	return err
}

// repeated calls do the given number of times, or fewer times if they take long, and returns the
// median of its times. Before each call of do it calls the functions in first. Their time isn't
// counted.
func repeated(times int, do func() error, first ...func() error) (int64, error) {
	const enough = 20
	var took []int64
	for all := time.Now(); len(took) < times && (len(took) < enough ||
		time.Since(all) < 5*time.Second); {
		for _, f := range first {
			if err := f(); err != nil {
				return 0, err
			}
		}
		began := time.Now()
		if err := do(); err != nil {
			return 0, err
		}
		took = append(took, time.Since(began).Nanoseconds())
	}
	return quantile(took, 0.5), nil
}

// serverTime returns the processor time that Redis has used so far, in nanoseconds.
func serverTime(ctx context.Context, rdb *redis.Client) (int64, error) {
	sys, err := serverSays(ctx, rdb, "cpu", "used_cpu_sys")
	user, err2 := serverSays(ctx, rdb, "cpu", "used_cpu_user")
	return int64((sys + user) * 1e9), errors.Join(err, err2)
}

// burst returns the stampede of p in the form that the simulator runs, with the measured times.
func (c calibration) burst(p plan, seed uint64) simulate.Burst {
	d := func(ns int64) time.Duration { return time.Duration(ns) }
	return simulate.Burst{
		Seed: seed, Processes: p.Processes, Callers: p.Callers, Cores: runtime.NumCPU(),
		Load:      p.Load + d(c.Late),
		PollLeast: pollLeast, PollMost: pollMost,
		RoundTrip: d(max(0, c.Idle-c.Client-c.Server)), Noise: 0, Delivery: d(c.Delivery),
		Start: d(c.Start), Wake: d(c.Start), Client: d(c.Client), Command: d(c.Server),
		Script: d(c.Script), Message: d(c.Message),
	}
}
