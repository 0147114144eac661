package program

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cacheguard/cacheguard/internal/redistest"
)

// sectionOf returns the lines of a section of a page. It has no line breaks in paragraphs.
func sectionOf(t *testing.T, page, name string) []string {
	t.Helper()
	_, rest, found := strings.Cut(page, "<!--"+name+"-->\n")
	text, _, ended := strings.Cut(rest, "<!--/"+name+"-->\n")
	if !found || !ended {
		t.Fatalf("the page has no section %s", name)
	}
	var lines []string
	for paragraph := range strings.SplitSeq(strings.TrimSpace(text), "\n\n") {
		if strings.HasPrefix(paragraph, "|") {
			lines = append(lines, strings.Split(paragraph, "\n")...)
		} else {
			lines = append(lines, strings.ReplaceAll(paragraph, "\n", " "))
		}
	}
	return lines
}

// README has the figures of bench/RESULTS.md, which has all sections.
func TestReadmeHasTheResults(t *testing.T) {
	var pages []string
	for _, p := range resultPages {
		text, err := os.ReadFile("../../../" + p.file)
		if err != nil {
			t.Fatal(err)
		}
		pages = append(pages, string(text))
	}
	for _, name := range resultSections {
		sectionOf(t, pages[0], name)
	}
	rows := 0
	for _, name := range []string{"standard", "hits"} {
		all := strings.Join(sectionOf(t, pages[0], name), "\n")
		for _, line := range sectionOf(t, pages[1], name) {
			rows++
			if !strings.Contains(all, line) {
				t.Errorf("bench/RESULTS.md has no %q", line)
			}
		}
	}
	if rows < 9 {
		t.Errorf("README has %d rows and sentences", rows)
	}
}

// givenOutputs returns the output of each command from these results, whatever its flags.
func givenOutputs(t *testing.T) func(line string) ([]byte, error) {
	marshal := func(v any) []byte {
		out, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	took := func(loads int, p99 time.Duration, commands int64) []contestResult {
		return []contestResult{{
			Requests: 200, Loads: []int{loads}, P99: int64(p99), Max: int64(p99),
			Commands: []int64{commands},
		}}
	}
	standard := played{Plan: runPlan{
		setting: setting{
			Load: 100 * time.Millisecond, LockTTL: time.Second, Poll: 100 * time.Millisecond,
			Patience: 4 * time.Second,
		}, Repeat: 3, Against: []string{"none", "stage-watchdog", "cacheguard"},
	}}
	add := func(scenario string, processes int, failed map[string]string, rs ...[]contestResult) {
		r := matchReport{
			Scenario: scenario, Processes: processes, Failed: failed,
			Results: map[string][]contestResult{},
		}
		for i, name := range standard.Plan.Against {
			r.Results[name] = rs[i]
		}
		standard.Scenarios = append(standard.Scenarios, r)
	}
	ms := time.Millisecond
	add("cold", 4, map[string]string{"none": everybodyLoads.words},
		took(200, 109*ms, 400), took(1, 212*ms, 974), took(1, 104*ms, 29))
	add("cold", 16, map[string]string{"none": everybodyLoads.words},
		took(800, 146*ms, 1600), took(1, 261*ms, 3973), took(1, 120*ms, 81))
	waits := took(39, 4*time.Second, 1)
	waits[0].Stuck = 162
	add("failing", 4,
		map[string]string{"none": everybodyLoads.words, "stage-watchdog": stuck.words},
		took(200, 108*ms, 200), waits, took(1, 104*ms, 26))
	// These two share a row, which has the worst of both.
	add("race-same", 4, map[string]string{"none": loadsAgain.words},
		took(210, 111*ms, 445), took(1, 200*ms, 900), took(2, 160*ms, 60))
	add("race-other", 4, map[string]string{"stage-watchdog": leavesStale.words},
		took(220, 111*ms, 440), took(1, 200*ms, 900), took(2, 160*ms, 67))
	others := played{Scenarios: []matchReport{{Results: map[string][]contestResult{
		"goredis-cache": took(4, 104*ms, 8), "rockscache": took(1, 204*ms, 38),
	}}}}
	one := func(t expiryTally) []expiryTally { return []expiryTally{t} }
	expiries := map[string]any{
		"plan": expiryPlan{
			steady: steady{
				Processes: 4, Rate: 500, TTL: time.Second, Load: 100 * ms,
				Protections: []string{"get", "cacheguard"},
			}, Time: 20 * time.Second,
		},
		"results": map[string][]expiryTally{
			"get": one(expiryTally{steadyTally: steadyTally{P50: 250_000}}),
			"cacheguard": one(expiryTally{
				steadyTally: steadyTally{P50: 240_000, P99: 91_370_000, Stale: 5}, Loads: 19,
				Lifetimes: 19, PerTTL: 0.95,
			}),
		},
	}
	return func(line string) ([]byte, error) {
		switch {
		case strings.HasPrefix(line, "go run ./bench -json"):
			return marshal(standard), nil
		case strings.HasPrefix(line, "go run -C bench/peers . cold "):
			return marshal(others), nil
		case strings.HasPrefix(line, "go run ./bench expiry "):
			return marshal(expiries), nil
		case strings.Contains(line, " BenchmarkLoopback "):
			return []byte("goos: linux\nBenchmarkLoopback-2 \t 60\t 0 ns/op\t 2.0 bare-allocs/req\t" +
				" 4.1 local-allocs/req\t 0.9234 local/bare\t 0.5612 redis/bare\n" +
				"BenchmarkLoopback-2 \t 60\t 0 ns/op\t 2.0 bare-allocs/req\t" +
				" 4.1 local-allocs/req\t 0.951 local/bare\t 0.5614 redis/bare\nPASS\n"), nil
		}
		return nil, fmt.Errorf("no output is given for %s", line)
	}
}

// A page gets the sections that are measured, and keeps the rest of its text.
func TestResultsFill(t *testing.T) {
	m := func() *measuring {
		return &measuring{
			about: about{
				Go: "go1.26.8", OS: "linux", Arch: "amd64", CPUs: 2, Redis: "7.0.15",
				RedisFrom: "started for this run", Date: "2026-11-23",
			}, output: givenOutputs(t), of: map[string][]byte{},
		}
	}
	page := func(name, text string) string {
		return "before\n\n<!--" + name + "-->\n" + text + "<!--/" + name + "-->\n\nafter\n"
	}
	code := strings.NewReplacer("[", "`", "]", "`")
	for _, c := range []struct{ name, prefix, want string }{
		{"standard", "", standardWant},
		{"standard", "README ", `
| | none | lock, watchdog | cacheguard |
|---|--:|--:|--:|
| cold | *200* / 109 / 400 | 1 / 212 / 974 | 1 / 104 / 29 |
| the load fails | *200* / 108 / 200 | *39, 81 % wait over 4 s* | 1 / 104 / 26 |
| a change during the load | *220* / 111 / 445 | *old stays* | 2 / 160 / 67 |

`},
		{"expiry", "", expiryWant},
		{"http", "", httpWant},
	} {
		old := page(c.name, "\nold\n\n")
		got, err := m().fill(old, c.name, c.prefix)
		if want := page(c.name, code.Replace(c.want)); err != nil || got != want {
			t.Errorf("%s%s: %v, %s\nwant %s", c.prefix, c.name, err, got, want)
		}
	}
	if got, err := m().fill("the same", "http", "README "); got != "the same" || err != nil {
		t.Errorf("README has no section http: %q, %v", got, err)
	}
	for name, page := range map[string]string{
		"http": "<!--http-->\n", "cold": page("cold", ""), "locks": page("locks", ""),
	} {
		if got, err := m().fill(page, name, ""); err == nil || got != page {
			t.Errorf("%s: %q, %v; want an error and the same page", name, got, err)
		}
	}
}

// The figures of go test's benchmarks are found by name and unit.
func TestGoBenchmarks(t *testing.T) {
	b := goBenchmarks("BenchmarkHit/one/GET-2 \t 100\t 30000 ns/op\t 0 B/op\t 7 allocs/op\n" +
		"BenchmarkHit/one/GET-2 \t 100\t 32000 ns/op\t 0 B/op\t 7 allocs/op\n" +
		"BenchmarkHit/one/GET \t 100\t 31000 ns/op\t 0 B/op\t 7 allocs/op\n" +
		"BenchmarkHit/one/cacheguard-2 \t 100\t 34100 ns/op\t 0 B/op\t 10 allocs/op\n" +
		"BenchmarkHit/one/cacheguard-plain-client-2 \t 100\t 1 ns/op\n")
	if all, err := b.All("Hit/one/GET", "ns/op"); err != nil ||
		!slices.Equal(all, []float64{30000, 32000, 31000}) {
		t.Errorf("%v, %v", all, err)
	}
	if row, err := b.Row("one", "one", "one", ""); err != nil ||
		row != "| one | 34 µs | 31 µs (1.1) | - | 10, `GET` has 7 |" {
		t.Errorf("%s, %v", row, err)
	}
	for _, missing := range []string{"Hit/one", "Hit/one/GET2"} {
		if _, err := b.Of(missing, "ns/op"); err == nil {
			t.Errorf("%s has a value", missing)
		}
	}
	if _, err := b.Row("two", "one", "one", "one"); err == nil {
		t.Error("a row without its AutoPipeline")
	}
}

// The command writes both pages into another directory.
func TestResultsCommand(t *testing.T) {
	redistest.Start(t) // this skips the test without a redis-server, because the command needs one
	t.Chdir("../../..")
	dir := t.TempDir()
	code, _, stderr := bench(t, "results", "-short", "-only", "expiry", "-dir", dir)
	if code != 0 {
		t.Fatalf("exit code %d, stderr %q", code, stderr)
	}
	for _, p := range resultPages {
		before, err := os.ReadFile(p.file)
		if err != nil {
			t.Fatal(err)
		}
		after, err := os.ReadFile(dir + "/" + p.file)
		if err != nil {
			t.Fatal(err)
		}
		if same := string(before) == string(after); same != (p.prefix != "") {
			t.Errorf("%s is the same: %v", p.file, same)
		}
	}
}

const (
	standardWant = `
[go run ./bench], [go run -C bench/peers . cold -contenders goredis-cache,sturdyc,rockscache]
(go1.26.8 linux/amd64, 2 CPUs, Redis 7.0.15 started for this run, 2026-11-23).

4 processes with 50 callers each ask for one key at the same moment. A load takes 100ms. Locks and
leases end after 1s (the default of [LeaseTTL] is 3 s). The watchdog's lock polls every 100ms, the
lock under [singleflight] after half of this time to all of it. Each cell has, of 3 runs, the
largest number of loads, the median of the p99 in ms (including the load), and the largest number of
Redis commands. Italics: the protection failed. With [MaxLoads] 64, four processes need four rounds
for 1,000 loads.

| | none | lock, watchdog | cacheguard |
|---|--:|--:|--:|
| cold | *200* / 109 / 400 | 1 / 212 / 974 | 1 / 104 / 29 |
| cold, 16 processes | *800* / 146 / 1600 | 1 / 261 / 3973 | 1 / 120 / 81 |
| the load fails | *200* / 108 / 200 | *39, 81 % wait over 4 s* | 1 / 104 / 26 |
| a change during the load | *220* / 111 / 445 | *old stays* | 2 / 160 / 67 |

Other libraries are better in some respects ([go run -C bench/peers .], eight libraries).
[singleflight], go-redis/cache and sturdyc have no lease. So they take few commands (go-redis/cache
8), and lose no time when a leader dies. otter needs no Redis. rockscache loads once with 38
commands, by polling (p99 204 ms).

`
	expiryWant = `
[go run ./bench expiry -protections
get,singleflight,xfetch,cacheguard,cacheguard-swr,cacheguard-early,cacheguard-early+swr] (go1.26.8
linux/amd64, 2 CPUs, Redis 7.0.15 started for this run, 2026-11-23).

One hot key, TTL 1s, load 100ms, 4 processes x 500 requests a second for 20s, open loop. Loads are
counted for each value that was replaced, and for each period of one TTL. [get] is a plain [GET] of
a value that doesn't expire, [xfetch] is early refresh without a lease, [swr] is
[StaleWhileRevalidate], [early] is [EarlyRefresh: 1].

| protection | loads for each expiry | for each TTL | stale answers | p50 ms | p99 ms | p99.9 ms | generator late, p99.9 ms |
|---|--:|--:|--:|--:|--:|--:|--:|
| get | - | - | 0 | 0.25 | 0.00 | 0.00 | 0.00 |
| cacheguard | 1.00 | 0.95 | 5 | 0.24 | 91.37 | 0.00 | 0.00 |

`
	httpWant = `
[go test -run '^$' -bench BenchmarkLoopback -benchtime 60x -count 3 ./middleware] (go1.26.8
linux/amd64, 2 CPUs, Redis 7.0.15 started for this run, 2026-11-23).

Hits per second, with bodies of 1 KiB, divided by those of a bare chi handler that writes the same
bytes: from the local tier the ratio is 0.92 to 0.95, with 2 allocations more; from Redis it is 0.56
to 0.56.

`
)
