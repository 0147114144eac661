package program

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/cacheguard/cacheguard/bench/internal/contender"
)

// pagePlan contains the settings of the page that compares all contenders: every scenario and hits.
type pagePlan struct {
	setting
	Repeat   int
	HitsTime time.Duration
	Against  []string
}

// pageSize is the size of values in bytes.
const pageSize = 1024

// pageOf prints a page in Markdown that compares contenders. It needs a redis-server, because one
// scenario kills Redis.
func pageOf(ctx context.Context, peers Peers, args []string, stdout, stderr io.Writer) error {
	p, err := parsePage(peers, args, stderr)
	if err != nil {
		return err
	}
	server, err := openRedis(ctx, "")
	if err != nil {
		return err
	}
	defer server.close()
	chosen, err := contender.Named(peers.contenders(), p.Against...)
	if err != nil {
		return err
	}
	about := server.about(ctx)
	going := newProgress(stderr)
	defer going.done()
	reports, err := p.play(ctx, server, chosen, going)
	if err != nil {
		return err
	}
	one, all, err := p.hits(ctx, server, chosen, going)
	if err != nil {
		return err
	}
	going.done()
	_, err = io.WriteString(stdout, p.markdown(about, reports, one, all, chosen))
	return err
}

func parsePage(peers Peers, args []string, stderr io.Writer) (p pagePlan, err error) {
	flags := newFlags("bench page", stderr)
	flags.IntVar(&p.Processes, "processes", 4, "number of processes")
	flags.IntVar(&p.Callers, "callers", 50, "callers in each process, and number of keys in avalanche")
	flags.DurationVar(&p.LockTTL, "lock-ttl", time.Second,
		"time after which the lock or lease of a dead holder ends, for contenders with this setting")
	flags.DurationVar(&p.HitsTime, "hits", time.Second, "how long hits are counted in each run")
	flags.IntVar(&p.Repeat, "repeat", 3, "repetitions, each with fresh processes and another order of the contenders")
	names := contender.Names(peers.contenders())
	against := flags.String("contenders", strings.Join(peers.standardContenders(), ","),
		"the contenders to compare, of "+strings.Join(names, ", "))
	if err := parse(flags, args); err != nil {
		return p, err
	}
	p.Load, p.Size, p.TTL, p.Poll, p.Rounds = 100*time.Millisecond, pageSize, time.Minute,
		100*time.Millisecond, 2
	p.Against, err = chosen("contenders", *against, names)
	return p, cmp.Or(err, within("processes", p.Processes, 2, 256),
		within("callers", p.Callers, 1, 10000),
		within("lock-ttl", p.LockTTL, time.Second, time.Minute),
		within("hits", p.HitsTime, time.Millisecond, time.Hour),
		within("repeat", p.Repeat, 1, 1000))
}

// play runs all scenarios for all contenders.
func (p pagePlan) play(
	ctx context.Context, server *server, chosen []contender.Contender, going *progress,
) ([]matchReport, error) {
	matches := make([]match, len(scenarios))
	results := make([]map[string][]contestResult, len(scenarios))
	for i, s := range scenarios {
		matches[i], results[i] = match{s, p.Processes, p.Callers}, map[string][]contestResult{}
	}
	for n := range p.Repeat {
		for i, s := range scenarios {
			a := &arena{server: server, setting: p.setting}
			a.Keys = p.Callers
			if s.Name == "slow" {
				a.Load = outlasting(p.LockTTL)
			}
			a.Patience = 4*a.Load + 4*p.LockTTL
			for _, c := range rotated(chosen, n) {
				going.say("%d of %d: %s, %s", n+1, p.Repeat, s.Name, c.Name)
				r, err := a.hold(ctx, s, c)
				if err != nil {
					return nil, fmt.Errorf("%s, %s: %w", s.Name, c.Name, err)
				}
				results[i][c.Name] = append(results[i][c.Name], r)
			}
		}
	}
	return reportsOf(matches, results), nil
}

// hits counts the hits of one caller, and of many callers that each have their own key.
func (p pagePlan) hits(
	ctx context.Context, server *server, chosen []contender.Contender, going *progress,
) (one, all []*hitsRow, err error) {
	h := hitsPlan{Time: p.HitsTime, Repeat: p.Repeat, Floor: hitsFloor}
	if one, err = h.measure(ctx, server, chosen, pageSize, 1, 1, going); err != nil {
		return nil, nil, err
	}
	all, err = h.measure(ctx, server, chosen, pageSize, pageCallers, pageCallers, going)
	return one, all, err
}

// pageCallers is the number of callers that ask at the same time.
const pageCallers = 64

// markdown returns the page. Its lines of prose wrap at 100 columns.
func (p pagePlan) markdown(
	about about, reports []matchReport, one, all []*hitsRow, chosen []contender.Contender,
) string {
	var page strings.Builder
	say := func(format string, args ...any) { fmt.Fprintf(&page, format, args...) }
	say("# The field side by side\n\n%s\n", wrapped("", fmt.Sprintf(
		"This page compares cacheguard with other ways to protect an origin in Go. A program makes it (`go run -C bench/peers . page > docs/comparison.md`): "+
			"each library is used as its own documentation shows, by the same processes, with the same Redis and the same origin. This run: %v, %d processes with %d callers each, "+
			"loads of %v, values of %d bytes, locks and leases of %v, polling every %v, %s.",
		about, p.Processes, p.Callers, p.Load, p.Size, p.LockTTL, p.Poll, repetitions(p.Repeat))))
	say("## What reaches the origin\n\n%s\n", wrapped("", fmt.Sprintf(
		"A row is a contender, a column is a scenario. A cell has the most loads of a round, the median of the p99 in milliseconds (the load included), and the most commands at Redis, of all processes. "+
			"Italics: in this scenario the contender did what nobody wants, and the list below the table says what. A dash: nobody got an answer, or the number wasn't counted. A contender passes a scenario with %s; in failing, errors don't count. "+
			"In remarks, -lock-ttl and -poll are the times above, -ttl is %v, and -patience is four times the load and -lock-ttl together.",
		passing, p.TTL)))
	heads := []string{""}
	for _, r := range reports {
		heads = append(heads, r.Scenario)
	}
	scores := scoresOf(reports, chosen)
	var rows [][]string
	for i, c := range chosen {
		row := []string{fmt.Sprintf("%s, %d of %d", c.Name, scores[i].passed, len(reports))}
		for _, r := range reports {
			rs := r.Results[c.Name]
			cell := fmt.Sprintf("%d / %s / %s", slices.Max(allLoads(rs)), wholeMs(rs),
				count(mostCommandsOf(rs)))
			if r.Failed[c.Name] != "" {
				cell = "*" + cell + "*"
			}
			row = append(row, cell)
		}
		rows = append(rows, row)
	}
	say("%s\nThe scenarios:\n\n", markdownTable(heads, rows))
	for _, r := range reports {
		say("%s", wrapped("- ", fmt.Sprintf("%s: %s.", r.Scenario, r.What)))
	}
	say("\nWhat went wrong:\n\n")
	for _, c := range chosen {
		var all []string
		for _, r := range reports {
			if wrong := r.Failed[c.Name]; wrong != "" {
				all = append(all, r.Scenario+" ("+wrong+")")
			}
		}
		if len(all) > 0 {
			say("%s", wrapped("- ", c.Name+": "+strings.Join(all, "; ")+"."))
		}
	}
	say("\n## What a hit costs\n\n%s\n", wrapped("", fmt.Sprintf(
		"Calls for a cached value, compared with a plain `GET` in the same repetition: 2.0 is twice as many calls in the same time. `%d callers` each ask for a key of their own. "+
			"Contenders with a ratio far above 1 answer from the memory of the process.",
		pageCallers)))
	rows = nil
	for i, row := range one {
		rows = append(rows, []string{row.Contender, factor(row.Ratio), factor(all[i].Ratio)})
	}
	heads = []string{"", "one caller", fmt.Sprint(pageCallers, " callers")}
	say("%s\n## What each one is, and what it does better\n\n", markdownTable(heads, rows))
	for _, c := range chosen {
		text := "**" + c.Name + "**: " + described(c)
		if c.Better != "" {
			text += " *Better:* " + c.Better
		}
		say("%s", wrapped("- ", text))
	}
	return page.String()
}

// markdownTable returns a table. All columns except the first one are aligned at the right.
func markdownTable(heads []string, rows [][]string) string {
	var table strings.Builder
	for i, row := range append([][]string{heads}, rows...) {
		fmt.Fprintf(&table, "| %s |\n", strings.Join(row, " | "))
		if i == 0 {
			fmt.Fprintf(&table, "|---|%s\n", strings.Repeat("--:|", len(heads)-1))
		}
	}
	return strings.ReplaceAll(table.String(), "|  |", "| |")
}

// wholeMs returns the median of the p99 in whole milliseconds, or a dash.
func wholeMs(rs []contestResult) string {
	answered := slices.DeleteFunc(slices.Clone(rs), func(r contestResult) bool {
		return r.Max == 0
	})
	if len(answered) == 0 {
		return "-"
	}
	return fmt.Sprintf("%.0f",
		float64(middle(answered, func(r contestResult) int64 { return r.P99 }))/1e6)
}

// factor formats a ratio with two significant digits. Without a floor it returns a dash.
func factor(ratio float64) string {
	switch {
	case ratio == 0:
		return "-"
	case ratio < 10:
		return fmt.Sprintf("%.2g", ratio)
	}
	return fmt.Sprintf("%.0f", ratio)
}

// wrapped breaks a paragraph or an item of a list into lines of at most 100 columns.
func wrapped(bullet, text string) string {
	const columns = 100
	var out strings.Builder
	indent, line := strings.Repeat(" ", len(bullet)), strings.TrimSuffix(bullet, " ")
	for _, word := range strings.Fields(text) {
		switch {
		case line == "":
			line = word
		case len(line)+1+len(word) > columns:
			out.WriteString(line + "\n")
			line = indent + word
		default:
			line += " " + word
		}
	}
	out.WriteString(line + "\n")
	return out.String()
}
