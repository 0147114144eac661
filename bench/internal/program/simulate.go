package program

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/cacheguard/cacheguard/internal/simulate"
)

// simulationPlan contains the settings of simulate.
type simulationPlan struct {
	Config   simulate.Config
	Policies []string
	JSON     bool

	Validate   bool
	Redis      string
	Validation validation
}

// simulation simulates fleets that are too large for one machine. With -validate it compares
// simulated stampedes with real ones.
func simulation(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	p, err := parseSimulation(args, stderr)
	if err != nil {
		return err
	}
	if p.Validate {
		server, err := openRedis(ctx, p.Redis)
		if err != nil {
			return err
		}
		defer server.close()
		all, measured, err := p.Validation.run(ctx, server)
		if err != nil {
			return err
		}
		return p.Validation.print(stdout, server.about(ctx), p.JSON, all, measured)
	}
	var results []simulate.Result
	for _, name := range p.Policies {
		r, err := simulate.Run(ctx, p.Config, policyOf(name))
		if err != nil {
			return err
		}
		results = append(results, r)
	}
	return p.print(stdout, results)
}

const simulateHelp = `bench simulate runs a fleet's day in virtual time, once for each policy, and needs no Redis:

  none    every request that finds no value loads
  local   the requests of one process share a load
  lock    as local, and a process loads only with a lock (SET NX PX); the other processes poll
  lease   as local, and a process loads only with a lease; a message wakes the other processes, as in cacheguard
  stale   as lease, and for -stale after its expiry a value is served while it is refreshed
  early   as stale, and readers draw lots for a refresh before the expiry; the fleet begins at most -budget loads at a time

The standard run takes about 15 seconds of one core and 50 MB. The largest run (-replicas 10000 -keys 10000000 -low 50000
-high 200000 -one-by-one 1000000) takes 2 minutes and 600 MB. -steps limits the time and the memory. The same flags give
the same output. The documentation of package simulate lists what the model leaves out. The defaults of the costs were
measured on one machine with Redis 7.0.15 on the loopback device. For a network, set -round-trip 500µs.

-validate runs the stampedes of the command stampede with none, singleflight, singleflight+lock and cacheguard, and
simulates the same stampedes. It first measures the costs without a stampede. It takes a minute or two.

-json prints an object with the members plan (all flags, times in nanoseconds) and results, a list with a member for
each column of the tables, in the order of -policies. With -validate: about, plan, calibrations and results.

`

func parseSimulation(args []string, stderr io.Writer) (p simulationPlan, err error) {
	flags := newFlags("bench simulate", stderr)
	flags.Usage = func() {
		fmt.Fprint(stderr, simulateHelp)
		flags.PrintDefaults()
	}
	p.Config = simulate.Default()
	c := &p.Config
	flags.Uint64Var(&c.Seed, "seed", c.Seed, "seed of all random numbers")
	flags.IntVar(&c.Replicas, "replicas", c.Replicas, "number of processes, at most 10000")
	flags.IntVar(&c.Keys, "keys", c.Keys, "number of keys, at most 10000000")
	flags.Float64Var(&c.Zipf, "zipf", c.Zipf, "exponent of the popularity of keys; 0: all keys are equally popular")
	flags.Float64Var(&c.Low, "low", c.Low,
		"requests a second of the whole fleet at the beginning of a day")
	flags.Float64Var(&c.High, "high", c.High,
		"requests a second of the whole fleet in the middle of a day")
	flags.DurationVar(&c.Day, "day", c.Day, "length of a day")
	flags.DurationVar(&c.Time, "time", c.Time, "length of the simulated time")
	flags.DurationVar(&c.TTL, "ttl", c.TTL, "how long a value is fresh")
	flags.Float64Var(&c.Jitter, "jitter", c.Jitter,
		"largest share by which a TTL is shortened at random")
	flags.DurationVar(&c.Stale, "stale", c.Stale, "stale window of the policies stale and early")
	flags.Float64Var(&c.Beta, "beta", c.Beta, "beta of early refresh: with a larger beta it begins earlier")
	flags.DurationVar(&c.Load, "load", c.Load, "average time of a load")
	flags.Float64Var(&c.Sigma, "sigma", c.Sigma,
		"standard deviation of the logarithm of a load's time; 0: all loads take the same time")
	flags.DurationVar(&c.LoadTimeout, "load-timeout", c.LoadTimeout,
		"longest time of a load, including its wait at the origin")
	flags.IntVar(&c.Capacity, "capacity", c.Capacity,
		"loads that the origin runs at a time; 0: no limit")
	flags.IntVar(&c.Queue, "queue", c.Queue,
		"loads that may wait at the origin, which refuses further loads; 0: no limit")
	flags.IntVar(&c.Budget, "budget", c.Budget,
		"loads that the fleet begins at a time with the policy early")
	flags.DurationVar(&c.Lease, "lease", c.Lease, "time after which a lease ends")
	flags.DurationVar(&c.Lock, "lock", c.Lock, "time after which a lock ends")
	flags.DurationVar(&c.PollLeast, "poll-least", c.PollLeast,
		"shortest time between two looks of a process that waits for a lock")
	flags.DurationVar(&c.PollMost, "poll-most", c.PollMost,
		"longest time between two looks of a process that waits for a lock")
	flags.IntVar(&c.Deploys, "deploys", c.Deploys,
		"number of deploys; in a deploy all replicas restart, one after another")
	flags.DurationVar(&c.DeployTime, "deploy-time", c.DeployTime, "time of a deploy")
	flags.DurationVar(&c.Down, "down", c.Down, "time for which a replica is down in a deploy")
	flags.DurationVar(&c.FailoverAt, "failover-at", c.FailoverAt, "time after which Redis can't be reached")
	flags.DurationVar(&c.FailoverFor, "failover", c.FailoverFor, "time for which Redis can't be reached; 0: it can always be reached")
	flags.BoolVar(&c.Loses, "loses", c.Loses, "after the failover Redis is empty")
	flags.DurationVar(&c.Timeout, "timeout", c.Timeout, "time after which a process gives up a command of Redis")
	flags.BoolVar(&c.FailClosed, "fail-closed", c.FailClosed,
		"while Redis can't be reached, requests get an error instead of a load")
	flags.IntVar(&c.OneByOne, "one-by-one", c.OneByOne,
		"largest number of expiries of a policy that are simulated one by one")
	flags.IntVar(&c.Steps, "steps", c.Steps,
		"largest number of steps of a policy; a policy that needs more is cut short, for example if the origin doesn't recover")
	costs := &c.Costs
	flags.DurationVar(&costs.RoundTrip, "round-trip", costs.RoundTrip,
		"time of a round trip to an idle Redis, without the time that Redis itself needs")
	flags.DurationVar(&costs.Get, "get-time", costs.Get, "time that Redis needs for a plain command")
	flags.DurationVar(&costs.Script, "script-time", costs.Script, "time that Redis needs for the script of a lease")
	flags.DurationVar(&costs.Fill, "fill-time", costs.Fill, "time that Redis needs for the script that stores a value")
	flags.DurationVar(&costs.Message, "message-time", costs.Message,
		"time that Redis needs for each process to which it sends a message")
	flags.DurationVar(&costs.Delivery, "delivery", costs.Delivery, "time until a message has arrived")
	flags.DurationVar(&costs.Noise, "noise", costs.Noise,
		"mean time that scheduling adds to each answer")
	flags.DurationVar(&costs.Wake, "wake", costs.Wake,
		"processor time that each woken caller needs")
	var all []string
	for _, policy := range simulate.Policies {
		all = append(all, policy.Name)
	}
	names := flags.String("policies", strings.Join(all, ","), "the policies to compare")
	flags.BoolVar(&p.JSON, "json", false, "print JSON")

	v := &p.Validation
	flags.BoolVar(&p.Validate, "validate", false,
		"compare simulated stampedes with real stampedes; only -load, -processes, -callers, -rounds, -runs, -redis and -json go with it")
	processes := flags.String("processes", "4,8,16",
		"numbers of processes of the stampedes of -validate")
	flags.IntVar(&v.Callers, "callers", 100, "callers in each process of the stampedes of -validate")
	flags.IntVar(&v.Rounds, "rounds", 8, "cold keys in each run of -validate")
	flags.IntVar(&v.Runs, "runs", 3, "runs of each stampede of -validate, each with fresh processes")
	flags.StringVar(&p.Redis, "redis", "", redisHelp)
	if err := parse(flags, args); err != nil {
		return p, err
	}
	if err := p.refuseIgnored(flags); err != nil {
		return p, err
	}
	v.Load = c.Load
	if err := c.Validate(); err != nil {
		return p, usageError("the flags are named like these fields: " + err.Error())
	}
	var wrong error
	v.Processes, wrong = counts("processes", *processes, 1, 256)
	p.Policies, err = chosen("policies", *names, all)
	if wrong == nil && len(v.Processes) == 0 {
		wrong = usageError("-processes names none")
	}
	return p, cmp.Or(err, wrong, within("callers", v.Callers, 1, 100000),
		within("rounds", v.Rounds, 1, 10000), within("runs", v.Runs, 1, 1000))
}

// ofStampedes are the flags that have a meaning only with -validate.
var ofStampedes = []string{"processes", "callers", "rounds", "runs", "redis"}

// refuseIgnored returns an error for flags that would be ignored.
func (p simulationPlan) refuseIgnored(flags *flag.FlagSet) (err error) {
	flags.Visit(func(f *flag.Flag) {
		of := slices.Contains(ofStampedes, f.Name)
		switch {
		case of && !p.Validate:
			err = cmp.Or(err, error(usageError(fmt.Sprintf("-%s is for -validate", f.Name))))
		case !of && p.Validate && !slices.Contains([]string{"validate", "load", "json"}, f.Name):
			err = cmp.Or(err, error(usageError(fmt.Sprintf("-%s is not for -validate", f.Name))))
		}
	})
	return err
}

func (p simulationPlan) print(w io.Writer, results []simulate.Result) error {
	if p.JSON {
		return printJSON(w, map[string]any{"plan": p.Config, "results": results})
	}
	c := p.Config
	var s sheet
	s.say("simulated: %d replicas, %d keys (Zipf %v), %v to %v requests a second, %v, TTL %v, load %v, origin runs %s, seed %d\n",
		c.Replicas, c.Keys, c.Zipf, c.Low, c.High, c.Time, c.TTL, c.Load, limit(c.Capacity), c.Seed)
	s.say("%d deploys of %v; Redis can't be reached for %v after %v, and comes back %s\n\n",
		c.Deploys, c.DeployTime, c.FailoverFor, c.FailoverAt,
		map[bool]string{false: "with its data", true: "empty"}[c.Loses])
	rounded := func(format string, v float64) string { return fmt.Sprintf(format, v) }
	s.columns("origin", "loads", "per s", "peak per s", "calm peak", "most of one", "at once",
		"longest wait ms", "commands",
		"peak per s", "messages", "peak per s", "Redis busy", "peak")
	for _, r := range results {
		s.row(r.Policy, r.Loads, rounded("%.1f", r.LoadsPerSecond), r.PeakLoads, r.CalmPeakLoads,
			r.MostOfOne, r.LoadsAtOnce,
			rounded("%.0f", float64(r.LoadWait)/1e6), r.Commands, r.PeakCommands, r.Messages,
			r.PeakMessages,
			rounded("%.0f%%", 100*r.RedisBusyMean), rounded("%.0f%%", 100*r.RedisBusy))
	}
	s.say(`
per s: the average of a second. peak: the largest number in a second. calm peak: the peak outside of the failover and of the
minute after it. most of one: the largest number of loads of one key between two values. at once: the largest number of loads
that run at the same time. longest wait: the longest wait of a load in the origin's queue. messages: the number of deliveries,
one for each process that listens. commands: a script counts as one command.

`)
	s.columns("requests", "all", "found none", "stale", "errors", "of them in failover", "p50 ms",
		"p99 ms", "p99.9 ms", "max ms",
		"found none: p50 ms", "p99 ms", "p99.9 ms")
	for _, r := range results {
		s.row(r.Policy, r.Requests, r.Loaded, r.Stale, r.Errors, r.Failover,
			millisOf(r.All.P50), millisOf(r.All.P99), millisOf(r.All.P999), millisOf(r.All.Max),
			millisOf(r.Missed.P50), millisOf(r.Missed.P99), millisOf(r.Missed.P999))
	}
	for _, r := range results {
		if r.Until < c.Time.Truncate(time.Second) {
			s.say("\n%s was cut short after %v, because it needs more than -steps steps: too many requests find no value while the origin is busy. Its figures are those until then.\n",
				r.Policy, r.Until.Round(time.Second))
		}
	}
	r := results[0]
	s.say("\n%d keys with %.0f%% of the requests are simulated one by one. The other keys are simulated in bulk: for the most popular of them, %.3f requests come during a load.\n",
		r.OneByOne, 100*r.OneByOnePart, r.Overlap)
	return s.printTo(w)
}

func limit(n int) string {
	if n == 0 {
		return "any number at a time"
	}
	return fmt.Sprintf("%d at a time", n)
}

// millisOf formats a time in nanoseconds as milliseconds.
func millisOf(ns int64) string { return fmt.Sprintf("%.2f", float64(ns)/float64(time.Millisecond)) }
