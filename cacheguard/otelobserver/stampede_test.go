package otelobserver_test

import (
	"crypto/rand"
	"encoding/json"
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"

	"github.com/cacheguard/cacheguard/cacheguard/memstore"
	"github.com/cacheguard/cacheguard/internal/redistest"
)

const (
	replicas = 3
	callers  = 20

	corrected = time.Second / 10 // by so much the machine's clock may be set during a test
)

// A stampede on three processes has one load, and whoever waited for it, in any of them, is led to
// it.
func TestStampedeOfProcesses(t *testing.T) {
	server := redistest.Shared(t)
	for name, fail := range outcomes {
		t.Run(name, func(t *testing.T) {
			config := replicaConfig{
				Redis: server.Addr(), Prefix: "otel-" + rand.Text(), Callers: callers, Fail: fail,
			}
			checkStampede(t, fail, inProcesses(t, config))
		})
	}
}

// The same within one process, without Redis.
func TestStampedeOfCaches(t *testing.T) {
	for name, fail := range outcomes {
		t.Run(name, func(t *testing.T) {
			store := memstore.New(memstore.Options{})
			defer store.Close()
			open := make(chan struct{})
			answered := leases(t, func() { close(open) })
			var mu sync.Mutex // guards spans
			var spans []span
			var running sync.WaitGroup
			for range replicas {
				running.Go(func() {
					its, err := stampede(store, replicaConfig{Callers: callers, Fail: fail}, open,
						answered)
					if err != nil {
						t.Error(err)
					}
					mu.Lock()
					defer mu.Unlock()
					spans = append(spans, its...)
				})
			}
			running.Wait()
			checkStampede(t, fail, spans)
		})
	}
}

var outcomes = map[string]bool{"value": false, "failure": true}

// leases calls open when every replica has its answer.
func leases(t *testing.T, open func()) (answered func(lease string)) {
	var mu sync.Mutex // guards got
	got := map[string]int{}
	return func(lease string) {
		mu.Lock()
		defer mu.Unlock()
		if got[lease]++; got["granted"]+got["held"] == replicas {
			if got["granted"] != 1 {
				t.Errorf("%d leases were granted, want 1", got["granted"])
			}
			open()
		}
	}
}

// inProcesses runs replicas as processes and returns all their spans.
func inProcesses(t *testing.T, config replicaConfig) (spans []span) {
	t.Helper()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(config)
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex // guards spans
	var inputs []func()
	openAll := func() {
		for _, open := range inputs {
			open()
		}
	}
	answered := leases(t, openAll)
	var running sync.WaitGroup
	begin := make(chan struct{})
	for range replicas {
		cmd := exec.CommandContext(t.Context(), program)
		cmd.Env = append(os.Environ(), replicaEnv+"="+string(text))
		cmd.Stderr = os.Stderr
		stdin, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		stdout, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		inputs = append(inputs, func() { _ = stdin.Close() })
		running.Go(func() {
			<-begin // all are in inputs
			for in := json.NewDecoder(stdout); ; {
				var r replicaReport
				if err := in.Decode(&r); err != nil {
					break
				}
				if r.Lease != "" {
					answered(r.Lease)
				}
				mu.Lock()
				spans = append(spans, r.Spans...)
				mu.Unlock()
			}
			if err := cmd.Wait(); err != nil {
				t.Errorf("a replica ended with %v", err)
			}
		})
	}
	close(begin)
	giveUp := time.AfterFunc(patience, openAll)
	defer giveUp.Stop()
	running.Wait()
	return spans
}

// checkStampede checks that there is one load, in one of the requests, and that all other requests
// have a wait that leads to it.
func checkStampede(t *testing.T, fails bool, spans []span) {
	t.Helper()
	requests := map[string]span{}
	for _, r := range named(spans, "request") {
		requests[r.ID] = r
	}
	loads, waits := named(spans, "cacheguard.load"), named(spans, "cacheguard.wait")
	if len(requests) != replicas*callers || len(loads) != 1 || len(waits) != replicas*callers-1 {
		t.Fatalf("%d requests, %d loads, %d waits; want %d, 1, %d",
			len(requests), len(loads), len(waits), replicas*callers, replicas*callers-1)
	}
	load := loads[0]
	loader, ok := requests[load.Parent]
	if !ok || loader.Trace != load.Trace {
		t.Errorf("the load's span %+v belongs to no request", load)
	}
	delete(requests, load.Parent)
	if queries := named(spans, "query"); len(queries) != 1 || queries[0].Parent != load.ID ||
		queries[0].Trace != load.Trace {
		t.Errorf("what the load does is not below its span %s: %+v", load.ID, queries)
	}
	if failed := load.Failed == errOrigin.Error(); failed != fails || load.Failed != "" && !fails {
		t.Errorf("the load's status is %q; want it failed: %v", load.Failed, fails)
	}
	for _, w := range waits {
		r, ok := requests[w.Parent]
		if !ok || r.Trace != w.Trace {
			t.Errorf("the wait %+v belongs to no request, or to one that has a wait already", w)
		}
		delete(requests, w.Parent)
		if len(w.Links) != 1 || w.Links[0] != load.Trace+"/"+load.ID {
			t.Errorf("a wait is linked to %v, want the load %s/%s", w.Links, load.Trace, load.ID)
		}
		if (w.Failed != "") != fails {
			t.Errorf("a wait's status is %q; want it failed: %v", w.Failed, fails)
		}
		if w.Attributes["cacheguard.cache"] != "product" || w.Attributes["cacheguard.key"] != "" {
			t.Errorf("a wait has the attributes %v", w.Attributes)
		}
		if w.Start < r.Start || w.End < w.Start || r.End < w.End {
			t.Errorf("a wait from %v to %v in a request from %v to %v", w.Start, w.End, r.Start,
				r.End)
		}
		// A wait ends after the load. It seems to begin a little late when its goroutine is held up
		// before it is told.
		if w.Process == load.Process && w.End < load.End ||
			load.Ended.Sub(w.Ended) > corrected {
			t.Errorf("a wait to %v (%v) for a load to %v (%v)", w.End, w.Ended, load.End,
				load.Ended)
		}
	}
}
