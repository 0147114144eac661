package middleware_test

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cacheguard/cacheguard/cacheguard/memstore"
	"github.com/cacheguard/cacheguard/middleware"
)

// idle is a client that reads only when the test tells it to, with its connection, which a deadline
// can cut.
type idle struct {
	paced
	takes int // how many bytes the connection buffers before a Write blocks
	reads chan struct{}
	cut   chan struct{}
	once  sync.Once
	ended atomic.Bool
}

func (c *idle) Write(p []byte) (int, error) {
	if len(p) > c.takes {
		if err := c.FlushError(); err != nil {
			return 0, err
		}
	} else {
		c.takes -= len(p)
	}
	return c.paced.Write(p)
}

func (c *idle) FlushError() error {
	select {
	case <-c.reads:
		return nil
	case <-c.cut:
		return os.ErrDeadlineExceeded
	}
}

func (c *idle) SetWriteDeadline(at time.Time) error {
	if !at.IsZero() && at.Before(time.Now()) {
		c.once.Do(func() { close(c.cut) })
	}
	return nil
}

func (c *idle) wasCut() bool {
	select {
	case <-c.cut:
		return true
	default:
		return false
	}
}

// idles sends a request of a client that doesn't read yet.
func idles(h http.Handler, path string, header ...string) *idle {
	return stops(h, 0, path, header...)
}

// stops sends a request of a client that stops reading after some bytes.
func stops(h http.Handler, takes int, path string, header ...string) *idle {
	c := &idle{takes: takes, reads: make(chan struct{}), cut: make(chan struct{})}
	c.header, c.keep = http.Header{}, true
	r := httptest.NewRequest("GET", path, nil)
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	go func() {
		defer c.ended.Store(true)
		defer func() { _ = recover() }()
		h.ServeHTTP(c, r)
	}()
	synctest.Wait()
	return c
}

// ways are the ways in which the cache keeps a body of 1 MiB for a client that doesn't read. The
// body names its path at its beginning. Before the clients send their requests, a client that reads
// has requested the path "before".
var ways = map[string]struct {
	field, value string
	before       bool
	local        int
	handler      func(w http.ResponseWriter, body string)
}{
	"cold": {handler: func(w http.ResponseWriter, body string) {
		w.Header().Set("Cache-Control", "max-age=60")
		w.Header().Set("Content-Length", strconv.Itoa(len(body)))
		for ; body != ""; body = body[min(len(body), 1<<16):] {
			_, _ = io.WriteString(w, body[:min(len(body), 1<<16)])
		}
	}},
	"flushed": {handler: func(w http.ResponseWriter, body string) {
		w.Header().Set("Cache-Control", "max-age=60")
		_, _ = io.WriteString(w, body)
		_ = http.NewResponseController(w).Flush()
	}},
	"stored": {before: true, handler: cached},
	"local":  {before: true, handler: cached, local: 8 << 20},
	"a range of what is stored": {
		before: true, handler: cached, field: "Range", value: "bytes=0-1048570",
	},
	"a range": {field: "Range", value: "bytes=0-1048575", handler: func(
		w http.ResponseWriter, body string,
	) {
		w.Header().Set("Cache-Control", "max-age=60")
		w.Header().Set("Content-Range", fmt.Sprintf("bytes 0-%d/2000000", len(body)-1))
		w.WriteHeader(http.StatusPartialContent)
		_, _ = io.WriteString(w, body)
	}},
	"above MaxBody": {handler: func(w http.ResponseWriter, body string) {
		w.Header().Set("Cache-Control", "max-age=60")
		_, _ = io.WriteString(w, body[:1<<20])
		_, _ = io.WriteString(w, body)
	}},
	"private, handed over at once": {handler: func(w http.ResponseWriter, body string) {
		w.Header().Set("Cache-Control", "private")
		_, _ = io.WriteString(w, body)
	}},
	"no-store, handed over at once": {field: "Cache-Control", value: "no-store", handler: func(
		w http.ResponseWriter, body string,
	) {
		_, _ = w.Write([]byte(body))
	}},
}

func cached(w http.ResponseWriter, body string) {
	w.Header().Set("Cache-Control", "max-age=60")
	_, _ = io.WriteString(w, body)
}

// bodyFor returns a body of 1 MiB that begins with the path.
func bodyFor(path string) string { return path + strings.Repeat("x", 1<<20-len(path)) }

// All bodies that are kept for clients that don't read have a common bound, whatever the reason for
// keeping them. New clients displace the clients that have read nothing for longest. They don't
// displace a client that has begun to read, even if it reads only once while many clients come.
func TestClientsWhoDontReadMakeRoom(t *testing.T) {
	for name, way := range ways {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const most, clients = 8, 40
				cache := newCache(t, middleware.Options{
					MaxBody: 1 << 20, MaxBacklog: most << 20, LocalBytes: way.local,
				})
				h := cache.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					way.handler(w, bodyFor(r.URL.Path))
				}))
				path := func(i int) string { return fmt.Sprintf("/%d/", i) }
				ask := func(i int) *idle {
					if way.before {
						asks(h, "GET", path(i))
					}
					if way.field == "" {
						return idles(h, path(i))
					}
					return idles(h, path(i), way.field, way.value)
				}
				reader := ask(clients)
				var all []*idle
				for i := range clients {
					all = append(all, ask(i))
					if i%(clients/2) == 0 && !reader.ended.Load() {
						reader.reads <- struct{}{}
						synctest.Wait()
					}
				}
				kept := 0
				for i, c := range all {
					if !c.wasCut() {
						kept++
					} else if kept > 0 {
						t.Errorf("client %d was cut, and not one that came before", i)
					}
				}
				if kept < most/2 || kept > most {
					t.Errorf("%d MiB are kept; want about %d", kept, most)
				}
				close(reader.reads)
				for _, c := range all[clients-kept:] {
					close(c.reads)
				}
				synctest.Wait()
				if reader.wasCut() || !reader.ended.Load() || len(reader.got()) < 1<<20-5 {
					t.Errorf("who reads slowly has %d bytes, cut: %v", len(reader.got()),
						reader.wasCut())
				}
				for i, c := range all {
					if !c.ended.Load() {
						t.Errorf("client %d is still there", i)
					}
					if got := c.got(); !c.wasCut() &&
						(len(got) < 1<<20-5 || !strings.HasPrefix(got, path(i))) {
						t.Errorf("client %d has %d bytes", i, len(got))
					}
				}
			})
		})
	}
}

// A body also counts if its client has taken all but the end of it, and the write of this end, or
// the Flush after it, has begun before the handler returns.
func TestClientsWhoDontReadTheEndMakeRoom(t *testing.T) {
	for name, takes := range map[string]int{"flushed": 1 << 20, "a range": 1<<20 - 1<<16} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const most, clients = 8, 40
				cache := newCache(t, middleware.Options{MaxBody: 1 << 20, MaxBacklog: most << 20})
				way, ends := ways[name], make(chan struct{})
				h := cache.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					way.handler(w, bodyFor(r.URL.Path))
					<-ends
				}))
				var all []*idle
				for i := range clients {
					var header []string
					if way.field != "" {
						header = []string{way.field, way.value}
					}
					all = append(all, stops(h, takes, fmt.Sprintf("/%d/", i), header...))
					ends <- struct{}{}
					synctest.Wait()
				}
				for i, c := range all {
					if c.wasCut() != (i < clients-most) {
						t.Errorf("client %d is cut: %v", i, c.wasCut())
					}
					close(c.reads)
				}
				synctest.Wait()
				for i, c := range all {
					if got := len(c.got()); !c.ended.Load() || !c.wasCut() && got < 1<<20-5 {
						t.Errorf("client %d has %d bytes, has ended: %v", i, got, c.ended.Load())
					}
				}
			})
		})
	}
}

// No room is made for an answer without a body.
func TestNoRoomIsMadeForAnswersWithoutBody(t *testing.T) {
	for name, c := range map[string]struct {
		method string
		cold   bool
		header []string
		status int
	}{
		"HEAD":                    {method: "HEAD", status: 200},
		"not modified":            {"GET", false, []string{"If-None-Match", "*"}, 304},
		"not modified, when made": {"GET", true, []string{"If-None-Match", "*"}, 304},
		"no such range":           {"GET", false, []string{"Range", "bytes=9000000-"}, 416},
	} {
		for _, local := range []int{0, 8 << 20} {
			t.Run(fmt.Sprintf("%s, local %d", name, local), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					cache := newCache(t, middleware.Options{
						MaxBody: 1 << 20, MaxBacklog: 1 << 20, LocalBytes: local,
					})
					h := cache.Handler(http.HandlerFunc(func(
						w http.ResponseWriter, r *http.Request,
					) {
						cached(w, bodyFor(r.URL.Path))
					}))
					asks(h, "GET", "/a")
					if !c.cold {
						asks(h, "GET", "/b")
					}
					reader := idles(h, "/a")
					reader.reads <- struct{}{}
					synctest.Wait()
					if got := asks(h, c.method, "/b", c.header...); got.Code != c.status ||
						got.Body.Len() > 0 {
						t.Errorf("%d, %d bytes", got.Code, got.Body.Len())
					}
					if reader.wasCut() {
						t.Error("a client that reads was cut")
					}
					close(reader.reads)
					synctest.Wait()
					if got := reader.got(); got != bodyFor("/a") {
						t.Errorf("it has %d bytes", len(got))
					}
				})
			})
		}
	}
}

// Clients that have begun to read and then stopped leave room for new clients.
func TestClientsWhoStopReadingMakeRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const most, stopped, begun = 8, 20, 3
		cache := newCache(t, middleware.Options{MaxBody: 1 << 20, MaxBacklog: most << 20})
		h := cache.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			cached(w, bodyFor(r.URL.Path))
		}))
		var all []*idle
		for i := range stopped + begun {
			takes := 1 << 16
			if i >= stopped {
				takes = 0
			}
			path := fmt.Sprintf("/%d/", i)
			asks(h, "GET", path)
			all = append(all, stops(h, takes, path))
		}
		for i, c := range all {
			if c.wasCut() != (i < len(all)-most) {
				t.Errorf("client %d is cut: %v", i, c.wasCut())
			}
			close(c.reads)
		}
	})
}

// A range that is smaller than what a server buffers doesn't say that its client reads.
func TestSmallPartsAreNoProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const most, clients = 8, 20
		cache := newCache(t, middleware.Options{MaxBody: 1 << 20, MaxBacklog: most << 20})
		h := cache.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			cached(w, bodyFor(r.URL.Path))
		}))
		asks(h, "GET", "/")
		reader := idles(h, "/")
		reader.reads <- struct{}{}
		var all []*idle
		for i := range clients {
			path := fmt.Sprintf("/%d/", i)
			asks(h, "GET", path)
			all = append(all, stops(h, 4<<10, path, "Range", "bytes=0-9,20-29,100-1000000"))
		}
		if reader.wasCut() {
			t.Error("a client that reads was cut")
		}
		close(reader.reads)
		for _, c := range all {
			close(c.reads)
		}
	})
}

// A handler may go on writing to a client that was cut. Nothing is kept for this client any more,
// so no other client is cut for it.
func TestNoRoomIsMadeForCutClients(t *testing.T) {
	for name, field := range map[string][]string{
		"recorded": nil, "not to be stored": {"Cache-Control", "no-store"},
		"a range": {"Range", "bytes=0-3145727"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const most = 4
				cache := newCache(t, middleware.Options{MaxBody: 1 << 20, MaxBacklog: most << 20})
				h := cache.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					w.Header().Set("Cache-Control", "max-age=60")
					if r.Header.Get("Range") != "" {
						w.Header().Set("Content-Range", "bytes 0-3145727/9000000")
						w.WriteHeader(http.StatusPartialContent)
					}
					for range 3 { // whether or not the client is there
						_, _ = io.WriteString(w, bodyFor(r.URL.Path))
					}
				}))
				var all []*idle
				for i := range most + 1 {
					all = append(all, idles(h, fmt.Sprintf("/%d/", i), field...))
				}
				for i, c := range all {
					if cut := c.wasCut(); cut != (i == 0) || cut != c.ended.Load() {
						t.Errorf("client %d is cut: %v, has ended: %v", i, cut, c.ended.Load())
					}
				}
				for _, c := range all {
					close(c.reads)
				}
			})
		})
	}
}

// unflushable is a writer of a layer in front that doesn't support Flush.
type unflushable struct{ idle *idle }

func (u unflushable) Header() http.Header                 { return u.idle.Header() }
func (u unflushable) WriteHeader(status int)              { u.idle.WriteHeader(status) }
func (u unflushable) Write(p []byte) (int, error)         { return u.idle.Write(p) }
func (u unflushable) SetWriteDeadline(at time.Time) error { return u.idle.SetWriteDeadline(at) }

// If a Flush fails, the client isn't lost, and what is kept for it counts.
func TestFailedFlushLosesNoClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const most = 4
		cache := newCache(t, middleware.Options{MaxBody: 1 << 20, MaxBacklog: most << 20})
		h := cache.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Cache-Control", "private")
			if err := http.NewResponseController(w).Flush(); err == nil {
				t.Error("Flush is supported")
			}
			_, _ = io.WriteString(w, bodyFor(r.URL.Path))
		}))
		front := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			h.ServeHTTP(unflushable{w.(*idle)}, r)
		})
		var all []*idle
		for i := range most + 1 {
			all = append(all, idles(front, fmt.Sprintf("/%d/", i)))
		}
		for i, c := range all {
			if c.wasCut() != (i == 0) {
				t.Errorf("client %d is cut: %v", i, c.wasCut())
			}
			close(c.reads)
		}
	})
}

// A body that is sent to many clients is kept once, whether the clients wait for it, read it while
// it is made, or find it stored.
func TestEqualBodiesAreKeptOnce(t *testing.T) {
	for _, local := range []int{0, 8 << 20} {
		synctest.Test(t, func(t *testing.T) {
			cache := newCache(t,
				middleware.Options{MaxBody: 1 << 20, MaxBacklog: 2 << 20, LocalBytes: local})
			hold := make(chan struct{})
			h := cache.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Cache-Control", "max-age=60")
				w.Header().Set("Content-Length", strconv.Itoa(1<<20))
				_, _ = io.WriteString(w, bodyFor("/")[:1<<19])
				<-hold
				_, _ = io.WriteString(w, bodyFor("/")[1<<19:])
			}))
			var all []*idle
			for range 20 { // the handler runs for the first client, the others read along
				all = append(all, idles(h, "/"))
			}
			close(hold)
			synctest.Wait()
			var before, after runtime.MemStats
			for i := range 100 {
				if i == 10 {
					runtime.GC()
					runtime.ReadMemStats(&before)
				}
				all = append(all, idles(h, "/"))
			}
			runtime.GC()
			runtime.ReadMemStats(&after)
			if more := int64(after.HeapAlloc) - int64(before.HeapAlloc); more > 8<<20 {
				t.Errorf("90 more clients of one stored page take %d MiB", more>>20)
			}
			for _, c := range all {
				close(c.reads)
			}
			synctest.Wait()
			for i, c := range all {
				if got := c.got(); c.wasCut() || got != bodyFor("/") {
					t.Errorf("client %d has %d bytes, cut: %v", i, len(got), c.wasCut())
				}
			}
		})
	}
}

// For the client whose request has run the handler, the recorded body is kept, and not a second
// copy of the stored body.
func TestSlowClientHoldsOneBody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const clients = 16
		store := memstore.New(memstore.Options{MaxBytes: 1 << 20}) // too small for any page
		cache, err := middleware.New(store, middleware.Options{MaxBacklog: -1})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _, _ = cache.Close(), store.Close() }()
		body := bytes.Repeat([]byte("x"), 2<<20)
		h := cache.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Cache-Control", "max-age=60")
			w.Header().Set("Content-Length", strconv.Itoa(len(body)))
			_, _ = w.Write(body)
		}))
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		var all []*idle
		for i := range clients {
			all = append(all, idles(h, fmt.Sprint("/", i)))
		}
		runtime.GC()
		runtime.ReadMemStats(&after)
		if each := (int64(after.HeapAlloc) - int64(before.HeapAlloc)) / clients; each > 3<<20 {
			t.Errorf("a client of a body of 2 MiB holds %d KiB", each>>10)
		}
		for _, c := range all {
			close(c.reads)
		}
		synctest.Wait()
	})
}

// The bound also holds with real connections, by HTTP/1 and HTTP/2.
func TestConnectionsMakeRoom(t *testing.T) {
	const clients, size = 4, 24 << 20 // more than the operating system buffers for a connection
	for name, ask := range map[string]func(address, path string) net.Conn{
		"HTTP/1": func(address, path string) net.Conn { return stuck(t, address, path) },
		"h2c":    func(address, path string) net.Conn { return window(t, address, path, 0) },
	} {
		t.Run(name, func(t *testing.T) {
			cache := newCache(t, middleware.Options{MaxBody: size, MaxBacklog: size + size/2})
			page := strings.Repeat("x", size)
			h := cache.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Cache-Control", "max-age=60")
				w.Header().Set("Content-Length", strconv.Itoa(size))
				_, _ = io.WriteString(w, page)
			}))
			over := make(chan string, clients+1)
			server := httptest.NewUnstartedServer(http.HandlerFunc(func(
				w http.ResponseWriter, r *http.Request,
			) {
				defer func() { over <- r.URL.Path }()
				h.ServeHTTP(w, r)
			}))
			server.Config.Protocols = new(http.Protocols)
			server.Config.Protocols.SetHTTP1(true)
			server.Config.Protocols.SetUnencryptedHTTP2(true)
			server.Start()
			defer server.Close()
			var conns []net.Conn
			for i := range clients {
				conns = append(conns, ask(server.Listener.Addr().String(), fmt.Sprint("/", i)))
				if i == 0 {
					continue
				}
				select {
				case <-over:
				case <-time.After(longWait):
					t.Fatalf("none of %d clients has made room", i+1)
				}
			}
			for _, conn := range conns {
				_ = conn.Close()
			}
			<-over
			res, err := http.Get(server.URL + "/0")
			if err != nil {
				t.Fatal(err)
			}
			if n, err := io.Copy(io.Discard, res.Body); n != size || err != nil {
				t.Errorf("who reads has %d bytes, %v", n, err)
			}
			_ = res.Body.Close()
		})
	}
}
