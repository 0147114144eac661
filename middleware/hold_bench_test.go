package middleware_test

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cacheguard/cacheguard/middleware"
)

// BenchmarkHeldForClients reports the memory for each of 200 clients that read nothing. Either each
// client requests a cold page of its own, or all request one stored page.
//
//	go test -run - -bench HeldForClients -benchtime 1x ./middleware
func BenchmarkHeldForClients(b *testing.B) {
	clients := 200
	if testing.Short() {
		clients = 20 // enough to show that the benchmark works
	}
	heap := func() int64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.GC()
		runtime.ReadMemStats(&m)
		return int64(m.HeapInuse)
	}
	asks := map[string]func(b *testing.B, address, path string) net.Conn{
		"HTTP1": func(b *testing.B, address, path string) net.Conn {
			return stuck(b, address, path)
		},
		"h2c": func(b *testing.B, address, path string) net.Conn {
			return window(b, address, path, 0)
		},
	}
	for _, protocol := range []string{"HTTP1", "h2c"} {
		for _, page := range []string{"cold", "stored", "private"} {
			for _, size := range []int{1 << 20, 4 << 20, 5 << 20} {
				b.Run(fmt.Sprintf("%s/%s/bytes=%d", protocol, page, size), func(b *testing.B) {
					body := strings.Repeat("x", size)
					var left atomic.Int64
					address := benchServer(b, middleware.Options{}, func(
						w http.ResponseWriter, r *http.Request,
					) {
						if w.Header().Set("Cache-Control", "max-age=60"); page == "private" {
							w.Header().Set("Cache-Control", "private")
						}
						for rest := body; rest != ""; rest = rest[min(len(rest), 64<<10):] {
							_, _ = io.WriteString(w, rest[:min(len(rest), 64<<10)])
						}
						left.Add(1)
					})
					for b.Loop() {
						var conns []net.Conn
						for i := range clients {
							path := "/"
							if page != "stored" {
								path += strconv.Itoa(i)
							}
							conns = append(conns, asks[protocol](b, address, path))
						}
						quiet(func() int { return int(left.Load()) })
						held := heap()
						for _, conn := range conns {
							_ = conn.Close()
						}
						quiet(runtime.NumGoroutine)
						b.ReportMetric(float64(held-heap())/(1<<20)/float64(clients), "MiB/client")
						b.ReportMetric(0, "ns/op")
					}
				})
			}
		}
	}
}

// quiet waits until a number stays the same for a while.
func quiet(count func() int) {
	for last, same := -1, 0; same < 10; time.Sleep(50 * time.Millisecond) {
		if n := count(); n == last {
			same++
		} else {
			last, same = n, 0
		}
	}
}
