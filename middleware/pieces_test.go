package middleware_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cacheguard/cacheguard/middleware"
)

// clocked is a client that records when it gets which piece.
type clocked struct {
	header http.Header
	begun  time.Time
	slow   time.Duration // the time that it takes for each piece
	all    []string
}

func (c *clocked) note(what string) {
	c.all = append(c.all, fmt.Sprint(time.Since(c.begun), " ", what))
	time.Sleep(c.slow)
}

func (c *clocked) Header() http.Header         { return c.header }
func (c *clocked) WriteHeader(int)             { c.note("head") }
func (c *clocked) Write(p []byte) (int, error) { c.note(string(p)); return len(p), nil }
func (c *clocked) Flush()                      { c.note("flush") }

// Each reader of a response gets each piece in the moment in which it is made. The test's clock
// stands still until all goroutines wait. So no reader waits for another reader, for the handler's
// client, for a timer or for the next piece. A reader that comes late gets the existing pieces at
// once.
func TestEachPieceWakesEachReader(t *testing.T) {
	const pieces = 10
	for name, slow := range map[string]time.Duration{
		"its client reads": 0, "its client takes an hour for each piece": time.Hour,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cache := newCache(t, middleware.Options{LoadTimeout: 24 * time.Hour})
				h := cache.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					w.Header().Set("Cache-Control", "max-age=60")
					for k := range pieces {
						time.Sleep(100 * time.Millisecond)
						_, _ = io.WriteString(w, fmt.Sprint(k))
						_ = http.NewResponseController(w).Flush()
					}
				}))
				begun := time.Now()
				come := func(slow time.Duration) *clocked {
					c := &clocked{header: http.Header{}, begun: begun, slow: slow}
					go h.ServeHTTP(c, httptest.NewRequest("GET", "/", nil))
					synctest.Wait()
					return c
				}
				come(slow)
				come(time.Hour) // a reader that holds up nobody else
				var readers []*clocked
				for range 50 {
					readers = append(readers, come(0))
				}
				time.Sleep(350 * time.Millisecond)
				late := come(0)
				time.Sleep(650 * time.Millisecond)
				synctest.Wait()
				var want []string
				for k := range pieces {
					at := time.Duration(k+1) * 100 * time.Millisecond
					if k == 0 {
						want = append(want, fmt.Sprint(at, " head"))
					}
					// The end flushes the last one.
					if want = append(want, fmt.Sprint(at, " ", k)); k < pieces-1 {
						want = append(want, fmt.Sprint(at, " flush"))
					}
				}
				time.Sleep(24 * time.Hour) // until the slow readers are gone
				for i, c := range readers {
					if c.all = c.all[:min(len(want), len(c.all))]; !slices.Equal(c.all, want) {
						t.Fatalf("reader %d of %d: %q, want %q", i, len(readers), c.all, want)
					}
				}
				want = slices.Concat([]string{"350ms head", "350ms 012", "350ms flush"}, want[7:])
				if late.all = late.all[:min(len(want), len(late.all))]; !slices.Equal(late.all,
					want) {
					t.Errorf("the late reader: %q, want %q", late.all, want)
				}
			})
		})
	}
}

// RecordFlushed is for reverse proxies. An event stream is not recorded, because it doesn't end.
func TestRecordFlushed(t *testing.T) {
	for _, record := range []bool{true, false} {
		runs := 0
		_, h := front(t, middleware.Options{RecordFlushed: record, DefaultTTL: time.Hour}, func(
			w http.ResponseWriter, r *http.Request,
		) {
			runs++
			if r.URL.Path == "/events" {
				w.Header().Set("Content-Type", "text/event-stream")
			}
			for range 3 {
				_, _ = io.WriteString(w, "piece ")
				_ = http.NewResponseController(w).Flush()
			}
		})
		for range 2 {
			if got := fetch(h, "/").Body.String(); got != "piece piece piece " {
				t.Errorf("got %q", got)
			}
		}
		if (runs == 1) != record {
			t.Errorf("RecordFlushed %v: %d runs", record, runs)
		}
		runs = 0
		if fetch(h, "/events"); fetch(h, "/events").Code != 200 || runs != 2 {
			t.Errorf("events: %d runs", runs)
		}
	}
}
