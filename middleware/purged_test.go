package middleware_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/cacheguard/memstore"
	"github.com/cacheguard/cacheguard/middleware"
)

// If a handler purges its own page, its response is for nobody else. Neither the client nor the
// observer is told that it is stored. If the handler purges other pages, nothing changes for its
// own page.
func TestPurgedByItsHandler(t *testing.T) {
	pages := map[string]func(w http.ResponseWriter, r *http.Request, purge func()){
		"before it writes": func(w http.ResponseWriter, r *http.Request, purge func()) {
			purge()
			fmt.Fprint(w, "the page")
		},
		"when it has written": func(w http.ResponseWriter, r *http.Request, purge func()) {
			w.Header().Set("Content-Length", "8")
			fmt.Fprint(w, "the page")
			purge()
		},
		"a part": func(w http.ResponseWriter, r *http.Request, purge func()) {
			w.Header().Set("Content-Range", "bytes 0-3/8")
			w.WriteHeader(http.StatusPartialContent)
			fmt.Fprint(w, "the ")
			purge()
		},
		"what is still good": func(w http.ResponseWriter, r *http.Request, purge func()) {
			w.Header().Set("Etag", `"1"`)
			if r.Header.Get("If-None-Match") != "" {
				purge()
				w.WriteHeader(http.StatusNotModified)
				return
			}
			fmt.Fprint(w, "the page")
		},
	}
	for when, page := range pages {
		for what, purge := range map[string]func(c *middleware.Cache, r *http.Request) error{
			"its URL": func(c *middleware.Cache, r *http.Request) error {
				return c.Purge(r.Context(), "/page")
			},
			"its tag": func(c *middleware.Cache, r *http.Request) error {
				return c.PurgeTags(r.Context(), "mine")
			},
			"its path": func(c *middleware.Cache, r *http.Request) error {
				return c.PurgePrefix(r.Context(), "/page")
			},
			"all": func(c *middleware.Cache, r *http.Request) error {
				return c.PurgePrefix(r.Context(), "/")
			},
			"by a POST": func(c *middleware.Cache, _ *http.Request) error {
				save := c.Invalidates(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
				save.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("POST", "/page", nil))
				return nil
			},
			"another one": func(c *middleware.Cache, r *http.Request) error {
				return c.Purge(r.Context(), "/other")
			},
			"nothing": func(*middleware.Cache, *http.Request) error { return nil },
		} {
			t.Run(when+" "+what, func(t *testing.T) {
				// A part is not recorded if its lease takes long.
				synctest.Test(t, func(t *testing.T) {
					store, unstored := memstore.New(memstore.Options{}), &unstoredEvents{}
					defer func() { _ = store.Close() }()
					cache, err := middleware.New(store, middleware.Options{Observer: unstored})
					if err != nil {
						t.Fatal(err)
					}
					defer func() { _ = cache.Close() }()
					fresh := "max-age=60"
					if when == "what is still good" {
						fresh = "max-age=60, no-cache"
					}
					h := cache.Handler(http.HandlerFunc(func(
						w http.ResponseWriter, r *http.Request,
					) {
						w.Header().Set("Cache-Control", fresh)
						w.Header().Set("Cache-Tag", "mine")
						page(w, r, func() {
							if err := purge(cache, r); err != nil {
								t.Error(err)
							}
						})
					}))
					var asked []string
					if when == "a part" {
						asked = []string{"Range", "bytes=0-3"}
					}
					if when == "what is still good" {
						asks(h, "GET", "/page")
						fresh = "max-age=60"
					}
					first := asks(h, "GET", "/page", asked...).Header().Get("Cache-Status")
					next := asks(h, "GET", "/page", asked...).Header().Get("Cache-Status")
					if what == "another one" || what == "nothing" {
						if why := unstored.take(); len(why) > 0 ||
							!strings.Contains(first, "; stored") ||
							!strings.Contains(next, "; hit") {
							t.Errorf("%q, then %q; unstored: %q", first, next, why)
						}
						return
					}
					if strings.Contains(first, "; stored") || strings.Contains(next, "; hit") {
						t.Errorf("%q, then %q", first, next)
					}
					if !strings.HasSuffix(first, "; detail=purged") {
						t.Errorf("Cache-Status: %q", first)
					}
					if why := unstored.take(); len(why) == 0 ||
						slices.ContainsFunc(why, func(why string) bool { return why != "purged" }) {
						t.Errorf("observers are told %q", why)
					}
				})
			})
		}
	}
}

// hookStore is a store that calls a function before its next request for a lease.
type hookStore struct {
	*spy
	before atomic.Pointer[func()]
}

func (s *hookStore) Lease(
	ctx context.Context, k cacheguard.Key, ask cacheguard.LeaseAsk,
) (cacheguard.LeaseAnswer, error) {
	if do := s.before.Swap(nil); do != nil {
		(*do)()
	}
	return s.spy.Lease(ctx, k, ask)
}

// strongPair returns a handler behind a cache, and the cache of another process on the same store.
func strongPair(
	t *testing.T, h http.HandlerFunc,
) (store *hookStore, other *middleware.Cache, do func(method string,

	fields ...string) *httptest.ResponseRecorder) {
	t.Helper()
	shared := memstore.New(memstore.Options{})
	t.Cleanup(func() { _ = shared.Close() })
	store = &hookStore{spy: &spy{Store: shared}}
	open := func(s cacheguard.Store) *middleware.Cache {
		c, err := middleware.New(s, middleware.Options{StrongReads: true})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	near := open(store).Handler(h)
	return store, open(shared), func(method string, fields ...string) *httptest.ResponseRecorder {
		w, r := httptest.NewRecorder(), httptest.NewRequest(method, shop+"/list", nil)
		for i := 0; i < len(fields); i += 2 {
			r.Header.Set(fields[i], fields[i+1])
		}
		near.ServeHTTP(w, r)
		return w
	}
}

// A HEAD updates a stored response. But it doesn't bring back a response that was purged between
// the handler's answer and the update.
func TestHeadBringsNothingPurgedBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var body atomic.Pointer[string]
		first, second := "old", "new"
		body.Store(&first)
		store, other, do := strongPair(t, func(w http.ResponseWriter, r *http.Request) {
			text, age := *body.Load(), "max-age=1"
			if r.Method == "HEAD" {
				age = "max-age=600"
			}
			w.Header().Set("Cache-Control", age)
			w.Header().Set("Etag", `"`+text+`"`)
			w.Header().Set("Content-Length", "3")
			if r.Method != "HEAD" {
				_, _ = w.Write([]byte(text))
			}
		})
		do("GET")
		time.Sleep(2 * time.Second)
		purge := func() {
			body.Store(&second)
			if err := other.Purge(t.Context(), shop+"/list"); err != nil {
				t.Error(err)
			}
		}
		store.before.Store(&purge)
		do("HEAD")
		if store.before.Load() != nil {
			t.Error("there was no purge: this shows nothing")
		}
		if w := do("GET"); w.Body.String() != second {
			t.Errorf("after the purge: %q, %v", w.Body, w.Header())
		}
	})
}

// The request whose handler failed has found the stale response that may be served in place of the
// error. A request that came after a purge doesn't get this response.
func TestErrorsBringNothingPurgedBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := make(chan struct{})
		store, other, do := strongPair(t, func(w http.ResponseWriter, r *http.Request) {
			switch {
			case r.Header.Get("X-First") != "":
				<-gate
				w.WriteHeader(http.StatusServiceUnavailable)
			case r.Header.Get("X-Seed") != "":
				w.Header().Set("Cache-Control",
					"max-age=1, stale-while-revalidate=0, stale-if-error=0")
				w.Header().Set("Etag", `"old"`)
				_, _ = w.Write([]byte("old"))
			default:
				page(w, "new")
			}
		})
		do("GET", "X-Seed", "yes")
		time.Sleep(2 * time.Second)
		said := make(chan string, 1)
		go func() {
			said <- do("GET", "X-First", "yes", "Cache-Control", "stale-if-error=600").Body.String()
		}()
		synctest.Wait()
		store.deaf.Store(true)
		if err := other.Purge(t.Context(), shop+"/list"); err != nil {
			t.Fatal(err)
		}
		late := make(chan string, 1)
		go func() { late <- do("GET", "Cache-Control", "stale-if-error=600").Body.String() }()
		synctest.Wait()
		close(gate)
		if got := <-said; got != "old" {
			t.Errorf("the request whose handler failed got %q", got)
		}
		if got := <-late; got == "old" {
			t.Errorf("the request that came after the purge got %q", got)
		}
	})
}

// A request that came after the purge doesn't read a response whose handler began before the purge
// either.
func TestReadersGetNothingPurged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := make(chan struct{})
		var runs atomic.Int32
		store, other, do := strongPair(t, func(w http.ResponseWriter, r *http.Request) {
			if runs.Add(1) > 1 {
				page(w, "new")
				return
			}
			page(w, "old")
			_ = http.NewResponseController(w).Flush()
			<-gate
		})
		said := make(chan string, 2)
		get := func() {
			go func() { said <- do("GET").Body.String() }()
			synctest.Wait()
		}
		get()
		store.deaf.Store(true)
		if err := other.Purge(t.Context(), shop+"/list"); err != nil {
			t.Fatal(err)
		}
		get()
		close(gate)
		if a, b := <-said, <-said; min(a, b) != "new" || max(a, b) != "old" {
			t.Errorf("got %q and %q; want what the first one had asked for before the purge, and the new page",
				a, b)
		}
	})
}
