package program

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"iter"
	"strings"
	"time"

	"github.com/cacheguard/cacheguard/bench/internal/contender"
	"github.com/cacheguard/cacheguard/bench/internal/slowdb"
)

// steady is a constant load on one hot key, whatever the answers. expiry and outage both use it.
type steady struct {
	Processes   int           `json:"processes"`
	Rate        int           `json:"rate"` // requests a second of each process
	Size        int           `json:"size"`
	Repeat      int           `json:"repeat"`
	TTL         time.Duration `json:"ttlNanos"`
	Load        time.Duration `json:"loadNanos"`
	Protections []string      `json:"protections"`
	Redis       string        `json:"-"`
	JSON        bool          `json:"-"`

	names *string // the value of -protections
	of    []string
}

func (s *steady) flags(flags *flag.FlagSet, of ...string) {
	flags.IntVar(&s.Processes, "processes", 4, "number of processes")
	flags.IntVar(&s.Rate, "rate", 500,
		"requests per second of each process, whether or not earlier requests have been answered")
	flags.DurationVar(&s.TTL, "ttl", time.Second, "how long a value is fresh")
	flags.DurationVar(&s.Load, "load", 100*time.Millisecond, "how long a load takes")
	flags.IntVar(&s.Size, "size", 1024, "size of a value in bytes")
	flags.IntVar(&s.Repeat, "repeat", 1, "repetitions, each with fresh processes and another order of the protections")
	flags.StringVar(&s.Redis, "redis", "", redisHelp)
	s.of = of
	s.names = flags.String("protections", strings.Join(of, ","),
		"the protections to compare, of "+strings.Join(of, ", "))
	flags.BoolVar(&s.JSON, "json", false, "print JSON")
}

func (s *steady) validate() (err error) {
	s.Protections, err = chosen("protections", *s.names, s.of)
	return cmp.Or(err,
		within("processes", s.Processes, 1, 256), within("rate", s.Rate, 1, 100000),
		within("size", s.Size, versionDigits, 64<<20),
		within("repeat", s.Repeat, 1, 1000), within("ttl", s.TTL, 10*time.Millisecond, time.Hour),
		within("load", s.Load, 0, 30*time.Second))
}

// course describes a run: its length, and the time in which the origin is down.
type course struct {
	Time, Backoff        time.Duration
	OutageAfter, Outlast time.Duration // Outlast 0: the origin is never down
}

// sight contains the observations of a fleet for one protection in one repetition.
type sight struct {
	Start, End int64 // the times at which the clock started and ended
	Outage     period
	Replicas   []record
	Loads      []load // of all replicas
	Interval   time.Duration
	// The delay of each replica's arrivals after those of the previous replica.
	Offset time.Duration
}

// due returns the time at which the k-th request of a replica was due.
func (s sight) due(replica, k int) int64 {
	return s.Start + int64(replica)*int64(s.Offset) + int64(k)*int64(s.Interval)
}

// measured runs a fleet for each protection in each repetition, and tallies its observations.
func measured[T any](
	ctx context.Context, s *steady, server *server, c course, tally func(name string, seen sight) T,
) (map[string][]T, error) {
	all := map[string][]T{}
	for _, name := range turns(s.Repeat, s.Protections) {
		seen, err := s.run(ctx, server, c, name)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		all[name] = append(all[name], tally(name, seen))
	}
	return all, nil
}

// run runs a fleet for one protection. The cache is filled before requests arrive.
func (s *steady) run(
	ctx context.Context, server *server, c course, name string,
) (seen sight, err error) {
	chosen, err := contender.Named(Peers{}.known(), name)
	if err != nil {
		return seen, err
	}
	a := &arena{server: server, Backoff: c.Backoff, setting: setting{
		Processes: s.Processes, Load: s.Load, Size: s.Size, Rounds: 1,
		TTL: s.TTL, LockTTL: benchLease, Patience: c.Time + time.Minute,
	}}
	_, err = a.hold(ctx, scenario{run: func(t *contest) error {
		plan := slowdb.Plan{Takes: s.Load, Dated: true}
		key := t.key(plan)
		if err := t.wait(t.burst(key, 1), 1, &t.result.Stale); err != nil {
			return err
		}
		interval := time.Second / time.Duration(s.Rate)
		// The time before the clock starts, in which connections are dialled.
		warmUp := max(2*s.Load, min(c.Time, time.Second))
		start := time.Now().Add(warmUp + 100*time.Millisecond)
		seen = sight{
			Start: start.UnixNano(), End: start.Add(c.Time).UnixNano(),
			Interval: interval, Offset: interval / time.Duration(s.Processes),
		}
		if c.Outlast > 0 {
			plan.Down = start.Add(c.OutageAfter)
			plan.Up = plan.Down.Add(c.Outlast)
			seen.Outage = period{plan.Down.UnixNano(), plan.Up.UnixNano()}
			t.origin.Replan(key, plan)
		}
		seen.Replicas, err = askAll(t.ctx, t.fleet, func(i int) job[record] {
			return shift{
				key, seen.due(i, 0), interval, int(warmUp / interval), int(c.Time / interval),
			}
		})
		for _, l := range t.origin.Loads(key) {
			seen.Loads = append(seen.Loads, loadOf(l))
		}
		return err
	}}, chosen[0])
	return seen, err
}

// period is the time from From until just before To, in nanoseconds since 1970.
type period struct{ From, To int64 }

func (s period) has(at int64) bool { return s.From <= at && at < s.To }

// load is one call of the origin. Moments are in nanoseconds since 1970.
type load struct {
	Begin, End int64   // End is 0 while it runs
	Made       version // 0 if it failed
	Replaces   version // the version that its caller already had, or 0
}

func loadOf(l slowdb.Load) load {
	one := load{Begin: l.Begin.UnixNano(), Replaces: version(l.Replaces)}
	if !l.End.IsZero() {
		one.End = l.End.UnixNano()
		if !l.Failed && !l.GivenUp {
			one.Made = version(l.Version)
		}
	}
	return one
}

// steadyTally is the common part of the tallies of expiry and outage.
type steadyTally struct {
	Requests int    `json:"requests"`
	Errors   int    `json:"errors"`
	Stale    int    `json:"stale"`           // answers that the protection itself reported as stale
	Error    string `json:"error,omitempty"` // one of them
	P50      int64  `json:"p50Nanos"`
	P99      int64  `json:"p99Nanos"`
	P999     int64  `json:"p999Nanos"`
	Max      int64  `json:"maxNanos"`
	Late     int    `json:"late"`          // arrivals issued too late
	LateP999 int64  `json:"lateP999Nanos"` // of all arrivals
}

// tally counts the requests that arrived in a period, and calls look for each.
func (s sight) tally(in period, look func(request)) (t steadyTally) {
	var took, late []int64
	for q := range s.requests(in) {
		t.Requests++
		took = append(took, q.Latency)
		switch q.Kind {
		case failed:
			t.Errors++
		case stale:
			t.Stale++
		}
		look(q)
	}
	for _, r := range s.Replicas {
		late, t.Error = append(late, r.Late...), cmp.Or(t.Error, r.Error)
	}
	for _, by := range late {
		if by > int64(tooLate) {
			t.Late++
		}
	}
	t.P50, t.P99, t.P999, t.Max = quantile(took, 0.5), quantile(took, 0.99), quantile(took, 0.999),
		quantile(took, 1)
	t.LateP999 = quantile(late, 0.999)
	return t
}

// request is a request that arrived after the clock started.
type request struct {
	Due, Latency int64
	Kind         kind
	Made         version
}

// requests yields the requests of all replicas that arrived in a period.
func (s sight) requests(in period) iter.Seq[request] {
	return func(yield func(request) bool) {
		for i, r := range s.Replicas {
			for k := range r.Latency {
				q := request{
					Due: s.due(i, k), Latency: r.Latency[k], Kind: r.Kind[k], Made: r.Made[k],
				}
				if in.has(q.Due) && !yield(q) {
					return
				}
			}
		}
	}
}

// noise explains the last columns.
var noise = fmt.Sprintf(
	"late: the number of requests that the generator issued more than %v late. late p99.9: the 99.9th percentile of this delay of all requests. Both show the noise of the machine.",
	tooLate)

// heading begins a sheet with a description of the run.
func (s *steady) heading(what string, about about) *sheet {
	var sheet sheet
	sheet.say("%d processes x %d requests per second on one hot key, open loop, TTL %v, load %v, value %d bytes, %s x %s\n%v\n\n",
		s.Processes, s.Rate, s.TTL, s.Load, s.Size, what, repetitions(s.Repeat), about)
	return &sheet
}
