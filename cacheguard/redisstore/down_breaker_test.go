package redisstore_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/internal/redistest"
	"github.com/cacheguard/cacheguard/internal/waittest"
)

// Redis goes away in some way, during the test or before its start. No caller waits for longer than
// OpTimeout. Once a few callers have waited, no further caller waits, because nothing is sent any
// more. When Redis is back, it is used again.
func TestNobodyWaitsForRedis(t *testing.T) {
	t.Parallel()
	const op = outageOp
	type place struct {
		server *redistest.Server
		proxy  *redistest.Proxy
	}
	for name, outage := range map[string]struct{ begin, end func(t *testing.T, p place) }{
		"refused": {
			begin: func(t *testing.T, p place) {
				must(t, p.proxy.Refuse(true))
				p.proxy.Cut()
			},
			end: func(t *testing.T, p place) { must(t, p.proxy.Refuse(false)) },
		},
		"blackhole": {
			begin: func(_ *testing.T, p place) { p.proxy.Blackhole(true) },
			end:   func(_ *testing.T, p place) { p.proxy.Blackhole(false) },
		},
		"slow": {
			begin: func(_ *testing.T, p place) { p.proxy.Slow(2 * op) },
			end:   func(_ *testing.T, p place) { p.proxy.Slow(0) },
		},
		"killed": {
			begin: func(_ *testing.T, p place) { p.server.Kill() },
			end:   func(t *testing.T, p place) { must(t, p.server.Restart()) },
		},
	} {
		for _, when := range []string{"at start", "in the middle of a load"} {
			t.Run(name+" "+when, func(t *testing.T) {
				t.Parallel()
				server := redistest.Start(t)
				p := place{server, redistest.StartProxy(t, server.Addr())}
				rdb := redis.NewClient(&redis.Options{
					Addr: p.proxy.Addr(), ContextTimeoutEnabled: true,
					ReadTimeout: 8 * op, // longer than any caller may wait
				})
				t.Cleanup(func() { _ = rdb.Close() })
				sent := newFaulty(rdb)
				join := func() *replica {
					return newReplica(t, "", newPrefix(), func(s *site) {
						s.rdb, s.store.OpTimeout, s.cache.MaxLoads = rdb, op, -1
					})
				}
				o := newOrigin("v")
				var r *replica
				var all []answer
				if when == "at start" {
					outage.begin(t, p)
					r = join()
				} else {
					r = join()
					r.listens(t)
					all = r.loseRedisDuringLoad(t, o, 5*op, func() { outage.begin(t, p) })
				}

				var together []*crowd
				for i := range 20 {
					together = append(together, r.ask(t, 1, fmt.Sprint("together ", i), o.load))
				}
				for _, c := range together {
					a := c.wait(t)[0]
					a.inTime(t, "v", 5*op)
					all = append(all, a)
				}
				waittest.Until(t, "the breaker opens", func() bool {
					r.get(t, "k", o.load).inTime(t, "v", 5*op)
					open, _ := r.store.Breakers()
					return open > 0
				})

				const calls = 200
				before := sent.sent.Load()
				var took []time.Duration
				for range calls {
					a := r.get(t, "k", o.load)
					a.inTime(t, "v", 5*op)
					took = append(took, a.took)
					all = append(all, a)
				}
				// The step that ends a lease may be in its second try.
				if n := sent.sent.Load() - before; n > calls/20 {
					t.Errorf("with the breaker open %d commands were sent for %d callers", n, calls)
				}
				slices.Sort(took)
				// If Redis is silent, the median without the breaker would be op.
				if median := took[len(took)/2]; median > op*2/5 {
					t.Errorf("with the breaker open the median call takes %v", median)
				}

				outage.end(t, p)
				began := time.Now()
				r.usedAgain(t)
				figures(t, "Redis "+name+" "+when, o.loads.Load(), time.Since(began), all...)
				t.Logf("with the breaker open: median call %v, longest %v", took[len(took)/2],
					took[len(took)-1])
			})
		}
	}
}

// loseRedisDuringLoad makes Redis go away while callers wait for a load. It returns their answers,
// with the time since the end of the load, which must not be longer than most.
func (r *replica) loseRedisDuringLoad(
	t *testing.T, o *origin, most time.Duration, lose func(),
) []answer {
	t.Helper()
	letGo := o.hold()
	leased := r.events.of(cacheguard.EventLeaseGranted)
	c := r.ask(t, 10, "k", o.load)
	waittest.Next(t, "a load begins", o.began)
	for n := 0; r.events.of(cacheguard.EventLeaseGranted) == leased; n++ {
		letGo() // a busy machine looked like a Redis that is away already: load another key
		c.wait(t)
		letGo = o.hold()
		c = r.ask(t, 10, fmt.Sprint("k", n), o.load)
		waittest.Next(t, "another load begins", o.began)
	}
	c.arrived.Wait()
	lose()
	ended := time.Now()
	letGo()
	answers := c.wait(t)
	took := time.Since(ended)
	for i := range answers {
		answers[i].took = took
		answers[i].is(t, "v")
	}
	if took > most {
		t.Errorf("callers had a load's result %v after its end; want %v at most", took, most)
	}
	if n := r.events.of(cacheguard.EventFillUnknown); n != 1 {
		t.Errorf("%d fills of unknown outcome were counted; want 1", n)
	}
	return answers
}

// usedAgain returns when Redis is used again: results are stored, no result that was loaded without
// Redis appears, and a change takes effect.
func (r *replica) usedAgain(t *testing.T) {
	t.Helper()
	o := newOrigin("new")
	key := ""
	waittest.Until(t, "Redis is used again", func() bool {
		key = newPrefix()
		return !r.get(t, key, o.load).res.Degraded
	})

	// On a busy machine Redis may seem to be away once more.
	waittest.Until(t, "what is loaded is found", func() bool {
		r.get(t, key, o.load).is(t, "new")
		res, err := r.cache.Peek(t.Context(), key)
		return err == nil && res.Value == "new"
	})

	if res, err := r.cache.Peek(context.Background(), "together 1"); err == nil &&
		res.Status != cacheguard.StatusMiss {
		t.Errorf("what was loaded without Redis is a %v", res.Status)
	}
	o.set("newer", nil)
	waittest.Until(t, "a change goes through", func() bool {
		return r.cache.Invalidate(t.Context(), key) == nil
	})
	r.get(t, key, o.load).is(t, "newer")
}
