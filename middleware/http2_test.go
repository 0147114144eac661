package middleware_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/cacheguard/cacheguard/middleware"
)

// opens sends the head of a GET by HTTP/2 in a way in which no library would send it. The body
// stays open, or the fields contradict each other. Fields come in pairs.
func opens(t *testing.T, address string, open bool, fields ...string) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	var head, b bytes.Buffer
	for i, all := 0,
		append([]string{
			":method", "GET", ":scheme", "http", ":authority", "shop.example", ":path", "/",
		}, fields...); i < len(all); i += 2 {
		head.WriteByte(0) // a literal that is not indexed (RFC 7541, section 6.2.2)
		for _, s := range all[i : i+2] {
			head.WriteByte(byte(len(s)))
			head.WriteString(s)
		}
	}
	b.WriteString("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00")
	flags := byte(0x5) // END_STREAM and END_HEADERS
	if open {
		flags = 0x4
	}
	b.Write([]byte{0, byte(head.Len() >> 8), byte(head.Len()), 1, flags})
	_ = binary.Write(&b, binary.BigEndian, uint32(1))
	b.Write(head.Bytes())
	if _, err := conn.Write(b.Bytes()); err != nil {
		t.Fatal(err)
	}
	go func() { _, _ = io.Copy(io.Discard, conn) }()
	return conn
}

// bothProtocols serves a handler behind a cache by HTTP/1 and HTTP/2. It sends a value to begun for
// each run, and to over for each request that was answered.
func bothProtocols(
	t *testing.T, opts middleware.Options, h http.HandlerFunc,
) (server *httptest.Server, begun, over chan bool) {
	begun, over = make(chan bool, 100), make(chan bool, 100)
	cached := newCache(t,
		opts).Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		begun <- true
		h(w, r)
	}))
	server = httptest.NewUnstartedServer(http.HandlerFunc(func(
		w http.ResponseWriter, r *http.Request,
	) {
		defer func() { over <- true }()
		cached.ServeHTTP(w, r)
	}))
	server.Config.Protocols = new(http.Protocols)
	server.Config.Protocols.SetHTTP1(true)
	server.Config.Protocols.SetUnencryptedHTTP2(true)
	server.Start()
	t.Cleanup(server.Close)
	return server, begun, over
}

// readsAs sends a request as a browser of the shop would.
func readsAs(t *testing.T, server *httptest.Server) string {
	t.Helper()
	r, err := http.NewRequest("GET", server.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Host = "shop.example"
	client := &http.Client{Timeout: longWait, Transport: &http.Transport{DisableKeepAlives: true}}
	res, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}

// By HTTP/2 a request can say that its body is empty and leave the body open. A handler that reads
// bodies must not wait for this client while other clients wait for the handler.
func TestOpenBodiesHoldUpNobody(t *testing.T) {
	for name, fields := range map[string][]string{
		"of no length":      nil,
		"of length 0":       {"content-length", "0"},
		"of a wrong length": {"content-length", "x"},
		"with a trailer":    {"content-length", "0", "trailer", "x-plan"},
	} {
		t.Run(name, func(t *testing.T) {
			server, begun, _ := bothProtocols(t,
				middleware.Options{MaxLoads: 1, WaitTimeout: -1, LoadTimeout: 2 * longWait}, func(
					w http.ResponseWriter, r *http.Request,
				) {
					body, _ := io.ReadAll(r.Body)
					w.Header().Set("Cache-Control", "max-age=60")
					fmt.Fprint(w, "page ", len(body), r.Trailer)
				})
			conn := opens(t, server.Listener.Addr().String(), true, fields...)
			select {
			case <-begun:
			case <-time.After(longWait):
				t.Fatal("the handler doesn't run")
			}
			if got := readsAs(t, server); got != "page 0 map[]" {
				t.Errorf("got %q", got)
			}
			_ = conn.Close()
		})
	}
}

// By HTTP/2 a request can have a Host field in addition to its authority. net/http leaves this
// field in the header, where a handler can read it. A client that sends another host there must not
// decide which response other clients get.
func TestSecondHostChoosesNothing(t *testing.T) {
	for _, host := range []string{"evil.example", "shop.example:81", "Shop.example", ""} {
		server, _, over := bothProtocols(t, middleware.Options{}, func(
			w http.ResponseWriter, r *http.Request,
		) {
			w.Header().Set("Cache-Control", "max-age=60")
			fmt.Fprintf(w, "for %q", r.Header["Host"])
		})
		opens(t, server.Listener.Addr().String(), false, "host", host)
		<-over
		if got := readsAs(t, server); strings.Contains(got, `"`) {
			t.Errorf("after a request with host %q others have %s", host, got)
		}
	}
}

// A proxy from HTTP/1 sends the same host twice. Its request gets the page that is stored for all,
// also if Options.Hosts replaces its host.
func TestSameHostTwice(t *testing.T) {
	for _, hosts := range []map[string]string{nil, {"www.shop.example": "shop.example"}} {
		server, begun, over := bothProtocols(t, middleware.Options{Hosts: hosts}, func(
			w http.ResponseWriter, r *http.Request,
		) {
			w.Header().Set("Cache-Control", "max-age=60")
			if field := r.Header.Get("Host"); field != "" && field != r.Host {
				t.Errorf("host %q, and field %q", r.Host, field)
			}
		})
		readsAs(t, server)
		<-over
		opens(t, server.Listener.Addr().String(), false, "host", "shop.example")
		<-over
		if hosts != nil {
			r := httptest.NewRequest("GET", "/", nil)
			r.Host = "www.shop.example"
			r.Header.Set("Host", "www.shop.example")
			server.Config.Handler.ServeHTTP(httptest.NewRecorder(), r)
		}
		if n := len(begun); n != 1 {
			t.Errorf("%d runs", n)
		}
	}
}

// A second Host doesn't choose either which response a POST leaves for GET requests.
func TestSecondHostOfAPost(t *testing.T) {
	h := newCache(t,
		middleware.Options{
			StorePosts: true,
		}).Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "max-age=60")
		w.Header().Set("Content-Location", "/")
		fmt.Fprint(w, r.Header.Get("Host"))
	}))
	asks(h, "POST", "/", "Host", "evil.example")
	if got := asks(h, "GET", "/").Body.String(); got != "" {
		t.Errorf("others get %q", got)
	}
}
