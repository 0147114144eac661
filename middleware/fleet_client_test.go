package middleware_test

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"strings"
	"sync"
	"testing"
	"time"
)

// call is a request to a replica. Its header is given in pairs.
type call struct {
	method, path, host, body string
	header                   []string
}

func get(path string, header ...string) call { return call{path: path, header: header} }

// received is the part of a response that has reached its client.
type received struct {
	status          int
	header, trailer http.Header
	body            string
	err             error // the error of the request, or of reading the body
	took            time.Duration
	hints           []string // the Link fields of 103 responses
}

func (r received) String() string {
	return fmt.Sprintf("%d, Cache-Status %q, %d bytes %.60q, error %v", r.status,
		r.header["Cache-Status"], len(r.body), r.body, r.err)
}

// want fails the test unless the response is whole and this one.
func (r received) want(tb testing.TB, status int, body string) {
	tb.Helper()
	if r.err != nil || r.status != status || r.body != body {
		tb.Errorf("got %v; want %d with %d bytes %.60q", r, status, len(body), body)
	}
}

// wantStatus fails the test unless the response is whole and has this status.
func (r received) wantStatus(tb testing.TB, status int) {
	tb.Helper()
	if r.err != nil || r.status != status {
		tb.Errorf("got %v; want %d", r, status)
	}
}

// client is a request under way.
type client struct {
	rep   *replica
	id    string
	leave context.CancelFunc
	got   chan received
}

const idField = "X-Test-Request"

// arrive records the context that the server has given to each request.
func (rep *replica) arrive(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if id := r.Header.Get(idField); id != "" {
			rep.mu.Lock()
			rep.arrivals[id] = r.Context()
			rep.mu.Unlock()
		}
		next.ServeHTTP(w, r)
	})
}

// start sends a request to a replica.
func (f *fleet) start(i int, c call) *client {
	f.tb.Helper()
	rep := f.replicas[i]
	ctx, cancel := context.WithTimeout(context.Background(), 2*longWait)
	f.tb.Cleanup(cancel)
	r := c.request(f.tb, ctx, rep.url)
	cl := &client{rep: rep, id: rand.Text(), leave: cancel, got: make(chan received, 1)}
	r.Header.Set(idField, cl.id)
	go func() { cl.got <- rep.do(r) }()
	return cl
}

// startAll sends n requests, to one replica after another.
func (f *fleet) startAll(n int, of func(i int) call) []*client {
	f.tb.Helper()
	all := make([]*client, n)
	for i := range all {
		all[i] = f.start(i%len(f.replicas), of(i))
	}
	return all
}

// do sends a request to a replica and returns the response.
func (f *fleet) do(i int, c call) received {
	f.tb.Helper()
	return f.start(i, c).reply(f.tb)
}

func (c call) request(tb testing.TB, ctx context.Context, url string) *http.Request {
	tb.Helper()
	var body io.Reader
	if c.body != "" {
		body = strings.NewReader(c.body)
	}
	r, err := http.NewRequestWithContext(ctx, c.method, url+c.path, body)
	if err != nil {
		tb.Fatal(err)
	}
	r.Host = cmp.Or(c.host, "shop.example") // the same on every replica
	for n := 0; n < len(c.header); n += 2 {
		r.Header.Add(c.header[n], c.header[n+1])
	}
	return r
}

func (rep *replica) do(r *http.Request) (got received) {
	var mu sync.Mutex // guards got.hints
	r = r.WithContext(httptrace.WithClientTrace(r.Context(), &httptrace.ClientTrace{
		Got1xxResponse: func(code int, header textproto.MIMEHeader) error {
			mu.Lock()
			defer mu.Unlock()
			if code == http.StatusEarlyHints {
				got.hints = append(got.hints, header["Link"]...)
			}
			return nil
		},
	}))
	began := time.Now()
	response, err := rep.client.Do(r)
	if err != nil {
		return received{err: err}
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	mu.Lock()
	defer mu.Unlock()
	got.status, got.header, got.trailer, got.body, got.err = response.StatusCode, response.Header,
		response.Trailer, string(body), err
	got.took = time.Since(began)
	return got
}

// reply waits for the response.
func (cl *client) reply(tb testing.TB) received {
	tb.Helper()
	select {
	case got := <-cl.got:
		return got
	case <-time.After(longWait):
		tb.Fatalf("no response within %v", longWait)
		return received{}
	}
}

// goesAway closes the client's connection, and returns when the server has noticed it.
func (cl *client) goesAway(f *fleet) {
	f.tb.Helper()
	cl.leave()
	f.await("the server notices that a client has left", func() bool {
		ctx := cl.context()
		return ctx != nil && ctx.Err() != nil
	})
}

// arrived reports whether the request has come to its replica.
func (cl *client) arrived() bool { return cl.context() != nil }

// context returns the context that the server has given to the request, or nil if the request
// hasn't arrived.
func (cl *client) context() context.Context {
	cl.rep.mu.Lock()
	defer cl.rep.mu.Unlock()
	return cl.rep.arrivals[cl.id]
}

// stream is a response that is read while its handler runs.
type stream struct {
	tb       testing.TB
	response *http.Response
	leave    context.CancelFunc
}

// open sends a request and returns when the header of the response has come.
func (f *fleet) open(i int, c call) *stream {
	f.tb.Helper()
	return f.opening(i, c)()
}

// opening sends a request. The function that it returns waits for the header of the response.
func (f *fleet) opening(i int, c call) (opened func() *stream) {
	f.tb.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	timer := time.AfterFunc(3*longWait/2, cancel)
	f.tb.Cleanup(func() { timer.Stop(); cancel() })
	r := c.request(f.tb, ctx, f.replicas[i].url)
	type answer struct {
		response *http.Response
		err      error
	}
	answered := make(chan answer, 1)
	go func() {
		response, err := f.replicas[i].client.Do(r)
		answered <- answer{response, err}
	}()
	return func() *stream {
		f.tb.Helper()
		a := <-answered
		if a.err != nil {
			f.tb.Fatalf("no response while its handler runs: %v", a.err)
		}
		return &stream{tb: f.tb, response: a.response, leave: cancel}
	}
}

// want reads so much of the body.
func (s *stream) want(text string) {
	s.tb.Helper()
	got := make([]byte, len(text))
	if n, err := io.ReadFull(s.response.Body, got); err != nil || string(got) != text {
		s.tb.Fatalf("the stream brings %d bytes %.60q, %v; want %d bytes %.60q", n, got[:n], err,
			len(text), text)
	}
}

// rest reads the rest of the body.
func (s *stream) rest() (string, error) {
	defer s.response.Body.Close()
	body, err := io.ReadAll(s.response.Body)
	return string(body), err
}

// readAll reads the body that a handler or a test gets.
func readAll(tb testing.TB, r io.Reader) string {
	tb.Helper()
	all, err := io.ReadAll(r)
	if err != nil {
		tb.Errorf("reading: %v", err)
	}
	return string(all)
}
