package program

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/cacheguard/cacheguard/bench/internal/contender"
)

// growthFloor is the contender with which costs are compared. Each of its processes loads by
// itself, and doesn't wait for another process.
const growthFloor = "singleflight"

// growthPlan contains the settings of growth, which measures a cold key with larger and larger
// fleets.
type growthPlan struct {
	// The numbers of processes, each process with growthCallers callers.
	Processes []int         `json:"processes"`
	Callers   []int         `json:"callers"` // the numbers of callers in each of growthProcesses
	Load      time.Duration `json:"loadNanos"`
	Rounds    int           `json:"rounds"`
	Repeat    int           `json:"repeat"`
	Contender string        `json:"contender"`
	Idle      int           `json:"idle"` // idle processes in addition, in the last part

	redis string
	json  bool
	html  string // file
}

const (
	growthProcesses = 4
	growthCallers   = 50
)

// growthRow is the result for a fleet of one size.
type growthRow struct {
	Processes int         `json:"processes"`
	Callers   int         `json:"callers"`
	Loads     int         `json:"loads"`        // the most of a round
	Errors    int         `json:"errors"`       // of callers, including stuck callers
	Commands  int64       `json:"commands"`     // the median of the rounds
	Most      int64       `json:"mostCommands"` // of a round
	Took      growthTimes `json:"took"`
	Floor     growthTimes `json:"floor"` // the times of singleflight in the same repetitions
}

// growthTimes has one value for each repetition.
type growthTimes struct {
	P99 []int64 `json:"p99Nanos"` // of latency without the load
	// The time until the first load begins, the median of the rounds.
	First []int64 `json:"firstLoadNanos"`
	// The p99 of the time from the end of the load to a caller's answer.
	Woken []int64 `json:"wakeUpP99Nanos"`
}

// growth runs fleets of growing size, and shows which costs grow with them.
func growth(ctx context.Context, peers Peers, args []string, stdout, stderr io.Writer) error {
	p, err := parseGrowth(peers, args, stderr)
	if err != nil {
		return err
	}
	server, err := openRedis(ctx, p.redis) // an embedded Redis doesn't count commands
	if err != nil {
		return err
	}
	defer server.close()
	going := newProgress(stderr)
	byProcesses, byCallers, err := p.rows(ctx, server, peers, going)
	var beside []idleRow
	if err == nil && p.Idle > 0 {
		going.say("%d idle processes", 2*p.Idle)
		beside, err = p.idle(ctx, server)
	}
	going.done()
	if err != nil {
		return err
	}
	about := server.about(ctx)
	if p.html != "" {
		if err := writePage(p.html, p.page(about, byProcesses, byCallers), stderr); err != nil {
			return err
		}
	}
	return p.print(stdout, about, byProcesses, byCallers, beside)
}

// rows runs all fleets, and returns their results.
func (p growthPlan) rows(
	ctx context.Context, server *server, peers Peers, going *progress,
) (byProcesses, byCallers []growthRow, err error) {
	names := []string{growthFloor, p.Contender}
	if p.Contender == growthFloor {
		names = names[:1]
	}
	chosen, err := contender.Named(peers.contenders(), names...)
	if err != nil {
		return nil, nil, err
	}
	row := func(processes, callers int) growthRow {
		if err != nil {
			return growthRow{}
		}
		going.say("%d processes, %d callers", processes, callers)
		var r growthRow
		r, err = p.row(ctx, server, chosen, processes, callers)
		return r
	}
	for _, n := range p.Processes {
		byProcesses = append(byProcesses, row(n, growthCallers))
	}
	for _, n := range p.Callers {
		byCallers = append(byCallers, row(growthProcesses, n))
	}
	return byProcesses, byCallers, err
}

func parseGrowth(peers Peers, args []string, stderr io.Writer) (p growthPlan, err error) {
	flags := newFlags("bench growth", stderr)
	processes := flags.String("processes", "1,2,4,8,16,32",
		fmt.Sprintf("numbers of processes, each with %d callers", growthCallers))
	callers := flags.String("callers", "10,100,1000,5000",
		fmt.Sprintf("numbers of callers in each of %d processes", growthProcesses))
	flags.DurationVar(&p.Load, "load", 100*time.Millisecond, "how long a load takes")
	flags.IntVar(&p.Rounds, "rounds", 6, "cold keys in each repetition")
	flags.IntVar(&p.Repeat, "repeat", 3, "repetitions, each with fresh processes")
	flags.StringVar(&p.redis, "redis", "", redisHelp)
	flags.StringVar(&p.Contender, "contender", "cacheguard",
		"the contender that is compared with "+growthFloor)
	flags.IntVar(&p.Idle, "idle", 100,
		"number of idle processes beside which the cost of two busy processes is measured, first with another cache and then also with the same cache; 0: this isn't measured")
	flags.BoolVar(&p.json, "json", false, "print JSON")
	flags.StringVar(&p.html, "html", "", "`file` to which a page with charts is written")
	if err := parse(flags, args); err != nil {
		return p, err
	}
	var wrongProcesses, wrongCallers error
	p.Processes, wrongProcesses = counts("processes", *processes, 1, 256)
	p.Callers, wrongCallers = counts("callers", *callers, 1, 100000)
	names := contender.Names(peers.contenders())
	one, err := chosen("contender", p.Contender, names)
	if err == nil && len(one) != 1 {
		err = usageError(fmt.Sprintf("-contender has %q, it takes one", p.Contender))
	}
	return p, cmp.Or(wrongProcesses, wrongCallers, err, within("load", p.Load, 0, 30*time.Second),
		within("rounds", p.Rounds, 1, 10000), within("repeat", p.Repeat, 1, 1000),
		within("idle", p.Idle, 0, 1000))
}

// row runs the floor and the contender with a fleet of one size, one after the other in each
// repetition.
func (p growthPlan) row(
	ctx context.Context, server *server, chosen []contender.Contender, processes, callers int,
) (growthRow, error) {
	a := &arena{server: server, setting: setting{
		Processes: processes, Callers: callers, Load: p.Load, Size: 1024, Rounds: p.Rounds,
		TTL: time.Minute, LockTTL: benchLease, Poll: 100 * time.Millisecond,
		Patience: 30*time.Second + 2*p.Load,
	}}
	row := growthRow{Processes: processes, Callers: callers}
	var commands []int64
	for _, c := range turns(p.Repeat, chosen) {
		r, err := a.hold(ctx, scenarioNamed("cold"), c)
		if err != nil {
			return row,
				fmt.Errorf("%d processes, %d callers, %s: %w", processes, callers, c.Name, err)
		}
		times := &row.Took
		if c.Name == growthFloor && len(chosen) > 1 {
			times = &row.Floor
		} else {
			row.Loads = max(row.Loads, slices.Max(r.Loads))
			row.Errors += r.Errors + r.Stuck
			commands = append(commands, r.Commands...)
		}
		times.P99 = append(times.P99, r.P99-p.Load.Nanoseconds())
		times.First = append(times.First, median(r.First))
		times.Woken = append(times.Woken, quantile(r.Woken, 0.99))
	}
	row.Commands, row.Most = median(commands), quantile(commands, 1)
	return row, nil
}

// slope returns the number of commands that each additional process adds to a round, and the fixed
// number, by least squares.
func slope(rows []growthRow) (perProcess, fixed float64) {
	var n, x, y, xx, xy float64
	for _, r := range rows {
		n, x, y = n+1, x+float64(r.Processes), y+float64(r.Commands)
		xx, xy = xx+float64(r.Processes)*float64(r.Processes), xy+
			float64(r.Processes)*float64(r.Commands)
	}
	if d := n*xx - x*x; d != 0 {
		perProcess = (n*xy - x*y) / d
	}
	return perProcess, (y - perProcess*x) / max(n, 1)
}

func (p growthPlan) print(
	w io.Writer, about about, byProcesses, byCallers []growthRow, beside []idleRow,
) error {
	perProcess, fixed := slope(byProcesses)
	if p.json {
		all := map[string]any{
			"about": about, "plan": p, "byProcesses": byProcesses, "byCallers": byCallers,
			"idle": beside,
		}
		if len(byProcesses) > 1 {
			all["commandsPerProcess"], all["commandsFixed"] = perProcess, fixed
		}
		return printJSON(w, all)
	}
	var s sheet
	s.say("%s on a cold key, load %v, %d rounds x %s\n%v\n", p.Contender, p.Load, p.Rounds,
		repetitions(p.Repeat), about)
	for _, rows := range [][]growthRow{byProcesses, byCallers} {
		if len(rows) == 0 {
			continue
		}
		s.say("\n")
		of := "of " + growthFloor
		s.columns("processes", "callers", "loads", "errors", "commands", "most",
			"p99 ms", of, "first load ms", of, "wake-up ms", of)
		for _, r := range rows {
			s.row(r.Processes, r.Callers, r.Loads, r.Errors, r.Commands, r.Most, spread(r.Took.P99),
				spread(r.Floor.P99),
				spread(r.Took.First), spread(r.Floor.First), spread(r.Took.Woken),
				spread(r.Floor.Woken))
		}
	}
	if len(byProcesses) > 1 {
		s.say("\nA burst takes %.2f commands for each process, plus %.1f commands, by the least squares over the first table.\n",
			perProcess, fixed)
	}
	if len(beside) > 0 {
		s.say("\nThe bytes that Redis sends for a load of 1 KiB for which one other process waits, and for an Invalidate: medians of %d.\n\n",
			idleRounds)
		s.columns("idle, another cache", "idle, same cache", "load, bytes", "load, commands",
			"Invalidate, bytes")
		for _, r := range beside {
			s.row(r.Elsewhere, r.Same, r.Load, r.Commands, r.Invalidate)
		}
	}
	s.say(`
commands, most: the median and the largest number of commands of Redis in a round, including commands in scripts. p99: the 99th
percentile of the latency without the load. first load: the time until the first load begins. wake-up: the 99th percentile of
the time from the end of the load to the answer. Each is the median of the repetitions, with the least and the most in
brackets, beside that of %s, in which each process loads by itself.
`, growthFloor)
	return s.printTo(w)
}
