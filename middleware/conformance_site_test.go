package middleware_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cacheguard/cacheguard/cacheguard/memstore"
	"github.com/cacheguard/cacheguard/middleware"
)

// site is a cache in front of a handler that answers as a show says. One client uses it over
// loopback.
type site struct {
	*testing.T
	cache    *middleware.Cache
	client   *http.Client
	url      string
	inBubble bool
	replies  []reply

	mu   sync.Mutex // guards runs
	runs []run
}

// run is one run of the handler.
type run struct {
	number int           // from 1
	saw    *http.Request // a copy: method, URL and fields
	status int
}

// serve starts a site that ends with the test. In a synctest bubble its connections are in memory,
// because a bubble doesn't know when sockets are idle. Otherwise they are real.
func serve(t *testing.T, opts middleware.Options, replies []reply, inBubble bool) *site {
	t.Helper()
	s := &site{T: t, inBubble: inBubble, replies: replies}
	store := memstore.New(memstore.Options{})
	quiet := log.New(io.Discard, "", 0)
	opts.Logger = slog.New(slog.DiscardHandler)
	cache, err := middleware.New(store, opts)
	if err != nil {
		t.Fatal(err)
	}
	s.cache = cache
	transport := &http.Transport{DisableCompression: true}
	listener, err := listen(inBubble, transport)
	if err != nil {
		t.Fatal(err)
	}
	s.url = "http://" + listener.Addr().String()
	s.client = &http.Client{Transport: transport, CheckRedirect: func(
		*http.Request, []*http.Request,
	) error {
		return http.ErrUseLastResponse
	}}
	server := &http.Server{Handler: cache.Handler(http.HandlerFunc(s.handle)), ErrorLog: quiet}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		server.Close()
		if err := <-served; !errors.Is(err, http.ErrServerClosed) {
			t.Errorf("the server ended with %v", err)
		}
		if err := cache.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
		store.Close()
	})
	return s
}

func listen(inMemory bool, transport *http.Transport) (net.Listener, error) {
	if !inMemory {
		return net.Listen("tcp", "127.0.0.1:0")
	}
	p := &pipes{dialled: make(chan net.Conn), closed: make(chan struct{})}
	transport.DialContext = p.dial
	return p, nil
}

// pipes is a listener whose connections don't leave the process.
type pipes struct {
	dialled chan net.Conn
	closed  chan struct{}
	once    sync.Once
}

func (p *pipes) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	near, far := net.Pipe()
	select {
	case p.dialled <- far:
		return near, nil
	case <-p.closed:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.dialled:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error   { p.once.Do(func() { close(p.closed) }); return nil }
func (p *pipes) Addr() net.Addr { return memory{} }

type memory struct{}

func (memory) Network() string { return "memory" }
func (memory) String() string  { return "in.memory" }

// handle is the handler behind the cache. The nth run gives the nth reply. If there are more runs
// than replies, they give the last reply.
func (s *site) handle(w http.ResponseWriter, r *http.Request) {
	saw := r.Clone(context.Background())
	s.mu.Lock()
	n := len(s.runs) + 1
	s.runs = append(s.runs, run{number: n, saw: saw})
	s.mu.Unlock()
	rep := s.replies[min(n, len(s.replies))-1]
	time.Sleep(rep.delay) // in a bubble
	for name, values := range rep.fields() {
		w.Header()[name] = values
	}
	status := rep.status
	if status == http.StatusOK && !rep.always && unchanged(r, w.Header()) {
		status = http.StatusNotModified
	}
	s.mu.Lock()
	s.runs[n-1].status = status
	s.mu.Unlock()
	if rep.do != nil {
		rep.do(w, r)
		return
	}
	w.WriteHeader(status)
	switch {
	case r.Method == http.MethodHead, status == http.StatusNoContent,
		status == http.StatusNotModified:
	case rep.body != "":
		io.WriteString(w, rep.body)
	default:
		fmt.Fprintf(w, "%s %d", r.URL.Path, n)
	}
}

// unchanged evaluates conditions as a simple handler does: it compares the texts, because the cache
// sends the handler's own validators verbatim.
func unchanged(r *http.Request, h http.Header) bool {
	if tags := r.Header.Get("If-None-Match"); tags != "" {
		return h.Get("ETag") != "" && strings.Contains(tags, h.Get("ETag"))
	}
	since := r.Header.Get("If-Modified-Since")
	return since != "" && since == h.Get("Last-Modified")
}

// ran returns how often the handler has run, and the last run.
func (s *site) ran() (int, run) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.runs) == 0 {
		return 0, run{}
	}
	return len(s.runs), s.runs[len(s.runs)-1]
}

// answer is the client's answer, with the number of runs that it cost.
type answer struct {
	status  int
	header  http.Header
	trailer http.Header
	body    string
	err     error // the error of the request, or of reading the body
	runs    int   // the runs of the handler since the request was sent
	last    run
}

// ask sends one request and reads the whole answer. In a bubble it also waits until nothing runs in
// the background.
func (s *site) ask(method, path string, fields http.Header) answer {
	s.Helper()
	before, _ := s.ran()
	a := s.fetch(method, path, fields)
	if s.inBubble {
		synctest.Wait()
	}
	after, last := s.ran()
	a.runs, a.last = after-before, last
	return a
}

// fetch is ask for requests that run at the same time as others. It doesn't count their runs.
func (s *site) fetch(method, path string, fields http.Header) answer {
	s.Helper()
	req, err := http.NewRequestWithContext(s.Context(), method, s.url+path, nil)
	if err != nil {
		return answer{err: err}
	}
	for name, values := range fields {
		if name == "Host" {
			req.Host = strings.TrimSpace(values[0])
		} else {
			req.Header[name] = values
		}
	}
	var a answer
	res, err := s.client.Do(req)
	if a.err = err; err == nil {
		body, err := io.ReadAll(res.Body)
		res.Body.Close()
		a = answer{
			status: res.StatusCode, header: res.Header, trailer: res.Trailer, body: string(body),
			err: err,
		}
	}
	return a
}
