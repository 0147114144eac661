package middleware_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/redis/go-redis/v9"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/cacheguard/memstore"
	"github.com/cacheguard/cacheguard/cacheguard/redisstore"
	"github.com/cacheguard/cacheguard/internal/redistest"
	"github.com/cacheguard/cacheguard/middleware"
)

var kilobyte = bytes.Repeat([]byte("k"), 1024)

// kilobytePage is the handler of all benchmarks.
func kilobytePage(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Cache-Control", "public, max-age=3600")
	_, _ = w.Write(kilobyte)
}

// benchRouter returns a router with one page on three paths: bare, behind a cache with a local
// tier, and behind a cache without it.
func benchRouter(tb testing.TB, shared cacheguard.Store) (router *chi.Mux, paths []string) {
	tb.Helper()
	near := memstore.New(memstore.Options{})
	tb.Cleanup(func() { _ = near.Close() })
	router = chi.NewRouter()
	router.Get("/bare", kilobytePage)
	behind := func(path string, store cacheguard.Store, opts middleware.Options) {
		opts.Logger = slog.New(slog.DiscardHandler)
		c, err := middleware.New(store, opts)
		if err != nil {
			tb.Fatal(err)
		}
		tb.Cleanup(func() { _ = c.Close() })
		router.With(c.Handler).Get(path, kilobytePage)
		paths = append(paths, path)
	}
	paths = []string{"/bare"}
	behind("/local", near, middleware.Options{LocalBytes: 1 << 20, LocalTTL: time.Hour})
	if shared != nil {
		behind("/redis", shared, middleware.Options{})
	}
	for _, path := range paths[1:] { // until the page is a hit
		status := ""
		for begun := time.Now(); !strings.Contains(status, "hit") && time.Since(begun) < longWait; {
			w := httptest.NewRecorder()
			router.ServeHTTP(w, benchRequest(path))
			status = w.Header().Get("Cache-Status")
		}
		if !strings.Contains(status, "hit") {
			tb.Fatalf("%s: Cache-Status is %q", path, status)
		}
	}
	return router, paths
}

func benchRequest(path string) *http.Request {
	r := httptest.NewRequest("GET", path, nil)
	r.Host = "shop.example"
	r.Header.Set("User-Agent", "bench")
	return r
}

// benchStore returns a store on a redis-server of its own.
func benchStore(tb testing.TB) cacheguard.Store {
	tb.Helper()
	rdb := redis.NewClient(&redis.Options{
		Addr: redistest.Start(tb).Addr(), ContextTimeoutEnabled: true,
	})
	tb.Cleanup(func() { _ = rdb.Close() })
	store, err := redisstore.New(rdb, redisstore.Options{OpTimeout: longWait})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = store.Close() })
	if err := store.Warm(context.Background()); err != nil {
		tb.Fatal(err)
	}
	return store
}

// unread is a ResponseWriter whose response nobody reads. As with net/http, each response has a
// header map of its own.
type unread struct {
	header http.Header
	n      int
}

func (u *unread) Header() http.Header         { return u.header }
func (u *unread) WriteHeader(int)             {}
func (u *unread) Write(p []byte) (int, error) { u.n += len(p); return len(p), nil }

// serveUnread lets a handler serve a request that was made before, and reports whether the response
// was the whole page.
func serveUnread(h http.Handler, r *http.Request, w *unread) bool {
	w.header, w.n = make(http.Header), 0
	h.ServeHTTP(w, r)
	return w.n == len(kilobyte)
}

// BenchmarkRouter measures the cost of a hit behind a router, and of the bare handler, without a
// network:
//
//	go test -run '^$' -bench BenchmarkRouter -benchmem -count 6 ./middleware
func BenchmarkRouter(b *testing.B) {
	router, paths := benchRouter(b, benchStore(b))
	for _, path := range paths {
		b.Run(path[1:], func(b *testing.B) {
			r, w := benchRequest(path), &unread{}
			b.ReportAllocs()
			for b.Loop() {
				if !serveUnread(router, r, w) {
					b.Fatalf("a response of %d bytes", w.n)
				}
			}
		})
	}
}

// BenchmarkLocalVariant measures a local hit of a variant, and how often it asks Redis. It does so
// while the response that has the Vary is fresh, and when this response is stale:
//
//	go test -run '^$' -bench BenchmarkLocalVariant -benchmem -count 6 ./middleware
func BenchmarkLocalVariant(b *testing.B) {
	for _, first := range []string{"fresh", "stale"} {
		b.Run(first, func(b *testing.B) {
			store := &askedStore{Store: benchStore(b)}
			cache, err := middleware.New(store,
				middleware.Options{LocalBytes: 1 << 20, LocalTTL: time.Hour})
			if err != nil {
				b.Fatal(err)
			}
			defer func() { _ = cache.Close() }()
			h := cache.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Vary", "Accept-Language")
				w.Header().Set("Etag", `"1"`)
				w.Header().Set("Cache-Control",
					map[bool]string{
						true: "max-age=1", false: "max-age=3600",
					}[r.Header.Get("Accept-Language") == "stale"])
				_, _ = w.Write(kilobyte)
			}))
			r, w := benchRequest("/"), &unread{}
			r.Header.Set("Accept-Language", first)
			serveUnread(h, r, w)
			r.Header.Set("Cache-Control", "only-if-cached")
			for first == "stale" && serveUnread(h, r, w) { // until the first response is stale
				runtime.Gosched()
			}
			delete(r.Header, "Cache-Control")
			r.Header.Set("Accept-Language", "de")
			for range 10 {
				serveUnread(h, r, w)
			}
			b.ReportAllocs()
			store.asked = 0
			for b.Loop() {
				if !serveUnread(h, r, w) {
					b.Fatalf("a response of %d bytes", w.n)
				}
			}
			b.ReportMetric(float64(store.asked)/float64(b.N), "lookups/op")
		})
	}
}

// Requests a second over loopback connections that stay open, as many clients as CPUs can serve and
// some more. In each iteration every variant serves a round, in turn, so that other work of the
// machine affects all of them alike. Compare the medians of the ratios of the rounds.
//
//	go test -run '^$' -bench BenchmarkLoopback -benchtime 60x ./middleware
func BenchmarkLoopback(b *testing.B) {
	const perRound = 4000
	router, paths := benchRouter(b, benchStore(b))
	server := httptest.NewServer(router)
	defer server.Close()
	lanes := 4 * runtime.GOMAXPROCS(0)
	clients := make(map[string][]*rawClient)
	for _, path := range paths {
		for range lanes {
			c := dialRaw(b, server.Listener.Addr().String(), path)
			clients[path] = append(clients[path], c)
			// The first requests pay the costs that a connection has only once.
			if err := c.ask(10); err != nil {
				b.Fatalf("%s: %v", path, err)
			}
		}
	}
	took := make(map[string][]time.Duration)
	allocs := make(map[string]uint64)
	round := func(path string) {
		var before, after runtime.MemStats
		var all sync.WaitGroup
		errs := make(chan error, lanes)
		runtime.ReadMemStats(&before)
		begun := time.Now()
		for _, c := range clients[path] {
			all.Go(func() {
				if err := c.ask(perRound / lanes); err != nil {
					errs <- err
				}
			})
		}
		all.Wait()
		took[path] = append(took[path], time.Since(begun))
		runtime.ReadMemStats(&after)
		allocs[path] += after.Mallocs - before.Mallocs
		select {
		case err := <-errs:
			b.Fatalf("%s: %v", path, err)
		default:
		}
	}
	rounds := 0
	for b.Loop() {
		for i := range paths {
			round(paths[(i+rounds)%len(paths)])
		}
		rounds++
	}
	requests := perRound / lanes * lanes
	for _, path := range paths {
		name := path[1:]
		b.ReportMetric(float64(requests)/median(took[path]).Seconds(), name+"-req/s")
		b.ReportMetric(float64(allocs[path])/float64(rounds*requests), name+"-allocs/req")
		if path != "/bare" {
			ratios := make([]float64, rounds)
			for n := range ratios {
				ratios[n] = took["/bare"][n].Seconds() / took[path][n].Seconds()
			}
			b.ReportMetric(median(ratios), name+"/bare")
		}
	}
	b.ReportMetric(0, "ns/op") // the time of all variants together has no meaning
}

func median[T float64 | time.Duration](all []T) T {
	sorted := slices.Sorted(slices.Values(all))
	return sorted[len(sorted)/2]
}

// rawClient is an HTTP client on one connection. It allocates nothing for a request, so that the
// benchmark counts only the server's allocations.
type rawClient struct {
	conn    net.Conn
	in      *bufio.Reader
	request []byte
}

func dialRaw(tb testing.TB, addr, path string) *rawClient {
	tb.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = conn.Close() })
	request := fmt.Sprintf(
		"GET %s HTTP/1.1\r\nHost: shop.example\r\nUser-Agent: bench\r\nAccept: */*\r\n\r\n", path)
	return &rawClient{conn: conn, in: bufio.NewReader(conn), request: []byte(request)}
}

// ask sends the request n times, one after another, and reads the responses.
func (c *rawClient) ask(n int) error {
	for range n {
		if _, err := c.conn.Write(c.request); err != nil {
			return err
		}
		if err := c.read(); err != nil {
			return err
		}
	}
	return nil
}

var (
	statusOK      = []byte("HTTP/1.1 200 OK\r\n")
	contentLength = []byte("Content-Length: " + strconv.Itoa(len(kilobyte)) + "\r\n")
	emptyLine     = []byte("\r\n")
)

// read reads one response and fails unless it is the whole page.
func (c *rawClient) read() error {
	line, err := c.in.ReadSlice('\n')
	if err != nil {
		return err
	}
	if !bytes.Equal(line, statusOK) {
		return fmt.Errorf("the response begins with %q", line)
	}
	length := false
	for !bytes.Equal(line, emptyLine) {
		if line, err = c.in.ReadSlice('\n'); err != nil {
			return err
		}
		length = length || bytes.Equal(line, contentLength)
	}
	if !length {
		return fmt.Errorf("the response says not %q", contentLength)
	}
	if n, err := c.in.Discard(len(kilobyte)); err != nil {
		return fmt.Errorf("%d bytes of the body: %w", n, io.ErrUnexpectedEOF)
	}
	return nil
}
