package middleware_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-chi/chi/v5"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/cacheguard/memstore"
	"github.com/cacheguard/cacheguard/middleware"
)

// askedStore is a store that counts look-ups and removals, and can let a look-up fail.
type askedStore struct {
	cacheguard.Store
	fails func(key string) bool // nil: none
	asked int
}

func (s *askedStore) Get(
	ctx context.Context, k cacheguard.Key, tags []string,
) ([]byte, cacheguard.Generations, error) {
	if s.asked++; s.fails != nil && s.fails(k.Key) {
		return nil, nil, errors.New("the store is busy")
	}
	return s.Store.Get(ctx, k, tags)
}

func (s *askedStore) Invalidate(ctx context.Context, keys []cacheguard.Key) error {
	s.asked++
	return s.Store.Invalidate(ctx, keys)
}

func newAskedStore(t *testing.T, opts middleware.Options) (*askedStore, *middleware.Cache) {
	t.Helper()
	memory := memstore.New(memstore.Options{})
	store := &askedStore{Store: memory}
	opts.Logger = slog.New(slog.DiscardHandler)
	cache, err := middleware.New(store, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cache.Close()
		_ = memory.Close()
	})
	return store, cache
}

// If a user's request or a HEAD brings news about the response that is stored for all, and this
// response can't be looked up, it stays stored.
func TestNewsThatCantBeReadRemovesNothing(t *testing.T) {
	for name, c := range map[string]struct {
		method string
		fields []string
		fails  func(n int, key string) bool // n is the number of look-ups since the handler ran
	}{
		"a user's reload": {"GET", []string{"Cookie", "a=b", "Cache-Control", "no-cache"},
			func(_ int, key string) bool { return strings.HasPrefix(key, "a\x1f") }},
		"a HEAD": {"HEAD", []string{"Cache-Control", "no-cache"}, func(n int, _ string) bool {
			return n == 3
		}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store, cache := newAskedStore(t, middleware.Options{})
				runs, failed := 0, 0
				h := cache.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if runs++; runs == 2 {
						n := 0
						store.fails = func(key string) bool {
							if n++; c.fails(n, key) {
								failed++
								return true
							}
							return false
						}
					}
					w.Header().Set("Cache-Control", "public, max-age=60")
					fmt.Fprint(w, "for all")
				}))
				asks(h, "GET", "/")
				<-time.After(time.Second) // now the stored response is older than the news
				asks(h, c.method, "/", c.fields...)
				store.fails = nil
				if runs != 2 || failed != 1 {
					t.Fatalf("%d runs, %d failures of the store", runs, failed)
				}
				if !hits(h, "/") {
					t.Error("what was stored for all is gone")
				}
			})
		})
	}
}

// A POST beyond the budget asks the store once, also if its client has a part of the response
// before the handler returns.
func TestChangeBeyondTheBudgetAsksOnce(t *testing.T) {
	store, cache := newAskedStore(t, middleware.Options{})
	h := cache.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/long" {
			fmt.Fprint(w, strings.Repeat("x", 10_000))
		}
	}))
	for i := range 1500 {
		asks(h, "POST", fmt.Sprint("/search?q=", i))
	}
	cost := func(path string) int {
		before := store.asked
		asks(h, "POST", path)
		return store.asked - before
	}
	if short, long := cost("/short"), cost("/long"); short == 0 || long != short {
		t.Errorf("%d questions for a short response, %d for a long one", short, long)
	}
}

// A POST beyond the budget removes the response that a GET with its fields would get. This holds
// also if Shape puts values that chi has read into the key, while chi goes on reading.
func TestChangeBeyondTheBudgetOfAShapedPage(t *testing.T) {
	cache := newCache(t, middleware.Options{Shape: func(r *http.Request) { r.URL.RawQuery = "" }})
	routes := chi.NewRouter()
	routes.Route("/products", func(r chi.Router) {
		r.Use(cache.Handler)
		r.Handle("/{id}", http.HandlerFunc(strangersAnswer))
	})
	for i := range 1500 {
		asks(routes, "POST", fmt.Sprint("/products/", i))
	}
	asks(routes, "GET", "/products/1400?x")
	if !hits(routes, "/products/1400?y") {
		t.Fatal("not stored")
	}
	asks(routes, "POST", "/products/1400")
	if hits(routes, "/products/1400") {
		t.Error("what was changed is still served")
	}
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

// A response that is fresh for a second is stored for all, too, if a user's request or requests for
// ranges have brought it, although the store takes time.
func TestASecondIsForAll(t *testing.T) {
	for name, first := range map[string][]string{
		"a user's request": {"Cookie", "a=b"}, "ranges": {"Range", "bytes=0-"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store, cache := newAskedStore(t, middleware.Options{})
				store.fails = func(string) bool {
					time.Sleep(time.Millisecond)
					return false
				}
				runs := 0
				h := cache.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					runs++
					w.Header().Set("Cache-Control", "max-age=1")
					w.Header().Set("Etag", `"1"`)
					http.ServeContent(w, r, "page.txt", time.Time{}, strings.NewReader(digits))
				}))
				asks(h, "GET", "/", first...)
				if got := asks(h, "GET", "/"); got.Body.String() != digits || runs != 1 {
					t.Errorf("%q after %d runs; want 1", got.Body, runs)
				}
				time.Sleep(time.Second)
				if asks(h, "GET", "/"); runs != 2 {
					t.Errorf("%d runs a second later; want 2", runs)
				}
			})
		})
	}
}
