package redisstore_test

import (
	"fmt"
	"maps"
	"testing"

	"github.com/cacheguard/cacheguard/internal/redistest"
)

// If a process knows nothing of a key, it needs one trip before its load. Existing values cost one
// read each. The first value comes with the answer to the request for its lease, with all the
// process needs to know about its tags.
func TestColdKeyIsOneTrip(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	proxy := newProxy(t, server.Addr())
	prefix := newPrefix()
	r, other := newReplica(t, proxy.Addr(), prefix), newReplica(t, server.Addr(), prefix)
	r.listens(t)
	sends := func(what string, want map[string]int64, do func()) {
		t.Helper()
		before := proxy.Counts()
		do()
		sent := map[string]int64{}
		for name, n := range proxy.Counts() {
			if n > before[name] && name != "PING" { // PING belongs to the subscription
				sent[name] = n - before[name]
			}
		}
		if !maps.Equal(sent, want) {
			t.Errorf("%s: sent %v; want %v", what, sent, want)
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
