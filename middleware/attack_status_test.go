package middleware_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/cacheguard/memstore"
	"github.com/cacheguard/cacheguard/middleware"
)

// unstoredEvents collects the reasons that an observer gets.
type unstoredEvents struct {
	mu  sync.Mutex // guards all
	all []string
}

func (o *unstoredEvents) Observe(_ context.Context, e cacheguard.Event) {
	if e.Kind == cacheguard.EventUnstored {
		o.mu.Lock()
		defer o.mu.Unlock()
		o.all = append(o.all, e.Reason.String())
	}
}

func (o *unstoredEvents) take() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	defer func() { o.all = nil }()
	return o.all
}

// downStore is a store that can't be used.
type downStore struct{ cacheguard.Store }

var errDown = errors.New("the store is down")

func (downStore) Get(
	context.Context, cacheguard.Key, []string,
) ([]byte, cacheguard.Generations, error) {
	return nil, nil, errDown
}

func (downStore) Lease(
	context.Context, cacheguard.Key, cacheguard.LeaseAsk,
) (cacheguard.LeaseAnswer, error) {
	return cacheguard.LeaseAnswer{}, errDown
}

// Cache-Status says correctly whether a response was stored. The reason is one of the documented
// words, and the observer gets the same reason.
func TestCacheStatusSaysWhy(t *testing.T) {
	says := func(lines ...string) http.HandlerFunc { // fields in pairs
		return func(w http.ResponseWriter, r *http.Request) {
			for i := 0; i < len(lines); i += 2 {
				w.Header().Add(lines[i], lines[i+1])
			}
			fmt.Fprint(w, "the page")
		}
	}
	ttl := middleware.Options{DefaultTTL: time.Minute}
	writes := func(n, flushAt int, promised, live bool) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			if live {
				w.Header().Set("Cache-Control", "max-age=60")
			}
			if promised {
				w.Header().Set("Content-Length", fmt.Sprint(n))
			}
			for i := range n {
				_, _ = io.WriteString(w, "x")
				if i+1 == flushAt {
					_ = http.NewResponseController(w).Flush()
				}
			}
		}
	}
	const cc, fresh = "Cache-Control", "max-age=60"
	var manyTags []string
	for i := range 80 {
		manyTags = append(manyTags, fmt.Sprint("tag", i))
	}
	for name, c := range map[string]struct {
		opts   middleware.Options
		down   bool
		method string
		body   string
		fields []string
		h      http.HandlerFunc
		stored bool   // and Cache-Status says so
		unsaid bool   // it is stored, but Cache-Status doesn't say so
		why    string // the reason why it is not stored
	}{
		"fresh":            {h: says(cc, fresh), stored: true},
		"fresh, promised":  {h: says(cc, fresh, "Content-Length", "8"), stored: true},
		"fresh and large":  {h: writes(100_000, 0, true, true), stored: true},
		"length not known": {h: writes(100_000, 0, false, true), unsaid: true},
		"stale windows":    {h: says(cc, "max-age=0, stale-while-revalidate=60"), stored: true},
		"validator":        {h: says(cc, "no-cache", "ETag", `"1"`), stored: true},

		"no freshness": {h: says(), why: "no freshness"},
		"Set-Cookie":   {h: says(cc, fresh, "Set-Cookie", "a=b"), why: "Set-Cookie"},
		"private":      {h: says(cc, "private, max-age=60"), why: "private"},
		"no-store":     {h: says(cc, "no-store"), why: "no-store"},
		"no-cache":     {h: says(cc, "no-cache"), why: "no-cache"},
		"stale":        {h: says(cc, "max-age=0"), why: "stale"},
		"old":          {h: says(cc, fresh, "Age", "100"), why: "stale"},
		"Vary":         {h: says(cc, fresh, "Vary", "*"), why: "Vary: *"},
		"Authorization": {
			fields: []string{"Authorization", "x"}, h: says(cc, fresh), why: "Authorization",
		},
		"Authorization, DefaultTTL": {opts: ttl, fields: []string{"Authorization", "x"},
			h:   says(cc, "must-revalidate"),
			why: "Authorization"},
		"Cookie, DefaultTTL": {
			opts: ttl, fields: []string{"Cookie", "a=b"}, h: says(), why: "Cookie",
		},
		"Cookie, Heuristic": {opts: middleware.Options{Heuristic: 0.5},
			fields: []string{"Cookie", "a=b"},
			h:      says("Last-Modified", "Mon, 02 Jan 2006 15:04:05 GMT"), why: "Cookie"},
		"Cookie, no options": {
			fields: []string{"Cookie", "a=b"}, h: says(), why: "no freshness",
		},
		"Cookie, fresh": {
			fields: []string{"Cookie", "a=b"}, h: says(cc, fresh), stored: true,
		},
		"Cookie, Vary": {
			opts: ttl, fields: []string{"Cookie", "a=b"}, h: says("Vary", "Cookie"), stored: true,
		},
		"Cookie, IgnoreCookies": {
			opts:   middleware.Options{DefaultTTL: time.Minute, IgnoreCookies: []string{"a"}},
			fields: []string{"Cookie", "a=b"}, h: says(), stored: true,
		},
		"status": {h: func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set(cc, fresh)
			w.WriteHeader(429)
		}, why: "status"},
		"must-understand": {h: func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set(cc, fresh+", must-understand")
			w.WriteHeader(599)
		}, why: "must-understand"},
		"too large": {
			opts: middleware.Options{MaxBody: 5}, h: says(cc, fresh), why: "too large",
		},
		"too large, known": {
			opts: middleware.Options{MaxBody: 5}, h: says(cc, fresh, "Content-Length", "8"),
			why: "too large",
		},
		"much too large": {
			opts: middleware.Options{MaxBody: 10_000}, h: writes(20_000, 0, false, true),
			why: "too large",
		},
		"flushed": {
			opts: ttl, h: writes(10, 5, false, false), why: "flushed",
		},
		"flushed, promised": {
			opts: ttl, h: writes(10, 5, true, false), why: "flushed",
		},
		"flushed late": {
			opts: ttl, h: writes(10_000, 5_000, false, false), why: "flushed",
		},
		"flushed, recorded": {
			opts: middleware.Options{DefaultTTL: time.Minute, RecordFlushed: true},
			h:    writes(10, 5, false, false), unsaid: true,
		},
		"flushed, with a lifetime":           {h: writes(10, 5, false, true), unsaid: true},
		"flushed, with a lifetime, promised": {h: writes(10, 5, true, true), stored: true},
		"event stream": {
			h: says(cc, fresh, "Content-Type", "text/event-stream"), why: "event stream",
		},
		"too many tags": {
			h: says(cc, fresh, "Cache-Tag", strings.Join(manyTags, ",")), why: "too many tags",
		},
		"incomplete": {
			h: says(cc, fresh, "Content-Length", "9"), why: "incomplete",
		},
		"panic": {h: func(w http.ResponseWriter, r *http.Request) {
			says(cc, fresh)(w, r)
			panic(http.ErrAbortHandler)
		}, why: "incomplete"},
		"store":             {down: true, h: says(cc, fresh), why: "store"},
		"store, and others": {down: true, h: says(cc, "private"), why: "private"},

		"HEAD":     {method: "HEAD", h: says(cc, fresh), why: "method"},
		"body":     {body: "x", h: says(cc, fresh), why: "bypass"},
		"If-Match": {fields: []string{"If-Match", "*"}, h: says(cc, fresh), why: "bypass"},
		"Range": {
			fields: []string{"Range", "bytes=1-2"}, h: says(cc, fresh), why: "range",
		},
		"request: no-store": {
			fields: []string{cc, "no-store"}, h: says(cc, fresh), why: "request: no-store",
		},
		"variants": {opts: middleware.Options{MaxVariants: 1}, h: says(cc, fresh, "Vary", "X-Plan"),
			fields: []string{"X-Plan", "b"}, why: "too many variants"},
	} {
		t.Run(name, func(t *testing.T) {
			store := cacheguard.Store(memstore.New(memstore.Options{}))
			if c.down {
				store = downStore{store}
			}
			told := &unstoredEvents{}
			c.opts.Observer, c.opts.Logger = told, slog.New(slog.DiscardHandler)
			cache, err := middleware.New(store, c.opts)
			if err != nil {
				t.Fatal(err)
			}
			defer cache.Close()
			h := cache.Handler(c.h)
			if name == "variants" {
				asks(h, "GET", "/", "X-Plan", "a")
			}
			send := func() *httptest.ResponseRecorder {
				method := c.method
				if method == "" {
					method = "GET"
				}
				r := httptest.NewRequest(method, "/", strings.NewReader(c.body))
				if c.body == "" {
					r.Body, r.ContentLength = http.NoBody, 0
				}
				for i := 0; i < len(c.fields); i += 2 {
					r.Header.Set(c.fields[i], c.fields[i+1])
				}
				w := httptest.NewRecorder()
				func() {
					defer func() { _ = recover() }()
					h.ServeHTTP(w, r)
				}()
				return w
			}
			status := send().Header().Get("Cache-Status")
			if said := strings.Contains(status, "; stored"); said != c.stored {
				t.Errorf("%q; stored is %v", status, c.stored)
			}
			events := told.take()
			if c.why == "" {
				if len(events) > 0 || strings.Contains(status, "detail") {
					t.Errorf("%q, told %q; want no reason", status, events)
				}
			} else {
				if !slices.Equal(events, []string{c.why}) {
					t.Errorf("told %q; want %q", events, c.why)
				}
				head := c.why // the reason as far as the head knows it
				if slices.Contains([]string{
					"much too large", "flushed", "flushed, promised", "flushed late",
				}, name) {
					head = ""
				}
				token := fmt.Sprintf("; detail=%q", head)
				if !strings.ContainsAny(head, " :") {
					token = "; detail=" + head
				}
				if head != "" && !strings.HasSuffix(status, token) ||
					head == "" && strings.Contains(status, "detail") {
					t.Errorf("%q; want detail %q", status, head)
				}
			}
			again := send()
			if name == "validator" {
				return // it is stored only to be validated
			}
			if hit := strings.Contains(again.Header().Get("Cache-Status"),
				"; hit"); hit != (c.stored || c.unsaid) {
				t.Errorf("the next one is answered from the store: %v, after %q", hit, status)
			}
		})
	}
}

// If the header isn't sent yet, the client gets the first bytes when the handler flushes them, or
// when there are many bytes.
func TestHeadDoesNotWaitForLong(t *testing.T) {
	for name, write := range map[string]func(w http.ResponseWriter){
		"flush": func(w http.ResponseWriter) {
			fmt.Fprint(w, "x")
			_ = http.NewResponseController(w).Flush()
		},
		"many": func(w http.ResponseWriter) { fmt.Fprint(w, strings.Repeat("x", 10_000)) },
	} {
		t.Run(name, func(t *testing.T) {
			client := &stepWriter{
				ResponseRecorder: httptest.NewRecorder(), body: make(chan struct{}),
			}
			_, h := front(t, middleware.Options{}, func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Cache-Control", "max-age=60")
				w.WriteHeader(200)
				write(w)
				select {
				case <-client.body:
				case <-time.After(longWait):
					t.Error("nothing is with the client")
				}
			})
			h.ServeHTTP(client, httptest.NewRequest("GET", "/", nil))
		})
	}
}

// stepWriter is the writer of a client that can be slow to take an informational response.
type stepWriter struct {
	*httptest.ResponseRecorder
	hints func()        // called for a 1xx
	body  chan struct{} // closed at the first of the body
	steps []string
}

func (w *stepWriter) WriteHeader(status int) {
	if status < 200 {
		w.hints()
	}
	w.steps = append(w.steps, fmt.Sprint(status))
	w.ResponseRecorder.WriteHeader(status)
}

func (w *stepWriter) Write(p []byte) (int, error) {
	if w.body != nil && w.ResponseRecorder.Body.Len() == 0 {
		close(w.body)
	}
	w.steps = append(w.steps, string(p))
	return w.ResponseRecorder.Write(p)
}

// The header, which waits until it is known whether the response is stored, is sent before the
// body. This holds also if the client is still receiving a hint when the body is there.
func TestHeadGoesBeforeTheBody(t *testing.T) {
	written := make(chan struct{})
	client := &stepWriter{ResponseRecorder: httptest.NewRecorder(), hints: func() { <-written }}
	_, h := front(t, middleware.Options{}, func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusEarlyHints)
		w.Header().Set("Cache-Control", "max-age=60")
		w.WriteHeader(http.StatusAccepted)
		fmt.Fprint(w, "small")
		close(written)
	})
	h.ServeHTTP(client, httptest.NewRequest("GET", "/", nil))
	if want := []string{"103", "202", "small"}; !slices.Equal(client.steps, want) {
		t.Errorf("the client got %q; want %q", client.steps, want)
	}
}

// If a reload brings a response that can't be shared, the stored response stays. The new response's
// Cache-Status doesn't say that it is stored.
func TestCacheStatusOfAReloadThatStoresNothing(t *testing.T) {
	told := &unstoredEvents{}
	_, h := front(t, middleware.Options{Observer: told}, func(
		w http.ResponseWriter, r *http.Request,
	) {
		if r.Header.Get("Cache-Control") != "" {
			w.Header().Set("Cache-Control", "no-cache")
		} else {
			w.Header().Set("Cache-Control", "max-age=60")
		}
		w.Header().Set("ETag", `"`+r.Header.Get("Cache-Control")+`"`)
		fmt.Fprint(w, "the page")
	})
	asks(h, "GET", "/")
	told.take()
	if status := asks(h, "GET", "/", "Cache-Control",
		"no-cache").Header().Get("Cache-Status"); strings.Contains(status, "; stored") ||
		!strings.HasSuffix(status, "; detail=no-cache") {
		t.Errorf("%q", status)
	}
	if events := told.take(); !slices.Equal(events, []string{"no-cache"}) {
		t.Errorf("told %q", events)
	}
	if status := asks(h, "GET", "/").Header().Get("Cache-Status"); !strings.Contains(status,
		"; hit") {
		t.Errorf("%q; what was stored is gone", status)
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
				w.Header().Set("Cache-Control", "max-age=60")
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

// A field that IgnoreVary removes from Vary stays removed when the handler answers 304, and when it
// answers a HEAD.
func TestIgnoredVaryStaysOutAfterValidation(t *testing.T) {
	for _, way := range []string{"304", "HEAD"} {
		cache := newCache(t, middleware.Options{IgnoreVary: []string{"Origin"}})
		runs := 0
		h := corsInFront(
			cache.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				runs++
				w.Header().Set("Cache-Control", "max-age=60")
				w.Header().Set("ETag", `"1"`)
				w.Header().Add("Vary", "Accept")
				if r.Header.Get("If-None-Match") != "" {
					w.WriteHeader(http.StatusNotModified)
					return
				}
				fmt.Fprint(w, "the page")
			})))
		asks(h, "GET", "/", "Origin", "a")
		if way == "304" {
			asks(h, "GET", "/", "Origin", "b", "Cache-Control", "no-cache")
		} else {
			asks(h, "HEAD", "/", "Origin", "b", "Cache-Control", "no-cache")
		}
		before := runs
		for _, origin := range []string{"a", "b", "c"} {
			if w := asks(h, "GET", "/", "Origin", origin); w.Header().Get("Age") == "" {
				t.Errorf("%s: Origin %s has it made: %v", way, origin, w.Header())
			}
		}
		if asks(h, "GET", "/", "Origin", "a", "Accept", "x"); runs != before+1 {
			t.Errorf("%s: the handler's own Vary is lost", way)
		}
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
