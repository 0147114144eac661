package redisstore_test

import (
	"context"
	"errors"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/internal/redistest"
	"github.com/cacheguard/cacheguard/internal/waittest"
)

const (
	shortOp = 200 * time.Millisecond // OpTimeout of a store whose Redis doesn't answer
	soon    = 4 * time.Second        // shortOp on a busy machine; go-redis itself would wait for 5s

	// OpTimeout of a store whose Redis goes away and comes back. Half of it is enough to connect
	// and to make a step, also on a slow machine. Otherwise Redis would never be used again.
	outageOp = 1500 * time.Millisecond
)

// outages are the ways in which a Redis can be away.
var outages = map[string]struct {
	begin func(t *testing.T, p *redistest.Proxy)
	end   func(t *testing.T, p *redistest.Proxy)
}{
	"refused": {
		begin: func(t *testing.T, p *redistest.Proxy) {
			must(t, p.Refuse(true))
			p.Cut()
		},
		end: func(t *testing.T, p *redistest.Proxy) { must(t, p.Refuse(false)) },
	},
	"blackhole": {
		begin: func(_ *testing.T, p *redistest.Proxy) { p.Blackhole(true) },
		end:   func(_ *testing.T, p *redistest.Proxy) { p.Blackhole(false) },
	},
}

// clientKinds are the kinds of clients that users have.
var clientKinds = map[string]func(t *testing.T, addr string) redis.UniversalClient{
	"careful": func(t *testing.T, addr string) redis.UniversalClient { return newClient(t, addr) },
	"default": func(t *testing.T, addr string) redis.UniversalClient {
		return defaultClient(t, addr)
	},
	"cluster": func(t *testing.T, addr string) redis.UniversalClient {
		return clusterClient(t, addr)
	},
	"own": func(t *testing.T, addr string) redis.UniversalClient {
		return own{defaultClient(t, addr)}
	},
}

func clusterClient(t *testing.T, addrs ...string) *redis.ClusterClient {
	rdb := redis.NewClusterClient(&redis.ClusterOptions{Addrs: addrs})
	t.Cleanup(func() { _ = rdb.Close() })
	return rdb
}

// inEveryOutage runs a test for each way in which Redis can be away from the start, and for each
// kind of client.
func inEveryOutage(
	t *testing.T, test func(t *testing.T, p *redistest.Proxy, rdb redis.UniversalClient),
	kinds ...string,
) {
	t.Helper()
	server := redistest.Start(t, "--cluster-enabled", "yes")
	must(t, newClient(t, server.Addr()).ClusterAddSlotsRange(t.Context(), 0, 16383).Err())
	for _, kind := range kinds {
		for name, outage := range outages {
			t.Run(kind+" client, "+name, func(t *testing.T) {
				t.Parallel()
				p := redistest.StartProxy(t, server.Addr())
				outage.begin(t, p)
				test(t, p, clientKinds[kind](t, p.Addr()))
			})
		}
	}
}

// inTime checks that a caller got the load's value although Redis was away, and waited no longer
// than most, which is OpTimeout and what a slow machine needs.
func (a answer) inTime(t *testing.T, want string, most time.Duration) {
	t.Helper()
	a.is(t, want)
	if !a.res.Degraded {
		t.Errorf("a caller who was served without Redis wasn't told so")
	}
	if a.took > most {
		t.Errorf("a caller waited %v for a Redis that wasn't there; want %v at most", a.took, most)
	}
}

// Calls get the result of the load and are coalesced within the process. No call waits for longer
// than OpTimeout in addition.
func TestRedisDownAtStart(t *testing.T) {
	t.Parallel()
	inEveryOutage(t, func(t *testing.T, _ *redistest.Proxy, rdb redis.UniversalClient) {
		r := newReplica(t, "", newPrefix(), func(s *site) {
			s.rdb, s.store.OpTimeout = rdb, shortOp
		})
		o := newOrigin("v")
		letGo := o.hold()
		began := time.Now()
		all := r.ask(t, 10, "k", o.load)
		waittest.Next(t, "a load begins", o.began)
		most := soon
		if _, ok := rdb.(*redis.ClusterClient); ok {
			most = 2 * soon // the first call asks other nodes for the clock
		}
		if took := time.Since(began); took > most {
			t.Errorf("the load began after %v; want %v and what a busy machine needs", took,
				shortOp)
		}
		all.arrived.Wait()
		letGo()
		for _, a := range all.wait(t) {
			a.inTime(t, "v", most)
		}
		o.loaded(t, 1)

		if _, err := r.cache.Peek(t.Context(), "k"); !errors.Is(err, cacheguard.ErrUnavailable) {
			t.Errorf("Peek gave %v; want %v", err, cacheguard.ErrUnavailable)
		}
		r.get(t, "k", o.load).inTime(t, "v", most)
		o.loaded(t, 2) // nothing was stored
	}, "careful", "default", "cluster", "own")
}

// Errors of a load, and "does not exist", reach callers unchanged.
func TestRedisDownAndLoadFails(t *testing.T) {
	t.Parallel()
	inEveryOutage(t, func(t *testing.T, _ *redistest.Proxy, rdb redis.UniversalClient) {
		r := newReplica(t, "", newPrefix(), func(s *site) {
			s.rdb, s.store.OpTimeout = rdb, shortOp
		})
		for _, want := range []error{errDown, cacheguard.ErrNotFound} {
			o := newOrigin("")
			o.set("", want)
			if a := r.get(t, "k", o.load); !errors.Is(a.err, want) || a.took > soon {
				t.Errorf("a caller got %v after %v; want %v soon", a.err, a.took, want)
			}
		}
	}, "careful", "default")
}

func TestRedisDownFailClosed(t *testing.T) {
	t.Parallel()
	inEveryOutage(t, func(t *testing.T, _ *redistest.Proxy, rdb redis.UniversalClient) {
		r := newReplica(t, "", newPrefix(), func(s *site) {
			s.rdb, s.store.OpTimeout, s.cache.OnStoreDown = rdb, shortOp, cacheguard.FailClosed
		})
		for _, a := range r.ask(t, 5, "k", mustNotLoad(t)).wait(t) {
			if !errors.Is(a.err, cacheguard.ErrUnavailable) || !a.res.Degraded || a.took > soon {
				t.Errorf("a caller got %v after %v, degraded %v; want %v soon", a.err, a.took,
					a.res.Degraded, cacheguard.ErrUnavailable)
			}
		}
		if _, err := r.cache.Update(t.Context(), "k", mustNotLoad(t)); !errors.Is(err,
			cacheguard.ErrUnavailable) {
			t.Errorf("Update gave %v; want %v, and that it doesn't write", err,
				cacheguard.ErrUnavailable)
		}
	}, "careful", "default", "cluster")
}

// Writes return an error if they didn't reach Redis.
func TestRedisDownAndWrites(t *testing.T) {
	t.Parallel()
	inEveryOutage(t, func(t *testing.T, _ *redistest.Proxy, rdb redis.UniversalClient) {
		r := newReplica(t, "", newPrefix(), func(s *site) {
			s.rdb, s.store.OpTimeout = rdb, shortOp
		})
		began := time.Now()
		if err := r.cache.Set(t.Context(), "k", "v"); err == nil {
			t.Error("Set gave no error")
		}
		for _, keys := range [][]string{{"a"}, {"a", "b", "c"}} {
			var failed cacheguard.KeyErrors
			if err := r.cache.Invalidate(t.Context(), keys...); !errors.As(err, &failed) ||
				len(failed) != len(keys) {
				t.Errorf("Invalidate(%q) gave %v; want an error for each key", keys, err)
			}
		}
		o := newOrigin("written")
		if v, err := r.cache.Update(t.Context(), "k", o.load); v != "written" || err == nil {
			t.Errorf("Update gave %q, %v; want what was written and that Redis wasn't told", v, err)
		}
		o.loaded(t, 1)
		if took := time.Since(began); took > 4*soon {
			t.Errorf("five writes took %v", took)
		}
	}, "careful", "default", "cluster")
}

// When Redis is back, new calls use it. No result that was loaded meanwhile appears.
func TestRedisComesBack(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	for name, outage := range outages {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := redistest.StartProxy(t, server.Addr())
			outage.begin(t, p)
			prefix := newPrefix()
			brief := func(s *site) { s.store.OpTimeout = redialTime }
			f := &wired{
				first:  newReplica(t, p.Addr(), prefix, brief),
				second: newReplica(t, server.Addr(), prefix),
			}
			f.third = f.second
			o := newOrigin("meanwhile")
			f.first.get(t, "k", o.load).is(t, "meanwhile")

			outage.end(t, p)
			waittest.Until(t, "Redis is used again", func() bool {
				_, err := f.first.cache.Peek(t.Context(), "another key")
				return err == nil
			})

			if res, err := f.first.cache.Peek(t.Context(), "k"); err != nil ||
				res.Status != cacheguard.StatusMiss {
				t.Errorf("Peek gave %v, %v; want a miss", res, err)
			}
			f.serves(t)
		})
	}
}

// If Redis dies in the middle of a load, the result of the load doesn't change.
func TestRedisDiesDuringLoad(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	for name, outage := range outages {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := redistest.StartProxy(t, server.Addr())
			prefix := newPrefix()
			f := &wired{first: newReplica(t, p.Addr(), prefix, func(s *site) {
				s.store.OpTimeout = redialTime
				s.cache.LeaseTTL = 8 * time.Second
			}), second: newReplica(t, server.Addr(), prefix)}
			f.third = f.second
			f.first.listens(t)
			o := newOrigin("v")
			letGo := o.hold()
			mine := f.first.ask(t, 5, "k", o.load)
			waittest.Next(t, "a load begins", o.began)
			mine.arrived.Wait()
			outage.begin(t, p)
			letGo()
			mine.got(t, "v")
			o.loaded(t, 1)
			if n := f.first.events.of(cacheguard.EventFillUnknown); n != 1 {
				t.Errorf("%d fills of unknown outcome were counted; want 1", n)
			}

			// The other replica waits for the end of the lease at most.
			f.second.get(t, "k", o.load).is(t, "v")
			outage.end(t, p)
			waittest.Until(t, "Redis is used again", func() bool {
				_, err := f.first.cache.Peek(t.Context(), "another key")
				return err == nil
			})

			f.serves(t)
		})
	}
}

// Neither New nor a new cache dials. A cache sends nothing before its first call.
func TestNewDoesntDial(t *testing.T) {
	var dials atomic.Int64
	rdb := redis.NewClient(&redis.Options{Dialer: func(
		context.Context, string, string,
	) (net.Conn, error) {
		dials.Add(1)
		return nil, errors.New("dialled")
	}})
	t.Cleanup(func() { _ = rdb.Close() })
	r := newReplica(t, "", newPrefix(), func(s *site) { s.rdb = rdb })
	if n := dials.Load(); n != 0 {
		t.Errorf("%d connections were dialled; want none", n)
	}
	if r.store.Listening() {
		t.Error("messages arrive without a connection")
	}
	must(t, r.cache.Close())
	must(t, r.store.Close())
}
