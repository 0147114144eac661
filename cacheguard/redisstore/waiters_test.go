package redisstore_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cacheguard/cacheguard/cacheguard/redisstore"
	"github.com/cacheguard/cacheguard/internal/redistest"
	"github.com/cacheguard/cacheguard/internal/waittest"
)

// Thousands of callers wait for a few loads of another process. This costs their process one
// goroutine for each key, and one subscription for all. Redis gets one request for each key. All
// callers get the result by message.
func TestThousandsOfWaiters(t *testing.T) { // not in parallel: it counts goroutines
	const keys, each = 5, 1000
	server := redistest.Start(t)
	admin := newClient(t, server.Addr())
	prefix := newPrefix()
	// On a busy machine the stacks of all goroutines take long to look at.
	patient := func(s *site) { s.cache.LeaseTTL, s.cache.LoadTimeout = time.Hour, time.Hour }
	leader := newReplica(t, server.Addr(), prefix, patient)
	waiting := newReplica(t, server.Addr(), prefix, patient)
	leader.listens(t)
	waiting.listens(t)
	o := newOrigin("v")
	letGo := o.hold()
	var mine, theirs crowds
	for i := range keys {
		mine = append(mine, leader.ask(t, 1, fmt.Sprint(i), o.load))
		waittest.Next(t, "a load begins", o.began)
	}
	before := len(ours())
	must(t, redistest.ResetStats(t.Context(), admin))
	began := time.Now()
	for i := range keys {
		theirs = append(theirs, waiting.ask(t, each, fmt.Sprint(i), o.load))
	}
	for _, c := range theirs {
		c.arrived.Wait()
	}
	waittest.Until(t, "the waiters' process waits for every load", func() bool {
		n := 0
		for _, stack := range ours() {
			if strings.Contains(stack, "(*run[...]).await(") {
				n++
			}
		}
		return n == 2*keys // one for each load, and one for each flight that waits for it
	})

	// A caller that waits is a goroutine of the test. In addition the library has one goroutine for
	// each key.
	callers := 0
	var more []string
	for _, stack := range ours() {
		if strings.Contains(stack, ").GetResult(") {
			callers++
		} else {
			more = append(more, stack)
		}
	}
	if callers != keys*(each+1) || len(more)-(before-keys) != keys {
		t.Errorf("%d callers wait, and the library has %d goroutines more than before; want %d callers and %d goroutines:\n%s",
			callers, len(more)-(before-keys), keys*(each+1), keys, strings.Join(more, "\n\n"))
	}

	channel := redisstore.CacheChannel(prefix, "test")
	if n, err := admin.PubSubNumSub(t.Context(), channel).Result(); err != nil || n[channel] != 2 {
		t.Errorf("%v subscriptions, %v; want one for each of 2 processes", n, err)
	}
	subscribed, err := admin.Do(t.Context(), "CLIENT", "LIST", "TYPE", "pubsub").Text()
	must(t, err)
	if n := strings.Count(subscribed, "\n"); n != 2 {
		t.Errorf("%d connections that subscribe; want one for each of 2 processes:\n%s", n,
			subscribed)
	}
	stats, err := redistest.CommandStats(t.Context(), admin)
	must(t, err)
	// A key needs a second request if a message may have been missed. Each process measures the
	// clock anew once a minute, with up to three requests.
	most := int64(2*keys + 6*(1+int(time.Since(began)/time.Minute)))
	if n := stats["EVALSHA"] + stats["EVAL"]; n > most {
		t.Errorf("the waiters' process asked for leases %d times; want once for each of %d keys", n,
			keys)
	}

	ended := time.Now()
	letGo()
	for _, c := range slices.Concat(mine, theirs) {
		c.got(t, "v")
	}
	woken := time.Since(ended)
	if woken > 5*time.Minute { // otherwise it would have been the lease's end
		t.Errorf("the last of %d waiters had the result %v after the loads: not by message",
			keys*each, woken)
	}
	o.loaded(t, keys)
	all := theirs.wait(t)
	for i := range all {
		all[i].took = woken
	}
	figures(t,
		fmt.Sprintf("%d waiters on each of %d keys (waits since the load's end)", each, keys),
		o.loads.Load(), 0, all...)
	t.Logf("they waited for %v, with %d goroutines of the library's own beside them",
		ended.Sub(began), len(more))
}
