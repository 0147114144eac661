package middleware_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cacheguard/cacheguard/middleware"
)

// If a client gets a 304 and nobody else gets the response, nobody reads the body. A handler that
// ends only when a Write fails doesn't run for ever, and it isn't told sooner than a handler whose
// response is recorded.
func TestBodyOfA304Ends(t *testing.T) {
	const most, size = 1000, 100
	for name, control := range map[string]string{
		"no-store": "no-store", "above MaxBody": "max-age=60",
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var failed, ended error
				written := 0
				h := newCache(t, middleware.Options{MaxBody: most}).Handler(http.HandlerFunc(func(
					w http.ResponseWriter, r *http.Request,
				) {
					w.Header().Set("Cache-Control", control)
					for ; failed == nil && written < 100*most; written += size {
						_, failed = w.Write(make([]byte, size))
					}
					ended = context.Cause(r.Context())
				}))
				got := asks(h, "GET", "/export", "If-None-Match", "*")
				if got.Code != http.StatusNotModified || got.Body.Len() != 0 {
					t.Errorf("got %d, %d bytes", got.Code, got.Body.Len())
				}
				if !errors.Is(failed, http.ErrBodyNotAllowed) || written != most+size {
					t.Errorf("after %d bytes Write returned %v", written, failed)
				}
				if !errors.Is(ended, http.ErrBodyNotAllowed) {
					t.Errorf("the context ended with %v", ended)
				}
			})
		})
	}
}

// A page of usual size is made to its end, although its client gets a 304. So a handler that does
// something after its last Write does it for this client, too.
func TestPageOfA304IsMade(t *testing.T) {
	h := newCache(t, middleware.Options{}).Handler(http.HandlerFunc(func(
		w http.ResponseWriter, r *http.Request,
	) {
		w.Header().Set("Cache-Control", "no-store")
		for range 2 {
			if _, err := io.WriteString(w, "the page"); err != nil || r.Context().Err() != nil {
				t.Errorf("Write returned %v, the context %v", err, r.Context().Err())
			}
		}
	}))
	if got := asks(h, "GET", "/", "If-None-Match", "*"); got.Code != http.StatusNotModified {
		t.Errorf("got %d", got.Code)
	}
}

// If the client of a 304 has left, the next Write fails.
func TestClientOfA304Leaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var failed error
		h := newCache(t, middleware.Options{}).Handler(http.HandlerFunc(func(
			w http.ResponseWriter, r *http.Request,
		) {
			w.Header().Set("Cache-Control", "no-store")
			_, err := io.WriteString(w, "begin")
			<-r.Context().Done()
			if _, failed = io.WriteString(w, "end"); err != nil {
				t.Errorf("the first Write returned %v", err)
			}
		}))
		client, leave := context.WithTimeout(t.Context(), time.Second)
		defer leave()
		r := httptest.NewRequestWithContext(client, "GET", "/", nil)
		r.Header.Set("If-None-Match", "*")
		if h.ServeHTTP(httptest.NewRecorder(), r); !errors.Is(failed, http.ErrBodyNotAllowed) {
			t.Errorf("Write returned %v", failed)
		}
	})
}

// countedFile is a file that counts how many bytes of it are read.
type countedFile struct {
	*bytes.Reader
	read int
}

func (f *countedFile) Read(p []byte) (int, error) {
	n, err := f.Reader.Read(p)
	f.read += n
	return n, err
}

// If a file is larger than MaxBody, its client has it already and the handler knows its length,
// then the file isn't read for a 304.
func TestFileOfA304IsNotRead(t *testing.T) {
	const most, piece = 100 << 10, 32 << 10
	file := &countedFile{Reader: bytes.NewReader(make([]byte, 100*most))}
	h := newCache(t, middleware.Options{MaxBody: most}).Handler(http.HandlerFunc(func(
		w http.ResponseWriter, r *http.Request,
	) {
		w.Header().Set("Cache-Control", "max-age=60")
		w.Header().Set("Content-Type", "video/mp4")
		w.Header().Set("Etag", `"1"`)
		http.ServeContent(w, r, "", time.Time{}, file)
	}))
	if got := asks(h, "GET", "/", "If-None-Match", `"1"`); got.Code != http.StatusNotModified ||
		file.read > piece {
		t.Errorf("got %d after %d bytes were read", got.Code, file.read)
	}
}

// httputil.ReverseProxy aborts the connection if a Write fails. The client of a 304 gets its whole
// response nevertheless, and any other panic goes on.
func TestProxyOfA304(t *testing.T) {
	backend := transport(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "no-store")
		w.Header().Set("Etag", `"1"`)
		_, _ = io.WriteString(w, strings.Repeat("x", 2000))
	})
	proxy := &httputil.ReverseProxy{Transport: backend, Rewrite: func(*httputil.ProxyRequest) {}}
	var value any
	h := newCache(t, middleware.Options{MaxBody: 1000}).Handler(http.HandlerFunc(func(
		w http.ResponseWriter, r *http.Request,
	) {
		defer func() {
			if v := recover(); v != http.ErrAbortHandler {
				t.Errorf("the proxy has panicked with %v", v)
			}
			panic(value)
		}()
		// The proxy panics only in a server.
		ctx := context.WithValue(r.Context(), http.ServerContextKey, &http.Server{})
		proxy.ServeHTTP(w, r.WithContext(ctx))
	}))
	for want, what := range map[any]string{nil: "abort", "a bug": "another panic"} {
		t.Run(what, func(t *testing.T) {
			if value = want; want == nil {
				value = http.ErrAbortHandler
			}
			w := httptest.NewRecorder()
			defer func() {
				if got := recover(); got != want {
					t.Errorf("the panic is %v, want %v", got, want)
				}
				if w.Code != http.StatusNotModified || w.Header().Get("Etag") != `"1"` {
					t.Errorf("got %d, %v", w.Code, w.Header())
				}
			}()
			r := httptest.NewRequest("GET", "/", nil)
			r.Header.Set("If-None-Match", `"1"`)
			h.ServeHTTP(w, r)
		})
	}
}

// A handler may flush its 304.
func TestNotModifiedMayBeFlushed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cache := newCache(t, middleware.Options{})
		runs := 0
		h := cache.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			runs++
			w.Header().Set("Cache-Control", "max-age=10")
			w.Header().Set("Etag", `"1"`)
			if r.Header.Get("If-None-Match") == `"1"` {
				w.WriteHeader(http.StatusNotModified)
				_ = http.NewResponseController(w).Flush()
				<-time.After(time.Second) // accounting
				return
			}
			_, _ = w.Write([]byte("all is well"))
		}))
		for i := range 3 {
			if w := asks(h, "GET", "/"); w.Code != 200 || w.Body.String() != "all is well" ||
				runs != i+1 {
				t.Errorf("got %d %q after %d runs", w.Code, w.Body, runs)
			}
			<-time.After(20 * time.Second)
		}
	})
}
