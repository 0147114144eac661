package middleware_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/cacheguard/memstore"
	"github.com/cacheguard/cacheguard/middleware"
)

// tokens are two processes in front of one handler. Its page has a version, and nobody purges
// anything.
type tokens struct {
	*testing.T
	store   *memstore.Store
	version atomic.Int64
	runs    atomic.Int64
	now     atomic.Int64 // runs at the moment
	most    atomic.Int64
	// Called in a run after its version has been read.
	during  func(w http.ResponseWriter, r *http.Request)
	content bool // the page has an entity tag and answers ranges
	fronts  []http.Handler
}

func newTokens(t *testing.T, opts middleware.Options) *tokens {
	s := &tokens{T: t, store: memstore.New(memstore.Options{})}
	t.Cleanup(func() { _ = s.store.Close() })
	s.version.Store(1)
	opts.TokenField, opts.TokenCookie, opts.Logger = "X-Token", "token",
		slog.New(slog.DiscardHandler)
	for range 2 {
		c, err := middleware.New(s.store, opts)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		s.fronts = append(s.fronts, c.Handler(http.HandlerFunc(s.page)))
	}
	return s
}

func (s *tokens) page(w http.ResponseWriter, r *http.Request) {
	s.runs.Add(1)
	if n := s.now.Add(1); n > s.most.Load() {
		s.most.Store(n)
	}
	defer s.now.Add(-1)
	body := fmt.Sprint("version ", s.version.Load())
	w.Header().Set("Cache-Control", "public, max-age=600, stale-if-error=600")
	if s.during != nil {
		s.during(w, r)
	}
	if s.content {
		w.Header().Set("Etag", strconv.Quote(body))
		http.ServeContent(w, r, "", time.Time{}, strings.NewReader(body))
		return
	}
	_, _ = w.Write([]byte(body))
}

// commit makes the next version and returns the token of the client that made it.
func (s *tokens) commit() string {
	s.Helper()
	s.version.Add(1)
	token, err := cacheguard.Committed(s.Context(), s.store, "http")
	if err != nil {
		s.Fatal(err)
	}
	time.Sleep(time.Millisecond)
	return token.String()
}

// do sends a request to one of the processes.
func (s *tokens) do(process int, method string, fields ...string) *httptest.ResponseRecorder {
	w, r := httptest.NewRecorder(), httptest.NewRequest(method, shop+"/page", nil)
	for i := 0; i < len(fields); i += 2 {
		r.Header.Set(fields[i], fields[i+1])
	}
	s.fronts[process].ServeHTTP(w, r)
	return w
}

// gets checks the answer to a GET.
func (s *tokens) gets(want int, process int, fields ...string) {
	s.Helper()
	if w := s.do(process, "GET", fields...); w.Code != http.StatusOK ||
		w.Body.String() != fmt.Sprint("version ", want) {
		s.Errorf("process %d answered %d %q to %q; want version %d", process, w.Code, w.Body,
			fields, want)
	}
}

func TestRequestsWithATokenReadTheirWrites(t *testing.T) {
	for name, opts := range map[string]middleware.Options{
		"plain": {}, "local tier": {LocalBytes: 1 << 20}, "strong": {StrongReads: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newTokens(t, opts)
				s.gets(1, 0)
				s.gets(1, 1)
				token := s.commit()
				s.gets(1, 0)
				s.gets(1, 0, "X-Token", "no token")
				s.gets(2, 0, "X-Token", token)
				s.gets(2, 1, "Cookie", "token="+token) // this version is stored by now
				s.gets(2, 0)
				if n := s.runs.Load(); n != 2 {
					t.Errorf("the handler ran %d times", n)
				}
				token = s.commit()
				if w := s.do(0, "HEAD", "X-Token", token); w.Code != http.StatusOK ||
					w.Header().Get("Cache-Status") == "" {
					t.Errorf("HEAD: %d %v", w.Code, w.Header())
				}
				if w := s.do(1, "GET", "X-Token", token, "Range",
					"bytes=8-"); w.Body.String() != "3" && w.Body.String() != "version 3" {
					t.Errorf("a range: %d %q", w.Code, w.Body)
				}
				s.gets(3, 1, "X-Token", token)
				token = s.commit()
				s.gets(3, 1)
				// The valid token is used.
				s.gets(4, 1, "X-Token", "no token", "Cookie", "token=none; token="+token)
			})
		})
	}
}

// If a run was under way when a token was made, the token's client gets neither its response nor
// the beginning of it.
func TestTokenMeetsARun(t *testing.T) {
	for name, process := range map[string]int{"same process": 0, "another process": 1} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newTokens(t, middleware.Options{})
				gate := make(chan struct{})
				s.during = func(w http.ResponseWriter, r *http.Request) {
					w.WriteHeader(http.StatusOK)
					<-gate
				}
				var done [3]chan string
				begin := func(i, process int, fields ...string) {
					done[i] = make(chan string, 1)
					go func() { done[i] <- s.do(process, "GET", fields...).Body.String() }()
					synctest.Wait()
				}
				begin(0, 0)
				token := s.commit()
				begin(1, process, "X-Token", token)
				begin(2, process, "X-Token", token)
				close(gate)
				for i, want := range []string{"version 1", "version 2", "version 2"} {
					if got := <-done[i]; got != want {
						t.Errorf("request %d got %q, want %q", i, got, want)
					}
				}
				// There may be one more run: the second request may look before the first one's run
				// is stored, and ask for a run of its own after that.
				if n := s.runs.Load(); n != 2 && n != 3 {
					t.Errorf("the handler ran %d times", n)
				}
			})
		})
	}
}

// A response that is stored once more, for other requests, is as old as the run that made it, and
// not as new as the copy.
func TestCopiesAreAsOldAsTheirRun(t *testing.T) {
	for name, request := range map[string][]string{
		"of an identified request": {"GET", "Cookie", "session=1"},
		"of a part":                {"GET", "Range", "bytes=0-"},
		"confirmed by HEAD":        {"HEAD", "Cache-Control", "no-cache"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newTokens(t, middleware.Options{})
				s.content = true
				if request[0] == "HEAD" {
					s.gets(1, 0)
				}
				gate := make(chan struct{})
				s.during = func(http.ResponseWriter, *http.Request) { <-gate }
				done := make(chan struct{})
				go func() {
					defer close(done)
					s.do(0, request[0], request[1:]...)
				}()
				synctest.Wait()
				token := s.commit()
				close(gate)
				<-done
				before := s.runs.Load()
				s.gets(1, 1) // it is stored for all
				if n := s.runs.Load(); n != before {
					t.Errorf("the handler ran %d times more", n-before)
				}
				s.gets(2, 1, "X-Token", token)
			})
		})
	}
}

// If a client floods a page with tokens, the handler runs once at a time for all these requests
// together, and other clients don't notice.
func TestFloodOfTokens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newTokens(t, middleware.Options{})
		s.gets(1, 0)
		gate := make(chan struct{})
		s.during = func(http.ResponseWriter, *http.Request) { <-gate }
		var flooding, answered atomic.Int64
		for i := range 200 {
			token := s.tokenOfNow()
			flooding.Add(1)
			go func() {
				if w := s.do(i%2, "GET", "X-Token", token); w.Code == http.StatusOK {
					answered.Add(1)
				}
				flooding.Add(-1)
			}()
		}
		synctest.Wait()
		for range 20 {
			s.gets(1, 0)
			s.gets(1, 1)
		}
		for flooding.Load() > 0 {
			select {
			case gate <- struct{}{}:
			default:
				t.Fatal("they wait, and no handler runs")
			}
			synctest.Wait()
		}
		if runs, most := s.runs.Load(), s.most.Load(); answered.Load() != 200 || runs > 5 ||
			most > 1 {
			t.Errorf("%d of 200 were answered by %d runs, %d at a time", answered.Load(), runs-1,
				most)
		}
	})
}

// tokenOfNow returns a token that anybody with a clock can make up.
func (s *tokens) tokenOfNow() string {
	s.Helper()
	token, err := cacheguard.Committed(s.Context(), s.store, "http")
	if err != nil {
		s.Fatal(err)
	}
	return token.String()
}

// A response that is too old for the token is not served in place of an error. A token with a
// made-up time changes nothing.
func TestTokenAndAFailingHandler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newTokens(t, middleware.Options{})
		s.gets(1, 0)
		token := s.commit()
		s.during = func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Del("Cache-Control")
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		if w := s.do(0, "GET", "X-Token", token); w.Code != http.StatusServiceUnavailable {
			t.Errorf("with a token: %d %q", w.Code, w.Body)
		}
		s.gets(1, 0)
		s.gets(1, 0, "X-Token", strings.Repeat("z", 10))
	})
}

// If the handler reads other caches with its request's context, these reads use the token, too.
func TestHandlersReadWithTheToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newTokens(t, middleware.Options{})
		parts, err := cacheguard.New(s.store, cacheguard.Options[int64]{Name: "parts"})
		if err != nil {
			t.Fatal(err)
		}
		defer parts.Close()
		var read atomic.Int64
		s.during = func(_ http.ResponseWriter, r *http.Request) {
			v, err := parts.Get(r.Context(), "part", func(context.Context) (int64, error) {
				return s.version.Load(), nil
			})
			if err != nil {
				t.Error(err)
			}
			read.Store(v)
		}
		s.gets(1, 0)
		s.commit()
		token, err := cacheguard.Committed(t.Context(), s.store, "http", "parts")
		if err != nil {
			t.Fatal(err)
		}
		s.gets(2, 1, "X-Token", token.String())
		if read.Load() != 2 {
			t.Errorf("the handler read version %d", read.Load())
		}
	})
}

// Tokens of the future that a client has made up don't void the token of a layer in front, however
// many they are.
func TestMadeUpTokensBesideARealOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newTokens(t, middleware.Options{})
		s.gets(1, 0)
		real, err := cacheguard.ParseToken(s.commit())
		if err != nil {
			t.Fatal(err)
		}
		var cookies []string
		for hours := range 6 {
			moment := s.store.Now().Add(time.Duration(1+hours) * time.Hour).UnixMicro()
			cookies = append(cookies, "token="+strconv.FormatInt(moment, 36))
		}
		inner := s.fronts[0]
		s.fronts[0] = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			inner.ServeHTTP(w, r.WithContext(cacheguard.NotOlderThan(r.Context(), real)))
		})
		s.gets(2, 0, "Cookie", strings.Join(cookies, "; "))
	})
}

func TestTokenOptionsAreChecked(t *testing.T) {
	store := memstore.New(memstore.Options{})
	defer store.Close()
	for _, opts := range []middleware.Options{
		{TokenField: "X Token"}, {TokenCookie: "a b"}, {TokenCookie: "t*"},
	} {
		if c, err := middleware.New(store, opts); err == nil {
			_ = c.Close()
			t.Errorf("%+v is taken", opts)
		}
	}
}

// Requests for the same page at the same time have one run, whatever tokens they have. They have a
// second run if the first one had already begun.
func TestTokensLeaveCoalescingOn(t *testing.T) {
	for name, test := range map[string]struct {
		mode  cacheguard.Mode
		ahead time.Duration
		most  int64 // runs, of both processes
	}{
		"off":                     {cacheguard.ModeOff, -time.Hour, 4},
		"off, from a moment on":   {cacheguard.ModeOff, 240 * time.Millisecond, 4},
		"off, from later":         {cacheguard.ModeOff, time.Hour, 4},
		"shadow":                  {cacheguard.ModeShadow, -time.Hour, 4},
		"on, from a moment on":    {cacheguard.ModeOn, 240 * time.Millisecond, 4},
		"on, from a little later": {cacheguard.ModeOn, time.Hour, 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var sw cacheguard.Switch
				if err := sw.Set(test.mode); err != nil {
					t.Fatal(err)
				}
				s := newTokens(t, middleware.Options{Switch: &sw, MaxLoads: 8})
				s.during = func(http.ResponseWriter, *http.Request) {
					time.Sleep(30 * time.Millisecond)
				}
				token := cacheguard.Token{}
				if said, err := s.store.Clock(t.Context(), "http"); err != nil {
					t.Fatal(err)
				} else if token, err = cacheguard.ParseToken(strconv.FormatInt(said+
					test.ahead.Microseconds(), 36)); err != nil {
					t.Fatal(err)
				}
				var all sync.WaitGroup
				for n := range 400 {
					all.Go(func() {
						time.Sleep(time.Duration(n%10) * time.Millisecond)
						if w := s.do(n%2, "GET", "X-Token",
							token.String()); w.Code != http.StatusOK {
							t.Errorf("%d %s", w.Code, w.Body)
						}
					})
				}
				all.Wait()
				if n := s.runs.Load(); n > test.most {
					t.Errorf("the handler ran %d times, want %d at most", n, test.most)
				}
			})
		})
	}
}
