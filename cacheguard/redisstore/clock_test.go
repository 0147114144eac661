package redisstore_test

import (
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/cacheguard/redisstore"
	"github.com/cacheguard/cacheguard/internal/redistest"
	"github.com/cacheguard/cacheguard/internal/waittest"
)

// Values age by Redis' clock, whatever a replica's wall clock shows. This also holds if a value is
// the first thing that the replica makes.
func TestWallClocksDontMatter(t *testing.T) {
	for name, ahead := range map[string]time.Duration{
		"Redis is ahead": time.Hour, "Redis is behind": -time.Hour,
	} {
		for what, store := range map[string]func(t *testing.T, r *replica){
			"load": func(t *testing.T, r *replica) {
				r.get(t, "k", newOrigin("v").load).is(t, "v")
			},
			"set": func(t *testing.T, r *replica) { must(t, r.cache.Set(t.Context(), "k", "v")) },
			"update": func(t *testing.T, r *replica) {
				_, err := r.cache.Update(t.Context(), "k", newOrigin("v").load)
				must(t, err)
			},
			"refresh": func(t *testing.T, r *replica) {
				_, err := r.cache.Refresh(t.Context(), "k", newOrigin("v").load)
				must(t, err)
			},
		} {
			t.Run(name+", "+what, func(t *testing.T) { hitAtOnce(t, ahead, store) })
		}
	}
}

// hitAtOnce stores a value in one replica, and checks that another replica finds it fresh. In this
// test the server's clock stands still while the replicas' clocks go on. So a try that took long
// proves nothing and is repeated.
func hitAtOnce(t *testing.T, ahead time.Duration, store func(t *testing.T, r *replica)) {
	t.Helper()
	const atOnce = 200 * time.Millisecond
	for range 10 {
		server := miniredis.RunT(t)
		server.SetTime(time.Now().Add(ahead))
		prefix := newPrefix()
		began := time.Now()
		store(t, newReplica(t, server.Addr(), prefix))
		res, err := newReplica(t, server.Addr(), prefix).cache.Peek(t.Context(), "k")
		if err == nil && res.Status == cacheguard.StatusHit && res.Value == "v" && res.Age >= 0 &&
			res.Age < patience {
			return
		}
		if time.Since(began) < atOnce {
			t.Errorf("a value made a moment ago is a %v, %v old, %v; want a hit", res.Status,
				res.Age, err)
			return
		}
	}
	t.Logf("this machine is too slow to see what holds for %v", atOnce)
}

// A slow answer tells the time only roughly. So the replica asks again. Otherwise it could take new
// values for values from the future.
func TestClockAfterSlowReply(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	proxy := redistest.StartProxy(t, server.Addr())
	prefix := newPrefix()
	// Both replicas have a long OpTimeout.
	good, slow := newReplica(t, server.Addr(), prefix), newReplica(t, proxy.Addr(), prefix)
	// listens also loads the scripts.
	good.listens(t)
	gate := make(chan struct{})
	late := proxy.DelayReply(redistest.IsEval(redisstore.ClockScript), gate)
	go func() {
		<-late.Struck()
		<-time.After(time.Second)
		close(gate)
	}()
	slow.listens(t)
	waittest.Next(t, "the time is late", late.Struck())
	must(t, good.cache.Set(t.Context(), "k", "v"))
	slow.get(t, "k", mustNotLoad(t)).hit(t, "v")
}

// Loads and invalidations that begin in one microsecond still have an order. A load is later than
// the invalidations before it, and an invalidation isn't earlier than the loads before it.
func TestChangesInOneMicrosecond(t *testing.T) {
	server := miniredis.RunT(t)
	server.SetTime(time.Now())
	store := newStore(t, newClient(t, server.Addr()),
		redisstore.Options{Prefix: newPrefix(), OpTimeout: opTimeout})
	var last int64
	for i := range 3 {
		generation, err := store.InvalidateTags(t.Context(), testKey.Cache, []string{"t"})
		must(t, err)
		if generation < last {
			t.Errorf("an invalidation after the stamp %d has the generation %d", last, generation)
		}
		ans, err := store.Lease(t.Context(), testKey,
			cacheguard.LeaseAsk{Token: cacheguard.ID{1, byte(i)}, TTL: longLease})
		must(t, err)
		if ans.State != cacheguard.LeaseGranted || ans.Grant.Stamp <= generation {
			t.Errorf("a load that begins after the generation %d has the stamp %d", generation,
				ans.Grant.Stamp)
		}
		must(t, store.Release(t.Context(), testKey, ans.Grant.Token))
		last = ans.Grant.Stamp
	}
}
