package program

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/cacheguard/cacheguard/internal/redistest"
)

// plan is what a stampede measures.
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

	warmUp int // rounds before those that count
}

// stampede runs the standard scenario.
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
	p.Redis = server.addr

	locks := make(map[string]string)
	for _, name := range p.Protections {
		where, stop, err := startLocks(name, p.Redis)
		if err != nil {
			return err
		}
		defer stop()
		locks[name] = where
	}

	all := make(map[string][]tally)
	for range p.Repeat {
		for _, name := range p.Protections {
			t, err := p.runOne(ctx, server.rdb, name, locks[name])
			if err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			all[name] = append(all[name], t)
		}
	}
	return p.print(ctx, stdout, server, all)
}

func parseStampede(args []string, stderr io.Writer) (p plan, err error) {
	flags := flag.NewFlagSet("bench stampede", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.IntVar(&p.Processes, "processes", 16, "replicas, each a process")
	flags.IntVar(&p.Callers, "callers", 250, "callers in each")
	flags.DurationVar(&p.Load, "load", 100*time.Millisecond, "how long a load takes")
	flags.IntVar(&p.Size, "size", 1024, "bytes of the value")
	flags.IntVar(&p.Rounds, "rounds", 20, "cold keys in each repetition")
	flags.IntVar(&p.Repeat, "repeat", 5, "repetitions, each with fresh processes")
	flags.StringVar(&p.Redis, "redis", "", redisHelp)
	names := flags.String("protections", strings.Join(plainNames[1:], ","), "which to compare, of "+strings.Join(protectionNames, ", "))
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

// tally is what one repetition of one protection showed.
type tally struct {
	Loads    []int   `json:"loads"`           // in each round
	Errors   int     `json:"errors"`          // of all callers
	Error    string  `json:"error,omitempty"` // one of them
	P50      int64   `json:"p50Nanos"`        // of latency minus load, all rounds together
	P99      int64   `json:"p99Nanos"`
	First    int64   `json:"firstLoadNanos"` // median over the rounds: until the first load begins
	Tail     int64   `json:"tailNanos"`      // median over the rounds: from the end of the first load to the 99th percentile of callers
	Trips    int64   `json:"trips"`          // most of one process in one round
	Commands []int64 `json:"commands"`       // in each round, also those inside scripts
	Pings    int64   `json:"pings"`          // of those, to see whether the subscription stands
}

// runOne runs all rounds of one repetition with fresh processes.
func (p plan) runOne(ctx context.Context, rdb *redis.Client, name, locks string) (t tally, err error) {
	fleet, err := startFleet(ctx, p.Processes, "replica", "-redis", p.Redis, "-protection", name, "-locks", locks,
		"-callers", strconv.Itoa(p.Callers), "-load", p.Load.String(), "-size", strconv.Itoa(p.Size))
	if err != nil {
		return t, err
	}
	defer func() { err = errors.Join(err, fleet.stop()) }()
	for _, c := range fleet {
		if err := c.read(&report{}); err != nil { // ready
			return t, err
		}
	}
	prefix := freshPrefix()
	var latencies, firsts, tails []int64
	for round := -p.warmUp; round < p.Rounds; round++ {
		if err := redistest.ResetStats(ctx, rdb); err != nil {
			return t, err
		}
		// Time for every process to hear of it and to have its callers stand at the gate.
		lead := 20*time.Millisecond + time.Duration(p.Processes*p.Callers)*5*time.Microsecond
		o := order{Key: fmt.Sprintf("%s%d", prefix, round), At: time.Now().Add(lead).UnixNano()}
		for _, c := range fleet {
			if err := c.order(o); err != nil {
				return t, err
			}
		}
		var loads, one []int64
		for _, c := range fleet {
			var r report
			if err := c.read(&r); err != nil {
				return t, err
			}
			loads, one = append(loads, r.Loads...), append(one, r.Latency...)
			if round < 0 {
				continue
			}
			t.Errors += r.Errors
			if r.Error != "" {
				t.Error = r.Error
			}
			t.Trips = max(t.Trips, r.Trips)
		}
		if round < 0 {
			continue
		}
		commands, pings, err := countCommands(ctx, rdb)
		if err != nil {
			return t, err
		}
		t.Loads = append(t.Loads, len(loads))
		t.Commands = append(t.Commands, commands)
		t.Pings += pings
		for i := range one {
			one[i] -= p.Load.Nanoseconds()
		}
		latencies = append(latencies, one...)
		if len(loads) > 0 {
			first := slices.Min(loads)
			firsts = append(firsts, first)
			tails = append(tails, quantile(one, 0.99)-first)
		}
	}
	t.P50, t.P99 = quantile(latencies, 0.5), quantile(latencies, 0.99)
	t.First, t.Tail = median(firsts), median(tails)
	return t, nil
}

// countCommands counts since the last reset, without what the benchmark itself asked.
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
