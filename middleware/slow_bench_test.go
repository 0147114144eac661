package middleware_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cacheguard/cacheguard/cacheguard/memstore"
	"github.com/cacheguard/cacheguard/middleware"
)

// benchServer serves a handler behind a cache, by HTTP/1 and HTTP/2.
func benchServer(b *testing.B, opts middleware.Options, handler http.HandlerFunc) (address string) {
	b.Helper()
	store := memstore.New(memstore.Options{})
	cache, err := middleware.New(store, opts)
	if err != nil {
		b.Fatal(err)
	}
	server := httptest.NewUnstartedServer(cache.Handler(handler))
	server.Config.Protocols = new(http.Protocols)
	server.Config.Protocols.SetHTTP1(true)
	server.Config.Protocols.SetUnencryptedHTTP2(true)
	server.Start()
	b.Cleanup(func() {
		server.Close()
		_ = cache.Close()
		_ = store.Close()
	})
	return server.Listener.Addr().String()
}

// reportWaits reports the median and the longest of some waiting times.
func reportWaits(b *testing.B, waits []time.Duration) {
	b.Helper()
	slices.Sort(waits)
	millis := func(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
	b.ReportMetric(millis(waits[len(waits)/2]), "median-ms")
	b.ReportMetric(millis(waits[len(waits)-1]), "max-ms")
	b.ReportMetric(0, "ns/op")
}

// In BenchmarkBehindSlowClients, as many clients as handlers may run don't read their responses.
// The benchmark reports how long a request takes in addition to the 10 ms of its handler. One
// request is for the page of a slow client, and one is for another page.
//
//	go test -run - -bench BehindSlowClients -benchtime 10x ./middleware
func BenchmarkBehindSlowClients(b *testing.B) {
	const takes = 10 * time.Millisecond
	slow := map[string]func(b *testing.B, address, path string) net.Conn{
		"window 0": func(b *testing.B, address, path string) net.Conn {
			return window(b, address, path, 0)
		},
		"a byte a second": func(b *testing.B, address, path string) net.Conn {
			conn := stuck(b, address, path)
			go func() {
				for {
					if _, err := conn.Read(make([]byte, 1)); err != nil {
						return
					}
					select {
					case <-time.After(time.Second):
					case <-b.Context().Done():
						return
					}
				}
			}()
			return conn
		},
	}
	for _, kind := range []string{"window 0", "a byte a second"} {
		for _, size := range []int{1, 16 << 10, 1 << 20, 4 << 20} {
			for _, flush := range []bool{false, true} {
				for _, most := range []int{1, 8} {
					b.Run(fmt.Sprintf("%s/bytes=%d/flushed=%v/MaxLoads=%d", kind, size, flush,
						most), func(b *testing.B) {
						body, begun := strings.Repeat("x", size), make(chan time.Time, 100)
						address := benchServer(b, middleware.Options{MaxLoads: most}, func(
							w http.ResponseWriter, r *http.Request,
						) {
							begun <- time.Now()
							time.Sleep(takes)
							w.Header().Set("Cache-Control", "max-age=60")
							for rest := body; rest != ""; {
								n := min(len(rest), 64<<10)
								_, _ = io.WriteString(w, rest[:n])
								if rest = rest[n:]; flush {
									_ = http.NewResponseController(w).Flush()
								}
							}
						})
						client := &http.Client{Transport: &http.Transport{DisableCompression: true}}
						defer client.CloseIdleConnections()
						read := func(path string) {
							res, err := client.Get("http://" + address + path)
							if err != nil {
								b.Fatal(err)
							}
							n, err := io.Copy(io.Discard, res.Body)
							_ = res.Body.Close()
							if err != nil || n != int64(size) {
								b.Fatalf("%d bytes, %v", n, err)
							}
						}
						var waits []time.Duration
						for i := 0; b.Loop(); i++ {
							var conns []net.Conn
							var first time.Time
							for k := range most {
								conns = append(conns,
									slow[kind](b, address, fmt.Sprintf("/%d/%d", i, k)))
								if at := <-begun; k == 0 {
									first = at
								}
							}
							read(fmt.Sprintf("/%d/0", i))
							waits = append(waits, max(time.Since(first)-takes, 0))
							asked := time.Now()
							read(fmt.Sprintf("/%d/other", i))
							waits = append(waits, time.Since(asked)-takes)
							<-begun
							for _, conn := range conns {
								_ = conn.Close()
							}
						}
						reportWaits(b, waits)
					})
				}
			}
		}
	}
}

// In BenchmarkFirstByteOfWaiters a handler writes ten pieces, one every 100 ms. The benchmark
// reports how long after the handler's own client the waiting clients have their first byte.
//
//	go test -run - -bench FirstByteOfWaiters -benchtime 10x ./middleware
func BenchmarkFirstByteOfWaiters(b *testing.B) {
	const waiters = 4
	begun := make(chan bool, 100)
	address := benchServer(b, middleware.Options{}, func(w http.ResponseWriter, r *http.Request) {
		begun <- true
		w.Header().Set("Cache-Control", "max-age=60")
		for range 10 {
			time.Sleep(100 * time.Millisecond)
			_, _ = io.WriteString(w, strings.Repeat("x", 1000))
			_ = http.NewResponseController(w).Flush()
		}
	})
	first := func(path string, at chan<- time.Time) {
		conn, err := net.Dial("tcp", address)
		if err == nil {
			defer func() { _ = conn.Close() }()
			fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: shop.example\r\nConnection: close\r\n\r\n",
				path)
			var res *http.Response
			in := bufio.NewReader(conn)
			if res, err = http.ReadResponse(in, nil); err == nil {
				_, err = io.ReadFull(res.Body, make([]byte, 1))
				at <- time.Now()
				_, _ = io.Copy(io.Discard, res.Body)
			}
		}
		if err != nil {
			b.Error(err)
			at <- time.Time{}
		}
	}
	var waits []time.Duration
	for i := 0; b.Loop(); i++ {
		path, leader, others := fmt.Sprint("/", i), make(chan time.Time), make(chan time.Time)
		go first(path, leader)
		<-begun
		for range waiters {
			go first(path, others)
		}
		its := <-leader
		for range waiters {
			waits = append(waits, (<-others).Sub(its))
		}
	}
	reportWaits(b, waits)
}
