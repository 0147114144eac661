package middleware_test

import (
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

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

// If a page is purged while it is made, the requests that wait in other processes have one more run
// together, not one run each, however large the page is.
func TestFleetPurgedWhileItIsMade(t *testing.T) {
	onEachStore(t, 2, middleware.Options{}, func(t *testing.T, f *fleet) {
		hold := f.gate()
		f.route("/list", func(w http.ResponseWriter, r *http.Request) {
			hold.pass()
			page(w, strings.Repeat("list", 4<<10))
		})
		clients := []*client{f.start(0, get("/list"))}
		f.awaitRunning(1)
		for range 8 {
			clients = append(clients, f.start(1, get("/list")))
		}
		f.awaitWaiting(9)
		if err := f.replicas[0].cache.Purge(t.Context(), shop+"/list"); err != nil {
			t.Fatal(err)
		}
		hold.open()
		for _, cl := range clients {
			cl.reply(t).want(t, 200, strings.Repeat("list", 4<<10))
		}
		f.wantRuns(2, "nine requests and a purge")
	})
}

// The tags that stand for URLs also purge them if a program that knows only the store invalidates
// them, such as the relay of an outbox.
func TestFleetPurgedByItsTags(t *testing.T) {
	onEachStore(t, 2, middleware.Options{Name: "pages"}, func(t *testing.T, f *fleet) {
		f.route("/list", func(w http.ResponseWriter, r *http.Request) { page(w, "list") })
		f.route("/other", func(w http.ResponseWriter, r *http.Request) { page(w, "other") })
		for _, path := range []string{"/list", "/other", "/list", "/other"} {
			f.start(0, get(path)).reply(t).want(t, 200, path[1:])
		}
		f.wantRuns(2, "two pages, asked for twice")
		tags, err := f.replicas[1].cache.URLTags(shop + "/list")
		if err != nil {
			t.Fatal(err)
		}
		relay, err := cacheguard.New(f.replicas[1].spy.Store,
			cacheguard.Options[[]byte]{Name: "pages", Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		defer relay.Close()
		if err := relay.InvalidateTags(t.Context(), tags...); err != nil {
			t.Fatal(err)
		}
		for _, path := range []string{"/list", "/other"} {
			f.start(1, get(path)).reply(t).want(t, 200, path[1:])
		}
		f.wantRuns(3, "the page that was purged is made again, and no other")
		if _, err := f.replicas[0].cache.URLTags("::"); err == nil {
			t.Error("no error for what is no URL")
		}
	})
}
