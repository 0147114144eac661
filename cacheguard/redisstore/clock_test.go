package redisstore_test

import (
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/cacheguard/redisstore"
	"github.com/cacheguard/cacheguard/internal/redistest"
)

// Values age by Redis' clock, whatever the wall clock of a replica says, also when it is the first
// thing that a replica does that makes the value.
func TestWallClocksDontMatter(t *testing.T) {
	for name, ahead := range map[string]time.Duration{"Redis is ahead": time.Hour, "Redis is behind": -time.Hour} {
		for what, store := range map[string]func(t *testing.T, r *replica){
			"load": func(t *testing.T, r *replica) { r.get(t, "k", newOrigin("v").load).is(t, "v") },
			"set":  func(t *testing.T, r *replica) { must(t, r.cache.Set(t.Context(), "k", "v")) },
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

// hitAtOnce has one replica store a value, and checks that another one finds it fresh. The server's
// clock stands still here while theirs go on, so a trial that took long says nothing.
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
		if err == nil && res.Status == cacheguard.StatusHit && res.Value == "v" && res.Age >= 0 && res.Age < patience {
			return
		}
		if time.Since(began) < atOnce {
			t.Errorf("a value made a moment ago is a %v, %v old, %v; want a hit", res.Status, res.Age, err)
			return
		}
	}
	t.Logf("this machine is too slow to see what holds for %v", atOnce)
}

// An answer that took long says little about the time: the replica asks again rather than take new
// values for ones from the future.
func TestClockAfterSlowReply(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	proxy := newProxy(t, server.Addr())
	prefix := newPrefix()
	good, slow := newReplica(t, server.Addr(), prefix), newReplica(t, proxy.Addr(), prefix) // each waits for long
	good.listens(t)                                                                         // and has loaded the scripts
	gate := make(chan struct{})
	late := proxy.DelayReply(redistest.IsEval(redisstore.ClockScript), gate)
	go func() {
		<-late.Struck()
		<-time.After(time.Second)
		close(gate)
	}()
	slow.listens(t)
	arrives(t, "the time is late", late.Struck())
	must(t, good.cache.Set(t.Context(), "k", "v"))
	slow.get(t, "k", mustNotLoad(t)).hit(t, "v")
}
