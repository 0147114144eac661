package middleware_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cacheguard/cacheguard/middleware"
)

// alone are the kinds of requests and responses that are for one client, with the field that the
// client sends and the handler's response. most is the number of their handlers that may work at a
// time with eight loads.
var alone = map[string]struct {
	field, value string
	says         func(w http.ResponseWriter)
	most         int
}{
	"no-store": {"Cache-Control", "no-store", func(http.ResponseWriter) {}, 2},
	"If-Match": {"If-Match", `"x"`, func(http.ResponseWriter) {}, 2},
	"Upgrade":  {"Upgrade", "h2c", func(http.ResponseWriter) {}, 2},
	"Range": {"Range", "bytes=0-", func(w http.ResponseWriter) {
		w.Header().Set("Cache-Control", "private")
	}, 2},
	"private": {"Accept", "*/*", func(w http.ResponseWriter) {
		w.Header().Set("Cache-Control", "private")
	}, 8},
	"cookie": {"Accept", "*/*", func(w http.ResponseWriter) {
		withCookie("max-age=60")(w.Header(), "x")
	}, 8},
	"too large": {"Accept", "*/*", func(w http.ResponseWriter) {
		w.Header().Set("Cache-Control", "max-age=60")
		w.Header().Set("Content-Length", strconv.Itoa(pieces*4<<10))
	}, 8},
}

const pieces = 16 // pieces of 4 KiB

// working counts handlers that work.
type working struct{ now, peak, all atomic.Int32 }

func (k *working) begins() {
	k.all.Add(1)
	n := k.now.Add(1)
	for p := k.peak.Load(); p < n && !k.peak.CompareAndSwap(p, n); p = k.peak.Load() {
	}
}

func (k *working) ends() { k.now.Add(-1) }

// asksAlone returns a request of this kind for a path.
func asksAlone(kind, path string) *http.Request {
	r := httptest.NewRequest("GET", path, nil)
	r.Header.Set(alone[kind].field, alone[kind].value)
	return r
}

// wantSlots sends any number of requests of a kind and checks how many handlers run at a time. So
// it shows that no handler has kept its slot, and that none has given back more than its slot.
func wantSlots(t *testing.T, cache *middleware.Cache, kind string, want int) {
	t.Helper()
	var runs working
	hold := make(chan struct{})
	h := cache.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		runs.begins()
		<-hold
	}))
	var all sync.WaitGroup
	for i := range 60 {
		all.Go(func() {
			h.ServeHTTP(httptest.NewRecorder(), asksAlone(kind, fmt.Sprint("/slots/", i)))
		})
	}
	synctest.Wait()
	if n := int(runs.now.Load()); n != want {
		t.Errorf("%d handlers run at a time, want %d", n, want)
	}
	close(hold)
	all.Wait()
}

// forEach runs a test for each kind, in a bubble, with eight loads.
func forEach(
	t *testing.T, test func(t *testing.T, kind string, most int, cache *middleware.Cache),
) {
	for kind, c := range alone {
		t.Run(kind, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				test(t, kind, c.most,
					newCache(t, middleware.Options{
						MaxLoads: 8, MaxBody: 16 << 10, LoadTimeout: time.Minute,
						WaitTimeout: time.Minute,
					}))
			})
		})
	}
}

// A handler whose response is for its own client alone is counted until it returns, even if most of
// the response has been sent.
func TestLargeResponsesCountToTheirEnd(t *testing.T) {
	piece, text := make([]byte, 4<<10), strings.Repeat("x", 4<<10)
	for name, write := range map[string]func(w http.ResponseWriter){
		"bytes":    func(w http.ResponseWriter) { _, _ = w.Write(piece) },
		"a string": func(w http.ResponseWriter) { _, _ = io.WriteString(w, text) },
		"a reader": func(w http.ResponseWriter) {
			_, _ = io.Copy(w, &maker{bytes.NewReader(piece)})
		},
	} {
		t.Run(name, func(t *testing.T) {
			forEach(t, func(t *testing.T, kind string, most int, cache *middleware.Cache) {
				var runs working
				h := cache.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					runs.begins()
					defer runs.ends()
					alone[kind].says(w)
					for range pieces {
						<-time.After(time.Millisecond)
						write(w)
					}
				}))
				var all sync.WaitGroup
				for i := range 100 {
					all.Go(func() {
						w := httptest.NewRecorder()
						if h.ServeHTTP(w,
							asksAlone(kind,
								fmt.Sprint("/", i%2*i))); w.Body.Len() != pieces*len(piece) {
							t.Errorf("%d with %d bytes", w.Code, w.Body.Len())
						}
					})
				}
				all.Wait()
				if n := int(runs.peak.Load()); n != most || runs.all.Load() != 100 {
					t.Errorf("%d of %d handlers worked at a time, want %d", n, runs.all.Load(),
						most)
				}
				wantSlots(t, cache, kind, most)
			})
		})
	}
}

// maker is a reader whose data takes 30 ms to make.
type maker struct{ made *bytes.Reader }

func (m *maker) Read(b []byte) (int, error) {
	if m.made.Len() > 0 {
		<-time.After(30 * time.Millisecond)
	}
	return m.made.Read(b)
}

// If a response is recorded because it can be stored, its handler doesn't wait for its client. So
// the handler is counted while the client doesn't read.
func TestRecordedPartsCountToTheirEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cache := newCache(t, middleware.Options{MaxLoads: 8})
		var runs working
		h := cache.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			runs.begins()
			defer runs.ends()
			work := func() { <-time.After(time.Second) }
			if r.Header.Get("Range") != "" {
				pieceOf(&runs.all, work)(w, r)
				return
			}
			work()
		}))
		goOn := make(chan struct{})
		var all sync.WaitGroup
		all.Go(func() {
			w := &stalled{ResponseRecorder: httptest.NewRecorder(), goOn: goOn}
			if h.ServeHTTP(w, asksAlone("Range", "/")); w.Body.Len() != 1<<20 {
				t.Errorf("%d with %d bytes", w.Code, w.Body.Len())
			}
		})
		<-time.After(time.Second / 2)
		for range 10 {
			all.Go(func() { h.ServeHTTP(httptest.NewRecorder(), asksAlone("If-Match", "/")) })
		}
		<-time.After(time.Minute)
		if n := runs.peak.Load(); n != 2 || runs.now.Load() != 0 {
			t.Errorf("%d handlers worked at a time, want 2; %d work", n, runs.now.Load())
		}
		close(goOn)
		all.Wait()
		wantSlots(t, cache, "If-Match", 2)
	})
}

// But a client that doesn't read holds no place, however many of these clients there are. The next
// request is answered within the handler's time and 50 ms.
func TestSlowClientsHoldNoSlots(t *testing.T) {
	const takes = 10 * time.Millisecond
	forEach(t, func(t *testing.T, kind string, most int, cache *middleware.Cache) {
		h := cache.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			alone[kind].says(w)
			<-time.After(takes)
			for range pieces {
				_, _ = w.Write(make([]byte, 4<<10))
			}
		}))
		goOn := make(chan struct{})
		var all sync.WaitGroup
		for i := range 5 * most {
			if i%most == 0 {
				next := httptest.NewRecorder()
				asked := time.Now()
				if h.ServeHTTP(next, asksAlone(kind, "/next")); next.Body.Len() != pieces*4<<10 ||
					time.Since(asked) > takes+50*time.Millisecond {
					t.Errorf("behind %d clients that don't read: %d bytes after %v", i,
						next.Body.Len(), time.Since(asked))
				}
			}
			all.Go(func() {
				w := &stalled{ResponseRecorder: httptest.NewRecorder(), takes: 6 << 10, goOn: goOn}
				h.ServeHTTP(w, asksAlone(kind, fmt.Sprint("/", i)))
				if w.Body.Len() != pieces*4<<10 {
					t.Errorf("a slow client got %d bytes", w.Body.Len())
				}
			})
			if i%most == most-1 {
				<-time.After(takes)
				synctest.Wait() // all of them write
			}
		}
		close(goOn)
		all.Wait()
		wantSlots(t, cache, kind, most)
	})
}

// A client that reads just fast enough to avoid each single long wait holds no place either.
func TestClientsHaveLittleTimeAltogether(t *testing.T) {
	forEach(t, func(t *testing.T, kind string, most int, cache *middleware.Cache) {
		h := cache.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			alone[kind].says(w)
			for range 100 {
				_, _ = w.Write(make([]byte, 641)) // 64,100 bytes
			}
		}))
		var all sync.WaitGroup
		for i := range most {
			all.Go(func() {
				h.ServeHTTP(trickling{httptest.NewRecorder()}, asksAlone(kind, fmt.Sprint("/", i)))
			})
		}
		synctest.Wait()
		asked := time.Now()
		if asks(h, "GET", "/next", alone[kind].field,
			alone[kind].value); time.Since(asked) > 50*time.Millisecond {
			t.Errorf("answered after %v", time.Since(asked))
		}
		all.Wait()
		wantSlots(t, cache, kind, most)
	})
}

// trickling is the writer of a client that takes 10 ms for each Write beyond the server's buffer.
type trickling struct{ *httptest.ResponseRecorder }

func (s trickling) Write(p []byte) (int, error) {
	if s.Body.Len()+len(p) > 2048 {
		<-time.After(10 * time.Millisecond)
	}
	return s.ResponseRecorder.Write(p)
}

// If clients have been slow and then all read at once, the number of handlers that work stays
// bounded. New requests don't wait for all of these handlers, nor these handlers for all new
// requests.
func TestHandlersGoOnInTurn(t *testing.T) {
	const slow = 40
	forEach(t, func(t *testing.T, kind string, most int, cache *middleware.Cache) {
		var runs working
		var done atomic.Int32
		h := cache.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			alone[kind].says(w)
			_, _ = w.Write(make([]byte, 20<<10))
			if r.URL.Path == "/next" {
				return
			}
			runs.begins()
			<-time.After(10 * time.Millisecond)
			runs.ends()
			done.Add(1)
			_, _ = w.Write(make([]byte, 44<<10))
		}))
		goOn := make(chan struct{})
		var all sync.WaitGroup
		for i := range slow {
			all.Go(func() {
				w := &stalled{ResponseRecorder: httptest.NewRecorder(), goOn: goOn}
				h.ServeHTTP(w, asksAlone(kind, fmt.Sprint("/", i)))
			})
		}
		<-time.After(time.Minute / 2)
		if n := runs.all.Load(); n != 0 {
			t.Fatalf("%d handlers go on", n)
		}
		close(goOn)
		synctest.Wait()
		var next sync.WaitGroup
		for range slow / 2 {
			next.Go(func() { h.ServeHTTP(httptest.NewRecorder(), asksAlone(kind, "/next")) })
		}
		next.Wait()
		if n := done.Load(); most == 2 && n < slow/4 || n == slow {
			t.Errorf("%d of %d had gone on when the %d who came then were answered", n, slow,
				slow/2)
		}
		all.Wait()
		if n := runs.peak.Load(); n != 2 {
			t.Errorf("%d handlers worked at a time, want 2", n)
		}
		wantSlots(t, cache, kind, most)
	})
}

// A handler may wait for a turn while it holds a resource for which handlers with a turn wait.
// Nobody waits for ever because of this.
func TestHandlersGoOnWithoutATurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cache := newCache(t, middleware.Options{MaxLoads: 4, LoadTimeout: time.Hour})
		pool := make(chan bool, 3) // a pool of connections
		var written atomic.Int32
		h := cache.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			pool <- true
			defer func() { <-pool }()
			_, _ = w.Write(make([]byte, 4<<10))
			written.Add(1)
			<-time.After(10 * time.Second)
		}))
		goOn := make(chan struct{})
		var all sync.WaitGroup
		for range 3 {
			all.Go(func() {
				w := &stalled{ResponseRecorder: httptest.NewRecorder(), goOn: goOn}
				h.ServeHTTP(w, asksAlone("If-Match", "/"))
			})
		}
		<-time.After(time.Second)
		var last time.Duration
		began := time.Now()
		all.Go(func() {
			h.ServeHTTP(httptest.NewRecorder(), asksAlone("If-Match", "/"))
			last = time.Since(began)
		})
		synctest.Wait()
		close(goOn)
		for i := range int32(4) {
			if n := written.Load(); n != i {
				t.Errorf("after %d s %d go on", i, n)
			}
			<-time.After(time.Second + time.Millisecond)
		}
		all.Wait()
		if last > 30*time.Second {
			t.Errorf("who had the turn was answered after %v", last)
		}
		wantSlots(t, cache, "If-Match", 1)
	})
}

// However a handler ends, its slot is given back once: after a panic, also in the middle of a
// Write, when its client has gone, and when it writes from goroutines of its own that outlast it.
func TestSlotsGoBackOnce(t *testing.T) {
	write := func(w http.ResponseWriter) { _, _ = w.Write(make([]byte, 20<<10)) }
	gone := errors.New("connection reset")
	for name, c := range map[string]struct {
		client func(goOn chan struct{}) *stalled
		handle func(w http.ResponseWriter)
	}{
		"panic": {
			nil, func(w http.ResponseWriter) { write(w); panic(http.ErrAbortHandler) },
		},
		"panic before": {nil, func(http.ResponseWriter) { panic(http.ErrAbortHandler) }},
		"panic of a slow client's": {func(goOn chan struct{}) *stalled {
			return &stalled{goOn: goOn}
		},
			func(w http.ResponseWriter) { write(w); panic(http.ErrAbortHandler) }},
		"panic in a Write": {func(goOn chan struct{}) *stalled {
			return &stalled{goOn: goOn, panic: http.ErrAbortHandler}
		}, write},
		"gone": {func(goOn chan struct{}) *stalled {
			return &stalled{goOn: goOn, fails: gone}
		}, func(w http.ResponseWriter) { write(w); write(w) }},
		"flushed at the end": {nil, func(w http.ResponseWriter) {
			write(w)
			_ = http.NewResponseController(w).Flush()
			write(w)
		}},
		"flushed at the end, slowly": {func(goOn chan struct{}) *stalled {
			return &stalled{goOn: goOn}
		},
			func(w http.ResponseWriter) {
				write(w)
				_ = http.NewResponseController(w).Flush()
				write(w)
			}},
		"from goroutines": {func(goOn chan struct{}) *stalled {
			return &stalled{goOn: goOn}
		}, func(w http.ResponseWriter) {
			for range 4 {
				go write(w)
			}
			write(w)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			forEach(t, func(t *testing.T, kind string, most int, cache *middleware.Cache) {
				h := cache.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					alone[kind].says(w)
					c.handle(w)
				}))
				goOn := make(chan struct{})
				var all sync.WaitGroup
				for i := range 30 {
					all.Go(func() {
						defer func() { _ = recover() }()
						var w http.ResponseWriter = httptest.NewRecorder()
						if c.client != nil {
							s := c.client(goOn)
							s.ResponseRecorder = httptest.NewRecorder()
							w = &locked{s, make(chan bool, 1)}
						}
						h.ServeHTTP(w, asksAlone(kind, fmt.Sprint("/", i)))
					})
				}
				<-time.After(time.Second)
				close(goOn)
				all.Wait()
				synctest.Wait()
				wantSlots(t, cache, kind, most)
			})
		})
	}
}

// locked is a writer that several goroutines can use.
type locked struct {
	w  *stalled
	mu chan bool // a lock on which a bubble can see goroutines wait
}

func (l *locked) Header() http.Header { return l.w.Header() }
func (l *locked) Flush()              {}

func (l *locked) WriteHeader(status int) {
	l.mu <- true
	defer func() { <-l.mu }()
	l.w.WriteHeader(status)
}

func (l *locked) Write(b []byte) (int, error) {
	l.mu <- true
	defer func() { <-l.mu }()
	return l.w.Write(b)
}

// While a handler reads a request body that comes slowly, it holds no turn.
func TestSlowBodiesHoldNoSlots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cache := newCache(t, middleware.Options{MaxLoads: 8, LoadTimeout: time.Minute})
		h := cache.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			_, _ = w.Write(body)
		}))
		var all sync.WaitGroup
		var ends []*io.PipeWriter
		for range 10 {
			body, end := io.Pipe()
			ends = append(ends, end)
			all.Go(func() {
				w := httptest.NewRecorder()
				if h.ServeHTTP(w, httptest.NewRequest("GET", "/", body)); w.Body.String() != "all" {
					t.Errorf("%d %q", w.Code, w.Body)
				}
			})
		}
		<-time.After(time.Second)
		asked := time.Now()
		if asks(h, "GET", "/", "If-Match", "*"); time.Since(asked) != 0 {
			t.Errorf("answered after %v", time.Since(asked))
		}
		for _, end := range ends {
			_, _ = end.Write([]byte("all"))
			_ = end.Close()
		}
		all.Wait()
		wantSlots(t, cache, "If-Match", 2)
	})
}

// If a handler's response is for its own client alone, a request that the handler sends to its own
// cache is still part of its run.
func TestRunsInRunsThatGoOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cache := newCache(t, middleware.Options{MaxLoads: 1})
		var h http.Handler
		h = cache.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/inner" {
				page(w, "inner")
				return
			}
			w.Header().Set("Cache-Control", "private")
			_, _ = w.Write(make([]byte, 10))
			synctest.Wait() // the load is over
			h.ServeHTTP(httptest.NewRecorder(),
				httptest.NewRequest("GET", "/inner", nil).WithContext(r.Context()))
		}))
		asked := time.Now()
		if asks(h, "GET", "/outer"); time.Since(asked) != 0 {
			t.Errorf("answered after %v", time.Since(asked))
		}
	})
}

// The test uses connections. Clients of both protocols that don't read, as many as handlers may run
// at a time, hold up no request for a response that is not shared.
func TestSlowReadersOfWhatIsTheirsHoldUpNobody(t *testing.T) {
	for _, most := range []int{1, 8} {
		for _, size := range []int{16 << 10, 1 << 20, 4 << 20} {
			t.Run(fmt.Sprintf("%d/%d", most, size), func(t *testing.T) {
				cache := newCache(t, middleware.Options{
					MaxLoads: most, WaitTimeout: 2 * longWait, LoadTimeout: 2 * longWait,
					HitForMiss: time.Hour,
				})
				body, begun := strings.Repeat("x", size), make(chan bool, 100)
				listener, err := net.Listen("tcp", "127.0.0.1:0")
				if err != nil {
					t.Fatal(err)
				}
				server := &http.Server{Protocols: new(http.Protocols),
					Handler: cache.Handler(http.HandlerFunc(func(
						w http.ResponseWriter, r *http.Request,
					) {
						begun <- true
						w.Header().Set("Cache-Control", "private, no-store")
						_, _ = io.WriteString(w, body)
					}))}
				server.Protocols.SetHTTP1(true)
				server.Protocols.SetUnencryptedHTTP2(true)
				go func() { _ = server.Serve(listener) }()
				t.Cleanup(func() { _ = server.Close() })
				address := listener.Addr().String()
				client := &http.Client{
					Timeout: longWait, Transport: &http.Transport{DisableCompression: true},
				}
				t.Cleanup(client.CloseIdleConnections)
				for i := range 2 * most {
					path := "/" + strconv.Itoa(i)
					if i%2 == 0 {
						window(t, address, path, 0)
					} else {
						stuck(t, address, path)
					}
					<-begun
					for _, field := range []string{"Accept", "If-Match"} {
						r, _ := http.NewRequest("GET", "http://"+address+path, nil)
						r.Header.Set(field, "*/*")
						res, err := client.Do(r)
						if err != nil {
							t.Fatal(err)
						}
						got, err := io.Copy(io.Discard, res.Body)
						_ = res.Body.Close()
						if <-begun; err != nil || got != int64(size) {
							t.Errorf("%d bytes, %v", got, err)
						}
					}
				}
			})
		}
	}
}
