package middleware_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-chi/chi/v5"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/internal/waittest"
	"github.com/cacheguard/cacheguard/middleware"
)

// If a handler answers 304 after its load has been given up, the 304 is for the cache. The client
// doesn't get it, because the client's request had no condition.
func TestNotModifiedAfterLoadTimeout(t *testing.T) {
	for _, at := range []string{"before its header", "after its header"} {
		t.Run(at, func(t *testing.T) {
			f := memoryFleet(t, 1, middleware.Options{LoadTimeout: 3 * time.Second})
			hold := f.gate()
			f.route("/", func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Cache-Control", "max-age=60")
				w.Header().Set("Etag", `"1"`)
				if r.Header.Get("If-None-Match") == "" {
					fmt.Fprint(w, "all is well")
					return
				}
				if at == "after its header" {
					w.WriteHeader(http.StatusNotModified)
				}
				// A waiter that comes after the load was given up runs the handler itself.
				if r.Header.Get("X-First") != "" {
					hold.pass()
				}
				w.WriteHeader(http.StatusNotModified)
			})
			waittest.Until(t, "the page is stored", func() bool {
				got := f.do(0, get("/"))
				got.want(t, 200, "all is well")
				return strings.Contains(got.header.Get("Cache-Status"), "hit")
			})
			f.markStale(0, "/")
			leader := f.start(0, get("/", "X-First", "yes"))
			f.awaitRunning(1)
			waiter := f.start(0, get("/")) // it gets its answer when the load is over
			if got := waiter.reply(t); got.status != 504 && got.status != 200 {
				t.Errorf("the waiter got %v", got)
			}
			hold.open()
			leader.reply(t).want(t, 200, "all is well")
		})
	}
}

// thief is a store in which a process can lose its lease to another process. That process then
// takes its time.
type thief struct {
	cacheguard.Store
	steal  chan cacheguard.Key // a lease that is to be stolen once
	other  cacheguard.LeaseAnswer
	stolen cacheguard.Key
}

func (s *thief) Renew(
	ctx context.Context, k cacheguard.Key, g cacheguard.Grant, ttl time.Duration,
) (cacheguard.Holding, error) {
	select {
	case <-s.steal:
		if err := s.Store.Invalidate(ctx, []cacheguard.Key{k}); err != nil {
			return 0, err
		}
		var err error
		s.stolen = k
		s.other, err = s.Store.Lease(ctx, k,
			cacheguard.LeaseAsk{Token: cacheguard.ID{1}, TTL: longWait})
		if err != nil {
			return 0, err
		}
		return cacheguard.HoldingOther, nil
	default:
		return s.Store.Renew(ctx, k, g, ttl)
	}
}

// If the handler has answered its client and another process has taken the lease meanwhile, the
// client doesn't wait for that process.
func TestLeaseLostIsNothingToTheClient(t *testing.T) {
	f := memoryFleet(t, 1, middleware.Options{})
	s := &thief{Store: f.replicas[0].spy.Store, steal: make(chan cacheguard.Key, 1)}
	f.add(&spy{Store: s}, middleware.Options{LeaseTTL: 9 * time.Second})
	hold := f.gate()
	f.route("/", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "max-age=60")
		_, _ = w.Write([]byte("all "))
		hold.pass()
		fmt.Fprint(w, "is well")
	})
	cl := f.start(1, get("/"))
	f.awaitRunning(1)
	s.steal <- cacheguard.Key{}
	f.await("the lease is lost", func() bool { return f.replicas[1].spy.leases() == 2 })
	hold.open()
	got := cl.reply(t)
	got.want(t, 200, "all is well")
	f.wantRuns(1, "one request")
	if status := got.header.Get("Cache-Status"); !strings.Contains(status, "uri-miss") {
		t.Errorf("Cache-Status is %q", status)
	}
}

// If the lease is lost and the other process gives up, the handler runs once more in the
// background. This run sees nothing of what the first one has changed in its request.
func TestFurtherRunSeesNothingOfTheFirst(t *testing.T) {
	f := memoryFleet(t, 1, middleware.Options{})
	s := &thief{Store: f.replicas[0].spy.Store, steal: make(chan cacheguard.Key, 1)}
	f.add(&spy{Store: s}, middleware.Options{LeaseTTL: 9 * time.Second, MaxLoads: 1})
	first := f.gate()
	var changed atomic.Bool
	f.route("/first", func(http.ResponseWriter, *http.Request) { first.pass() })
	f.route("/page", func(w http.ResponseWriter, r *http.Request) {
		if changed.CompareAndSwap(false, true) {
			r.URL.Path = "/changed"
			chi.RouteContext(r.Context()).RoutePath = "/changed"
			<-r.Context().Done() // the lease is lost
			return
		}
		w.Header().Set("Cache-Control", "max-age=60")
		fmt.Fprint(w, r.URL.Path)
		if chi.RouteContext(r.Context()).RoutePath == "/changed" {
			fmt.Fprint(w, ", and a route that was changed")
		}
	})
	one := f.start(1, get("/first"))
	f.awaitRunning(1)
	leader := f.start(1, get("/page"))
	f.awaitWaiting(2)
	waiter := f.start(1, get("/page"))
	f.awaitWaiting(3)
	leader.goesAway(f)
	first.open()
	one.reply(t)
	f.await("the first run", changed.Load)
	s.steal <- cacheguard.Key{}
	f.await("the lease is lost", func() bool { return f.replicas[1].spy.leases() == 3 })
	if err := s.Release(t.Context(), s.stolen, cacheguard.ID{1}); err != nil {
		t.Fatal(err)
	}
	waiter.reply(t).want(t, 200, "/page")
}

// A handler may leave a goroutine behind that goes on writing. Its bytes are part of no response.
func TestWritesAfterTheHandlerHasReturned(t *testing.T) {
	late := strings.Repeat("somebody else's. ", 10<<10)
	for name, write := range map[string]func(w http.ResponseWriter) error{
		"Write": func(w http.ResponseWriter) error {
			_, err := w.Write([]byte(late))
			return err
		},
		"WriteString": func(w http.ResponseWriter) error {
			_, err := io.WriteString(w, late)
			return err
		},
		"ReadFrom": func(w http.ResponseWriter) error {
			_, err := io.Copy(w, strings.NewReader(late))
			return err
		},
		"Flush": func(w http.ResponseWriter) error {
			return http.NewResponseController(w).Flush()
		},
	} {
		t.Run(name, func(t *testing.T) {
			for _, status := range []string{"max-age=60", "no-store"} {
				cache := newCache(t, middleware.Options{LocalBytes: 1 << 20})
				var kept http.ResponseWriter
				h := cache.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					kept = w
					w.Header().Set("Cache-Control", status)
					_, _ = w.Write([]byte("all is well"))
				}))
				first := asks(h, "GET", "/")
				if err := write(kept); err == nil {
					t.Errorf("%s: no error", status)
				}
				kept.WriteHeader(http.StatusTeapot)
				for _, got := range []string{
					first.Body.String(), asks(h, "GET", "/").Body.String(),
				} {
					if got != "all is well" {
						t.Errorf("%s: got %d bytes %.40q", status, len(got), got)
					}
				}
			}
		})
	}
}
