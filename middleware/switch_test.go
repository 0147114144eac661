package middleware_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
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

// switched is a cache with a switch in front of a page that has a version.
type switched struct {
	*testing.T
	sw      cacheguard.Switch
	version atomic.Int64
	runs    atomic.Int64
	fields  []string // the fields of each response
	front   http.Handler

	mu       sync.Mutex // guards compared
	compared []cacheguard.Difference
}

func newSwitched(t *testing.T, fields ...string) *switched {
	store := memstore.New(memstore.Options{})
	t.Cleanup(func() { _ = store.Close() })
	s := &switched{T: t, fields: fields}
	c, err := middleware.New(store, middleware.Options{
		Switch: &s.sw, Observer: s, LocalBytes: 1 << 20, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	s.front = c.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.runs.Add(1)
		w.Header().Set("Date", time.Now().UTC().Format(http.TimeFormat))
		w.Header().Set("Cache-Control", "max-age=600")
		for i := 0; i < len(s.fields); i += 2 {
			w.Header().Set(s.fields[i], s.fields[i+1])
		}
		_, _ = fmt.Fprint(w, "version ", s.version.Load(), " ", r.Header.Get("Accept-Language"))
	}))
	return s
}

func (s *switched) Observe(_ context.Context, e cacheguard.Event) {
	if e.Kind == cacheguard.EventCompared {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.compared = append(s.compared, e.Differs)
	}
}

func (s *switched) set(m cacheguard.Mode) {
	s.Helper()
	if err := s.sw.Set(m); err != nil {
		s.Fatal(err)
	}
}

// gets checks the answer to a request, and whether the handler ran for it. If the handler ran,
// Cache-Status must say why nothing is stored.
func (s *switched) gets(want string, runs bool, method string, fields ...string) {
	s.Helper()
	before := s.runs.Load()
	w, r := httptest.NewRecorder(), httptest.NewRequest(method, shop+"/page", nil)
	for i := 0; i < len(fields); i += 2 {
		r.Header.Set(fields[i], fields[i+1])
	}
	s.front.ServeHTTP(w, r)
	ran := s.runs.Load() > before
	if got := strings.TrimSpace(w.Body.String()); got != want || ran != runs {
		s.Errorf("%v: %q, and the handler ran: %v; want %q, %v", s.sw.Mode(), got, ran, want, runs)
	}
	status := w.Header().Get("Cache-Status")
	if off := s.sw.Mode() == cacheguard.ModeOff && method == "GET" && ran; off &&
		!strings.Contains(status, "detail=switch") || off && strings.Contains(status, "stored") {
		s.Errorf("%v: Cache-Status is %q", s.sw.Mode(), status)
	}
	// In the bubble this is above Audit.Settle, so comparisons in the background can end.
	time.Sleep(2 * time.Second)
}

func (s *switched) found(want ...cacheguard.Difference) {
	s.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if !slices.Equal(s.compared, want) {
		s.Errorf("compared: %v, want %v", s.compared, want)
	}
	s.compared = nil
}

func TestPagesSwitchedOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSwitched(t)
		s.gets("version 0", true, "GET")
		s.gets("version 0", false, "GET")
		s.version.Add(1)
		s.set(cacheguard.ModeOff)
		s.gets("version 1", true, "GET")
		s.gets("version 1", true, "GET")
		s.gets("not in the cache, and only-if-cached was asked for", false, "GET", "Cache-Control",
			"only-if-cached")
		s.set(cacheguard.ModeOn)
		s.gets("version 0", false, "GET")
		s.set(cacheguard.ModeOff)
		s.gets("version 1", true, "POST") // the cache is still told of the change
		s.set(cacheguard.ModeOn)
		s.gets("version 1", true, "GET")
		s.found()
	})
}

func TestPagesInShadow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSwitched(t)
		s.set(cacheguard.ModeShadow)
		s.gets("version 0", true, "GET")
		s.found()
		s.gets("version 0", true, "GET") // with another Date
		s.found(cacheguard.NoDifference)
		s.version.Add(1)
		s.gets("version 1", true, "GET")
		s.found(cacheguard.DiffersMissed)
		s.set(cacheguard.ModeOn)
		s.gets("version 0", false, "GET")
	})
}

// A response in another language is not another version of this response, and not for this client.
func TestVariantsInShadow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSwitched(t, "Vary", "Accept-Language")
		s.set(cacheguard.ModeShadow)
		for range 3 {
			s.gets("version 0 de", true, "GET", "Accept-Language", "de")
			s.gets("version 0 en", true, "GET", "Accept-Language", "en")
		}
		s.found(0, 0, 0, 0)
		s.set(cacheguard.ModeOn)
		s.gets("version 0 de", false, "GET", "Accept-Language", "de")
	})
}
