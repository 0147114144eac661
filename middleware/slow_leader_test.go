package middleware_test

import (
	"bufio"
	"net"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cacheguard/cacheguard/middleware"
)

// stalling is the writer of a client that doesn't read: from some moment on one of its methods
// blocks.
type stalling struct {
	*paced
	method  string
	armed   atomic.Bool
	entered chan struct{}
	goOn    chan struct{}
}

func newStalling(method string) *stalling {
	return &stalling{
		paced: &paced{header: http.Header{}, keep: true}, method: method,
		entered: make(chan struct{}), goOn: make(chan struct{}),
	}
}

func (s *stalling) stall(method string) {
	if method == s.method && s.armed.CompareAndSwap(true, false) {
		close(s.entered)
		<-s.goOn
	}
}

func (s *stalling) WriteHeader(status int) {
	s.stall("head")
	s.paced.WriteHeader(status)
}

func (s *stalling) Write(b []byte) (int, error) {
	s.stall("write")
	return s.paced.Write(b)
}

func (s *stalling) Flush() { s.stall("flush") }

func (s *stalling) Hijack() (net.Conn, *bufio.ReadWriter, error) { return nil, nil, nil }

// within waits for a channel to be closed. Its time-out is longer than any operation takes that
// isn't held up.
func within(t *testing.T, what string, done <-chan struct{}) {
	t.Helper()
	select {
	case <-done:
	case <-time.After(longWait):
		t.Fatal("held up: " + what)
	}
}

// Other clients read a response that grows above MaxBody. Then it is for its own client only, which
// doesn't read. The other clients learn at once that the response has broken off.
func TestSlowLeaderHoldsUpNoReader(t *testing.T) {
	for _, method := range []string{"write", "flush"} {
		t.Run(method, func(t *testing.T) {
			cache := newCache(t, middleware.Options{MaxBody: 1000, LeaseTTL: 2 * longWait})
			leader, reader := newStalling(method), newStalling("write")
			begun, goOn := make(chan struct{}), make(chan struct{})
			h := cache.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				close(begun)
				w.Header().Set("Cache-Control", "max-age=60")
				_, _ = w.Write([]byte("begin"))
				_ = http.NewResponseController(w).Flush()
				<-goOn
				leader.armed.Store(method == "write")
				_, _ = w.Write(make([]byte, 2000))
				leader.armed.Store(true)
				_ = http.NewResponseController(w).Flush()
			}))
			serve := func(w http.ResponseWriter) <-chan struct{} {
				done := make(chan struct{})
				go func() {
					defer close(done)
					defer func() { _ = recover() }() // http.ErrAbortHandler
					h.ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
				}()
				return done
			}
			first := serve(leader)
			within(t, "the first one", begun)
			reader.armed.Store(true)
			second := serve(reader)
			within(t, "the reader has nothing", reader.entered)
			close(goOn)
			within(t, "the handler", leader.entered)
			close(reader.goOn)
			within(t, "a reader, by the leader's client", second)
			select {
			case <-first:
				t.Error("the handler was not held up")
			default:
			}
			leader.armed.Store(false)
			close(leader.goOn)
			within(t, "the leader", first)
			if got := leader.got(); len(got) != 2005 {
				t.Errorf("the leader has %d bytes", len(got))
			}
		})
	}
}

// A client that doesn't even read a header doesn't hold up the requests that wait for a response
// that turns out not to be for them.
func TestSlowLeaderOfNothingHoldsUpNobody(t *testing.T) {
	for name, end := range map[string]func(w http.ResponseWriter){
		"writes nothing": func(http.ResponseWriter) {},
		"takes over": func(w http.ResponseWriter) {
			_, _, _ = http.NewResponseController(w).Hijack()
		},
	} {
		t.Run(name, func(t *testing.T) {
			cache := newCache(t, middleware.Options{WaitTimeout: 2 * longWait})
			leader := newStalling("head")
			leader.armed.Store(true)
			begun, goOn := make(chan struct{}), make(chan struct{})
			var runs atomic.Int32
			h := cache.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if runs.Add(1) > 1 {
					return
				}
				w.WriteHeader(http.StatusEarlyHints)
				close(begun)
				<-goOn
				end(w)
			}))
			first, second := make(chan struct{}), make(chan struct{})
			go func() {
				defer close(first)
				h.ServeHTTP(leader, httptest.NewRequest("GET", "/", nil))
			}()
			within(t, "the handler", begun)
			within(t, "the client has its head", leader.entered)
			go func() {
				defer close(second)
				asks(h, "GET", "/")
			}()
			close(goOn)
			within(t, "who waited", second)
			close(leader.goOn)
			within(t, "the leader", first)
		})
	}
}
