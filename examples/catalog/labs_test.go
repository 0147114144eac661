package main

import (
	"bufio"
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"

	"github.com/cacheguard/cacheguard/examples/catalog/internal/lab"
)

// events reads a stream of server-sent events to its end, and returns their data by kind.
func events(t *testing.T, resp *http.Response) map[string][]string {
	t.Helper()
	defer resp.Body.Close()
	if got := resp.Header.Get("Content-Type"); resp.StatusCode != http.StatusOK ||
		got != "text/event-stream" {
		t.Fatalf("status %d, type %q", resp.StatusCode, got)
	}
	by := map[string][]string{}
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, 1<<24)
	kind := ""
	for lines.Scan() {
		if name, ok := strings.CutPrefix(lines.Text(), "event: "); ok {
			kind = name
		} else if data, ok := strings.CutPrefix(lines.Text(), "data: "); ok {
			by[kind] = append(by[kind], data)
		}
	}
	return by
}

func run1(t *testing.T, url string) (steps []lab.Event, report lab.Report) {
	t.Helper()
	resp, err := newClient(t).Post(url, "", nil)
	if err != nil {
		t.Fatal(err)
	}
	by := events(t, resp)
	for _, data := range by["steps"] {
		var some []lab.Event
		if err := json.Unmarshal([]byte(data), &some); err != nil {
			t.Fatal(err)
		}
		steps = append(steps, some...)
	}
	if len(by["report"]) != 1 || len(by["failed"]) > 0 {
		t.Fatalf("reports %q, failures %q", by["report"], by["failed"])
	}
	if err := json.Unmarshal([]byte(by["report"][0]), &report); err != nil {
		t.Fatal(err)
	}
	return steps, report
}

// tries is how often a run of the lab may end in another way than its fault mostly does.
const tries = 5

// Every stage that needs no other system runs on the embedded Redis.
func TestLabRuns(t *testing.T) {
	c := start(t, 1)
	var choices struct {
		Stages []stageChoice
		Faults []faultChoice
	}
	if err := json.Unmarshal(get(t, newClient(t), c.urls[0]+"/lab/choices.json"),
		&choices); err != nil {
		t.Fatal(err)
	}
	if len(choices.Stages) < 19 || len(choices.Faults) < 12 {
		t.Errorf("%d stages, %d faults", len(choices.Stages), len(choices.Faults))
	}
	for _, s := range choices.Stages {
		if s.Needs != "" {
			if s.Name != "herd" && s.Name != "predecessor" {
				t.Errorf("%s lacks %s", s.Name, s.Needs)
			}
			continue
		}
		steps, report := run1(t, c.urls[0]+"/lab/run?stage="+s.Name+"&ttl=30s")
		if report.Answered != report.Requests || report.Verdict == "" ||
			len(steps) < report.Requests {
			t.Errorf("%s: %+v after %d steps", s.Name, report, len(steps))
		}
	}
	for query, words := range map[string]string{
		"stage=compare&fault=slow-load": "a stale value is served: version 1",
		"stage=watchdog&fault=failover": "2 requests had the lock at once; a stale value is served",
		// More than one, if the machine is so busy that a third process loads meanwhile.
		"stage=cacheguard&fault=failover&ttl=30s": "late values? (was|were) refused",
		// A master has a tenth of the lock's time to answer.
		"stage=redlock&fault=failover&ttl=10s": "2 requests had the lock at once; a stale value is served",
		"stage=sqlrow&fault=crash&ttl=30s":     "dead lock: 8 requests wait",
		"stage=getset&fault=clock&clock=40s":   "at once",
	} {
		var got []string // on a busy machine a run may take another course
		for shown := false; !shown; shown = regexp.MustCompile(words).MatchString(got[len(got)-1]) {
			if len(got) == tries {
				t.Errorf("%s: %q, want %q once", query, got, words)
				break
			}
			_, report := run1(t, c.urls[0]+"/lab/run?"+query)
			got = append(got, report.Verdict)
		}
	}
}

func TestLabRefusesWrongSettings(t *testing.T) {
	c := start(t, 1)
	resp, err := newClient(t).Post(c.urls[0]+"/lab/run?stage=magic&replicas=99", "", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var f failure
	if err := json.NewDecoder(resp.Body).Decode(&f); err != nil ||
		resp.StatusCode != http.StatusBadRequest ||
		!strings.Contains(f.Error, `"magic"`) || !strings.Contains(f.Error, "99 replicas") {
		t.Errorf("status %d, %+v, %v", resp.StatusCode, f, err)
	}
}

// If a stage needs a system that isn't available, the answer says so.
func TestLabStageThatLacksSomething(t *testing.T) {
	c := start(t, 1)
	resp, err := newClient(t).Post(c.urls[0]+"/lab/run?stage=herd", "", nil)
	if err != nil {
		t.Fatal(err)
	}
	if by := events(t, resp); len(by["failed"]) != 1 ||
		!strings.Contains(by["failed"][0], "ZooKeeper") {
		t.Errorf("%q", by)
	}
}

// A stopping shop doesn't wait for runs, because they last longer than requests may. It ends the
// runs, and they clean up.
func TestLabRunEndsWhenTheShopStops(t *testing.T) {
	redis := miniredis.RunT(t)
	c := start(t, 2, "-redis", redis.Addr(), "-origin-delay", "10s") // a longer time to stop
	resp, err := newClient(t).Post(c.urls[0]+"/lab/run?stage=compare&fault=crash&ttl=30s", "", nil)
	if err != nil {
		t.Fatal(err)
	}
	c.stop()
	if by := events(t, resp); len(by["failed"]) != 1 ||
		!strings.Contains(by["failed"][0], "stopped") {
		t.Errorf("%q, %q", by["report"], by["failed"])
	}
	if keys := redis.Keys(); slices.ContainsFunc(keys, func(k string) bool {
		return strings.Contains(k, "lab:")
	}) {
		t.Errorf("left behind: %q", keys)
	}
}

// If there are too many runs, new runs are refused. A client that leaves makes room.
func TestLabTooManyRuns(t *testing.T) {
	c := start(t, 1)
	client := newClient(t)
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	for range mostRuns {
		// The lock of the dead holder lasts, so each run goes on until its client leaves.
		req, _ := http.NewRequestWithContext(ctx, http.MethodPost,
			c.urls[0]+"/lab/run?stage=compare&fault=crash&ttl=30s", nil)
		resp, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
	}
	resp, err := client.Post(c.urls[0]+"/lab/run", "", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusServiceUnavailable || resp.Header.Get("Retry-After") == "" {
		t.Errorf("status %d", resp.StatusCode)
	}
	leave()
	for { // a test that waits in vain is ended by go test
		resp, err := client.Post(c.urls[0]+"/lab/run", "", nil)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode == http.StatusOK {
			return
		}
	}
}

// If ZooKeeper can't be reached, the error names its address.
func TestUnreachableZooKeeperIsNamed(t *testing.T) {
	if testing.Short() {
		t.Skip("takes as long as the timeout")
	}
	server := httptest.NewServer(http.NotFoundHandler())
	addr := server.Listener.Addr().String()
	server.Close()
	began := time.Now()
	checkFailure(t, "zookeeper at "+addr, "-addr", "127.0.0.1:0", "-zookeeper", addr)
	t.Log(time.Since(began))
}
