package middleware_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/internal/redistest"
	"github.com/cacheguard/cacheguard/middleware"
)

// short are the times of stores and caches in tests in which Redis is away.
const (
	shortOp    = 3 * time.Second
	shortLease = 9 * time.Second
)

// Redis stops answering while a handler runs and clients on both replicas wait for it. All clients
// get a response, with at most one run on each replica.
func TestFleetRedisGoesAwayDuringARun(t *testing.T) {
	for name, away := range map[string]func(t *testing.T, s *redistest.Server){
		"hangs": func(t *testing.T, s *redistest.Server) {
			if err := s.Pause(); err != nil {
				t.Skipf("a server can't be stopped here: %v", err)
			}
		},
		"is closed": func(_ *testing.T, s *redistest.Server) { s.Kill() },
	} {
		t.Run(name, func(t *testing.T) {
			server := redistest.Start(t)
			f := redisFleet(t, server, shortOp, 2, middleware.Options{LeaseTTL: shortLease})
			hold := f.gate()
			f.route("/catalog", func(w http.ResponseWriter, r *http.Request) {
				if run, _, _ := f.counts(); run == 1 {
					hold.pass()
				}
				page(w, "all categories")
			})
			leader := f.start(0, get("/catalog"))
			f.awaitRunning(1)
			clients := f.startAll(8, func(int) call { return get("/catalog") })
			f.awaitWaiting(9)
			away(t, server)
			hold.open()
			leader.reply(t).want(t, 200, "all categories")
			for _, cl := range clients {
				cl.reply(t).want(t, 200, "all categories")
			}
			if runs, _, _ := f.counts(); runs > 2 {
				t.Errorf("%v; want one on each replica at most", f.stage)
			}
		})
	}
}

// While Redis is away, each replica coalesces for itself, and uncacheable responses are still for
// their own client only. When Redis is back, the fleet has one cache again.
func TestFleetWithoutRedis(t *testing.T) {
	server := redistest.Start(t)
	f := redisFleet(t, server, shortOp, 2, middleware.Options{LeaseTTL: shortLease})
	server.Kill()
	hold := f.gate()
	f.route("/catalog", func(w http.ResponseWriter, r *http.Request) {
		hold.pass()
		page(w, "all categories")
	})
	f.route("/account", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "private")
		page := "account of " + r.Header.Get("X-User")
		_, _ = w.Write([]byte(page))
	})
	clients := f.startAll(16, func(int) call { return get("/catalog") })
	f.await("all wait", func() bool {
		return f.replicas[0].events.callers() >= 8 && f.replicas[1].events.callers() >= 8
	})
	f.awaitRunning(2)
	hold.open()
	for _, cl := range clients {
		cl.reply(t).want(t, 200, "all categories")
	}
	f.wantRuns(2, "16 requests on two replicas")
	for i, user := range []string{"a", "b", "c", "d"} {
		f.do(i%2, account(user, nil)).wantOwn(t, user)
	}
	if err := f.replicas[0].cache.Purge(t.Context(), shop+"/catalog"); err == nil {
		t.Error("a purge that could not be done returns no error")
	}

	if err := server.Restart(); err != nil {
		t.Fatal(err)
	}
	f.await("the fleet has one cache again", func() bool {
		f.do(0, get("/catalog")).want(t, 200, "all categories")
		f.fresh()
		f.do(1, get("/catalog")).want(t, 200, "all categories")
		f.do(0, get("/catalog")).want(t, 200, "all categories")
		runs, _, _ := f.counts()
		return runs == 0
	})
}

// With FailClosed requests get a 503 instead. Requests whose responses are never shared still reach
// the handler.
func TestFleetFailClosed(t *testing.T) {
	server := redistest.Start(t)
	f := redisFleet(t, server, shortOp, 1, middleware.Options{OnStoreDown: cacheguard.FailClosed})
	f.route("/*", func(w http.ResponseWriter, r *http.Request) { page(w, r.Method) })
	f.do(0, get("/catalog")).want(t, 200, "GET")
	server.Kill()
	f.do(0, get("/other")).wantStatus(t, http.StatusServiceUnavailable)
	f.do(0, call{method: "POST", path: "/orders", body: "one"}).want(t, 200, "POST")
	f.wantRuns(2, "one before Redis went away, one that never asks it")
}

// A Redis that has lost everything costs at most one run on each replica.
func TestFleetRedisIsEmptied(t *testing.T) {
	server := redistest.Start(t)
	f := redisFleet(t, server, 0, 2, middleware.Options{LocalBytes: 1 << 20})
	f.route("/catalog", func(w http.ResponseWriter, r *http.Request) { page(w, "all categories") })
	for i := range 4 {
		f.do(i%2, get("/catalog")).want(t, 200, "all categories")
	}
	f.wantRuns(1, "four requests")
	if err := server.Restart(); err != nil {
		t.Fatal(err)
	}
	for i := range 4 {
		f.do(i%2, get("/catalog")).want(t, 200, "all categories")
	}
	if runs, _, _ := f.counts(); runs > 3 {
		t.Errorf("%v; want at most one more on each replica", f.stage)
	}
}

// When a replica's cache is closed, the handler serves the clients that wait and the clients that
// come later, as if there were no cache.
func TestFleetClose(t *testing.T) {
	onEachStore(t, 2, middleware.Options{}, func(t *testing.T, f *fleet) {
		hold := f.gate()
		f.route("/catalog", func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("X-First") != "" {
				hold.pass()
				if err := r.Context().Err(); err != nil {
					t.Errorf("the handler's context has ended: %v", err)
				}
			}
			page(w, "all categories")
		})
		leader := f.start(0, get("/catalog", "X-First", "yes"))
		f.awaitRunning(1)
		clients := f.startAll(4, func(int) call { return get("/catalog") })
		f.awaitWaiting(5)
		if err := f.replicas[0].cache.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
		for range 4 {
			clients = append(clients, f.start(0, get("/catalog")))
		}
		for _, cl := range clients {
			cl.reply(t).want(t, 200, "all categories")
		}
		hold.open()
		leader.reply(t).want(t, 200, "all categories")
		f.wantRuns(1+2+1+4,
			"the leader, two that waited with it, one for the other replica, four that came later")
		if err := f.replicas[0].cache.Close(); err != nil {
			t.Errorf("Close again: %v", err)
		}
	})
}
