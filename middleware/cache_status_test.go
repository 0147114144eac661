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

var errDown = errors.New("the store is down")

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

// Cache-Status distinguishes a stale answer after a failure from a hit, and its size is bounded.
func TestCacheStatusOfFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		down := false
		_, h := front(t, middleware.Options{ShowKey: true}, func(
			w http.ResponseWriter, r *http.Request,
		) {
			if down {
				w.WriteHeader(503)
				return
			}
			w.Header().Set("Cache-Control", "max-age=60, stale-if-error=600")
			fmt.Fprint(w, "page")
		})
		long := "/" + strings.Repeat("x", 5000)
		if got := fetch(h, long).Header().Get("Cache-Status"); len(got) > 2000 {
			t.Errorf("Cache-Status has %d bytes", len(got))
		}
		fetch(h, "/")
		<-time.After(2 * time.Minute)
		down = true
		w := fetch(h, "/")
		if got := w.Header().Get("Cache-Status"); w.Body.String() != "page" ||
			!strings.HasPrefix(got, "cacheguard; fwd=stale; fwd-status=503") {
			t.Errorf("%q: %s", w.Body, got)
		}
	})
}
