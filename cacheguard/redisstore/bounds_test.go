package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/cacheguard/redisstore"
	"github.com/cacheguard/cacheguard/internal/redistest"
	"github.com/cacheguard/cacheguard/internal/waittest"
)

// If a caller's own time ends while the value is being read, this says nothing about Redis. Callers
// that have joined it are served as if it had never been there.
func TestCallerThatLeavesDuringRead(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	for how, leaving := range map[string]func() (context.Context, context.CancelFunc){
		"deadline": func() (context.Context, context.CancelFunc) {
			return context.WithTimeout(t.Context(), shortOp)
		},
		"cancelled": func() (context.Context, context.CancelFunc) {
			return context.WithCancel(t.Context())
		},
	} {
		for where, client := range map[string]func(*testing.T, string) redis.UniversalClient{
			"directly": clientKinds["careful"], "in a batch": clientKinds["own"],
		} {
			t.Run(how+" "+where, func(t *testing.T) {
				t.Parallel()
				proxy := redistest.StartProxy(t, server.Addr())
				r := newReplica(t, "", newPrefix(), func(s *site) {
					s.rdb, s.cache.OnStoreDown = client(t, proxy.Addr()), cacheguard.FailClosed
					s.store.OpTimeout = lossTime // a caller that is cancelled waits for half of it
				})
				r.listens(t)
				r.looksFirst(t)
				gate := make(chan struct{})
				late := proxy.DelayReply(redistest.IsCommand("GET", "MGET"), gate)
				o := newOrigin("v")
				letGo := o.hold()
				defer letGo()

				ctx, leave := leaving()
				defer leave()
				left := make(chan error, 1)
				go func() {
					_, err := r.cache.Get(ctx, "k", o.load)
					left <- err
				}()
				select {
				case <-late.Struck():
				case <-time.After(shortOp):
					// Its deadline was over before it began to read: it has shown nothing.
				}
				stays := r.ask(t, 3, "k", o.load)
				stays.arrived.Wait()
				if how == "cancelled" {
					leave()
				}
				select {
				case err := <-left: // not a result, because the load is held
					if !errors.Is(err, context.DeadlineExceeded) &&
						!errors.Is(err, context.Canceled) {
						t.Errorf("the caller that left got %v; want its context's error", err)
					}
				case <-time.After(patience):
					t.Error("the caller that left has no answer")
				}
				close(gate)
				letGo()
				stays.got(t, "v")
				for _, a := range stays.answers {
					if a.res.Degraded {
						t.Errorf("a caller that stayed was served as if Redis were down")
					}
				}
				o.loaded(t, 1)
				if n := r.events.of(cacheguard.EventStoreError); n != 0 {
					t.Errorf("%d errors of the store were seen; want none", n)
				}
				r.get(t, "k", mustNotLoad(t)).hit(t, "v")
			})
		}
	}
}

// Reads that were given up are not sent when Redis answers again. Otherwise a queue of them would
// cause another outage.
func TestReadsThatNobodyWaitsFor(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	proxy := redistest.StartProxy(t, server.Addr())
	r := newReplica(t, proxy.Addr(), newPrefix(), func(s *site) {
		s.store.OpTimeout = outageOp
		s.rdb = own{newClient(t, proxy.Addr())} // a client whose reads are all sent in batches
	})
	r.listens(t)
	proxy.Blackhole(true)
	var readers sync.WaitGroup
	for i := range 5000 {
		readers.Go(func() {
			if _, err := r.cache.Peek(t.Context(), fmt.Sprint("k", i)); !errors.Is(err,
				cacheguard.ErrUnavailable) {
				t.Errorf("Peek in a blackhole gave %v; want %v", err, cacheguard.ErrUnavailable)
			}
		})
	}
	readers.Wait()
	proxy.Cut() // the commands that have already been sent are not counted
	proxy.Blackhole(false)
	waittest.Until(t, "Redis is used again", func() bool {
		_, err := r.cache.Peek(t.Context(), "k")
		return err == nil
	})

	// Four batches on their way, their repetitions, and the last Peek.
	if sent := proxy.Counts()["GET"]; sent > 9*128 {
		t.Errorf("%d reads were sent after their readers had left", sent)
	}
}

// If the answer to one batch is late, not all of thousands of reads wait for it.
func TestFullBatchesGoSideBySide(t *testing.T) {
	t.Parallel()
	proxy := redistest.StartProxy(t, redistest.Start(t).Addr())
	rdb := redis.NewClient(&redis.Options{
		Addr: proxy.Addr(), ContextTimeoutEnabled: true, ReadTimeout: -1,
	})
	t.Cleanup(func() { _ = rdb.Close() })
	r := newReplica(t, "", newPrefix(), func(s *site) {
		s.rdb, s.store.OpTimeout = rdb, 2*time.Minute
	})
	r.listens(t)
	gate := make(chan struct{})
	late := proxy.DelayReply(redistest.IsCommand("GET", "MGET"), gate)
	const all = 1000
	var readers sync.WaitGroup
	var answered atomic.Int32
	for i := range all {
		readers.Go(func() {
			if _, err := r.cache.Peek(t.Context(), fmt.Sprint("k", i)); err != nil {
				t.Errorf("Peek: %v", err)
			}
			answered.Add(1)
		})
	}
	<-late.Struck()
	waittest.Until(t, "the others have been answered, but for one batch that collects",
		func() bool { return answered.Load() >= all-2*128 })
	if answered.Load() == all {
		t.Error("nobody waited for the late answer")
	}
	close(gate)
	readers.Wait()
}

// Warm ends with its context, with every client.
func TestWarmEndsWithContext(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	proxy := redistest.StartProxy(t, server.Addr())
	proxy.Blackhole(true)
	for name, client := range clientKinds {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStore(t, client(t, proxy.Addr()), redisstore.Options{Prefix: newPrefix()})
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			defer cancel()
			began := time.Now()
			if err := s.Warm(ctx); err == nil {
				t.Error("Warm succeeded in a blackhole")
			}
			if took := time.Since(began); took > soon {
				t.Errorf("Warm returned %v after the beginning of a context of 100ms", took)
			}
			var none context.Context
			if err := s.Warm(none); err == nil ||
				!strings.Contains(err.Error(), "the context is nil") {
				t.Errorf("Warm without a context: %v", err)
			}
		})
	}
}

// Close doesn't wait for a server that doesn't answer.
func TestCloseInBlackhole(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	proxy := redistest.StartProxy(t, server.Addr())
	proxy.Blackhole(true)
	for name, client := range clientKinds {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStore(t, client(t, proxy.Addr()), redisstore.Options{Prefix: newPrefix()})
			_, _ = s.Lease(t.Context(), cacheguard.Key{Cache: "test", Key: "k"},
				cacheguard.LeaseAsk{TTL: time.Second})
			began := time.Now()
			must(t, s.Close())
			if took := time.Since(began); took > soon {
				t.Errorf("Close took %v", took)
			}
		})
	}
}
