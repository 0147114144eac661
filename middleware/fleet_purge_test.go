package middleware_test

import (
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/middleware"
)

// versioned registers a route that answers with the number of its run. The response may be given to
// every client for a minute.
func (f *fleet) versioned(pattern string, fields ...string) *atomic.Int64 {
	var version atomic.Int64
	f.route(pattern, func(w http.ResponseWriter, r *http.Request) {
		if r.Method != "GET" && r.Method != "HEAD" {
			for n := 0; n < len(fields); n += 2 {
				w.Header().Set(fields[n], fields[n+1])
			}
			w.WriteHeader(http.StatusCreated)
			return
		}
		for n := 0; n < len(fields); n += 2 {
			w.Header().Set(fields[n], fields[n+1])
		}
		page(w, fmt.Sprintf("%s %d", r.URL.Path, version.Load()))
	})
	return &version
}

// After a purge on one replica the response is gone on the other replica. If that replica asks the
// store, it is gone at once. If the replica answers from its own memory, it is gone when the
// message arrives.
func TestFleetPurge(t *testing.T) {
	type purge func(c *middleware.Cache, t *testing.T) error
	for name, c := range map[string]struct {
		purge purge
		gone  []string // the paths whose responses are gone; all others stay
	}{
		"Purge": {func(c *middleware.Cache, t *testing.T) error {
			return c.Purge(t.Context(), shop+"/products/1", shop+"/products/2?size=3")
		}, []string{"/products/1", "/products/2?size=3"}},
		"Purge on every host": {func(c *middleware.Cache, t *testing.T) error {
			return c.Purge(t.Context(), "/products/1")
		}, []string{"/products/1"}},
		"Purge of another host": {func(c *middleware.Cache, t *testing.T) error {
			return c.Purge(t.Context(), "http://other.example/products/1")
		}, nil},
		"PurgePrefix": {func(c *middleware.Cache, t *testing.T) error {
			return c.PurgePrefix(t.Context(), "/products")
		}, []string{"/products/1", "/products/2?size=3"}},
		"PurgePrefix of all": {func(c *middleware.Cache, t *testing.T) error {
			return c.PurgePrefix(t.Context(), "/")
		}, []string{"/products/1", "/products/2?size=3", "/products2", "/users/1"}},
		"PurgeTags": {func(c *middleware.Cache, t *testing.T) error {
			return c.PurgeTags(t.Context(), "people", "nothing")
		}, []string{"/users/1"}},
		"MarkStale": {func(c *middleware.Cache, t *testing.T) error {
			return c.MarkStale(t.Context(), shop+"/products/1")
		}, []string{"/products/1"}},
	} {
		t.Run(name, func(t *testing.T) {
			for tier, bytes := range map[string]int{"store": 0, "local tier": 1 << 20} {
				t.Run(tier, func(t *testing.T) {
					onEachStore(t, 2, middleware.Options{LocalBytes: bytes}, func(
						t *testing.T, f *fleet,
					) {
						versions := []*atomic.Int64{
							f.versioned("/products/*"), f.versioned("/products2"),
							f.versioned("/users/*", "Cache-Tag", "people, all", "Surrogate-Key",
								"u1 u2"),
						}
						paths := map[string]string{
							"/products/1": "/products/1", "/products/2?size=3": "/products/2",
							"/products2": "/products2", "/users/1": "/users/1",
						}
						for range 2 {
							for i := range f.replicas {
								for path, text := range paths {
									f.do(i, get(path)).want(t, 200, text+" 0")
								}
							}
						}
						f.wantRuns(len(paths), "four resources, four times each")
						for _, v := range versions {
							v.Store(1)
						}
						if err := c.purge(f.replicas[1].cache, t); err != nil {
							t.Fatal(err)
						}
						gone := map[string]bool{}
						for _, path := range c.gone {
							gone[path] = true
							// A replica that stores sees its own response.
							f.do(1, get(path)).want(t, 200, paths[path]+" 1")
							if bytes == 0 {
								f.do(0, get(path)).want(t, 200, paths[path]+" 1")
								continue
							}
							f.await(path+" is gone from the other replica", func() bool {
								return f.do(0, get(path)).body == paths[path]+" 1"
							})
						}
						for path, text := range paths {
							if !gone[path] {
								f.do(0, get(path)).want(t, 200, text+" 0")
								f.do(1, get(path)).want(t, 200, text+" 0")
							}
						}
						f.wantRuns(len(paths)+len(gone), "one more for each that is gone")
					})
				})
			}
		})
	}
}

// A purge removes all variants and groups of a resource.
func TestFleetPurgeOfVariants(t *testing.T) {
	opts := middleware.Options{VaryBy: func(r *http.Request) string {
		return r.Header.Get("X-Group")
	}}
	onEachStore(t, 2, opts, func(t *testing.T, f *fleet) {
		f.versioned("/list", "Vary", "Accept-Language")
		ask := func() {
			for i, group := range []string{"", "red"} {
				for _, language := range []string{"de", "fr"} {
					f.do(i, get("/list", "X-Group", group, "Accept-Language", language)).want(t,
						200, "/list 0")
				}
			}
		}
		ask()
		ask()
		f.wantRuns(4, "two languages, two groups")
		if err := f.replicas[0].cache.Purge(t.Context(), shop+"/list"); err != nil {
			t.Fatal(err)
		}
		ask()
		ask()
		f.wantRuns(8, "and again after a purge")
	})
}

// A successful unsafe request removes the stored responses of its own resource on every replica.
// With InvalidateLocations it also removes those of the URLs that its response names. A failed
// unsafe request removes nothing.
func TestFleetUnsafeMethods(t *testing.T) {
	for _, c := range []struct {
		method, field, value string
		status               int
		gone                 []string
	}{
		{"POST", "", "", 201, []string{"/a"}},
		{"PUT", "", "", 204, []string{"/a"}},
		{"DELETE", "", "", 200, []string{"/a"}},
		{"PATCH", "", "", 303, []string{"/a"}},
		{"POST", "Location", "/b", 201, []string{"/a", "/b"}},
		{"POST", "Content-Location", shop + "/b", 200, []string{"/a", "/b"}},
		{"POST", "Location", "http://other.example/b", 201, []string{"/a"}},
		{"POST", "", "", 400, nil},
		{"POST", "Location", "/b", 500, nil},
		{"OPTIONS", "", "", 200, nil},
	} {
		t.Run(fmt.Sprintf("%s %d %s %s", c.method, c.status, c.field, c.value), func(t *testing.T) {
			onEachStore(t, 2, middleware.Options{InvalidateLocations: true}, func(
				t *testing.T, f *fleet,
			) {
				var version atomic.Int64
				f.route("/*", func(w http.ResponseWriter, r *http.Request) {
					if r.Method != "GET" {
						version.Add(1)
						if c.field != "" {
							w.Header().Set(c.field, c.value)
						}
						w.WriteHeader(c.status)
						return
					}
					page(w, fmt.Sprintf("%s %d", r.URL.Path, version.Load()))
				})
				for i := range f.replicas {
					f.do(i, get("/a")).want(t, 200, "/a 0")
					f.do(i, get("/b")).want(t, 200, "/b 0")
				}
				others := call{path: "/b", host: "other.example"}
				f.do(0, others).want(t, 200, "/b 0")
				f.wantRuns(3, "three resources")
				f.do(1, call{method: c.method, path: "/a"}).wantStatus(t, c.status)
				for _, path := range []string{"/a", "/b"} {
					want := path + " 0"
					for _, gone := range c.gone {
						if gone == path {
							want = path + " 1"
						}
					}
					f.do(0, get(path)).want(t, 200, want)
					f.do(1, get(path)).want(t, 200, want)
				}
				f.do(0, others).want(t, 200, "/b 0")
			})
		})
	}
}

// purges are the ways in which one replica can invalidate the list.
var purges = map[string]func(t *testing.T, f *fleet) error{
	"Purge": func(t *testing.T, f *fleet) error {
		return f.replicas[1].cache.Purge(t.Context(), shop+"/list")
	},
	"PurgePrefix": func(t *testing.T, f *fleet) error {
		return f.replicas[1].cache.PurgePrefix(t.Context(), "/list")
	},
	"PurgeTags": func(t *testing.T, f *fleet) error {
		return f.replicas[1].cache.PurgeTags(t.Context(), "lists")
	},
	"MarkStale": func(t *testing.T, f *fleet) error {
		return f.replicas[1].cache.MarkStale(t.Context(), shop+"/list")
	},
	"POST": func(t *testing.T, f *fleet) error {
		f.do(1, call{method: "POST", path: "/list"}).wantStatus(t, 201)
		return nil
	},
}

// beginList begins a request whose handler knows the old list and waits at the gate. All later
// handlers know the new list.
func beginList(f *fleet, hold *gate) *client {
	f.route("/list", func(w http.ResponseWriter, r *http.Request) {
		if r.Method == "POST" {
			w.WriteHeader(201)
			return
		}
		made := "new"
		w.Header().Set("Cache-Tag", "lists")
		if r.Header.Get("X-First") != "" {
			made = "old"
			hold.pass()
		}
		page(w, made)
	})
	before := f.start(0, get("/list", "X-First", "yes"))
	f.awaitRunning(1)
	return before
}

// If a handler began before a purge, its response goes only to requests that came before the purge,
// and is not stored.
func TestFleetPurgeDuringARun(t *testing.T) {
	for name, purge := range purges {
		t.Run(name, func(t *testing.T) {
			onEachStore(t, 2, middleware.Options{}, func(t *testing.T, f *fleet) {
				hold := f.gate()
				before := beginList(f, hold)
				if err := purge(t, f); err != nil {
					t.Fatal(err)
				}
				f.fresh()
				hold.open()
				before.reply(t).want(t, 200, "old")
				for i := range 4 {
					f.do(i%2, get("/list")).want(t, 200, "new")
				}
				f.wantRuns(1, "four requests after the purge")
			})
		})
	}
}

// newcomersGetNew sends requests while the handler that began before the purge still waits.
func newcomersGetNew(t *testing.T, f *fleet, hold *gate, before *client) {
	t.Helper()
	clients := f.startAll(4, func(int) call { return get("/list") })
	for _, cl := range clients {
		f.await("all have arrived", cl.arrived)
	}
	hold.open()
	before.reply(t).want(t, 200, "old")
	for _, cl := range clients {
		cl.reply(t).want(t, 200, "new")
	}
}

// A request that comes to a replica after the message about a purge doesn't get the response of a
// handler that began before the purge, although this handler still runs.
func TestFleetNewcomersAfterAPurge(t *testing.T) {
	for name, purge := range purges {
		t.Run(name, func(t *testing.T) {
			onEachStore(t, 2, middleware.Options{}, func(t *testing.T, f *fleet) {
				hold := f.gate()
				before := beginList(f, hold)
				f.everywhere(func() error { return purge(t, f) })
				newcomersGetNew(t, f, hold, before)
				for i := range f.replicas {
					f.do(i, get("/list")).want(t, 200, "new")
				}
			})
		})
	}
}

// With StrongReads this also holds for a request that comes after the purge has returned, although
// the message about the purge hasn't arrived.
func TestFleetStrongReads(t *testing.T) {
	for name, purge := range purges {
		t.Run(name, func(t *testing.T) {
			onEachStore(t, 2, middleware.Options{StrongReads: true}, func(t *testing.T, f *fleet) {
				hold := f.gate()
				before := beginList(f, hold)
				f.replicas[0].spy.deaf.Store(true)
				if err := purge(t, f); err != nil {
					t.Fatal(err)
				}
				newcomersGetNew(t, f, hold, before)
			})
		})
	}
}

// PurgeHandler refuses requests without its token.
func TestFleetPurgeHandler(t *testing.T) {
	f := memoryFleet(t, 2, middleware.Options{DefaultTTL: time.Minute})
	f.versioned("/list")
	f.replicas[1].router.Handle("/purge", f.replicas[1].cache.PurgeHandler("secret"))
	f.do(0, get("/list")).want(t, 200, "/list 0")
	for _, header := range [][]string{
		nil, {"Authorization", "Bearer wrong"}, {"Authorization", "Bearer "},
		{"Authorization", "secret"}, {"Authorization", "Basic secret"},
	} {
		if got := f.do(1,
			call{
				method: "POST", path: "/purge", header: header, body: "prefix=/",
			}); got.err != nil || got.status != 401 && got.status != 403 {
			t.Errorf("a purge with %q gets %v", header, got)
		}
	}
	f.do(1, get("/list")).want(t, 200, "/list 0")
	f.wantRuns(1, "nobody could purge")
	form := []string{
		"Authorization", "Bearer secret", "Content-Type", "application/x-www-form-urlencoded",
	}
	f.do(1, call{method: "POST", path: "/purge", header: form, body: "url=/list"}).wantStatus(t,
		204)
	f.do(0, get("/list")).want(t, 200, "/list 0")
	f.wantRuns(2, "with the token one can")
	f.do(1, call{method: "POST", path: "/purge", header: form, body: "url=relative"}).wantStatus(t,
		400)

	// If no token is set, no token is right, not even an empty one.
	w, r := httptest.NewRecorder(),
		httptest.NewRequest("POST", "/purge", strings.NewReader("prefix=/"))
	r.Header.Set("Authorization", "Bearer ")
	f.replicas[1].cache.PurgeHandler("").ServeHTTP(w, r)
	if w.Code != http.StatusUnauthorized {
		t.Errorf("a handler without a token answers %d", w.Code)
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
