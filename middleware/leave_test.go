package middleware_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/middleware"
)

// atLoads holds up loads that have returned, before their results are used.
type atLoads chan struct{}

func (a atLoads) Observe(_ context.Context, e cacheguard.Event) {
	if e.Kind == cacheguard.EventLoad {
		<-a
	}
}

// leavesAt is a client's end of a connection. The client leaves when it has received this number of
// bytes.
type leavesAt struct {
	*httptest.ResponseRecorder
	left  int
	leave func()
	known chan struct{} // closed when all goroutines know that the client has left
}

func (l *leavesAt) Write(p []byte) (int, error) {
	n, err := l.ResponseRecorder.Write(p)
	if l.left -= n; l.left <= 0 {
		l.leave()
		<-l.known
	}
	return n, err
}

// If a handler writes nothing, each request gets the empty response, also if the request that
// waited for its turn has left, and if an old response is kept that may not be served any more.
func TestNothingIsWrittenForARequestThatHasLeft(t *testing.T) {
	for _, kept := range []bool{false, true} {
		t.Run(fmt.Sprint("kept ", kept), func(t *testing.T) { leavesSilently(t, kept) })
	}
}

func leavesSilently(t *testing.T, kept bool) {
	synctest.Test(t, func(t *testing.T) {
		first, writes := make(chan struct{}), kept
		h := newCache(t, middleware.Options{MaxLoads: 1}).Handler(http.HandlerFunc(func(
			w http.ResponseWriter, r *http.Request,
		) {
			switch {
			case r.URL.Path == "/first":
				<-first
			case writes:
				w.Header().Set("Cache-Control", "max-age=1")
				w.Header().Set("ETag", `"1"`)
				fmt.Fprint(w, "the old page")
			}
		}))
		if kept {
			fetch(h, "/")
			<-time.After(time.Minute)
			writes = false
		}
		go asksIn(t.Context(), "/first", h)
		synctest.Wait()
		ctx, leave := context.WithCancel(t.Context())
		go asksIn(ctx, "/", h)
		synctest.Wait()
		waits := make(chan *httptest.ResponseRecorder)
		go func() { waits <- fetch(h, "/") }()
		synctest.Wait()
		leave()
		synctest.Wait()
		close(first)
		if w := <-waits; w.Code != http.StatusOK || w.Body.Len() > 0 {
			t.Errorf("got %d %q; want an empty 200", w.Code, w.Body)
		}
	})
}

// A handler that writes nothing in the background leaves the stored response, whatever a layer in
// front has set.
func TestNothingIsWrittenInTheBackground(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		runs := 0
		h := inFront(newCache(t, middleware.Options{}).Handler(http.HandlerFunc(func(
			w http.ResponseWriter, r *http.Request,
		) {
			if runs++; runs == 1 {
				w.Header().Set("Cache-Control", "max-age=10, stale-while-revalidate=60")
				fmt.Fprint(w, "the page")
			}
		})), func(_ *http.Request, h http.Header) { h.Set("Cache-Control", "max-age=60") })
		for n := range 3 {
			if got := fetch(h, "/").Body.String(); got != "the page" {
				t.Errorf("request %d got %q after %d runs", n, got, runs)
			}
			<-time.After(15 * time.Second)
		}
		if runs < 2 {
			t.Error("nothing ran in the background")
		}
	})
}

// The response of a handler is stored, also if its client leaves when it has received all or a part
// of it.
func TestStoredAlthoughItsClientLeaves(t *testing.T) {
	for name, length := range map[string]string{"with a length": "17", "without": ""} {
		for when, bytes := range map[string]int{
			"with its last byte": 17, "in the middle": 1, "afterwards": 1000,
		} {
			t.Run(name+", "+when, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					hold, runs := make(atLoads), 0
					h := newCache(t,
						middleware.Options{
							Observer: hold,
						}).Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
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
					go h.ServeHTTP(w,
						httptest.NewRequestWithContext(client, "GET", "/catalog", nil))
					synctest.Wait()
					leave()
					synctest.Wait()
					close(w.known)
					synctest.Wait()
					close(hold)
					synctest.Wait()
					if got := asks(h, "GET", "/catalog"); runs != 1 ||
						got.Body.String() != w.Body.String() {
						t.Errorf("%d runs, then %q; want one, and what it made", runs, got.Body)
					}
				})
			})
		}
	}
}

// The response is also stored if the client for which the handler was begun has left long ago, and
// the clients that have read along leave.
func TestStoredAlthoughItsReadersLeave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hold, end, runs := make(atLoads), make(chan struct{}), 0
		h := newCache(t,
			middleware.Options{
				Observer: hold,
			}).Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			runs++
			w.Header().Set("Cache-Control", "max-age=60")
			_, _ = io.WriteString(w, "all ")
			_ = http.NewResponseController(w).Flush()
			<-end
			_, _ = io.WriteString(w, "categories")
		}))
		client, leave := context.WithCancel(t.Context())
		go asksIn(client, "/catalog", h)
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

// If the client that leaves says who it is, the page is stored for requests that say who asks, as
// far as they may share it. Normally the request of this client stores the page for all once the
// client has it. If the client has left, the next request does this, and other requests cost the
// run that they would have cost without this client.
func TestStoredForItsLikeAlthoughItsClientLeaves(t *testing.T) {
	for leaves, want := range map[bool]int{true: 2, false: 1} {
		synctest.Test(t, func(t *testing.T) {
			hold, runs := make(atLoads), 0
			h := newCache(t,
				middleware.Options{
					Observer: hold,
				}).Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
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
				t.Errorf("leaves %v: %d runs when one asks who is none; want %d", leaves, runs,
					want)
			}
			if asks(h, "GET", "/catalog"); runs != want {
				t.Errorf("leaves %v: %d runs when another one does; want %d", leaves, runs, want)
			}
		})
	}
}

func asksIn(client context.Context, path string, h http.Handler) {
	h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(client, "GET", path, nil))
}

// A handler that ignores its context keeps its slot until it returns, also if its client has left.
func TestClientsThatLeaveFreeNoSlots(t *testing.T) {
	const most = 2
	cache := newCache(t, middleware.Options{MaxLoads: most})
	gate := make(chan struct{})
	var running atomic.Int32
	began := make(chan struct{}, 100)
	s := httptest.NewServer(
		cache.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if running.Add(1) > most {
				t.Errorf("more than %d run at a time", most)
			}
			defer running.Add(-1)
			began <- struct{}{}
			<-r.Context().Done() // the handler learns of it and goes on
			<-gate
			page(w, "x")
		})))
	defer s.Close()
	defer close(gate)
	for i := range 10 {
		ctx, cancel := context.WithCancel(t.Context())
		r, err := http.NewRequestWithContext(ctx, "GET", fmt.Sprint(s.URL, "/", i), nil)
		if err != nil {
			t.Fatal(err)
		}
		done := make(chan struct{})
		go func() {
			defer close(done)
			if res, err := http.DefaultClient.Do(r); err == nil {
				res.Body.Close()
			}
		}()
		if i < most {
			<-began
		}
		cancel()
		<-done
	}
}
