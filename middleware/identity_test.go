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

// who returns the user whose cookie or token a request has.
func who(r *http.Request) string {
	if c, err := r.Cookie("session"); err == nil {
		return c.Value
	}
	if name, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer "); ok {
		return name
	}
	return "nobody"
}

// as returns the fields of a user's request.
func as(user, by string, more ...string) []string {
	switch by {
	case "Cookie":
		return append([]string{"Cookie", "session=" + user}, more...)
	case "Authorization":
		return append([]string{"Authorization", "Bearer " + user}, more...)
	}
	return append([]string{"Cookie", "session=" + user, "Authorization", "Bearer " + user}, more...)
}

var identities = []string{"Cookie", "Authorization", "both"}

// Freshness by the options doesn't apply to requests that say who asks. Nobody else gets the page
// of this user, and the user doesn't get a page that was made for nobody in particular.
func TestOptionsShareNoUsersPage(t *testing.T) {
	for name, opts := range map[string]middleware.Options{
		"DefaultTTL":  {DefaultTTL: time.Hour},
		"NegativeTTL": {DefaultTTL: -1, NegativeTTL: time.Hour},
		"Heuristic":   {Heuristic: 1},
		"local tier":  {DefaultTTL: time.Hour, LocalBytes: 1 << 20},
		"windows": {
			DefaultTTL: time.Millisecond, StaleWhileRevalidate: time.Hour, StaleIfError: time.Hour,
		},
	} {
		for _, by := range identities {
			t.Run(name+"/"+by, func(t *testing.T) {
				cache := newCache(t, opts)
				h := cache.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					w.Header().Set("Last-Modified",
						time.Now().Add(-time.Hour).UTC().Format(http.TimeFormat))
					if name == "NegativeTTL" {
						w.WriteHeader(http.StatusNotFound)
					}
					fmt.Fprint(w, "secret page of "+who(r))
				}))
				for range 2 {
					for _, user := range []string{"alice", "bob", "nobody", "alice"} {
						var header []string
						if user != "nobody" {
							header = as(user, by)
						}
						if got := asks(h, "GET", "/account",
							header...).Body.String(); got != "secret page of "+user {
							t.Errorf("%s got %q", user, got)
						}
					}
				}
			})
		}
	}
}

// A response to a request with Cookie is shared if the response itself says so.
func TestSaidToBeForAll(t *testing.T) {
	for name, c := range map[string]struct {
		opts middleware.Options
		h    []string
		runs int32 // of six requests by two users and by a client without a name
	}{
		"max-age":  {middleware.Options{}, []string{"Cache-Control", "max-age=60"}, 1},
		"s-maxage": {middleware.Options{}, []string{"Cache-Control", "s-maxage=60"}, 1},
		"Expires": {
			middleware.Options{}, []string{"Expires", "Fri, 01 Jan 2100 00:00:00 GMT"}, 1,
		},
		"CDN-Cache-Control": {
			middleware.Options{},
			[]string{"CDN-Cache-Control", "max-age=60", "Cache-Control", "private"}, 1,
		},
		"public by the option": {
			middleware.Options{DefaultTTL: time.Hour}, []string{"Cache-Control", "public"}, 1,
		},
		"Vary by the option": {
			middleware.Options{DefaultTTL: time.Hour}, []string{"Vary", "Cookie"}, 3,
		},
		// The anonymous response is stored.
		"nothing said": {middleware.Options{DefaultTTL: time.Hour}, nil, 5},
	} {
		t.Run(name, func(t *testing.T) {
			// In a bubble time doesn't pass while requests wait.
			synctest.Test(t, func(t *testing.T) {
				cache, runs := newCache(t, c.opts), atomic.Int32{}
				h := cache.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					runs.Add(1)
					for i := 0; i < len(c.h); i += 2 {
						w.Header().Add(c.h[i], c.h[i+1])
					}
					fmt.Fprint(w, "page")
				}))
				for range 2 {
					asks(h, "GET", "/", as("alice", "Cookie")...)
					asks(h, "GET", "/", as("bob", "Cookie")...)
					asks(h, "GET", "/")
				}
				if got := runs.Load(); got != c.runs {
					t.Errorf("%d runs, want %d", got, c.runs)
				}
			})
		})
	}
}

// The handler doesn't see cookies without meaning, and the cache ignores them.
func TestIgnoredCookies(t *testing.T) {
	cache := newCache(t,
		middleware.Options{DefaultTTL: time.Hour, IgnoreCookies: []string{"consent", "_ga*"}})
	var seen []string
	mux := http.NewServeMux()
	mux.Handle("/", cache.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		seen = append(seen, strings.Join(r.Header["Cookie"], " | "))
		fmt.Fprint(w, "page of "+who(r))
	})))
	for _, c := range []struct{ cookie, want, page string }{
		{"consent=yes; _ga=1; _ga_X2=GS1.1", "", "nobody"},
		{"_ga=alice; consent=no", "hit", "nobody"},
		{"consent=yes; session=alice; _gid=2", "session=alice; _gid=2", "alice"},
		{"session=bob; consent", "session=bob", "bob"},
		{"xconsent=1", "xconsent=1", "nobody"},
		{"Consent=1", "Consent=1", "nobody"},
		{" consent =1;_ga=2;", "hit", "nobody"},
		{"_ga=\";session=alice\"", "session=alice\"", "nobody"},
	} {
		seen = nil
		got := asks(mux, "GET", "/", "Cookie", c.cookie)
		if got.Body.String() != "page of "+c.page {
			t.Errorf("%q got %q", c.cookie, got.Body.String())
		}
		if want := []string{c.want}; c.want == "hit" && seen != nil ||
			c.want != "hit" && !slices.Equal(seen, want) {
			t.Errorf("%q: the handler saw %q, want %q", c.cookie, seen, c.want)
		}
	}
	r := httptest.NewRequest("POST", "/", nil)
	r.Header.Set("Cookie", "consent=1")
	seen = nil
	mux.ServeHTTP(httptest.NewRecorder(), r)
	if !slices.Equal(seen, []string{"consent=1"}) || r.Header.Get("Cookie") != "consent=1" {
		t.Errorf("POST: %q, and the request has %q", seen, r.Header["Cookie"])
	}
}

// The pages of users have different dates. A handler that evaluates conditions as net/http does
// answers 304 to each client whose page is older than the other's.
func TestNobodysPageByDate(t *testing.T) {
	for name, cc := range map[string]string{
		"no-cache":                   "no-cache",
		"public, no-cache":           "public, no-cache",
		"max-age=0":                  "max-age=0",
		"max-age=0, must-revalidate": "max-age=0, must-revalidate",
		"s-maxage=0":                 "s-maxage=0",
		"public, max-age=1":          "public, max-age=1",
		"s-maxage=1":                 "s-maxage=1",
		"no-cache, must-revalidate":  "no-cache, must-revalidate",
	} {
		for _, by := range identities {
			for _, second := range []string{"bob", "nobody"} {
				t.Run(name+"/"+by+"/"+second, func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						cache := newCache(t, middleware.Options{})
						dates := map[string]time.Time{
							"alice":  time.Now().Add(-time.Hour),
							"bob":    time.Now().Add(-2 * time.Hour),
							"nobody": time.Now().Add(-3 * time.Hour),
						}
						h := cache.Handler(http.HandlerFunc(func(
							w http.ResponseWriter, r *http.Request,
						) {
							w.Header().Set("Cache-Control", cc)
							http.ServeContent(w, r, "", dates[who(r)],
								strings.NewReader("page of "+who(r)))
						}))
						shared := strings.HasSuffix(cc, "=1")
						for range 2 {
							for _, user := range []string{"alice", second} {
								var header []string
								if user != "nobody" {
									header = as(user, by)
								}
								if got := asks(h, "GET", "/",
									header...).Body.String(); got != "page of "+user {
									t.Errorf("%s got %q", user, got)
								}
								asks(h, "HEAD", "/", header...)
								if shared { // the shared page is right until it is stale
									<-time.After(2 * time.Second)
								}
							}
						}
					})
				})
			}
		}
	}
}

// The HEAD of another user doesn't make old pages fresh either.
func TestNobodysPageByHead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cache := newCache(t, middleware.Options{})
		h := cache.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Cache-Control", "max-age=10")
			w.Header().Set("Content-Length", "13")
			fmt.Fprintf(w, "page of %5s", who(r))
		}))
		asks(h, "GET", "/", as("alice", "Cookie")...)
		<-time.After(11 * time.Second)
		asks(h, "HEAD", "/", as("bobby", "Cookie")...)
		if got := asks(h, "GET", "/",
			as("bobby", "Cookie")...).Body.String(); got != "page of bobby" {
			t.Errorf("bobby got %q", got)
		}
	})
}

// By an ETag a handler says which page it means. Then one copy is enough for all users that get the
// same page. If a handler answers 304 with another ETag, or by the date, it means its own page.
func TestUsersPageByTag(t *testing.T) {
	groups := map[string]string{"alice": "red", "bob": "red", "carol": "blue"}
	for name, sloppy := range map[string]bool{"by the tag": false, "with another tag": true} {
		t.Run(name, func(t *testing.T) {
			cache, whole := newCache(t, middleware.Options{}), 0
			h := cache.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				tag := `"` + groups[who(r)] + `"`
				w.Header().Set("Cache-Control", "no-cache")
				w.Header().Set("Etag", tag)
				w.Header().Set("Last-Modified", "Sat, 21 Nov 2020 20:00:00 GMT")
				asked := r.Header.Get("If-None-Match")
				if r.Header.Get("If-Modified-Since") != "" {
					t.Errorf("%s is asked about by date", who(r))
				}
				if asked == tag || sloppy && asked != "" {
					w.WriteHeader(http.StatusNotModified)
					return
				}
				whole++
				fmt.Fprint(w, "page of the "+groups[who(r)])
			}))
			for _, user := range []string{"alice", "bob", "carol", "alice", "bob"} {
				if got := asks(h, "GET", "/",
					as(user, "Cookie")...).Body.String(); got != "page of the "+groups[user] {
					t.Errorf("%s got %q", user, got)
				}
			}
			if want := 3; whole != want && !sloppy { // red, blue, red
				t.Errorf("the page was made %d times, want %d", whole, want)
			}
		})
	}
}

// Requests that wait for a handler that fails again get the status, whatever the response says
// about the clients for which it is.
func TestErrorsOfOthers(t *testing.T) {
	for name, c := range map[string]struct {
		status int
		opts   middleware.Options
		header []string
		asks   []string
	}{
		"500":                    {status: 500},
		"502":                    {status: 502},
		"503":                    {status: 503},
		"501":                    {status: 501},
		"599":                    {status: 599},
		"500 with cookies":       {status: 500, asks: []string{"Cookie", "session=x"}},
		"503 with Authorization": {status: 503, asks: []string{"Authorization", "Bearer x"}},
		"500, Set-Cookie":        {status: 500, header: []string{"Set-Cookie", "session=alice"}},
		"500, public":            {status: 500, header: []string{"Cache-Control", "public"}},
		"500, max-age=0":         {status: 500, header: []string{"Cache-Control", "max-age=0"}},
		"500, no-cache":          {status: 500, header: []string{"Cache-Control", "no-cache"}},
		"500, DefaultTTL":        {status: 500, opts: middleware.Options{DefaultTTL: time.Hour}},
	} {
		t.Run(name, func(t *testing.T) {
			onEachStore(t, 2, c.opts, func(t *testing.T, f *fleet) {
				hold := f.gate()
				f.route("/", func(w http.ResponseWriter, r *http.Request) {
					hold.pass()
					for i := 0; i < len(c.header); i += 2 {
						w.Header().Set(c.header[i], c.header[i+1])
					}
					w.Header().Set("X-Name", r.Header.Get("X-User"))
					w.WriteHeader(c.status)
					fmt.Fprint(w, "trouble with the account of "+r.Header.Get("X-User"))
				})
				users := []string{"alice", "bob", "carol", "dave", "eve", "frank"}
				clients := f.startAll(len(users), func(i int) call {
					return get("/", append([]string{"X-User", users[i]}, c.asks...)...)
				})
				f.awaitWaiting(len(users))
				hold.open()
				for i, cl := range clients {
					got := cl.reply(t)
					if got.status != c.status {
						t.Errorf("%s got %d", users[i], got.status)
					}
					name := got.header.Get("X-Name")
					if name != "" &&
						(name != users[i] || got.body != "trouble with the account of "+users[i]) ||
						name == "" && strings.Contains(got.body, "account") {
						t.Errorf("%s got %q, named %q", users[i], got.body, name)
					}
				}
				f.wantFailures(2, "six users")
				f.do(0, get("/", "X-User", "grace")).want(t, c.status,
					"trouble with the account of grace")
			})
		})
	}
}

// A response without freshness is for its own client only, whatever its status is.
func TestNoFreshnessIsNobodyElses(t *testing.T) {
	for _, status := range []int{200, 302, 400, 401, 403, 404, 406, 418} {
		t.Run(fmt.Sprint(status), func(t *testing.T) {
			f := memoryFleet(t, 1, middleware.Options{})
			hold := f.gate()
			f.route("/", func(w http.ResponseWriter, r *http.Request) {
				hold.pass()
				w.WriteHeader(status)
				fmt.Fprint(w, "for "+r.Header.Get("X-User"))
			})
			users := []string{"alice", "bob", "carol"}
			clients := f.startAll(len(users), func(i int) call {
				return get("/", "X-User", users[i])
			})
			f.awaitWaiting(len(users))
			hold.open()
			for i, cl := range clients {
				cl.reply(t).want(t, status, "for "+users[i])
			}
		})
	}
}

// A page that says it is for all is stored once. It is fresh for users, too, and is refreshed in
// the background.
func TestUsersGetWhatIsForAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cache, runs := newCache(t, middleware.Options{}), 0
		h := cache.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			runs++
			w.Header().Set("Cache-Control", "public, max-age=10, stale-while-revalidate=100")
			fmt.Fprint(w, runs)
		}))
		want := func(page string, header ...string) {
			t.Helper()
			if got := asks(h, "GET", "/", header...).Body.String(); got != page {
				t.Errorf("got %q, want %q", got, page)
			}
			synctest.Wait()
		}
		want("1")
		want("1", as("alice", "both")...)
		<-time.After(15 * time.Second)
		want("1", as("alice", "both")...) // stale, and refreshed for all
		want("2")
		want("2", as("bob", "Cookie")...)
		want("3", as("bob", "Cookie", "Cache-Control", "no-cache")...) // a reload is for all
		want("3")
		want("3", as("bob", "Cookie")...)
	})
}

// If a layer in front adds a field to Vary and IgnoreVary names the field, it selects nothing. So
// the field doesn't make a page one that only a single user gets, either.
func TestIgnoredVarySharesNoUsersPage(t *testing.T) {
	for _, by := range identities {
		cache := newCache(t, middleware.Options{
			DefaultTTL: time.Hour, IgnoreVary: []string{"Cookie", "Authorization"},
		})
		h := inFront(cache.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			fmt.Fprint(w, "the page of ", who(r))
		})), func(r *http.Request, h http.Header) { h.Add("Vary", "Cookie, Authorization") })
		for _, user := range []string{"ann", "bob"} {
			w := asks(h, "GET", "/", as(user, by)...)
			if status := w.Header().Get("Cache-Status"); w.Body.String() != "the page of "+user ||
				strings.Contains(status, "; stored") {
				t.Errorf("%s: %s got %q, %q", by, user, w.Body, status)
			}
		}
		if got := asks(h, "GET", "/").Body.String(); got != "the page of nobody" {
			t.Errorf("%s: nobody got %q", by, got)
		}
	}
}

// A change beyond the budget removes the copy that the same client would get, without the cookies
// that have no meaning.
func TestChangeBeyondTheBudgetIgnoresCookies(t *testing.T) {
	cache := newCache(t, middleware.Options{IgnoreCookies: []string{"_ga*"}})
	h := cache.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "max-age=60")
		w.Header().Set("Vary", "Cookie")
		fmt.Fprint(w, "the page of ", who(r))
	}))
	const user, tracked = "session=ann", "session=ann; _ga=1"
	asks(h, "GET", "/", "Cookie", "session=first")
	asks(h, "GET", "/", "Cookie", user)
	if status := asks(h, "GET", "/", "Cookie",
		tracked).Header().Get("Cache-Status"); !strings.Contains(status, "; hit") {
		t.Fatalf("not stored: %q", status)
	}
	for i := range 2000 {
		asks(h, "POST", fmt.Sprint("/other/", i))
	}
	asks(h, "POST", "/", "Cookie", tracked)
	asks(h, "GET", "/", "Cookie", "session=first") // by its Vary the others are found again
	if status := asks(h, "GET", "/", "Cookie",
		user).Header().Get("Cache-Status"); strings.Contains(status, "; hit") {
		t.Errorf("what was changed is still served: %q", status)
	}
}

// marking is a store that tells the test when the first response is stored.
type marking struct {
	*memstore.Store
	stored func()
}

func (s *marking) Fill(
	ctx context.Context, k cacheguard.Key, g cacheguard.Grant, f []byte, ttl time.Duration,
) (cacheguard.FillAnswer, error) {
	ans, err := s.Store.Fill(ctx, k, g, f, ttl)
	if stored := s.stored; stored != nil {
		s.stored = nil
		stored()
	}
	return ans, err
}

// If a user's request has brought a response for all, and this response was marked stale since, it
// isn't stored for all as a fresh response.
func TestMarkedIsNotForAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, runs := &marking{Store: memstore.New(memstore.Options{})}, 0
		defer store.Close()
		cache, err := middleware.New(store, middleware.Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer cache.Close()
		h := cache.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			runs++
			w.Header().Set("Cache-Control", "public, max-age=100")
			fmt.Fprint(w, runs)
		}))
		store.stored = func() {
			if err := cache.MarkStale(t.Context(), "/"); err != nil {
				t.Error(err)
			}
		}
		for page, header := range [][]string{as("alice", "both"), nil} {
			if got, want := asks(h, "GET", "/", header...).Body.String(),
				fmt.Sprint(page+1); got != want {
				t.Errorf("got %q, want %q", got, want)
			}
			synctest.Wait()
		}
	})
}
