package middleware_test

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/go-chi/chi/v5"

	"github.com/cacheguard/cacheguard/internal/waittest"
	"github.com/cacheguard/cacheguard/middleware"
)

// The client whose handler others wait for leaves. The handler continues with its own route
// context, and without an ended context. The other clients get everything that it writes, before
// and after.
func TestFleetLeaderLeaves(t *testing.T) {
	const half = 1 << 20 // more than connections buffer
	for name, before := range map[string]int{
		"before it writes": 0, "in the middle of the body": half,
	} {
		t.Run(name, func(t *testing.T) {
			onEachStore(t, 2, middleware.Options{}, func(t *testing.T, f *fleet) {
				body := strings.Repeat("x", before) + strings.Repeat("y", half)
				hold, ended := f.gate(), make(chan error, 8)
				f.route("/catalogs/{id}", func(w http.ResponseWriter, r *http.Request) {
					w.Header().Set("Cache-Control", "max-age=60")
					_, err := io.WriteString(w, body[:before])
					hold.pass()
					// chi reuses the route context of a request for later requests.
					if id := chi.URLParam(r, "id"); id != "42" {
						t.Errorf("the route's parameter has become %q", id)
					}
					if err == nil { // a handler that can't write stops
						_, err = io.WriteString(w, body[before:])
					}
					if err == nil {
						err = context.Cause(r.Context())
					}
					ended <- err
				})
				leader := f.start(0, get("/catalogs/42"))
				f.awaitRunning(1)
				clients := f.startAll(6, func(int) call { return get("/catalogs/42") })
				f.awaitWaiting(7)
				leader.goesAway(f)
				for range 20 {
					// Other requests take some time and use route contexts.
					f.do(0, get("/elsewhere"))
				}
				hold.open()
				for _, cl := range clients {
					cl.reply(t).want(t, 200, body)
				}
				if err := waittest.Next(t, "the handler ends", ended); err != nil {
					t.Errorf("the handler of the client that has left: %v", err)
				}
				f.wantRuns(1, "one of seven has left")
			})
		})
	}
}

// The handler's context ends when the last client that waits for it in its process has left, and
// not before.
func TestFleetAllLeave(t *testing.T) {
	onEachStore(t, 1, middleware.Options{}, func(t *testing.T, f *fleet) {
		checked, cancelled := make(chan struct{}), make(chan struct{})
		calm := f.gate()
		f.route("/catalog", func(w http.ResponseWriter, r *http.Request) {
			if run, _, _ := f.counts(); run > 1 {
				page(w, "all categories")
				return
			}
			calm.pass()
			if err := r.Context().Err(); err != nil {
				t.Errorf("the handler's context has ended while somebody waited: %v", err)
			}
			close(checked)
			<-r.Context().Done()
			close(cancelled)
			page(w, "of no use")
		})
		leader := f.start(0, get("/catalog"))
		f.awaitRunning(1)
		one, other := f.start(0, get("/catalog")), f.start(0, get("/catalog"))
		f.awaitWaiting(3)
		leader.goesAway(f)
		one.goesAway(f)
		f.do(0, get("/elsewhere"))
		calm.open()
		waittest.Next(t, "the handler looks at its context", checked)
		other.goesAway(f)
		waittest.Next(t, "the handler's context ends", cancelled)
		f.awaitRunning(0)
		f.do(0, get("/catalog")).want(t, 200, "all categories")
		f.wantRuns(2, "what was made for nobody is not stored")
	})
}

// If a waiting client leaves, nothing changes for the other clients and the handler.
func TestFleetWaiterLeaves(t *testing.T) {
	onEachStore(t, 2, middleware.Options{}, func(t *testing.T, f *fleet) {
		hold := f.gate()
		f.route("/catalog", func(w http.ResponseWriter, r *http.Request) {
			hold.pass()
			if err := r.Context().Err(); err != nil {
				t.Errorf("the handler's context has ended: %v", err)
			}
			page(w, "all categories")
		})
		leader := f.start(0, get("/catalog"))
		f.awaitRunning(1)
		clients := f.startAll(6, func(int) call { return get("/catalog") })
		f.awaitWaiting(7)
		clients[0].goesAway(f)
		clients[1].goesAway(f) // on the other replica
		f.await("two of seven have gone", func() bool {
			return f.replicas[0].events.callers()+f.replicas[1].events.callers() == 5
		})
		hold.open()
		leader.reply(t).want(t, 200, "all categories")
		for _, cl := range clients[2:] {
			cl.reply(t).want(t, 200, "all categories")
		}
		f.wantRuns(1, "two of seven have left")
	})
}

// The only client on the leader's replica leaves while clients on another replica wait. They get a
// whole response, either of this handler or of one that they run themselves.
func TestFleetLeaderLeavesItsReplica(t *testing.T) {
	onEachStore(t, 2, middleware.Options{}, func(t *testing.T, f *fleet) {
		hold := f.gate()
		f.route("/catalog", func(w http.ResponseWriter, r *http.Request) {
			if run, _, _ := f.counts(); run == 1 {
				select {
				case <-hold.done:
				case <-r.Context().Done():
				}
			}
			page(w, "all categories")
		})
		leader := f.start(0, get("/catalog"))
		f.awaitRunning(1)
		var clients []*client
		for range 4 {
			clients = append(clients, f.start(1, get("/catalog")))
		}
		f.awaitWaiting(5)
		leader.goesAway(f)
		f.do(0, get("/elsewhere"))
		hold.open()
		for _, cl := range clients {
			cl.reply(t).want(t, 200, "all categories")
		}
		if runs, _, _ := f.counts(); runs > 2 {
			t.Errorf("%v; want two at most", f.stage)
		}
	})
}
