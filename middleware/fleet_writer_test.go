package middleware_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cacheguard/cacheguard/internal/waittest"
	"github.com/cacheguard/cacheguard/middleware"
)

// outerWriter is a writer that a middleware in front of the cache may have put around the server's
// writer.
type outerWriter struct{ http.ResponseWriter }

func (o outerWriter) Unwrap() http.ResponseWriter { return o.ResponseWriter }

// A handler finds the writer below the cache's writer by Unwrap, as http.ResponseController does.
func TestFleetUnwrap(t *testing.T) {
	for _, path := range []string{"/recorded", "/untouched"} {
		f := memoryFleet(t, 1, middleware.Options{})
		rep := f.replicas[0]
		behind := rep.router.With(func(next http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				next.ServeHTTP(outerWriter{w}, r)
			})
		}, rep.cache.Handler)
		method := map[string]string{"/recorded": "GET", "/untouched": "POST"}[path]
		found := make(chan bool, 1)
		behind.MethodFunc(method, path, f.handler(func(w http.ResponseWriter, r *http.Request) {
			for {
				if _, ok := w.(outerWriter); ok {
					found <- true
					return
				}
				u, ok := w.(interface{ Unwrap() http.ResponseWriter })
				if !ok {
					found <- false
					return
				}
				w = u.Unwrap()
			}
		}))
		f.do(0, call{method: method, path: path})
		if !waittest.Next(t, "the handler runs", found) {
			t.Errorf("%s: Unwrap doesn't lead to the writer in front of the cache", path)
		}
	}
}

// The deadlines that a handler sets apply to its client's connection.
func TestFleetDeadlines(t *testing.T) {
	f := memoryFleet(t, 1, middleware.Options{})
	f.route("/fine", func(w http.ResponseWriter, r *http.Request) {
		c := http.NewResponseController(w)
		for name, err := range map[string]error{
			"SetReadDeadline":  c.SetReadDeadline(time.Now().Add(longWait)),
			"SetWriteDeadline": c.SetWriteDeadline(time.Now().Add(longWait)),
			"EnableFullDuplex": c.EnableFullDuplex(),
		} {
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		page(w, "fine")
	})
	f.route("/late", func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(-time.Second))
		fmt.Fprint(w, "too late")
	})
	f.do(0, get("/fine")).want(t, 200, "fine")
	f.do(0, get("/fine")).want(t, 200, "fine")
	f.wantRuns(1, "two requests")
	if got := f.do(0, get("/late")); got.err == nil {
		t.Errorf("a response written after its deadline arrives: %v", got)
	}
}

// Large bodies are copied by the server's own method, and are still stored.
func TestFleetReadFrom(t *testing.T) {
	name := filepath.Join(t.TempDir(), "export")
	body := bigBody(1<<20, "file")
	if err := os.WriteFile(name, []byte(body), 0o600); err != nil {
		t.Fatal(err)
	}
	onEachStore(t, 2, middleware.Options{}, func(t *testing.T, f *fleet) {
		for path, copies := range map[string]func(w http.ResponseWriter,
			r io.Reader) (int64, error){
			"/readerfrom": func(w http.ResponseWriter, r io.Reader) (int64, error) {
				rf, ok := w.(io.ReaderFrom)
				if !ok {
					return 0, errors.New("the writer is no io.ReaderFrom")
				}
				return rf.ReadFrom(r)
			},
			"/copy": func(w http.ResponseWriter, r io.Reader) (int64, error) {
				return io.Copy(w, r)
			},
			"/behind": func(w http.ResponseWriter, r io.Reader) (int64, error) {
				fmt.Fprint(w, "head ")
				return io.Copy(w, r)
			},
		} {
			f.route(path, func(w http.ResponseWriter, r *http.Request) {
				file, err := os.Open(name)
				if err != nil {
					t.Error(err)
					return
				}
				defer file.Close()
				w.Header().Set("Cache-Control", "max-age=60")
				if n, err := copies(w, file); err != nil || n != int64(len(body)) {
					t.Errorf("%s: copied %d bytes of %d, %v", path, n, len(body), err)
				}
			})
			f.fresh()
			want := body
			if path == "/behind" {
				want = "head " + body
			}
			for i := range 4 {
				f.do(i%2, get(path)).want(t, 200, want)
			}
			f.wantRuns(1, path)
		}
	})
}

// http.ServeContent works behind the cache: files, ranges of them, and conditions.
func TestFleetServeContent(t *testing.T) {
	onEachStore(t, 2, middleware.Options{DefaultTTL: time.Minute}, func(t *testing.T, f *fleet) {
		f.route("/file.txt", func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("ETag", `"v1"`)
			http.ServeContent(w, r, "file.txt", time.Time{}, strings.NewReader("0123456789"))
		})
		f.do(0, get("/file.txt", "Range", "bytes=2-4")).want(t, 206, "234")
		f.do(1, get("/file.txt")).want(t, 200, "0123456789")
		f.fresh()
		f.do(0, get("/file.txt")).want(t, 200, "0123456789")
		f.do(1, get("/file.txt", "Range", "bytes=2-4")).want(t, 206, "234")
		f.do(0, get("/file.txt", "If-None-Match", `"v1"`)).want(t, 304, "")
		f.do(1, get("/file.txt", "If-None-Match", `"v2"`)).want(t, 200, "0123456789")
		f.wantRuns(0, "all of it has been stored")
	})
}

// A response's trailers are sent with the response of the handler that sets them, and with later
// responses from the cache.
func TestFleetTrailers(t *testing.T) {
	onEachStore(t, 2, middleware.Options{}, func(t *testing.T, f *fleet) {
		hold := f.gate()
		f.route("/export", func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Trailer", "X-Sum")
			hold.pass()
			page(w, "the export")
			w.Header().Set("X-Sum", "42")
			w.Header().Set(http.TrailerPrefix+"X-Late", "yes")
		})
		clients := f.startAll(4, func(int) call { return get("/export") })
		f.awaitWaiting(4)
		hold.open()
		for i := range f.replicas {
			clients = append(clients, f.start(i, get("/export")))
		}
		for i, cl := range clients {
			got := cl.reply(t)
			got.want(t, 200, "the export")
			if got.trailer.Get("X-Sum") != "42" || got.trailer.Get("X-Late") != "yes" ||
				got.header.Get("X-Sum") != "" {
				t.Errorf("request %d: header %v, trailer %v", i, got.header, got.trailer)
			}
		}
		f.wantRuns(1, "six requests")
	})
}

// If a handler doesn't set type and length, the server's writer finds them out, as without the
// cache.
func TestFleetSniffing(t *testing.T) {
	f := memoryFleet(t, 2, middleware.Options{})
	f.route("/page", func(w http.ResponseWriter, r *http.Request) {
		page(w, "<html><body>the page</body></html>")
	})
	f.route("/empty", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "max-age=60")
	})
	f.route("/nothing", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "max-age=60")
		w.WriteHeader(http.StatusNoContent)
	})
	for i := range 4 {
		got := f.do(i%2, get("/page"))
		if got.header.Get("Content-Type") != "text/html; charset=utf-8" ||
			got.header.Get("Content-Length") != "34" || got.header.Get("Date") == "" {
			t.Errorf("request %d: %v", i, got.header)
		}
		got = f.do(i%2, call{method: "HEAD", path: "/page"})
		if got.header.Get("Content-Type") != "text/html; charset=utf-8" ||
			got.header.Get("Content-Length") != "34" {
			t.Errorf("HEAD %d: %v", i, got.header)
		}
		f.do(i%2, get("/empty")).want(t, 200, "")
		f.do(i%2, get("/nothing")).want(t, 204, "")
	}
	f.wantRuns(3, "sixteen requests for three pages")
}
