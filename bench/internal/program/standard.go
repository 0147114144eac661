package program

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/cacheguard/cacheguard/bench/internal/chart"
	"github.com/cacheguard/cacheguard/bench/internal/contender"
)

// match is one scenario with a fleet of one size. It makes one table, with a row for each
// contender.
type match struct {
	scenario           scenario
	Processes, Callers int
}

// standardKeys is the number of keys in an avalanche, and the number of callers in each process.
const standardKeys = 1000

// standardMatches returns the matches of the run without a command.
func standardMatches() []match {
	all := []match{{scenarioNamed("cold"), 4, 50}, {scenarioNamed("cold"), 16, 50}}
	for _, name := range []string{"missing", "failing", "killed", "race-same", "race-other"} {
		all = append(all, match{scenarioNamed(name), 4, 50})
	}
	return append(all, match{scenarioNamed("avalanche"), 4, standardKeys})
}

// standardContenders are the plain contenders, the example's best lock (which each caller takes for
// itself), the textbook's lock under a flight, and this module.
var standardContenders = []string{
	"none", "singleflight", "stage-watchdog", contender.FlightLock, "cacheguard",
}

// runPlan contains the settings of a run of scenarios.
type runPlan struct {
	Scenario string `json:"scenario,omitempty"` // empty: the standard scenarios
	setting
	Repeat  int      `json:"repeat"`
	Redis   string   `json:"-"`
	Against []string `json:"contenders"`
	json    bool
	html    string // file
}

// contests runs the standard scenarios, or the scenario with the given name.
func contests(
	ctx context.Context, peers Peers, name string, args []string, stdout, stderr io.Writer,
) error {
	p, err := parseContests(peers, name, args, stderr)
	if err != nil {
		return err
	}
	server, err := openRedisOrEmbedded(ctx, p.Redis)
	if err != nil {
		return err
	}
	defer server.close()
	matches := standardMatches()
	// The embedded Redis handles thousands of commands a second, but an avalanche sends tens of
	// thousands at once.
	if server.embedded {
		matches = slices.DeleteFunc(matches, func(m match) bool {
			return m.scenario.Name == "avalanche"
		})
	}
	if p.Scenario != "" {
		matches = []match{{scenarioNamed(p.Scenario), p.Processes, max(p.Callers, p.Keys)}}
	}
	chosen, err := contender.Named(peers.contenders(), p.Against...)
	if err != nil {
		return err
	}
	results := make([]map[string][]contestResult, len(matches))
	for i := range results {
		results[i] = map[string][]contestResult{}
	}
	going := newProgress(stderr)
	defer going.done()
	for n := range p.Repeat {
		for i, m := range matches {
			a := &arena{server: server, setting: p.setting}
			a.Processes, a.Callers, a.Keys = m.Processes, m.Callers, m.Callers
			for _, c := range rotated(chosen, n) { // each repetition begins with another contender
				going.say("%d of %d: %s, %dx%d, %s", n+1, p.Repeat, m.scenario.Name, m.Processes,
					m.Callers, c.Name)
				r, err := a.hold(ctx, m.scenario, c)
				if err != nil {
					return fmt.Errorf("%s, %s: %w", m.scenario.Name, c.Name, err)
				}
				results[i][c.Name] = append(results[i][c.Name], r)
			}
		}
	}
	going.done()
	about, reports := server.about(ctx), reportsOf(matches, results)
	if p.html != "" {
		page := p.page(about, reports, chosen)
		if p.Scenario == "" {
			more, err := moreSections(ctx, peers, going, p.Redis)
			if err != nil {
				return err
			}
			page.Sections = slices.Insert(page.Sections, len(page.Sections)-1, more...)
		}
		if err := writePage(p.html, page, stderr); err != nil {
			return err
		}
	}
	return p.print(stdout, about, reports, chosen, peers)
}

// moreSections returns the additional sections on the page of the standard run: a hot key that
// expires again and again, and fleets that grow. They need a redis-server. Without a redis-server
// they are left out.
func moreSections(
	ctx context.Context, peers Peers, going *progress, redis string,
) ([]chart.Section, error) {
	server, err := openRedis(ctx, redis)
	if errors.Is(err, errNoRedis) {
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	defer server.close()
	e, err := parseExpiry([]string{
		"-protections", "singleflight,xfetch,cacheguard,cacheguard-swr,cacheguard-early+swr",
		"-time", "6s", "-redis", server.addr,
	}, io.Discard)
	if err != nil {
		return nil, err
	}
	going.say("a hot key that expires")
	seen := map[string]sight{}
	look := func(name string, s sight) nothing {
		seen[name] = s
		return nothing{}
	}
	if _, err := measured(ctx, &e.steady, server, course{Time: e.Time}, look); err != nil {
		return nil, err
	}
	g, err := parseGrowth(peers,
		[]string{
			"-processes", "1,2,4,8,16", "-callers", "10,100,1000", "-repeat", "1", "-rounds", "4",
			"-redis", server.addr,
		}, io.Discard)
	if err != nil {
		return nil, err
	}
	byProcesses, byCallers, err := g.rows(ctx, server, peers, going)
	if err != nil {
		return nil, err
	}
	return append([]chart.Section{e.section(seen)},
		g.page(server.about(ctx), byProcesses, byCallers).Sections...), nil
}

func parseContests(
	peers Peers, name string, args []string, stderr io.Writer,
) (p runPlan, err error) {
	flags := newFlags(strings.TrimSpace("bench "+name), stderr)
	flags.Usage = func() {
		what := "The standard run: cold with 4 and 16 processes, missing, failing, killed, race-same, race-other and avalanche. An embedded Redis is too slow for avalanche.\nOther commands: " +
			strings.Join(commandNames(), ", ") + ". Each lists its options with -h."
		if name != "" {
			what = name + ": " + scenarioNamed(name).What + "."
		}
		fmt.Fprintf(stderr, "%s\n\n", what)
		for _, c := range peers.contenders() {
			fmt.Fprintf(stderr, "  %s: %s\n", c.Name, described(c))
		}
		fmt.Fprintln(stderr)
		flags.PrintDefaults()
	}
	p.Scenario = name
	if name != "" {
		flags.IntVar(&p.Processes, "processes", 4,
			"number of processes; with dozens for each core the run measures the machine")
	}
	switch name {
	case "":
	case "avalanche":
		flags.IntVar(&p.Keys, "keys", standardKeys,
			"number of keys that are cold at the same moment; each process has one caller for each key")
	default:
		flags.IntVar(&p.Callers, "callers", 50, "callers in each process")
	}
	if name == "" || name == "cold" {
		flags.IntVar(&p.Rounds, "rounds", 6, "cold keys in each repetition")
	}
	if name != "slow" {
		flags.DurationVar(&p.Load, "load", 100*time.Millisecond, "how long a load takes")
	}
	flags.IntVar(&p.Size, "size", 1024, "size of a value in bytes")
	flags.DurationVar(&p.TTL, "ttl", time.Minute, "how long a value is cached")
	lockHelp := "time after which the lock or lease of a dead holder ends, for contenders with this setting"
	if name == "slow" {
		lockHelp += "; a load takes two and a half times this time"
	}
	flags.DurationVar(&p.LockTTL, "lock-ttl", time.Second, lockHelp)
	flags.DurationVar(&p.Poll, "poll", 100*time.Millisecond,
		"time between two looks of contenders that poll")
	patience := 4 * time.Second
	if name == "slow" { // callers whose locks have ended load again, and these loads take time, too
		patience = 12 * time.Second
	}
	flags.DurationVar(&p.Patience, "patience", patience,
		"time after which a caller without an answer counts as stuck")
	flags.IntVar(&p.Repeat, "repeat", 3, "repetitions, each with fresh processes and another order of the contenders")
	if name != "redis-gone" { // this scenario kills Redis
		flags.StringVar(&p.Redis, "redis", "", redisOrEmbeddedHelp)
	}
	names := contender.Names(peers.contenders())
	against := flags.String("contenders", strings.Join(peers.standardContenders(), ","),
		"the contenders to compare, of "+strings.Join(names, ", "))
	flags.BoolVar(&p.json, "json", false, "print JSON")
	flags.StringVar(&p.html, "html", "",
		"`file` to which a page with charts is written; the page of the standard run also has charts of a hot key that expires and of growing fleets")
	if err := parse(flags, args); err != nil {
		return p, err
	}
	if name == "slow" {
		p.Load = outlasting(p.LockTTL)
	}
	p.Against, err = chosen("contenders", *against, names)
	return p, cmp.Or(err, p.validate())
}

func (p runPlan) validate() (err error) {
	if p.Scenario != "" {
		err = within("processes", p.Processes, scenarioNamed(p.Scenario).Least, 256)
	}
	switch p.Scenario {
	case "":
	case "avalanche":
		err = cmp.Or(err, within("keys", p.Keys, 1, 100000))
	default:
		err = cmp.Or(err, within("callers", p.Callers, 1, 100000))
	}
	if p.Scenario == "" || p.Scenario == "cold" {
		err = cmp.Or(err, within("rounds", p.Rounds, 1, 10000))
	}
	if p.Scenario != "slow" {
		err = cmp.Or(err, within("load", p.Load, 0, 30*time.Second))
	}
	return cmp.Or(err, within("size", p.Size, versionDigits, 64<<20),
		within("ttl", p.TTL, time.Second, time.Hour),
		within("lock-ttl", p.LockTTL, time.Second, time.Minute),
		within("poll", p.Poll, time.Millisecond, 10*time.Second),
		within("patience", p.Patience, p.leastPatience(), 10*time.Minute),
		within("repeat", p.Repeat, 1, 1000))
}

// leastPatience returns the shortest patience with which callers can get an answer from the best
// contenders.
func (p runPlan) leastPatience() time.Duration {
	switch p.Scenario {
	case "slow":
		return 2*p.Load + p.LockTTL
	case "", "killed": // the standard run includes this scenario, too
		return p.LockTTL + 2*p.Load
	}
	return 2 * p.Load
}

// outlasting returns the time of a load that is to last longer than a lock.
func outlasting(lockTTL time.Duration) time.Duration { return lockTTL * 5 / 2 }

// scenarioNamed returns the scenario with this name, or a scenario without a name if there is none.
func scenarioNamed(name string) scenario {
	if i := slices.IndexFunc(scenarios, func(s scenario) bool { return s.Name == name }); i >= 0 {
		return scenarios[i]
	}
	return scenario{}
}

func scenarioNames() []string {
	var names []string
	for _, s := range scenarios {
		names = append(names, s.Name)
	}
	return names
}
