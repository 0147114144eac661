package middleware_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/cacheguard/memstore"
	"github.com/cacheguard/cacheguard/middleware"
)

// stalled is the writer of a client that stops reading: after some bytes a Write blocks.
type stalled struct {
	*httptest.ResponseRecorder
	takes int
	goOn  chan struct{}
	fails error // the error that Writes return then
	panic any
}

func (s *stalled) Write(p []byte) (int, error) {
	if s.Body.Len()+len(p) > s.takes {
		<-s.goOn
		if s.panic != nil {
			panic(s.panic)
		}
		if s.fails != nil {
			return 0, s.fails
		}
	}
	return s.ResponseRecorder.Write(p)
}

// exports returns a handler behind a cache that writes a body of this size in pieces.
func exports(
	t *testing.T, size int, observer cacheguard.Observer, end func(w http.ResponseWriter),
) (h http.Handler, body string, runs *int) {
	cache, err := middleware.New(memstore.New(memstore.Options{}), middleware.Options{
		MaxBody: 1 << 20, DefaultTTL: time.Hour, WaitTimeout: -1, LoadTimeout: time.Hour,
		Observer: observer,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cache.Close() })
	var b strings.Builder
	for i := 0; b.Len() < size; i++ {
		fmt.Fprintf(&b, "line %d\n", i)
	}
	body, runs = b.String(), new(int)
	return cache.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		*runs++
		<-time.After(time.Second)
		for rest := body; rest != ""; {
			n, _ := io.WriteString(w, rest[:min(1000, len(rest))])
			rest = rest[n:]
			if n == 0 {
				return
			}
		}
		end(w)
	})), body, runs
}

func begins(h http.Handler, w http.ResponseWriter) (ended chan any) {
	ended = make(chan any, 1)
	go func() {
		defer func() { ended <- recover() }()
		h.ServeHTTP(w, httptest.NewRequest("GET", "/export", nil))
	}()
	synctest.Wait()
	return ended
}

// hasAll checks that a request that waited for another request's handler has ended with the whole
// body.
func hasAll(t *testing.T, waiter <-chan any, got *httptest.ResponseRecorder, body string) {
	t.Helper()
	select {
	case <-waiter:
		if got.Body.String() != body {
			t.Errorf("who waited got %d bytes; want %d", got.Body.Len(), len(body))
		}
	default:
		t.Fatal("who waited waits for the other one's client")
	}
}

// A client that doesn't read its response holds up no other client. It gets the whole response when
// it reads.
func TestSlowClientOfTheHandlerThatRuns(t *testing.T) {
	for name, s := range map[string]*stalled{
		"reads on": {},
		"leaves":   {fails: errors.New("connection reset")},
		"panics":   {panic: http.ErrAbortHandler},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				unstored := &unstoredEvents{}
				h, body, runs := exports(t, 500<<10, unstored, func(http.ResponseWriter) {})
				s.ResponseRecorder, s.takes, s.goOn = httptest.NewRecorder(), 200<<10,
					make(chan struct{})
				leader := begins(h, s)
				other := httptest.NewRecorder()
				waiter := begins(h, other)
				<-time.After(2 * time.Second)
				synctest.Wait()
				hasAll(t, waiter, other, body)
				select {
				case <-leader:
					t.Fatal("the leader's request has ended before its client has all")
				default:
				}
				close(s.goOn)
				if v := <-leader; v != s.panic {
					t.Errorf("the leader's request ended with panic %v; want %v", v, s.panic)
				}
				if s.fails == nil && s.panic == nil && s.Body.String() != body {
					t.Errorf("the leader got %d bytes; want %d", s.Body.Len(), len(body))
				}
				later := httptest.NewRecorder()
				<-begins(h, later)
				if later.Body.String() != body || *runs != 1 {
					t.Errorf("a later request got %d bytes after %d runs", later.Body.Len(), *runs)
				}
				if got := unstored.take(); len(got) != 0 {
					t.Errorf("the observer is told %q", got)
				}
			})
		})
	}
}

// When a body is no longer recorded, only the handler writes it, in order and whole.
func TestSlowClientOfABodyOverTheCap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, body, runs := exports(t, 3<<20, nil, func(w http.ResponseWriter) {
			_ = http.NewResponseController(w).Flush()
		})
		s := &stalled{
			ResponseRecorder: httptest.NewRecorder(), takes: 500 << 10, goOn: make(chan struct{}),
		}
		leader := begins(h, s)
		other := httptest.NewRecorder()
		waiter := begins(h, other)
		<-time.After(3 * time.Second)
		synctest.Wait()
		hasAll(t, waiter, other, body)
		close(s.goOn)
		if v := <-leader; v != nil || s.Body.String() != body || *runs != 2 {
			t.Errorf("the leader got %d bytes of %d, panic %v; %d runs", s.Body.Len(), len(body), v,
				*runs)
		}
	})
}

// If a client's writer has panicked, the handler gets this panic from its next write, also if that
// is a copy of what isn't recorded any more.
func TestCopyAfterAPanicOfTheWriter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, h := front(t, middleware.Options{DefaultTTL: time.Hour}, func(
			w http.ResponseWriter, r *http.Request,
		) {
			_, _ = w.Write(make([]byte, 3<<10))
			_ = http.NewResponseController(w).Flush()
			<-time.After(time.Second) // the recording ends
			_, _ = io.Copy(w, struct{ io.Reader }{strings.NewReader("more")})
		})
		s := &stalled{
			ResponseRecorder: httptest.NewRecorder(), goOn: make(chan struct{}),
			panic: http.ErrAbortHandler,
		}
		close(s.goOn)
		if v := <-begins(h, s); v != s.panic {
			t.Errorf("the request ended with panic %v; want %v", v, s.panic)
		}
	})
}

// If a response isn't stored and its client's writer panics at the end, the observer gets the
// reason once.
func TestReasonOfALostBodyIsToldOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		unstored := &unstoredEvents{}
		cache := newCache(t, middleware.Options{Observer: unstored})
		h := cache.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Cache-Control", "max-age=60")
			_, _ = io.WriteString(w, "begin ")
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		}))
		if v := <-begins(h, httptest.NewRecorder()); v != http.ErrAbortHandler {
			t.Errorf("the panic is %v", v)
		}
		if got := unstored.take(); !slices.Equal(got, []string{"incomplete"}) {
			t.Errorf("the observer is told %q", got)
		}
		short := cache.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Cache-Control", "max-age=60")
			w.Header().Set("Content-Length", "10")
			_, _ = io.WriteString(w, "begin ")
		}))
		s := &stalled{
			ResponseRecorder: httptest.NewRecorder(), goOn: make(chan struct{}), panic: "a bug",
		}
		close(s.goOn)
		if v := <-begins(short, s); v != s.panic {
			t.Errorf("the panic is %v", v)
		}
		if got := unstored.take(); !slices.Equal(got, []string{"incomplete"}) {
			t.Errorf("the observer is told %q", got)
		}
	})
}

// If the header isn't sent yet, the client gets the first bytes when the handler flushes them, or
// when there are many bytes.
func TestHeadDoesNotWaitForLong(t *testing.T) {
	for name, write := range map[string]func(w http.ResponseWriter){
		"flush": func(w http.ResponseWriter) {
			fmt.Fprint(w, "x")
			_ = http.NewResponseController(w).Flush()
		},
		"many": func(w http.ResponseWriter) { fmt.Fprint(w, strings.Repeat("x", 10_000)) },
	} {
		t.Run(name, func(t *testing.T) {
			client := &stepWriter{
				ResponseRecorder: httptest.NewRecorder(), body: make(chan struct{}),
			}
			_, h := front(t, middleware.Options{}, func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Cache-Control", "max-age=60")
				w.WriteHeader(200)
				write(w)
				select {
				case <-client.body:
				case <-time.After(longWait):
					t.Error("nothing is with the client")
				}
			})
			h.ServeHTTP(client, httptest.NewRequest("GET", "/", nil))
		})
	}
}

// stepWriter is the writer of a client that can be slow to take an informational response.
type stepWriter struct {
	*httptest.ResponseRecorder
	hints func()        // called for a 1xx
	body  chan struct{} // closed at the first of the body
	steps []string
}

func (w *stepWriter) WriteHeader(status int) {
	if status < 200 {
		w.hints()
	}
	w.steps = append(w.steps, fmt.Sprint(status))
	w.ResponseRecorder.WriteHeader(status)
}

func (w *stepWriter) Write(p []byte) (int, error) {
	if w.body != nil && w.ResponseRecorder.Body.Len() == 0 {
		close(w.body)
	}
	w.steps = append(w.steps, string(p))
	return w.ResponseRecorder.Write(p)
}

// The header, which waits until it is known whether the response is stored, is sent before the
// body. This holds also if the client is still receiving a hint when the body is there.
func TestHeadGoesBeforeTheBody(t *testing.T) {
	written := make(chan struct{})
	client := &stepWriter{ResponseRecorder: httptest.NewRecorder(), hints: func() { <-written }}
	_, h := front(t, middleware.Options{}, func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusEarlyHints)
		w.Header().Set("Cache-Control", "max-age=60")
		w.WriteHeader(http.StatusAccepted)
		fmt.Fprint(w, "small")
		close(written)
	})
	h.ServeHTTP(client, httptest.NewRequest("GET", "/", nil))
	if want := []string{"103", "202", "small"}; !slices.Equal(client.steps, want) {
		t.Errorf("the client got %q; want %q", client.steps, want)
	}
}
