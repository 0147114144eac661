package program

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/cacheguard/cacheguard/bench/internal/contender"
	"github.com/cacheguard/cacheguard/internal/redistest"
)

// These are the protections of a stampede, in the order in which they are listed.
var (
	plainNames      = []string{"none", "singleflight", "flight", "cacheguard"}
	protectionNames = slices.Concat(plainNames, []string{contender.FlightLock}, lockSystemNames)
)

// plan contains the settings of a stampede.
type plan struct {
	Processes   int           `json:"processes"`
	Callers     int           `json:"callers"`
	Load        time.Duration `json:"loadNanos"`
	Size        int           `json:"size"`
	Rounds      int           `json:"rounds"`
	Repeat      int           `json:"repeat"`
	Protections []string      `json:"protections"`
	Redis       string        `json:"-"`
	JSON        bool          `json:"-"`

	warmUp int // rounds before the counted rounds
}

// stampede runs the scenario cold for each protection.
func stampede(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	p, err := parseStampede(args, stderr)
	if err != nil {
		return err
	}
	server, err := openRedis(ctx, p.Redis)
	if err != nil {
		return err
	}
	defer server.close()
	all := make(map[string][]tally)
	for range p.Repeat {
		for _, name := range p.Protections {
			t, err := p.runOne(ctx, server, name)
			if err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			all[name] = append(all[name], t)
		}
	}
	return p.print(stdout, server.about(ctx), all)
}

func parseStampede(args []string, stderr io.Writer) (p plan, err error) {
	flags := newFlags("bench stampede", stderr)
	flags.IntVar(&p.Processes, "processes", 16, "number of processes")
	flags.IntVar(&p.Callers, "callers", 250, "callers in each process")
	flags.DurationVar(&p.Load, "load", 100*time.Millisecond, "how long a load takes")
	flags.IntVar(&p.Size, "size", 1024, "size of a value in bytes")
	flags.IntVar(&p.Rounds, "rounds", 20, "cold keys in each repetition")
	flags.IntVar(&p.Repeat, "repeat", 5, "repetitions, each with fresh processes")
	flags.StringVar(&p.Redis, "redis", "", redisHelp)
	names := flags.String("protections", strings.Join(plainNames[1:], ","),
		"the protections to compare, of "+strings.Join(protectionNames, ", "))
	flags.BoolVar(&p.JSON, "json", false, "print JSON")
	if err := parse(flags, args); err != nil {
		return p, err
	}
	p.Protections, err = chosen("protections", *names, protectionNames)
	return p, cmp.Or(err,
		within("processes", p.Processes, 1, 256), within("callers", p.Callers, 1, 100000),
		within("rounds", p.Rounds, 1, 10000), within("repeat", p.Repeat, 1, 1000),
		within("size", p.Size, 0, 64<<20), within("load", p.Load, 0, 30*time.Second))
}

// tally is the result of one repetition of one protection.
type tally struct {
	Loads  []int  `json:"loads"`           // in each round
	Errors int    `json:"errors"`          // of all callers
	Error  string `json:"error,omitempty"` // one of them
	P50    int64  `json:"p50Nanos"`        // over all rounds: a caller's latency minus the load
	P99    int64  `json:"p99Nanos"`
	First  int64  `json:"firstLoadNanos"` // median over the rounds: until the first load begins
	// Median over the rounds: from the end of the first load to the 99th percentile of callers.
	Tail     int64   `json:"tailNanos"`
	Trips    int64   `json:"trips"`    // the most trips of one process in one round
	Commands []int64 `json:"commands"` // in each round, including commands in scripts
	// Commands that check whether the subscription is alive, in all rounds.
	Pings int64 `json:"pings"`
}

// stampeder returns the contender of a protection. The name of a locker means the loader with the
// locks of this locker.
func stampeder(name string) (contender.Contender, error) {
	known := name
	if slices.Contains(lockSystemNames, name) {
		known = lockPrefix + name
	}
	chosen, err := contender.Named(Peers{}.known(), known)
	if err != nil {
		return contender.Contender{}, err
	}
	chosen[0].OwnClient = false // the loader's own commands are counted in any case
	return chosen[0], nil
}

// pollMost is the longest time that a polling process waits before it looks again, and pollLeast is
// the shortest.
const (
	pollMost  = 100 * time.Millisecond
	pollLeast = pollMost / 2
)

// runOne runs all rounds of one repetition with fresh processes.
func (p plan) runOne(ctx context.Context, server *server, name string) (t tally, err error) {
	c, err := stampeder(name)
	if err != nil {
		return t, err
	}
	a := &arena{server: server, WarmUp: p.warmUp, setting: setting{
		Processes: p.Processes, Callers: p.Callers, Load: p.Load, Size: p.Size, Rounds: p.Rounds,
		TTL: time.Minute, LockTTL: benchLease, Poll: pollMost, Patience: time.Minute + 2*p.Load,
	}}
	r, err := a.hold(ctx, scenarioNamed("cold"), c)
	t = tally{
		Loads: r.Loads, Errors: r.Errors + r.Stuck, Error: r.Error, Trips: r.Trips,
		P50: r.P50 - p.Load.Nanoseconds(), P99: r.P99 - p.Load.Nanoseconds(),
		First: median(r.First), Tail: median(r.Tails),
	}
	for n, pings := range r.Pings {
		t.Commands = append(t.Commands, r.Commands[n]+pings)
		t.Pings += pings
	}
	return t, err
}

// countCommands returns the number of commands since the last reset, without the benchmark's own
// commands.
func countCommands(ctx context.Context, rdb *redis.Client) (commands, pings int64, err error) {
	stats, err := redistest.CommandStats(ctx, rdb)
	if err != nil {
		return 0, 0, err
	}
	for name, calls := range stats {
		switch {
		case name == "INFO" || strings.HasPrefix(name, "CONFIG"):
		case name == "PING":
			pings += calls
			commands += calls
		default:
			commands += calls
		}
	}
	return commands, pings, nil
}

func (p plan) print(w io.Writer, about about, all map[string][]tally) error {
	if p.JSON {
		return printJSON(w, map[string]any{"about": about, "plan": p, "results": all})
	}
	var s sheet
	s.say("%d processes x %d callers on one cold key, load %v, value %d bytes, %d rounds x %s\n%v\n\n",
		p.Processes, p.Callers, p.Load, p.Size, p.Rounds, repetitions(p.Repeat), about)
	s.columns("protection", "loads", "errors", "p50 ms", "p99 ms", "first load ms", "tail ms",
		"trips", "commands")
	for _, name := range p.Protections {
		ts := all[name]
		loads := flat(ts, func(t tally) []int { return t.Loads })
		s.row(name, span(loads), total(ts, func(t tally) int { return t.Errors }),
			ms(ts, func(t tally) int64 { return t.P50 }),
			ms(ts, func(t tally) int64 { return t.P99 }),
			ms(ts, func(t tally) int64 { return t.First }),
			ms(ts, func(t tally) int64 { return t.Tail }),
			most(ts, func(t tally) int { return int(t.Trips) }),
			slices.Max(flat(ts, func(t tally) []int64 { return t.Commands })))
	}
	s.say(`
loads: the least and the largest number of loads in a round. p50, p99: the latency without the load, the median of the
repetitions, with the least and the most in brackets. first load: the time from the start to the first load. tail: the time from
the end of the first load to the 99th percentile. trips: the largest number of round trips of one process to Redis. commands: the
largest number of commands of all processes in one round, including commands in scripts.
`)
	// Flight needs no lease.
	if guarded, floor := all["cacheguard"], all["flight"]; guarded != nil && floor != nil {
		p99 := func(t tally) int64 { return t.P99 }
		a, b := float64(middle(guarded, p99)), float64(middle(floor, p99))
		s.say("\np99 of cacheguard over flight without the lease: %.2f times, %+.2f ms\n", a/b,
			(a-b)/1e6)
	}
	return s.printTo(w)
}
