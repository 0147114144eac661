package middleware_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cacheguard/cacheguard/middleware"
)

// A 103 goes to the client whose handler sends it. It isn't recorded as the response.
func TestFleetEarlyHints(t *testing.T) {
	onEachStore(t, 2, middleware.Options{}, func(t *testing.T, f *fleet) {
		hold := f.gate()
		f.route("/page", func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Link", "</style.css>; rel=preload")
			w.WriteHeader(http.StatusEarlyHints)
			w.Header().Set("Link", "</script.js>; rel=preload")
			w.WriteHeader(http.StatusEarlyHints)
			w.Header().Del("Link")
			hold.pass()
			w.Header().Set("X-Made", "yes")
			page(w, "the page")
		})
		leader := f.start(0, get("/page"))
		f.awaitRunning(1)
		clients := f.startAll(4, func(int) call { return get("/page") })
		f.awaitWaiting(5)
		hold.open()
		got := leader.reply(t)
		if want := []string{
			"</style.css>; rel=preload", "</script.js>; rel=preload",
		}; !slices.Equal(got.hints, want) {
			t.Errorf("the leader's client is told early of %q; want %q", got.hints, want)
		}
		all := []received{got}
		for _, cl := range clients {
			all = append(all, cl.reply(t))
		}
		for i := range f.replicas {
			all = append(all, f.do(i, get("/page")))
		}
		for _, got := range all {
			got.want(t, 200, "the page")
			if got.header.Get("X-Made") != "yes" || got.header.Get("Link") != "" {
				t.Errorf("the header is %v", got.header)
			}
		}
		f.wantRuns(1, "seven requests")
	})
}

// Server-sent events arrive as they are sent. Each client has its own stream, although no field
// says that the stream can't be shared.
func TestFleetServerSentEvents(t *testing.T) {
	onEachStore(t, 2, middleware.Options{DefaultTTL: time.Minute}, func(t *testing.T, f *fleet) {
		sent := map[string]chan string{
			"a": make(chan string), "b": make(chan string), "c": make(chan string),
		}
		f.route("/events", func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			w.WriteHeader(200)
			w.(http.Flusher).Flush()
			for event := range sent[r.Header.Get("X-User")] {
				fmt.Fprintf(w, "data: %s\n\n", event)
				if err := http.NewResponseController(w).Flush(); err != nil {
					t.Errorf("Flush: %v", err)
				}
			}
		})
		streams := map[string]*stream{}
		for i, user := range []string{"a", "b", "c"} {
			streams[user] = f.open(i%2, get("/events", "X-User", user))
			for n := range 2 {
				sent[user] <- fmt.Sprintf("%s%d", user, n)
				streams[user].want(fmt.Sprintf("data: %s%d\n\n", user, n))
			}
		}
		f.awaitRunning(3)
		for user, s := range streams {
			sent[user] <- "last"
			close(sent[user])
			if rest, err := s.rest(); err != nil || rest != "data: last\n\n" {
				t.Errorf("user %s: %q, %v", user, rest, err)
			}
		}
		f.wantRuns(3, "three clients")
	})
}

// If a response turns out to be a stream, the clients that wait for it get streams of their own at
// once.
func TestFleetStreamWithWaiters(t *testing.T) {
	for name, kind := range map[string]string{
		"events": "text/event-stream", "events not flushed yet": "text/event-stream; charset=utf-8",
		"lines": "application/x-ndjson",
	} {
		t.Run(name, func(t *testing.T) {
			onEachStore(t, 2, middleware.Options{DefaultTTL: time.Minute}, func(
				t *testing.T, f *fleet,
			) {
				begin, end := f.gate(), f.gate()
				f.route("/events", func(w http.ResponseWriter, r *http.Request) {
					begin.pass()
					w.Header().Set("Content-Type", kind)
					fmt.Fprint(w, "first\n")
					if name != "events not flushed yet" {
						_ = http.NewResponseController(w).Flush()
					}
					end.pass()
					fmt.Fprint(w, "last\n")
				})
				clients := f.startAll(6, func(int) call { return get("/events") })
				f.awaitWaiting(6)
				f.wantRuns(1, "before it is known to be a stream")
				begin.open()
				f.awaitRunning(6)
				end.open()
				for _, cl := range clients {
					cl.reply(t).want(t, 200, "first\nlast\n")
				}
			})
		})
	}
}

// If a handler writes after a flush, the response is not stored.
func TestFleetFlush(t *testing.T) {
	f := memoryFleet(t, 2, middleware.Options{DefaultTTL: time.Minute})
	f.route("/catalog", func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, "all ")
		w.(http.Flusher).Flush()
		fmt.Fprint(w, "categories")
	})
	for i := range 3 {
		f.do(i%2, get("/catalog")).want(t, 200, "all categories")
	}
	f.wantRuns(3, "three requests")
}

// If a handler only flushes at the end, the response is stored. The time between the flush and the
// end is short, so the test has its own clock.
func TestFlushAtTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		runs := 0
		_, h := front(t, middleware.Options{DefaultTTL: time.Minute}, func(
			w http.ResponseWriter, _ *http.Request,
		) {
			runs++
			fmt.Fprint(w, "all categories")
			w.(http.Flusher).Flush()
		})
		for range 3 {
			if got := fetch(h, "/catalog").Body.String(); got != "all categories" {
				t.Errorf("got %q", got)
			}
		}
		if runs != 1 {
			t.Errorf("%d runs for three requests", runs)
		}
	})
}

// hijack takes over a handler's connection and sends each line that comes back to the client.
func hijack(t *testing.T, w http.ResponseWriter, controller bool) {
	var conn net.Conn
	var rw *bufio.ReadWriter
	var err error
	if controller {
		conn, rw, err = http.NewResponseController(w).Hijack()
	} else if h, ok := w.(http.Hijacker); ok {
		conn, rw, err = h.Hijack()
	} else {
		t.Errorf("the writer is no http.Hijacker")
		return
	}
	if err != nil {
		t.Errorf("Hijack: %v", err)
		return
	}
	defer conn.Close()
	fmt.Fprint(rw,
		"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
	_ = rw.Flush()
	for {
		line, err := rw.ReadString('\n')
		if err != nil {
			return
		}
		fmt.Fprint(rw, line)
		_ = rw.Flush()
	}
}

// echo returns a connection to a replica whose handler has taken over the connection and sends each
// line back.
func (f *fleet) echo(i int, request string) (conn net.Conn, in *bufio.Reader) {
	f.tb.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(f.replicas[i].url, "http://"))
	if err != nil {
		f.tb.Fatal(err)
	}
	f.tb.Cleanup(func() { _ = conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(longWait))
	fmt.Fprint(conn, request)
	in = bufio.NewReader(conn)
	response, err := http.ReadResponse(in, nil)
	if err != nil || response.StatusCode != http.StatusSwitchingProtocols ||
		response.Header.Get("Upgrade") != "echo" {
		f.tb.Fatalf("a hijacked connection answers %v, %v", response, err)
	}
	return conn, in
}

// A handler that takes over its connection gets it, with and without HTTP's upgrade.
func TestFleetHijack(t *testing.T) {
	for name, fields := range map[string]string{
		"upgrade": "Connection: Upgrade\r\nUpgrade: echo\r\n", "plain GET": "",
	} {
		for way, controller := range map[string]bool{
			"ResponseController": true, "Hijacker": false,
		} {
			t.Run(name+" by "+way, func(t *testing.T) {
				onEachStore(t, 2, middleware.Options{DefaultTTL: time.Minute}, func(
					t *testing.T, f *fleet,
				) {
					f.route("/chat", func(w http.ResponseWriter, r *http.Request) {
						hijack(t, w, controller)
					})
					var open []net.Conn
					for n := range 4 { // all of them open at the same time
						conn, in := f.echo(n%2,
							"GET /chat HTTP/1.1\r\nHost: shop.example\r\n"+fields+"\r\n")
						for line := range 2 {
							sent := fmt.Sprintf("line %d of %d\n", line, n)
							fmt.Fprint(conn, sent)
							if got, err := in.ReadString('\n'); err != nil || got != sent {
								t.Fatalf("sent %q, got %q, %v", sent, got, err)
							}
						}
						open = append(open, conn)
					}
					f.awaitRunning(4)
					for _, cl := range open {
						_ = cl.Close()
					}
					f.awaitRunning(0)
					for i, rep := range f.replicas {
						if said := rep.said.String(); strings.Contains(said, "hijacked") {
							t.Errorf("the server of replica %d says %q", i, said)
						}
					}
				})
			})
		}
	}
}

// Requests that wait for a handler that takes over its connection run the handler themselves.
func TestFleetHijackWithWaiters(t *testing.T) {
	onEachStore(t, 2, middleware.Options{DefaultTTL: time.Minute}, func(t *testing.T, f *fleet) {
		hold := f.gate()
		f.route("/chat", func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("X-User") != "" {
				fmt.Fprint(w, "own page")
				return
			}
			hold.pass()
			hijack(t, w, true)
		})
		conn, err := net.Dial("tcp", strings.TrimPrefix(f.replicas[0].url, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		fmt.Fprint(conn, "GET /chat HTTP/1.1\r\nHost: shop.example\r\n\r\n")
		f.awaitRunning(1)
		clients := f.startAll(4, func(int) call { return get("/chat", "X-User", "x") })
		f.awaitWaiting(5)
		hold.open()
		for _, cl := range clients {
			cl.reply(t).want(t, 200, "own page")
		}
	})
}

// The same holds if the connection is taken over through a writer that has only Unwrap.
func TestFleetHijackThroughAWrapper(t *testing.T) {
	f := memoryFleet(t, 1, middleware.Options{DefaultTTL: time.Minute})
	rep := f.replicas[0]
	behind := rep.router.With(func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			next.ServeHTTP(outerWriter{w}, r)
		})
	}, rep.cache.Handler)
	behind.Handle("/chat", f.handler(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("X-User") != "" {
			fmt.Fprint(w, "own page")
			return
		}
		hijack(t, w, true)
	}))
	conn, in := f.echo(0, "GET /chat HTTP/1.1\r\nHost: shop.example\r\n\r\n")
	fmt.Fprint(conn, "line\n")
	if got, err := in.ReadString('\n'); err != nil || got != "line\n" {
		t.Errorf("got %q, %v", got, err)
	}
	f.do(0, get("/chat", "X-User", "while it is open")).want(t, 200, "own page")
	_ = conn.Close()
	f.awaitRunning(0)
	f.do(0, get("/chat", "X-User", "later")).want(t, 200, "own page")
}

// bigBody returns a body that is different for each handler.
func bigBody(size int, of string) string {
	return of + strings.Repeat("0123456789abcdef", size/16+1)[:size-len(of)]
}

// A body of MaxBody is stored.
func TestFleetBodyUnderTheCap(t *testing.T) {
	onEachStore(t, 2, middleware.Options{}, func(t *testing.T, f *fleet) {
		body := bigBody(4<<20, "one")
		hold := f.gate()
		f.route("/export", func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Cache-Control", "max-age=60")
			hold.pass()
			_, _ = io.Copy(w, strings.NewReader(body))
		})
		clients := f.startAll(4, func(int) call { return get("/export") })
		f.awaitWaiting(4)
		hold.open()
		for _, cl := range clients {
			cl.reply(t).want(t, 200, body)
		}
		for i := range f.replicas {
			f.do(i, get("/export")).want(t, 200, body)
		}
		f.wantRuns(1, "six requests")
	})
}

// A body above MaxBody reaches its client while it is written. It is not stored. Requests that wait
// for it run their own handlers as soon as the size is known.
func TestFleetBodyOverTheCap(t *testing.T) {
	for name, announced := range map[string]bool{"Content-Length": true, "found out": false} {
		t.Run(name, func(t *testing.T) {
			onEachStore(t, 2, middleware.Options{}, func(t *testing.T, f *fleet) {
				const size = 4<<20 + 1
				begin, end := f.gate(), f.gate()
				f.route("/export", func(w http.ResponseWriter, r *http.Request) {
					user := r.Header.Get("X-User")
					w.Header().Set("Cache-Control", "max-age=60")
					if announced {
						w.Header().Set("Content-Length", fmt.Sprint(size+len("end")))
					}
					if user == "leader" {
						begin.pass()
					}
					_, _ = io.WriteString(w, bigBody(size, user))
					if user == "leader" {
						end.pass()
					}
					_, _ = io.WriteString(w, "end")
				})
				opened := f.opening(0, get("/export", "X-User", "leader"))
				f.awaitRunning(1)
				clients := f.startAll(4, func(i int) call {
					return get("/export", "X-User", fmt.Sprint(i))
				})
				f.awaitWaiting(5)
				begin.open()
				leader := opened()
				leader.want(bigBody(size, "leader")[:size/2]) // its handler still runs
				for i, cl := range clients {
					cl.reply(t).want(t, 200, bigBody(size, fmt.Sprint(i))+"end")
				}
				f.awaitRunning(1)
				end.open()
				if rest, err := leader.rest(); err != nil || !strings.HasSuffix(rest, "end") ||
					len(rest) != size-size/2+len("end") {
					t.Errorf("the leader gets a rest of %d bytes, %v", len(rest), err)
				}
				f.wantRuns(5, "five clients")
				f.do(1, get("/export", "X-User", "later")).want(t, 200,
					bigBody(size, "later")+"end")
				f.wantRuns(6, "and one later")
			})
		})
	}
}

// Nobody waits for the end of a body whose announced length is above MaxBody.
func TestFleetBodyAnnouncedOverTheCap(t *testing.T) {
	onEachStore(t, 2, middleware.Options{MaxBody: 10}, func(t *testing.T, f *fleet) {
		begin, end := f.gate(), f.gate()
		f.route("/export", func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Cache-Control", "max-age=60")
			w.Header().Set("Content-Length", "11")
			if r.Header.Get("X-User") == "leader" {
				begin.pass()
				w.WriteHeader(200)
				end.pass()
			}
			fmt.Fprint(w, "eleven byte")
		})
		leader := f.start(0, get("/export", "X-User", "leader"))
		f.awaitRunning(1)
		clients := f.startAll(4, func(int) call { return get("/export") })
		f.awaitWaiting(5)
		begin.open()
		for _, cl := range clients {
			cl.reply(t).want(t, 200, "eleven byte")
		}
		end.open()
		leader.reply(t).want(t, 200, "eleven byte")
		f.wantRuns(5, "five clients")
	})
}
