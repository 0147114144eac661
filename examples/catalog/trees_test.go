package main

import (
	"bytes"
	"slices"
	"strings"
	"sync"
	"testing"

	goredis "github.com/redis/go-redis/v9"

	"github.com/cacheguard/cacheguard/examples/catalog/stage"
	"github.com/cacheguard/cacheguard/internal/redistest"
	"github.com/cacheguard/cacheguard/internal/zktest"
)

// The shop can run with each stage, and behaves like the stage: in a burst each replica loads, or
// only one replica.
func TestEachStageProtectsTheMap(t *testing.T) {
	for _, s := range stage.All() {
		t.Run(s.Name, func(t *testing.T) {
			const replicas = 3
			delay := "500ms"
			if slices.Contains([]string{"none", "leaky", "local"}, s.Name) {
				delay = "3s" // enough for requests that are late to come before a load ends
			}
			args := []string{"-stage", s.Name, "-lock-ttl", "1m", "-origin-delay", delay}
			if s.Needs == stage.NeedsZooKeeper { // both stages that need ZooKeeper
				args = append(args, "-zookeeper", zktest.Shared(t).Addr())
			} else {
				t.Parallel()
			}
			c := start(t, replicas, args...)
			client := newClient(t)
			bodies := make([][]byte, 5*replicas)
			var group sync.WaitGroup
			for i := range bodies {
				group.Go(func() { bodies[i] = get(t, client, c.urls[i%replicas]+"/catalog.json") })
			}
			group.Wait()
			for i, body := range bodies {
				if !bytes.Equal(body, bodies[0]) || len(body) < 10_000 {
					t.Fatalf("body %d has %d bytes, the first one %d", i, len(body), len(bodies[0]))
				}
			}
			loads := getStats(t, client, c.urls[0]).Loads
			switch s.Name {
			case "none", "leaky":
				if loads <= replicas {
					t.Errorf("%d loads, want more than one for each replica", loads)
				}
			case "local":
				if loads != replicas {
					t.Errorf("%d loads, want one for each replica", loads)
				}
			default:
				if loads != 1 {
					t.Errorf("%d loads, want 1", loads)
				}
			}
			if status, said := rename(t, client, c.urls[0], audio,
				`{"name": "Audio 1"}`); status != 200 {
				t.Errorf("status %d, %s", status, said)
			}
			if told := toldVersion(t, get(t, client, c.urls[1]+"/catalog.json")); told != 1 {
				t.Errorf("told name %d after it was renamed", told)
			}
		})
	}
}

// If another program has written to the key of a stage's cache, this value isn't used as an answer.
func TestAStagesCacheIsNoTree(t *testing.T) {
	redis := redistest.Start(t)
	c := start(t, 1, "-stage", "compare", "-redis", redis.Addr())
	rdb := goredis.NewClient(&goredis.Options{Addr: redis.Addr()})
	defer rdb.Close()
	if err := rdb.Set(t.Context(), stagedKey, "[{", 0).Err(); err != nil {
		t.Fatal(err)
	}
	resp, err := newClient(t).Get(c.urls[0] + "/catalog.json")
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	c.stop()
	if resp.StatusCode != 502 || !strings.Contains(c.stderr.String(), "is no tree") {
		t.Errorf("status %d, on stderr %s", resp.StatusCode, &c.stderr)
	}
}
