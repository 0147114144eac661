package middleware_test

import (
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/cacheguard/cacheguard/cacheguard/memstore"
	"github.com/cacheguard/cacheguard/middleware"
)

// If the response to a POST is for GET, too, it is recorded while it is written. It is stored whole
// or not at all, and only a bounded number of POSTs is recorded at a time.
func TestPostsAreRecordedWhole(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cache := newCache(t, middleware.Options{StorePosts: true})
		gate := make(chan struct{})
		answer := func(w http.ResponseWriter, r *http.Request) {}
		h := cache.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Cache-Control", "max-age=60")
			w.Header().Set("Content-Location", r.URL.Path)
			if r.Method == "GET" {
				fmt.Fprint(w, "by GET")
				return
			}
			if r.URL.Path == "/slow" {
				<-gate
			}
			answer(w, r)
		}))
		expect := func(target, want string) {
			t.Helper()
			if got := asks(h, "GET", target).Body.String(); got != want {
				t.Errorf("%s: %q", target, got)
			}
		}
		answer = func(w http.ResponseWriter, r *http.Request) {
			lifetime := w.Header()["Cache-Control"]
			delete(w.Header(), "Cache-Control")
			w.WriteHeader(http.StatusEarlyHints)
			w.Header()["Cache-Control"] = lifetime
			_, _ = io.Copy(w, strings.NewReader(digits))
		}
		h.ServeHTTP(&readingWriter{ResponseRecorder: httptest.NewRecorder()},
			httptest.NewRequest("POST", "/copied", nil))
		expect("/copied", digits)
		answer = func(w http.ResponseWriter, r *http.Request) {
			fmt.Fprint(w, "012")
			w.(http.Flusher).Flush()
			fmt.Fprint(w, "345")
		}
		asks(h, "POST", "/flushed")
		expect("/flushed", "012345")
		answer = func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Length", "10")
			fmt.Fprint(w, "012")
		}
		asks(h, "POST", "/short")
		expect("/short", "by GET")
		answer = func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Location", "http://somebody@example.com/user")
			fmt.Fprint(w, digits)
		}
		asks(h, "POST", "/user")
		expect("/user", "by GET")
		answer = func(w http.ResponseWriter, r *http.Request) {}
		asks(h, "POST", "/nothing")
		expect("/nothing", "")
		answer = func(w http.ResponseWriter, r *http.Request) {
			fmt.Fprint(w, digits)
			w.Header().Set(http.TrailerPrefix+"Sum", "1")
		}
		asks(h, "POST", "/trailer")
		expect("/trailer", "by GET")
		answer = func(w http.ResponseWriter, r *http.Request) {
			lifetime := w.Header()["Cache-Control"]
			delete(w.Header(), "Cache-Control")
			w.WriteHeader(http.StatusOK)
			w.Header()["Cache-Control"] = lifetime
			w.WriteHeader(http.StatusOK) // too late: the body has begun
			fmt.Fprint(w, digits)
		}
		asks(h, "POST", "/late")
		expect("/late", "by GET")
		answer = func(w http.ResponseWriter, r *http.Request) {
			fmt.Fprint(w, "012")
			panic(http.ErrAbortHandler)
		}
		func() {
			defer func() { _ = recover() }()
			asks(h, "POST", "/panic")
		}()
		expect("/panic", "by GET")

		answer = func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, digits) }
		done := make(chan bool)
		for range 16 {
			go func() { asks(h, "POST", "/slow"); done <- true }()
		}
		synctest.Wait()
		for range 20 {
			asks(h, "POST", "/seventeenth")
		}
		expect("/seventeenth", "by GET")
		close(gate)
		for range 16 {
			<-done
		}
		asks(h, "POST", "/later")
		expect("/later", digits)
	})
}

// A handler may return when a Write fails. What it has written until then is not stored.
func TestPostOfAClientThatCantBeReached(t *testing.T) {
	h := newCache(t,
		middleware.Options{
			StorePosts: true,
		}).Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "max-age=60")
		w.Header().Set("Content-Location", r.URL.Path)
		for _, digit := range digits {
			if _, err := io.WriteString(w, string(digit)); err != nil {
				return
			}
		}
	}))
	s := &stalled{
		ResponseRecorder: httptest.NewRecorder(), takes: 5, fails: io.ErrClosedPipe,
		goOn: make(chan struct{}),
	}
	close(s.goOn)
	h.ServeHTTP(s, httptest.NewRequest("POST", "/", nil))
	if got := asks(h, "GET", "/").Body.String(); got != digits || s.Body.String() != digits[:5] {
		t.Errorf("GET got %q after a POST that got %q", got, s.Body)
	}
}

// The stored response to a POST is selected by the request as it came. It has no fields that a
// layer in front has set for the POST's client, and it is counted among the variants of its URL.
func TestPostsAreStoredForTheirLike(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		runs := 0
		inner := newCache(t,
			middleware.Options{StorePosts: true, MaxVariants: 2}).Handler(http.HandlerFunc(
			func(w http.ResponseWriter, r *http.Request) {
				runs++
				r.Header.Set("X-Size", "unknown")
				w.Header().Set("Cache-Control", "max-age=60")
				w.Header().Set("Content-Location", "/")
				w.Header().Set("Vary", "X-Size")
				fmt.Fprint(w, "run ", runs)
			}))
		h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("X-Client", r.Header.Get("X-Client"))
			inner.ServeHTTP(w, r)
		})
		for i, size := range []string{"1", "2", "3"} {
			asks(h, "POST", "/", "X-Size", size, "X-Client", "poster")
			got := asks(h, "GET", "/", "X-Size", size, "X-Client", "reader")
			want := fmt.Sprint("run ", i+1)
			if size == "3" {
				want = "run 4"
			}
			if got.Body.String() != want || len(got.Header()["X-Client"]) != 1 ||
				got.Header().Get("X-Client") != "reader" {
				t.Errorf("size %s: %q, %v; want %s", size, got.Body, got.Header(), want)
			}
		}
	})
}

// The handler of a POST sees what the options remove from a GET. What it writes of that doesn't
// reach a client with the same key.
func TestPostsTellOthersNothingThatKeysLack(t *testing.T) {
	for name, c := range map[string]struct {
		opts                middleware.Options
		target, languages   string // of a POST that the options would change
		stored, acceptsThen string // of a GET with the same key, which they don't change
	}{
		"query": {
			opts:   middleware.Options{IgnoreQuery: []string{"utm_*"}},
			target: "/p?utm_x=EVIL", languages: "en", stored: "/p", acceptsThen: "en",
		},
		"query field": {
			opts:   middleware.Options{KeepQuery: []string{"page"}},
			target: "/p?x=EVIL&page=1", languages: "en", stored: "/p?page=1", acceptsThen: "en",
		},
		"host": {
			opts:   middleware.Options{Hosts: map[string]string{"evil.example": "example.com"}},
			target: "http://evil.example/p", languages: "en", stored: "/p", acceptsThen: "en",
		},
		"field": {
			opts:   middleware.Options{Normalize: []string{"Accept-Language"}},
			target: "/p", languages: "EVIL, de", stored: "/p", acceptsThen: "de,evil",
		},
		"shape": {
			opts: middleware.Options{Shape: func(r *http.Request) {
				r.Header.Set("Accept-Language", "en")
			}},
			target: "/p", languages: "EVIL", stored: "/p", acceptsThen: "en",
		},
		"no connection": {
			opts:   middleware.Options{Shape: func(r *http.Request) { r.TLS = nil }},
			target: "https://example.com/p", languages: "en", stored: "/p", acceptsThen: "en",
		},
		"connection": {
			opts: middleware.Options{Shape: func(r *http.Request) {
				if r.TLS == nil {
					r.TLS = &tls.ConnectionState{ServerName: "example.com"}
				}
			}},
			target: "/p", languages: "en", stored: "https://example.com/p", acceptsThen: "en",
		},
	} {
		t.Run(name, func(t *testing.T) {
			c.opts.StorePosts = true
			h := newCache(t, c.opts).Handler(http.HandlerFunc(
				func(w http.ResponseWriter, r *http.Request) {
					w.Header().Set("Cache-Control", "max-age=60")
					w.Header().Set("Vary", "Accept-Language")
					w.Header().Set("Content-Location", c.stored)
					fmt.Fprintf(w, "%s: %s%s in %s", r.Method, r.Host, r.RequestURI,
						r.Header.Get("Accept-Language"))
				}))
			read := func() string {
				return asks(h, "GET", c.stored, "Accept-Language", c.acceptsThen).Body.String()
			}
			asks(h, "POST", c.target, "Accept-Language", c.languages)
			if got := read(); !strings.HasPrefix(got, "GET") {
				t.Errorf("a GET got %q", got)
			}
			asks(h, "POST", c.stored, "Accept-Language", c.acceptsThen)
			if got := read(); !strings.HasPrefix(got, "POST") {
				t.Errorf("after a POST that the options don't change, a GET got %q", got)
			}
		})
	}
}

// If the handler of a POST takes over the connection, nothing is stored, whatever the header says.
func TestPostThatTakesItsConnectionOver(t *testing.T) {
	cache, err := middleware.New(memstore.New(memstore.Options{}),
		middleware.Options{StorePosts: true})
	if err != nil {
		t.Fatal(err)
	}
	defer cache.Close()
	stored := make(chan struct{})
	h := cache.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "max-age=60")
		w.Header().Set("Content-Location", r.URL.Path)
		if r.Method == "GET" {
			fmt.Fprint(w, "by GET")
			return
		}
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		_ = conn.Close()
	}))
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h.ServeHTTP(w, r)
		if r.Method == "POST" {
			close(stored)
		}
	}))
	defer server.Close()
	if res, err := server.Client().Post(server.URL, "", nil); err == nil {
		_ = res.Body.Close()
		t.Error("the POST was answered")
	}
	<-stored
	res, err := server.Client().Get(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if body, err := io.ReadAll(res.Body); string(body) != "by GET" || err != nil {
		t.Errorf("GET after the POST: %q, %v", body, err)
	}
}

// A POST with an invalid Host goes to the handler without being recorded.
func TestPostForNoHost(t *testing.T) {
	h := newCache(t,
		middleware.Options{
			StorePosts: true,
		}).Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "max-age=60")
		w.Header().Set("Content-Location", "/")
		fmt.Fprint(w, digits)
	}))
	r := httptest.NewRequest("POST", "/", nil)
	r.Host = "a b"
	w := httptest.NewRecorder()
	if h.ServeHTTP(w, r); w.Body.String() != digits {
		t.Errorf("got %q", w.Body)
	}
}
