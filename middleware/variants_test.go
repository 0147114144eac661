package middleware_test

import (
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cacheguard/cacheguard/cacheguard/memstore"
	"github.com/cacheguard/cacheguard/middleware"
)

// A stale variant is refreshed as the same variant, no matter which variant's request began the
// refresh. Each variant keeps its place.
func TestVariantsAreRefreshedAsWhatTheyAre(t *testing.T) {
	for _, field := range []string{"X-Plan", "Accept-Language", "Cookie"} {
		t.Run(field, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cache, err := middleware.New(memstore.New(memstore.Options{}), middleware.Options{})
				if err != nil {
					t.Fatal(err)
				}
				defer cache.Close()
				var mu sync.Mutex // guards runs
				runs := map[string]int{}
				h := cache.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					mu.Lock()
					defer mu.Unlock()
					runs[r.Header.Get(field)]++
					w.Header().Set("Cache-Control", "max-age=10, stale-while-revalidate=60")
					w.Header().Set("Vary", field)
					fmt.Fprintf(w, "for %q", r.Header.Get(field))
				}))
				asks := func(value string) {
					t.Helper()
					r := httptest.NewRequest("GET", "/", nil)
					if value != "" {
						r.Header.Set(field, value)
					}
					w := httptest.NewRecorder()
					h.ServeHTTP(w, r)
					if want := fmt.Sprintf("for %q", value); w.Body.String() != want {
						t.Errorf("got %s; want %s", w.Body, want)
					}
				}
				values := []string{"de", "fr;q=0.500,en;q=0.250", ""}
				for _, value := range values {
					asks(value)
				}
				for round := range 3 {
					<-time.After(15 * time.Second)
					for i := range values { // the request of each variant is the first one in turn
						asks(values[(i+round)%len(values)])
					}
					synctest.Wait()
					for _, value := range values {
						asks(value)
					}
					want := map[string]int{}
					for _, value := range values {
						want[value] = round + 2
					}
					if !maps.Equal(runs, want) {
						t.Errorf("round %d: %v runs; want %v", round, runs, want)
					}
				}
			})
		})
	}
}

// corsInFront returns h behind a CORS middleware, which sets fields for the Origin of each request.
func corsInFront(h http.Handler) http.Handler {
	return inFront(h, func(r *http.Request, h http.Header) {
		h.Add("Vary", "Origin")
		if r.Header.Get("Origin") != "" {
			h.Set("Access-Control-Allow-Origin", r.Header.Get("Origin"))
		}
	})
}

// Whatever values clients send in a field of Vary, the number of copies of one page is bounded, and
// the first copies stay. One run serves all requests that wait for one variant.
func TestVariantsHaveABound(t *testing.T) {
	for name, c := range map[string]struct {
		field string
		front func(http.Handler) http.Handler
		vary  string
		opts  middleware.Options
		runs  int // for 1,000 values, each requested twice
	}{
		"CORS in front": {field: "Origin", front: corsInFront, runs: 2000 - 128},
		"CORS, left out": {
			field: "Origin", front: corsInFront,
			opts: middleware.Options{IgnoreVary: []string{"origin"}}, runs: 1,
		},
		"a field of the page's": {field: "X-Plan", vary: "X-Plan", runs: 2000 - 128},
		"a language": {
			field: "Accept-Language", vary: "Accept-Language", runs: 2000 - 128,
		},
		"few": {
			field: "Accept-Encoding", vary: "Accept-Encoding",
			opts: middleware.Options{MaxVariants: 10}, runs: 2000 - 10,
		},
		"no bound": {
			field: "X-Plan", vary: "X-Plan", opts: middleware.Options{MaxVariants: -1}, runs: 1000,
		},
		"left out, but the page names it": {field: "Origin", front: corsInFront, vary: "Origin",
			opts: middleware.Options{IgnoreVary: []string{"Origin"}}, runs: 2000 - 128},
	} {
		t.Run(name, func(t *testing.T) {
			runs := 0
			told := &unstoredEvents{}
			c.opts.Observer = told
			_, h := front(t, c.opts, func(w http.ResponseWriter, r *http.Request) {
				runs++
				w.Header().Set("Cache-Control", "max-age=3600")
				if c.vary != "" {
					w.Header().Add("Vary", c.vary)
				}
				fmt.Fprint(w, "the page for ", r.Header.Get(c.vary))
			})
			if c.front != nil {
				h = c.front(h)
			}
			for range 2 {
				for i := range 1000 {
					value := fmt.Sprint("https://", i, ".example")
					w := asks(h, "GET", "/", c.field, value)
					if c.vary != "" && w.Body.String() != "the page for "+value {
						t.Fatalf("%s got %q", value, w.Body)
					}
					if c.front != nil &&
						(w.Header().Get("Access-Control-Allow-Origin") != value ||
							!slices.Contains(w.Header()["Vary"], "Origin")) {
						t.Fatalf("%s got %v", value, w.Header())
					}
				}
			}
			if runs != c.runs {
				t.Errorf("%d runs; want %d", runs, c.runs)
			}
			events := told.take()
			if stored := runs - len(events); stored > 1000 ||
				c.opts.MaxVariants >= 0 && stored > 128 {
				t.Errorf("%d copies are stored", stored)
			}
			if slices.ContainsFunc(events, func(why string) bool {
				return why != "too many variants"
			}) {
				t.Errorf("reasons %q", events)
			}
		})
	}
}

// The cache evaluates conditions itself, and no handler sees a client's conditions. So a page that
// names a condition in Vary has one copy for all its values.
func TestConditionsAreNoVariants(t *testing.T) {
	for _, field := range []string{"If-None-Match", "If-Modified-Since", "If-Range"} {
		t.Run(field, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				runs := 0
				h := newCache(t,
					middleware.Options{
						MaxVariants: 10,
					}).Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					runs++
					w.Header().Set("Cache-Control", "max-age=60")
					w.Header().Set("Etag", `"1"`)
					w.Header().Set("Vary", "Accept-Language, "+field)
					fmt.Fprint(w, "page")
				}))
				get := func(n int) {
					if w := asks(h, "GET", "/", field,
						fmt.Sprintf(`"v%d"`, n)); w.Body.String() != "page" ||
						w.Header().Get("Vary") != "Accept-Language, "+field {
						t.Errorf("got %q, %v", w.Body, w.Header())
					}
				}
				for n := range 50 {
					get(n)
				}
				if runs != 1 {
					t.Errorf("%d runs for 50 values", runs)
				}
				time.Sleep(2 * time.Minute)
				get(100) // the page is validated and doesn't change
				for n := range 50 {
					get(n)
				}
				if runs != 2 {
					t.Errorf("%d runs when it was stale once", runs)
				}
			})
		})
	}
}

// One run serves all requests that wait for a variant, even if the variant is not stored.
func TestVariantsBeyondTheBoundAreShared(t *testing.T) {
	onEachStore(t, 2, middleware.Options{MaxVariants: 1, WaitTimeout: -1}, func(
		t *testing.T, f *fleet,
	) {
		hold := f.gate()
		f.route("/list", func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Vary", "X-Plan")
			if r.Header.Get("X-Plan") == "late" {
				hold.pass()
			}
			page(w, "the list")
		})
		for i := range f.replicas {
			f.do(i, get("/list", "X-Plan", "first")).want(t, 200, "the list")
			f.do(i, get("/list", "X-Plan", fmt.Sprint("own", i))).want(t, 200, "the list")
		}
		f.fresh()
		clients := []*client{f.start(0, get("/list", "X-Plan", "late"))}
		f.awaitRunning(1)
		for i := range 9 {
			clients = append(clients, f.start(i%2, get("/list", "X-Plan", "late")))
		}
		f.await("nobody looks at the other variant any more", func() bool {
			all := 0
			for _, rep := range f.replicas {
				flights, callers := rep.events.flights()
				// The flight that has asked for the lease is this variant's.
				if flights != 1 || rep.spy.leases() == 0 {
					return false
				}
				all += callers
			}
			return all == 10
		})
		hold.open()
		for _, cl := range clients {
			cl.reply(t).want(t, 200, "the list")
		}
		f.wantRuns(1, "one variant, ten clients")
		f.do(0, get("/list", "X-Plan", "late")).want(t, 200, "the list")
		f.wantRuns(2, "and it is not stored")
	})
}

// With a local tier, hits of a variant don't ask the store. This holds also if nobody requests the
// response by whose Vary the variant is found, and if the variant is a user's own.
func TestVariantsInTheLocalTier(t *testing.T) {
	for _, field := range []string{"Accept-Language", "Cookie"} {
		t.Run(field, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store, cache := newAskedStore(t, middleware.Options{LocalBytes: 1 << 20})
				edition := 1
				h := cache.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					w.Header().Set("Cache-Control", "max-age=100")
					w.Header().Set("Etag", fmt.Sprintf("%q", r.Header.Get(field)))
					w.Header().Set("Vary", field)
					fmt.Fprint(w, r.Header.Get(field), edition)
				}))
				get := func(value string) {
					t.Helper()
					if got, want := asks(h, "GET", "/", field, value).Body.String(),
						fmt.Sprint(value, edition); got != want {
						t.Errorf("%s got %q; want %q", value, got, want)
					}
				}
				hits := func(when string) {
					t.Helper()
					before := store.asked
					for range 50 {
						get("b=b")
					}
					if n := store.asked - before; n > 0 {
						t.Errorf("%s: 50 local hits asked the store %d times", when, n)
					}
				}
				get("a=a")
				time.Sleep(80 * time.Second)
				get("b=b")
				get("b=b")
				hits("while all is fresh")
				time.Sleep(30 * time.Second) // the first one is stale
				get("b=b")
				hits("while the first one is stale")
				before := store.asked
				// The Vary isn't remembered for longer than Options.LocalTTL.
				time.Sleep(time.Minute)
				if get("b=b"); store.asked == before {
					t.Error("the store isn't asked any more")
				}
				hits("a minute later")
				edition = 2
				if err := cache.Purge(t.Context(), "/"); err != nil {
					t.Fatal(err)
				}
				get("b=b")
			})
		})
	}
}
