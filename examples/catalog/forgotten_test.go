package main

import (
	"context"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"
)

// lines are the lines of a log.
type lines chan string

func (l lines) Write(line []byte) (int, error) {
	select {
	case l <- string(line):
	default:
	}
	return len(line), nil
}

// The database is changed without telling a cache. Within a minute the audit reports the cache, the
// key and the reason. It reports nothing before the change.
func TestForgottenInvalidate(t *testing.T) {
	opts, err := parseOptions([]string{
		"-addr", "127.0.0.1:0", "-replicas", "2", "-origin-delay", "1ms", "-ttl", "1h", "-audit",
		"20",
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	told := make(lines, 1000)
	f, err := openFleet(t.Context(), opts,
		slog.New(slog.NewTextHandler(told, &slog.HandlerOptions{Level: slog.LevelWarn})))
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	var serving sync.WaitGroup
	serving.Go(func() {
		if err := f.serve(ctx); err != nil {
			t.Error(err)
		}
	})
	defer func() {
		stop()
		serving.Wait()
		if err := f.close(); err != nil {
			t.Error(err)
		}
	}()
	client := newClient(t)
	reads := func() {
		for _, r := range f.replicas {
			for _, path := range ways {
				get(t, client, r.url+path)
			}
		}
	}
	for n := range int64(5) {
		// On a busy machine a cache may not be told in time.
		status, said := http.StatusAccepted, ""
		for try := 1; try <= tries && status == http.StatusAccepted; try++ {
			status, said = rename(t, client, f.replicas[n%2].url, audio, `{"name": "Audio 1"}`)
		}
		if status != http.StatusOK {
			t.Fatalf("status %d: %s", status, said)
		}
		reads()
	}
	compared := func() uint64 { return f.replicas[0].caches.categories.Stats().Compared }
	for range 2 {
		for len(told) > 0 {
			// A report about a rename, if the machine was stopped for longer than Audit.Settle.
			<-told
		}
		before := compared()
		if !until(5*time.Minute, reads, func() bool { return compared() > before+40 }) {
			t.Fatal("nothing is compared")
		}
	}
	for len(told) > 0 {
		if line := <-told; strings.Contains(line, "differs") {
			t.Fatalf("all is well, and the audit says %s", line)
		}
	}
	if _, err := f.db.ExecContext(t.Context(), `UPDATE category SET name = 'Hi-fi' WHERE id = $1`,
		audio); err != nil {
		t.Fatal(err)
	}
	for _, r := range f.replicas {
		if page := string(get(t, client, r.url+"/status/")); !strings.Contains(page,
			categoryCache) || !strings.Contains(page, "consistency: ") {
			t.Errorf("the status page of %s: %s", r.url, page)
		}
	}
	named := map[string]bool{}
	if !until(time.Minute, reads, func() bool {
		for len(told) > 0 {
			line := <-told
			for _, cache := range []string{treeCache, categoryCache} {
				if strings.Contains(line, "cacheguard: wrong answer") &&
					strings.Contains(line, "cache="+cache) &&
					strings.Contains(line, "differs=missed") {
					named[cache] = true
				}
			}
		}
		return len(named) == 2
	}) {
		t.Errorf("in a minute it was named of %v", named)
	}
}

// until repeats again until holds returns true, but no longer than within.
func until(within time.Duration, again func(), holds func() bool) bool {
	for end := time.Now().Add(within); time.Now().Before(end); again() {
		if holds() {
			return true
		}
	}
	return false
}
