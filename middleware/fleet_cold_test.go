package middleware_test

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cacheguard/cacheguard/middleware"
)

// page answers with a text that may be given to every client for a minute.
func page(w http.ResponseWriter, text string) {
	w.Header().Set("Cache-Control", "public, max-age=60")
	fmt.Fprint(w, text)
}

// 64 requests come at the same moment, on 4 replicas, to a route that nobody has requested before.
func TestFleetColdRoute(t *testing.T) {
	onEachStore(t, 4, middleware.Options{}, func(t *testing.T, f *fleet) {
		const takes = 300 * time.Millisecond
		catalog := strings.Repeat("all categories of the shop. ", 2000)
		f.route("/catalog", func(w http.ResponseWriter, r *http.Request) {
			// The test measures how much longer than this its clients wait.
			timer := time.NewTimer(takes)
			defer timer.Stop()
			select {
			case <-timer.C:
			case <-r.Context().Done():
				t.Error("the handler's context ends while its clients wait")
			}
			page(w, catalog)
		})
		var slowest time.Duration
		for _, cl := range f.startAll(64, func(int) call { return get("/catalog") }) {
			got := cl.reply(t)
			got.want(t, 200, catalog)
			slowest = max(slowest, got.took)
		}
		f.wantRuns(1, "64 requests at once")
		t.Logf("handler %v, slowest of 64 clients %v", takes, slowest)
		if slowest > longWait/2 {
			t.Errorf("the slowest client has waited %v", slowest)
		}
		f.do(0, get("/catalog")).want(t, 200, catalog)
		f.wantRuns(1, "and one later")
	})
}

// Requests that wait for a handler that answers 503 get only the status, because the rest of the
// response may concern the client whose request ran the handler. The 503 is not stored, and it
// doesn't mean that the resource can't be shared.
func TestFleet503WithWaiters(t *testing.T) {
	onEachStore(t, 2, middleware.Options{DefaultTTL: time.Minute}, func(t *testing.T, f *fleet) {
		hold := f.gate()
		down, runs := true, 0
		f.route("/catalog", func(w http.ResponseWriter, r *http.Request) {
			hold.pass()
			if down {
				w.Header().Set("Retry-After", "7")
				http.Error(w, "the database is down", http.StatusServiceUnavailable)
				return
			}
			page(w, "all categories")
		})
		for range 2 {
			f.fresh()
			clients := f.startAll(8, func(int) call { return get("/catalog") })
			f.awaitWaiting(8)
			hold.open()
			whole := 0
			for _, cl := range clients {
				got := cl.reply(t)
				if got.header.Get("Retry-After") == "7" {
					whole++
					got.want(t, 503, "the database is down\n")
					continue
				}
				got.want(t, 503, "Service Unavailable\n")
			}
			if runs = f.wantFailures(2, "8 requests while the database is down"); whole != runs {
				t.Errorf("%d of 8 clients got the whole response of %d runs", whole, runs)
			}
			hold = f.gate()
		}
		hold.open()
		down = false
		for i := range f.replicas {
			f.do(i, get("/catalog")).want(t, 200, "all categories")
		}
		f.wantRuns(runs+1, "and when it is back")
	})
}

// A request that has waited for WaitTimeout runs the handler itself. The response is for its client
// alone.
func TestFleetWaitTimeout(t *testing.T) {
	onEachStore(t, 2, middleware.Options{WaitTimeout: 5 * time.Second}, func(
		t *testing.T, f *fleet,
	) {
		first := f.gate()
		f.route("/catalog", func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("X-First") != "" {
				first.pass()
				page(w, "the first one's")
				return
			}
			page(w, "own")
		})
		leader := f.start(0, get("/catalog", "X-First", "yes"))
		f.awaitRunning(1)
		for _, cl := range f.startAll(2, func(int) call { return get("/catalog") }) {
			cl.reply(t).want(t, 200, "own")
		}
		f.wantRuns(3, "two have waited for long enough")
		first.open()
		leader.reply(t).want(t, 200, "the first one's")
		for i := range f.replicas {
			f.do(i, get("/catalog")).want(t, 200, "the first one's")
		}
		f.wantRuns(3, "what the first one brought is there for those who come later")
	})
}

// If the client of a handler is still connected, the handler continues after LoadTimeout, although
// nobody else waits for it any more.
func TestFleetLoadTimeout(t *testing.T) {
	onEachStore(t, 2, middleware.Options{LoadTimeout: time.Second}, func(
		t *testing.T, f *fleet,
	) {
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
		for i := range f.replicas {
			if got := f.do(i, get("/catalog")); got.err != nil {
				t.Errorf("one that waits on replica %d: %v", i, got)
			}
		}
		hold.open()
		leader.reply(t).want(t, 200, "all categories")
	})
}

// Requests that must not wait for each other run their handlers at the same time.
func TestFleetNotCoalesced(t *testing.T) {
	for name, c := range map[string]call{
		"an upgrade":               get("/x", "Connection", "Upgrade", "Upgrade", "chat"),
		"an upgrade among options": get("/x", "Connection", "foo, upgrade", "Upgrade", "chat"),
		"GET with a body":          {path: "/x", method: "GET", body: "what I look for"},
		"POST without a body":      {path: "/x", method: "POST"},
		"POST":                     {path: "/x", method: "POST", body: "an order"},
		"PUT":                      {path: "/x", method: "PUT", body: "an order"},
		"DELETE":                   {path: "/x", method: "DELETE"},
		"OPTIONS":                  {path: "/x", method: "OPTIONS"},
		"PATCH":                    {path: "/x", method: "PATCH"},
		"If-Match":                 get("/x", "If-Match", `"1"`),
		"If-Unmodified-Since": get("/x", "If-Unmodified-Since",
			"Sat, 21 Nov 2026 10:00:00 GMT"),
		"no-store": get("/x", "Cache-Control", "no-store"),
	} {
		t.Run(name, func(t *testing.T) {
			f := memoryFleet(t, 2, middleware.Options{})
			all := f.gate()
			f.route("/x", func(w http.ResponseWriter, r *http.Request) {
				body := readAll(t, r.Body)
				all.pass()
				page(w, r.Header.Get("X-User")+" "+body)
			})
			clients := f.startAll(4, func(i int) call {
				own := c
				own.header = append([]string{"X-User", strconv.Itoa(i)}, c.header...)
				return own
			})
			f.awaitRunning(4)
			all.open()
			for i, cl := range clients {
				cl.reply(t).want(t, 200, fmt.Sprintf("%d %s", i, c.body))
			}
		})
	}
}
