package middleware_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/middleware"
)

// atLoads holds loads up that have returned, before anything is made of their results.
type atLoads chan struct{}

func (a atLoads) Observe(_ context.Context, e cacheguard.Event) {
	if e.Kind == cacheguard.EventLoad {
		<-a
	}
}

// leavesAt is a client's end of a connection: the client leaves when it has so many bytes.
type leavesAt struct {
	*httptest.ResponseRecorder
	left  int
	leave func()
	known chan struct{} // closed when everybody knows that it has left
}

func (l *leavesAt) Write(p []byte) (int, error) {
	n, err := l.ResponseRecorder.Write(p)
	if l.left -= n; l.left <= 0 {
		l.leave()
		<-l.known
	}
	return n, err
}

// What a handler has made is stored, also if its client leaves when it has all of it, or some.
func TestStoredAlthoughItsClientLeaves(t *testing.T) {
	for name, length := range map[string]string{"with a length": "17", "without": ""} {
		for when, bytes := range map[string]int{"with its last byte": 17, "in the middle": 1, "afterwards": 1000} {
			t.Run(name+", "+when, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					hold, runs := make(atLoads), 0
					h := newCache(t, middleware.Options{Observer: hold}).Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
						runs++
						w.Header().Set("Cache-Control", "max-age=60")
						if length != "" {
							w.Header().Set("Content-Length", length)
						}
						_, _ = io.WriteString(w, "all categories,")
						_, _ = io.WriteString(w, " \n")
					}))
					client, leave := context.WithCancel(t.Context())
					w := &leavesAt{httptest.NewRecorder(), bytes, leave, make(chan struct{})}
					go h.ServeHTTP(w, httptest.NewRequestWithContext(client, "GET", "/catalog", nil))
					synctest.Wait()
					leave()
					synctest.Wait()
					close(w.known)
					synctest.Wait()
					close(hold)
					synctest.Wait()
					if got := asks(h, "GET", "/catalog"); runs != 1 || got.Body.String() != w.Body.String() {
						t.Errorf("%d runs, then %q; want one, and what it made", runs, got.Body)
					}
				})
			})
		}
	}
}

// The same if the one for whom the handler was begun has left long ago, and those leave who have
// read along.
func TestStoredAlthoughItsReadersLeave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hold, end, runs := make(atLoads), make(chan struct{}), 0
		h := newCache(t, middleware.Options{Observer: hold}).Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			runs++
			w.Header().Set("Cache-Control", "max-age=60")
			_, _ = io.WriteString(w, "all ")
			_ = http.NewResponseController(w).Flush()
			<-end
			_, _ = io.WriteString(w, "categories")
		}))
		client, leave := context.WithCancel(t.Context())
		go asksIn(client, h)
		synctest.Wait()
		read := make(chan string, 1)
		go func() { read <- asks(h, "GET", "/catalog").Body.String() }()
		synctest.Wait()
		leave()
		synctest.Wait()
		close(end)
		if got := <-read; got != "all categories" {
			t.Errorf("who has read along got %q", got)
		}
		synctest.Wait()
		close(hold)
		synctest.Wait()
		if got := asks(h, "GET", "/catalog").Body.String(); runs != 1 || got != "all categories" {
			t.Errorf("%d runs, then %q; want one, and what it made", runs, got)
		}
	})
}

// If that client says who asks, the page is stored for requests that do, as far as they may share
// it. It is stored for all by the client, once it has got it; one that has left leaves that to the
// next, and costs the others the run that they would have had without it.
func TestStoredForItsLikeAlthoughItsClientLeaves(t *testing.T) {
	for leaves, want := range map[bool]int{true: 2, false: 1} {
		synctest.Test(t, func(t *testing.T) {
			hold, runs := make(atLoads), 0
			h := newCache(t, middleware.Options{Observer: hold}).Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				runs++
				w.Header().Set("Cache-Control", "max-age=60")
				_, _ = io.WriteString(w, "all categories")
			}))
			client, leave := context.WithCancel(t.Context())
			defer leave()
			go func() {
				r := httptest.NewRequestWithContext(client, "GET", "/catalog", nil)
				r.Header.Set("Cookie", "user=1")
				h.ServeHTTP(httptest.NewRecorder(), r)
			}()
			synctest.Wait()
			if leaves {
				leave()
			}
			synctest.Wait()
			close(hold)
			synctest.Wait()
			if asks(h, "GET", "/catalog", "Cookie", "user=2"); runs != 1 {
				t.Errorf("leaves %v: %d runs for two users; want one", leaves, runs)
			}
			if asks(h, "GET", "/catalog"); runs != want {
				t.Errorf("leaves %v: %d runs when one asks who is none; want %d", leaves, runs, want)
			}
			if asks(h, "GET", "/catalog"); runs != want {
				t.Errorf("leaves %v: %d runs when another one does; want %d", leaves, runs, want)
			}
		})
	}
}

func asksIn(client context.Context, h http.Handler) {
	h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(client, "GET", "/catalog", nil))
}
