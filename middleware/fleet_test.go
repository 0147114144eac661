package middleware_test

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"log"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-chi/chi/v5"
	chimiddleware "github.com/go-chi/chi/v5/middleware"
	"github.com/redis/go-redis/v9"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/cacheguard/memstore"
	"github.com/cacheguard/cacheguard/cacheguard/redisstore"
	"github.com/cacheguard/cacheguard/internal/logtest"
	"github.com/cacheguard/cacheguard/internal/redistest"
	"github.com/cacheguard/cacheguard/middleware"
)

// longWait is the time-out for events that must happen. The times of the caches in these tests are
// longer, so that no request gives up on a busy machine.
const longWait = time.Minute

// fleet is the set of replicas of a web service. The replicas share the contents of their store,
// and the stage on which their handlers run.
type fleet struct {
	*stage
	tb       testing.TB
	replicas []*replica
	redis    *redistest.Server // nil on a memstore
}

// replica is one replica, as far as the other replicas can tell: it has a store, a cache, a router,
// a server and a client of its own.
type replica struct {
	cache  *middleware.Cache
	router *chi.Mux
	routes chi.Router // the routes behind the cache
	spy    *spy
	events *watcher
	panics *panicLog
	said   logtest.Lines // by the server
	url    string
	client *http.Client

	mu       sync.Mutex // guards arrivals
	arrivals map[string]context.Context
}

// onEachStore runs a test twice: with a fleet on a memstore, and with a fleet on a Redis, in which
// each replica has a redisstore of its own.
func onEachStore(t *testing.T, n int, opts middleware.Options, test func(*testing.T, *fleet)) {
	t.Helper()
	t.Run("memstore", func(t *testing.T) {
		test(t, memoryFleet(t, n, opts))
	})
	t.Run("redis", func(t *testing.T) {
		test(t, redisFleet(t, redistest.Shared(t), 0, n, opts))
	})
}

// memoryFleet makes n replicas on one memstore.
func memoryFleet(tb testing.TB, n int, opts middleware.Options) *fleet {
	tb.Helper()
	store := memstore.New(memstore.Options{})
	tb.Cleanup(func() { _ = store.Close() })
	f := &fleet{tb: tb, stage: newStage(tb)}
	for range n {
		f.add(&spy{Store: store}, opts)
	}
	return f
}

// redisFleet makes n replicas, each with a client and a store of its own. The stores wait for Redis
// for opTimeout.
func redisFleet(
	tb testing.TB, server *redistest.Server, opTimeout time.Duration, n int,
	opts middleware.Options,
) *fleet {
	tb.Helper()
	f := &fleet{tb: tb, stage: newStage(tb), redis: server}
	prefix := "test-" + rand.Text()
	for range n {
		rdb := redis.NewClient(&redis.Options{Addr: server.Addr(), ContextTimeoutEnabled: true})
		tb.Cleanup(func() { _ = rdb.Close() })
		store, err := redisstore.New(rdb, redisstore.Options{
			Prefix: prefix, OpTimeout: cmp.Or(opTimeout, longWait),
			Logger: slog.New(slog.DiscardHandler),
		})
		if err != nil {
			tb.Fatal(err)
		}
		tb.Cleanup(func() { _ = store.Close() })
		ctx, cancel := context.WithTimeout(context.Background(), longWait)
		if err := store.Warm(ctx); err != nil {
			tb.Fatal(err)
		}
		cancel()
		f.add(&spy{Store: store}, opts)
	}
	return f
}

// add makes a replica on a store.
func (f *fleet) add(s *spy, opts middleware.Options) {
	f.tb.Helper()
	rep := &replica{
		spy: s, events: &watcher{}, panics: &panicLog{}, arrivals: make(map[string]context.Context),
	}
	opts.LeaseTTL = cmp.Or(opts.LeaseTTL, longWait)
	opts.LoadTimeout = cmp.Or(opts.LoadTimeout, 2*longWait)
	opts.WaitTimeout = cmp.Or(opts.WaitTimeout, 2*longWait)
	opts.Observer, opts.Logger = rep.events, slog.New(slog.DiscardHandler)
	var err error
	if rep.cache, err = middleware.New(s, opts); err != nil {
		f.tb.Fatal(err)
	}
	// When messages begin to arrive, flights that have begun take in no further callers.
	f.await("its messages arrive", s.hearing)
	rep.router = chi.NewRouter()
	rep.router.Use(rep.arrive, rep.panics.log, chimiddleware.Recoverer)
	rep.routes = rep.router.With(rep.cache.Handler)

	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		f.tb.Fatal(err)
	}
	server := &http.Server{
		Handler: rep.router, ErrorLog: log.New(&rep.said, "", 0), ReadHeaderTimeout: longWait,
	}
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = server.Serve(listener) // until it is closed below
	}()
	transport := &http.Transport{DisableCompression: true, MaxIdleConnsPerHost: 64}
	rep.url = "http://" + listener.Addr().String()
	rep.client = &http.Client{Transport: transport, CheckRedirect: func(
		*http.Request, []*http.Request,
	) error {
		return http.ErrUseLastResponse
	}}
	f.replicas = append(f.replicas, rep)
	f.tb.Cleanup(func() {
		f.stage.clear()
		transport.CloseIdleConnections()
		ctx, cancel := context.WithTimeout(context.Background(), longWait)
		defer cancel()
		if err := server.Shutdown(ctx); err != nil {
			f.tb.Errorf("requests are still being served at the end of the test: %v", err)
			_ = server.Close()
		}
		<-served
		if err := rep.cache.Close(); err != nil {
			f.tb.Errorf("closing the cache: %v", err)
		}
	})
}

// route registers a handler on every replica, for every method and behind the cache.
func (f *fleet) route(pattern string, h http.HandlerFunc) {
	for _, rep := range f.replicas {
		rep.routes.Handle(pattern, f.stage.handler(h))
	}
}

// awaitShared returns when n requests to one replica wait for one handler that runs. Requests that
// don't accept a stored response are counted only once they have looked it up: one that is still
// looking would begin a run of its own if the others had their answers.
func (f *fleet) awaitShared(n int) {
	f.tb.Helper()
	f.await(fmt.Sprintf("%d requests share a run", n), func() bool {
		flights, callers := f.replicas[0].events.flights()
		_, running, _ := f.counts()
		return running == 1 && flights == 1 && callers == n
	})
}

// awaitWaiting returns when n requests in all wait for handlers, including the requests whose
// handlers run. By then the handler runs, and the store has told the other replicas that there is a
// leader.
func (f *fleet) awaitWaiting(n int) {
	f.tb.Helper()
	f.await(fmt.Sprintf("%d requests wait for one handler", n), func() bool {
		if _, running, _ := f.counts(); running == 0 {
			return false
		}
		all := 0
		for _, rep := range f.replicas {
			callers := rep.events.callers()
			if callers > 0 && rep.spy.leases() == 0 {
				return false
			}
			all += callers
		}
		return all >= n
	})
}

// fresh resets the counts of handlers and of the store's answers about leases.
func (f *fleet) fresh() {
	f.stage.fresh()
	for _, rep := range f.replicas {
		rep.spy.fresh()
	}
}

// everywhere calls change once, and returns when all replicas have learned of the change.
func (f *fleet) everywhere(change func() error) {
	f.tb.Helper()
	before := make([]int, len(f.replicas))
	for i, rep := range f.replicas {
		before[i] = rep.spy.toldOfTags()
	}
	if err := change(); err != nil {
		f.tb.Fatal(err)
	}
	f.await("all replicas hear of a change", func() bool {
		for i, rep := range f.replicas {
			if rep.spy.toldOfTags() == before[i] {
				return false
			}
		}
		return true
	})
}

// await returns when ok returns true. It is for states that can't report their changes.
func (f *fleet) await(what string, ok func() bool) {
	f.tb.Helper()
	timeout := time.After(longWait)
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-timeout:
			f.tb.Fatalf("did not happen within %v: %s; %v", longWait, what, f)
		}
	}
}

// String describes the state of the fleet, for the messages of tests.
func (f *fleet) String() string {
	text := f.stage.String()
	for i, rep := range f.replicas {
		text += fmt.Sprintf("; replica %d: %d wait, %d answers to requests for leases", i,
			rep.events.callers(), rep.spy.leases())
	}
	return text
}

// spy is a store that counts its answers to requests for a lease, and the messages about tags.
type spy struct {
	cacheguard.Store
	deaf atomic.Bool // messages about changes are delayed

	mu            sync.Mutex // guards the fields below
	answers, told int
	hears         bool // its cache's messages have begun to arrive
}

func (s *spy) Listen(cache string, tell func(cacheguard.Message)) (stop func()) {
	return s.Store.Listen(cache, func(m cacheguard.Message) {
		if s.deaf.Load() &&
			(m.Kind == cacheguard.MessageTags || m.Kind == cacheguard.MessageChanged) {
			return
		}
		tell(m)
		s.mu.Lock()
		defer s.mu.Unlock()
		switch m.Kind {
		case cacheguard.MessageTags:
			s.told++
		case cacheguard.MessageRestored:
			s.hears = true
		}
	})
}

func (s *spy) hearing() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.hears
}

func (s *spy) toldOfTags() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.told
}

func (s *spy) Lease(
	ctx context.Context, k cacheguard.Key, ask cacheguard.LeaseAsk,
) (cacheguard.LeaseAnswer, error) {
	ans, err := s.Store.Lease(ctx, k, ask)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answers++
	return ans, err
}

func (s *spy) fresh() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answers = 0
}

func (s *spy) leases() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.answers
}

// watcher is an Observer that only counts waiting callers.
type watcher struct {
	mu    sync.Mutex // guards stats
	stats []func() cacheguard.Stats
}

func (o *watcher) Observe(context.Context, cacheguard.Event) {}

func (o *watcher) Attach(_ string, stats func() cacheguard.Stats) (detach func()) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.stats = append(o.stats, stats)
	return func() {}
}

func (o *watcher) callers() (n int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, stats := range o.stats {
		n += stats().Callers
	}
	return n
}

// flights returns the number of keys that are looked up or waited for, and the number of callers
// that wait.
func (o *watcher) flights() (flights, callers int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, stats := range o.stats {
		now := stats()
		flights, callers = flights+now.Flights, callers+now.Callers
	}
	return flights, callers
}

// panicLog keeps the values that chi's Recoverer recovers.
type panicLog struct {
	mu     sync.Mutex // guards the fields below
	values []any
	stacks []string
}

func (p *panicLog) log(next http.Handler) http.Handler {
	return chimiddleware.RequestLogger(panicFormatter{p})(next)
}

type panicFormatter struct{ *panicLog }

func (p panicFormatter) NewLogEntry(*http.Request) chimiddleware.LogEntry { return p }

func (panicFormatter) Write(int, int, http.Header, time.Duration, any) {}

func (p panicFormatter) Panic(v any, stack []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.values, p.stacks = append(p.values, v), append(p.stacks, string(stack))
}

func (p *panicLog) all() (values []any, stacks []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.values, p.stacks
}
