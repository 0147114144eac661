package middleware_test

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cacheguard/cacheguard/middleware"
)

// window requests a page by HTTP/2 with a flow-control window of size bytes. It reads only the
// frames that come by themselves, and never lets the server send more.
func window(t testing.TB, address, path string, size uint32) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	var b bytes.Buffer
	frame := func(kind, flags byte, stream uint32, payload []byte) {
		b.Write([]byte{
			byte(len(payload) >> 16), byte(len(payload) >> 8), byte(len(payload)), kind, flags,
		})
		_ = binary.Write(&b, binary.BigEndian, stream)
		b.Write(payload)
	}
	b.WriteString("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
	// SETTINGS_INITIAL_WINDOW_SIZE
	frame(4, 0, 0, binary.BigEndian.AppendUint32([]byte{0, 4}, size))
	head := append([]byte{0x82, 0x86, 0x41, byte(len(address))}, address...)
	head = append(append(head, 0x44, byte(len(path))), path...)
	frame(1, 0x5, 1, head) // HEADERS, END_STREAM and END_HEADERS
	if _, err := conn.Write(b.Bytes()); err != nil {
		t.Fatal(err)
	}
	go func() { _, _ = io.Copy(io.Discard, conn) }()
	return conn
}

// stuck sends a request by HTTP/1 and reads one byte of the response.
func stuck(t testing.TB, address, path string) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	_ = conn.(*net.TCPConn).SetReadBuffer(1)
	fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: %s\r\n\r\n", path, address)
	return conn
}

// Clients that don't read hold up no other client, by any protocol and with any request, even if
// there are as many of them as handlers may run at a time. Waiting requests get the same response,
// and another page is made meanwhile.
func TestSlowReadersHoldUpNobody(t *testing.T) {
	for _, size := range []int{1, 7, 16 << 10, 1 << 20, 4 << 20} {
		for _, flush := range []bool{false, true} {
			for _, most := range []int{1, 8} {
				for _, cc := range []string{"max-age=60", "private", ""} {
					t.Run(fmt.Sprintf("%d/%v/%d/%s", size, flush, most, cc), func(t *testing.T) {
						cache := newCache(t,
							middleware.Options{MaxLoads: most, DefaultTTL: time.Hour,
								WaitTimeout: 2 * longWait, LoadTimeout: 2 * longWait,
								LeaseTTL: 2 * longWait})
						body := strings.Repeat("x", size)
						begun := make(chan string, 100)
						handler := cache.Handler(http.HandlerFunc(func(
							w http.ResponseWriter, r *http.Request,
						) {
							begun <- r.URL.Path
							if cc != "" {
								w.Header().Set("Cache-Control", cc)
							}
							w.WriteHeader(http.StatusEarlyHints)
							for rest := body; rest != ""; {
								n := min(len(rest), 64<<10)
								_, _ = io.WriteString(w, rest[:n])
								if rest = rest[n:]; flush {
									_ = http.NewResponseController(w).Flush()
								}
							}
						}))
						listener, err := net.Listen("tcp", "127.0.0.1:0")
						if err != nil {
							t.Fatal(err)
						}
						server := &http.Server{Handler: handler, Protocols: new(http.Protocols)}
						server.Protocols.SetHTTP1(true)
						server.Protocols.SetUnencryptedHTTP2(true)
						go func() { _ = server.Serve(listener) }()
						t.Cleanup(func() { _ = server.Close() })
						address := listener.Addr().String()
						client := &http.Client{
							Timeout: longWait, Transport: &http.Transport{DisableCompression: true},
						}
						t.Cleanup(client.CloseIdleConnections)
						for i := range most {
							path := "/" + strconv.Itoa(i)
							if i%2 == 0 {
								window(t, address, path, 0)
							} else {
								stuck(t, address, path)
							}
							if got := <-begun; got != path {
								t.Fatalf("%s runs, not %s", got, path)
							}
						}
						for i := range most + 1 {
							res, err := client.Get("http://" + address + "/" + strconv.Itoa(i))
							if err != nil {
								t.Fatalf("page %d: %v", i, err)
							}
							got, err := io.ReadAll(res.Body)
							_ = res.Body.Close()
							if err != nil || string(got) != body {
								t.Errorf("page %d has %d bytes, %v; want %d", i, len(got), err,
									size)
							}
						}
					})
				}
			}
		}
	}
}

// Requests that wait in the process that makes a response get each piece of it before the next
// piece is made. Requests in other processes get the response when it is whole.
func TestPiecesAsTheyAreMade(t *testing.T) {
	for name, length := range map[string]bool{"flushed": false, "of a known length": true} {
		t.Run(name, func(t *testing.T) {
			onEachStore(t, 2, middleware.Options{}, func(t *testing.T, f *fleet) {
				const pieces = 10
				size := 8
				if length {
					size = 16 << 10
				}
				piece := func(k int) string { return strings.Repeat(strconv.Itoa(k), size) }
				go1 := make(chan struct{})
				f.route("/model", func(w http.ResponseWriter, r *http.Request) {
					w.Header().Set("Cache-Control", "max-age=60")
					if length {
						w.Header().Set("Content-Length", strconv.Itoa(pieces*size))
					}
					for k := range pieces {
						<-go1
						_, _ = io.WriteString(w, piece(k))
						if !length {
							_ = http.NewResponseController(w).Flush()
						}
					}
				})
				opened := []func() *stream{f.opening(0, get("/model"))}
				f.awaitRunning(1)
				for range 4 {
					opened = append(opened, f.opening(0, get("/model")))
				}
				elsewhere := f.start(1, get("/model"))
				f.awaitWaiting(6)
				var streams []*stream
				for k := range pieces {
					go1 <- struct{}{}
					for i := range opened {
						if k == 0 {
							streams = append(streams, opened[i]())
						}
						want := piece(k)
						if length { // the server buffers a part of it
							want = want[:size/2]
							if k > 0 {
								want = piece(k - 1)[size/2:] + want
							}
						}
						streams[i].want(want)
					}
				}
				for i, s := range streams {
					if rest, err := s.rest(); err != nil ||
						length && rest != piece(pieces - 1)[size/2:] || !length && rest != "" {
						t.Errorf("client %d: a rest of %d bytes, %v", i, len(rest), err)
					}
				}
				all := ""
				for k := range pieces {
					all += piece(k)
				}
				elsewhere.reply(t).want(t, 200, all)
				f.do(1, get("/model")).want(t, 200, all)
				f.wantRuns(1, "seven requests")
			})
		})
	}
}

// If a response breaks off, it breaks off for all clients that read it, and is not stored. A client
// with HTTP/1.0 would take a part for the whole response if the response has no Content-Length. So
// it waits for the whole response, which the next run makes.
func TestPiecesThatBreakOff(t *testing.T) {
	for name, end := range map[string]func(w http.ResponseWriter){
		"abort": func(http.ResponseWriter) { panic(http.ErrAbortHandler) },
		"above MaxBody": func(w http.ResponseWriter) {
			fmt.Fprint(w, strings.Repeat("x", 2000))
		},
		"less than it said": func(http.ResponseWriter) {},
	} {
		t.Run(name, func(t *testing.T) {
			f := memoryFleet(t, 1, middleware.Options{MaxBody: 1000})
			hold := f.gate()
			var runs atomic.Int32
			f.route("/model", func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Cache-Control", "max-age=60")
				if runs.Add(1) > 1 {
					fmt.Fprint(w, "whole")
					return
				}
				if name == "less than it said" {
					w.Header().Set("Content-Length", "500")
				}
				fmt.Fprint(w, "begin ")
				_ = http.NewResponseController(w).Flush()
				hold.pass()
				end(w)
			})
			leader := f.opening(0, get("/model"))
			f.awaitRunning(1)
			waiter := f.opening(0, get("/model"))
			old, err := net.Dial("tcp", strings.TrimPrefix(f.replicas[0].url, "http://"))
			if err != nil {
				t.Fatal(err)
			}
			defer old.Close()
			fmt.Fprint(old, "GET /model HTTP/1.0\r\nHost: shop.example\r\n\r\n")
			f.awaitWaiting(3)
			streams := []*stream{leader(), waiter()}
			for _, s := range streams {
				s.want("begin ")
			}
			hold.open()
			for i, s := range streams { // a body that is too large still reaches its own client
				if rest, err := s.rest(); err == nil && (i > 0 || name != "above MaxBody") {
					t.Errorf("client %d: the rest is %q, and no error", i, rest)
				}
			}
			res, err := http.ReadResponse(bufio.NewReader(old), nil)
			if err != nil {
				t.Fatal(err)
			}
			defer res.Body.Close()
			body, err := io.ReadAll(res.Body)
			if (err == nil) != (string(body) == "whole") {
				t.Errorf("the client with HTTP/1.0 got %q, %v", body, err)
			}
			f.do(0, get("/model")).want(t, 200, "whole")
			want := 2
			if name == "above MaxBody" { // then nobody waits for another client's run
				want = 3
			}
			f.wantRuns(want, "three at once and one later")
		})
	}
}

// paced is the writer of a client in a bubble. It tells the test what it has received.
type paced struct {
	header http.Header
	status int
	body   []byte
	keep   bool
	mu     sync.Mutex
}

func (p *paced) Header() http.Header { return p.header }
func (p *paced) WriteHeader(status int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.status == 0 && status >= 200 {
		p.status = status
	}
}
func (p *paced) Flush() {}
func (p *paced) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.keep {
		p.body = append(p.body, b...)
	}
	return len(b), nil
}

func (p *paced) got() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return string(p.body)
}

// A thousand clients read one body. Their cost doesn't grow with its size.
func TestReadersShareOneBuffer(t *testing.T) {
	cost := func(size int) uint64 {
		var before, after runtime.MemStats
		synctest.Test(t, func(t *testing.T) {
			cache := newCache(t, middleware.Options{})
			hold := make(chan struct{})
			piece := make([]byte, size/16)
			h := cache.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Cache-Control", "max-age=60")
				<-hold
				for range 16 {
					_, _ = w.Write(piece)
					_ = http.NewResponseController(w).Flush()
				}
			}))
			var all sync.WaitGroup
			var whole atomic.Int32
			for range 1000 {
				all.Go(func() {
					w := &paced{header: http.Header{}}
					h.ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
					if w.status == 200 {
						whole.Add(1)
					}
				})
			}
			synctest.Wait()
			runtime.ReadMemStats(&before)
			close(hold)
			all.Wait()
			runtime.ReadMemStats(&after)
			if n := whole.Load(); n != 1000 {
				t.Errorf("%d clients got it", n)
			}
		})
		return after.TotalAlloc - before.TotalAlloc
	}
	small, large := cost(16<<10), cost(1<<20)
	t.Logf("1,000 clients: %d KiB for 16 KiB, %d KiB for 1 MiB", small>>10, large>>10)
	if large > small+8<<20 {
		t.Errorf("1,000 readers of 1 MiB cost %d MiB more than those of 16 KiB", (large-small)>>20)
	}
}

// A client that reads a response while it is made gets the right response for its request: by its
// conditions, by Vary, with trailers, and never a response from before a purge.
func TestReadersGetTheirOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cache := newCache(t, middleware.Options{})
		var made atomic.Int32
		holds := []chan struct{}{make(chan struct{}), make(chan struct{}), make(chan struct{})}
		h := cache.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			n := int(made.Add(1))
			w.Header().Set("Cache-Control", "max-age=60")
			w.Header().Set("Etag", `"`+strconv.Itoa(n)+`"`)
			w.Header().Set("Vary", "X-Plan")
			fmt.Fprintf(w, "%d for %s, ", n, r.Header.Get("X-Plan"))
			_ = http.NewResponseController(w).Flush()
			<-holds[n-1]
			fmt.Fprint(w, "end")
			w.Header().Set(http.TrailerPrefix+"Sum", "7")
		}))
		type request struct {
			w    *paced
			done chan struct{}
		}
		ask := func(header ...string) request {
			q := request{&paced{header: http.Header{}, keep: true}, make(chan struct{})}
			r := httptest.NewRequest("GET", "/", nil)
			for i := 0; i < len(header); i += 2 {
				r.Header.Set(header[i], header[i+1])
			}
			go func() {
				defer close(q.done)
				h.ServeHTTP(q.w, r)
			}()
			synctest.Wait()
			return q
		}
		leader := ask()
		follower := ask()
		knows := ask("If-None-Match", `"1"`)
		other := ask("X-Plan", "red")
		for name, q := range map[string]request{"the leader": leader, "a follower": follower} {
			if got := q.w.got(); got != "1 for , " {
				t.Errorf("%s has %q", name, got)
			}
		}
		if <-knows.done; knows.w.status != http.StatusNotModified {
			t.Errorf("who has it gets %d", knows.w.status)
		}
		if got := other.w.got(); got != "2 for red, " {
			t.Errorf("who asks for another variant has %q, want the beginning of its own", got)
		}
		if err := cache.Purge(t.Context(), "http://example.com/"); err != nil {
			t.Fatal(err)
		}
		later := ask()
		for _, hold := range holds {
			close(hold)
		}
		<-leader.done
		<-follower.done
		<-other.done
		<-later.done
		if got := follower.w.got(); got != "1 for , end" ||
			!slices.Equal(follower.w.header[http.TrailerPrefix+"Sum"], []string{"7"}) {
			t.Errorf("the follower got %q, %v", got, follower.w.header)
		}
		if got := later.w.got(); strings.HasPrefix(got, "1") ||
			!strings.HasSuffix(got, " for , end") {
			t.Errorf("who came after a purge has %q", got)
		}
		if got := other.w.got(); !strings.HasSuffix(got, "for red, end") {
			t.Errorf("the other variant is %q", got)
		}
	})
}

// The client whose handler runs can leave, and so can the clients that read. When the last client
// leaves, the handler's context ends.
func TestReadersLeave(t *testing.T) {
	f := memoryFleet(t, 1, middleware.Options{})
	hold := f.gate()
	ended := make(chan struct{})
	f.route("/{page}", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "max-age=60")
		fmt.Fprint(w, "begin ")
		_ = http.NewResponseController(w).Flush()
		if r.URL.Path == "/endless" {
			<-r.Context().Done()
			close(ended)
			return
		}
		hold.pass()
		if err := r.Context().Err(); err != nil {
			t.Errorf("the handler is told to stop: %v", err)
		}
		fmt.Fprint(w, "end")
	})
	open := func(path string) *stream {
		s := f.opening(0, get(path))()
		s.want("begin ")
		return s
	}
	leader, stays, leaves := open("/model"), open("/model"), open("/model")
	f.wantRuns(1, "three clients")
	leader.leave()
	leaves.leave()
	f.awaitWaiting(1)
	hold.open()
	if rest, err := stays.rest(); rest != "end" || err != nil {
		t.Errorf("%q, %v", rest, err)
	}
	f.do(0, get("/model")).want(t, 200, "begin end")
	first, second := open("/endless"), open("/endless")
	first.leave()
	second.leave()
	<-ended
}
