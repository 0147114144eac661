package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/cacheguard/cacheguard/internal/redistest"
)

// plan is what a stampede measures.
type plan struct {
	Processes, Callers int
	Load               time.Duration
	Size               int
	Rounds, Repeat     int
	Redis              string
	Protections        []string
	JSON               bool `json:"-"`
}

// stampede runs the standard scenario.
func stampede(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	p, err := parseStampede(args, stderr)
	if err != nil {
		return err
	}
	source := "given with -redis"
	if p.Redis == "" {
		server, err := redistest.NewServer()
		if errors.Is(err, redistest.ErrNoServer) {
			return errors.New("no redis-server on the PATH to start; name one with -redis host:port")
		} else if err != nil {
			return err
		}
		defer server.Stop()
		p.Redis, source = server.Addr(), "started for this run"
	}
	rdb := redis.NewClient(&redis.Options{Addr: p.Redis})
	defer rdb.Close()

	all := make(map[string][]tally)
	for n := range p.Repeat {
		for _, name := range p.Protections {
			t, err := p.runOne(ctx, rdb, name, n)
			if err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			all[name] = append(all[name], t)
		}
	}
	return p.print(ctx, stdout, rdb, source, all)
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
	flags.StringVar(&p.Redis, "redis", "", "host:port of a Redis to use; default: start a redis-server")
	names := flags.String("protections", strings.Join(protectionNames[1:], ","), "which to compare, of "+strings.Join(protectionNames, ", "))
	flags.BoolVar(&p.JSON, "json", false, "print JSON")
	if err := flags.Parse(args); errors.Is(err, flag.ErrHelp) {
		return p, err
	} else if err != nil {
		return p, usageError(err.Error())
	}
	if flags.NArg() > 0 {
		return p, usageError(fmt.Sprintf("unexpected argument %q", flags.Arg(0)))
	}
	for _, n := range []struct {
		name        string
		value, most int
		least       int
	}{{"processes", p.Processes, 256, 1}, {"callers", p.Callers, 100000, 1}, {"rounds", p.Rounds, 10000, 1}, {"repeat", p.Repeat, 1000, 1}, {"size", p.Size, 64 << 20, 0}} {
		if n.value < n.least || n.value > n.most {
			return p, usageError(fmt.Sprintf("-%s is %d, it must be from %d to %d", n.name, n.value, n.least, n.most))
		}
	}
	if p.Load < 0 || p.Load > 30*time.Second {
		return p, usageError(fmt.Sprintf("-load is %v, it must be from 0 to 30s", p.Load))
	}
	p.Protections = strings.Split(*names, ",")
	for _, name := range p.Protections {
		if protections[name] == nil {
			return p, usageError(fmt.Sprintf("-protections has %q, which is none of %s", name, strings.Join(protectionNames, ", ")))
		}
	}
	return p, nil
}

// tally is what one repetition of one protection showed. Times are in nanoseconds.
type tally struct {
	Loads    []int   // in each round
	Errors   int     // of all callers
	Error    string  // one of them
	P50, P99 int64   // of latency minus load, all rounds together
	First    int64   // median over the rounds: until the first load begins
	Tail     int64   // median over the rounds: from the end of the first load to the 99th percentile of callers
	Trips    int64   // most of one process in one round
	Commands []int64 // in each round, also those inside scripts
	Pings    int64   // of those, to see whether the subscription stands
}

// runOne runs all rounds of one repetition with fresh processes.
func (p plan) runOne(ctx context.Context, rdb *redis.Client, name string, repetition int) (t tally, err error) {
	fleet := make([]*child, p.Processes)
	defer func() {
		for _, c := range fleet {
			if c != nil {
				err = errors.Join(err, c.stop())
			}
		}
	}()
	for i := range fleet {
		if fleet[i], err = p.start(ctx, name); err != nil {
			return t, err
		}
	}
	for _, c := range fleet {
		if _, err := c.read(); err != nil { // ready
			return t, err
		}
	}
	var latencies, firsts, tails []int64
	for round := range p.Rounds {
		if err := redistest.ResetStats(ctx, rdb); err != nil {
			return t, err
		}
		// Time for every process to hear of it and to have its callers stand at the gate.
		lead := 20*time.Millisecond + time.Duration(p.Processes*p.Callers)*5*time.Microsecond
		o := order{Key: fmt.Sprintf("%s:%d:%d", name, repetition, round), At: time.Now().Add(lead).UnixNano()}
		for _, c := range fleet {
			if err := c.out.Encode(o); err != nil {
				return t, err
			}
		}
		var loads, one []int64
		for _, c := range fleet {
			r, err := c.read()
			if err != nil {
				return t, err
			}
			loads, one = append(loads, r.Loads...), append(one, r.Latency...)
			t.Errors += r.Errors
			if r.Error != "" {
				t.Error = r.Error
			}
			t.Trips = max(t.Trips, r.Trips)
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
	t.First, t.Tail = quantile(firsts, 0.5), quantile(tails, 0.5)
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

// quantile returns the q-quantile of values, 0 of none. It leaves the order alone.
func quantile(values []int64, q float64) int64 {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	return sorted[min(int(q*float64(len(sorted))), len(sorted)-1)]
}

// child is a replica's process.
type child struct {
	cmd *exec.Cmd
	in  io.Closer
	out *json.Encoder
	dec *json.Decoder
}

func (p plan) start(ctx context.Context, name string) (*child, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, self, "replica", "-redis", p.Redis, "-protection", name,
		"-callers", strconv.Itoa(p.Callers), "-load", p.Load.String(), "-size", strconv.Itoa(p.Size))
	cmd.Env = append(os.Environ(), "CACHEGUARD_BENCH_REPLICA=1")
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	return &child{cmd: cmd, in: in, out: json.NewEncoder(in), dec: json.NewDecoder(bufio.NewReader(out))}, nil
}

func (c *child) read() (r report, err error) {
	if err := c.dec.Decode(&r); err != nil {
		return r, fmt.Errorf("a replica ended: %w", err)
	}
	return r, nil
}

// stop ends the replica by the end of its orders.
func (c *child) stop() error {
	_ = c.in.Close()
	return c.cmd.Wait()
}
