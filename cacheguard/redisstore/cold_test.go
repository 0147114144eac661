package redisstore_test

import (
	"fmt"
	"maps"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cacheguard/cacheguard/cacheguard/redisstore"
	"github.com/cacheguard/cacheguard/internal/redistest"
)

// stepsOf returns a function that returns how many commands were sent through the proxy since its
// last call, by name. It leaves out the commands that make a connection or a subscription, that
// measure the clock, or that read the last generation after a subscription: on a slow machine a
// subscription may be made anew at any moment. At its end the test fails if the clock was measured,
// or the last generation read, more often than after each subscription, and the clock once a
// minute.
func stepsOf(t *testing.T, proxy *redistest.Proxy) (sent func() map[string]int64) {
	clock := redistest.IsEval(redisstore.ClockScript)
	others := redistest.IsCommand("HELLO", "CLIENT", "PING")
	var mu sync.Mutex // guards the counts
	counts, began := map[string]int64{}, time.Now()
	var clocks, subscriptions, lasts int
	proxy.DropCommand(func(c redistest.Command) bool {
		mu.Lock()
		defer mu.Unlock()
		switch {
		case clock(c):
			clocks++
		case strings.HasSuffix(strings.ToUpper(c.Name), "SUBSCRIBE"):
			subscriptions++
		case c.Name == "ZRANGE" || c.Name == "GET" && strings.HasSuffix(string(c.Args[0]), ":all"):
			lasts++
		case !others(c):
			counts[c.Name]++
		}
		return false
	})
	t.Cleanup(func() {
		mu.Lock()
		defer mu.Unlock()
		if most := 3 * (1 + subscriptions + int(time.Since(began)/time.Minute)); clocks > most {
			t.Errorf("the clock was measured by %d requests; want %d at most", clocks, most)
		}
		if most := 4 * subscriptions; lasts > most { // two commands, at most twice
			t.Errorf("%d commands read the last generation; want %d at most", lasts, most)
		}
	})
	return func() map[string]int64 {
		mu.Lock()
		defer mu.Unlock()
		all := counts
		counts = map[string]int64{}
		return all
	}
}

// If a process knows nothing of a key, it needs one trip before its load. Existing values cost one
// read each. The first value comes with the answer to the request for its lease, with all the
// process needs to know about its tags.
func TestColdKeyIsOneTrip(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	proxy := redistest.StartProxy(t, server.Addr())
	prefix := newPrefix()
	r, other := newReplica(t, proxy.Addr(), prefix), newReplica(t, server.Addr(), prefix)
	r.listens(t)
	sent := stepsOf(t, proxy)
	sends := func(what string, want map[string]int64, do func()) {
		t.Helper()
		sent()
		do()
		if got := sent(); !maps.Equal(got, want) {
			t.Errorf("%s: sent %v; want %v", what, got, want)
		}
	}
	// One script takes the lease, one stores the value.
	sends("a cold key", map[string]int64{"EVALSHA": 2}, func() {
		r.getEntry(t, "cold", newOrigin("v").tagged()).is(t, "v")
	})
	sends("10 hits", map[string]int64{"MGET": 10}, func() {
		for range 10 {
			r.getEntry(t, "cold", notTagged(t)).hit(t, "v")
		}
	})
	for n := range 20 {
		other.getEntry(t, fmt.Sprint(n), newOrigin("v").tagged()).is(t, "v")
	}
	sends("20 values of another process", map[string]int64{"EVALSHA": 1, "MGET": 19}, func() {
		for n := range 20 {
			r.getEntry(t, fmt.Sprint(n), notTagged(t)).hit(t, "v")
		}
	})
	r.getEntry(t, "tagged", newOrigin("v").tagged("a", "b")).is(t, "v")
	r.getEntry(t, "tagged", notTagged(t)).hit(t, "v")
	must(t, r.cache.Invalidate(t.Context(), "tagged"))
	other.getEntry(t, "tagged", newOrigin("w").tagged("a", "b")).is(t, "w")
	sends("a value with tags that another process has loaded", map[string]int64{"EVALSHA": 1},
		func() {
			r.getEntry(t, "tagged", notTagged(t)).hit(t, "w")
		})
	must(t, r.cache.Invalidate(t.Context(), "tagged"))
	other.getEntry(t, "tagged", newOrigin("x").tagged("a", "b")).is(t, "x")
	must(t, other.cache.InvalidateTags(t.Context(), "b"))
	r.getEntry(t, "tagged", newOrigin("y").tagged("a", "b")).is(t, "y")
}
