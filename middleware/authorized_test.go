package middleware_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cacheguard/cacheguard/middleware"
)

// If a request with Authorization brings a response that is for all, it is stored for all, unless
// it was purged since.
func TestAuthorizationBringsWhatIsForAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		runs := 0
		cache, h := front(t, middleware.Options{}, func(w http.ResponseWriter, r *http.Request) {
			runs++
			w.Header().Set("Cache-Control", "public, max-age=600")
			fmt.Fprint(w, runs)
		})
		for i, want := range []string{"1", "1", "1", "2", "2"} {
			if i == 3 {
				if err := cache.Purge(t.Context(), "/"); err != nil {
					t.Fatal(err)
				}
			}
			fields := []string{"Authorization", "x"}
			if i%2 == 1 {
				fields = nil
			}
			if got := fetch(h, "/", fields...).Body.String(); got != want {
				t.Errorf("request %d got %s; want %s", i, got, want)
			}
		}
	})
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
