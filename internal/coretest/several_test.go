package coretest_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/cacheguard/memstore"
	"github.com/cacheguard/cacheguard/internal/desk"
)

// reader is a caller for which every value of a key is one of several. If owner is true, the values
// are for this caller.
type reader struct{ owner bool }

func (r reader) Refreshes(any, bool) bool { return r.owner }
func (r reader) Parts(any) bool           { return true }
func (r reader) Hears(any) bool           { return false }

// TestOneOfSeveral: a stale value that is for some of its callers is loaded for those, once. The
// others have it at once, whenever they come, and nobody who comes after a change waits for what
// began before it.
func TestOneOfSeveral(t *testing.T) {
	for name, opts := range map[string]cacheguard.Options[string]{
		"good on error": {TTL: 10 * time.Second, StaleIfError: time.Hour},
		"kept":          {TTL: 10 * time.Second},
		"strong":        {TTL: 10 * time.Second, StrongReads: true},
	} {
		inBubble(t, name, func(t *testing.T) {
			c := openOn(t, memstore.New(memstore.Options{}), opts)
			var loads atomic.Int32
			gate := make(chan struct{}, 10)
			get := func(owner bool) chan cacheguard.Result[string] {
				got := make(chan cacheguard.Result[string], 1)
				go func() {
					d := desk.Open(t.Context())
					defer d.Close()
					d.Caller = reader{owner}
					r, err := c.GetEntry(desk.With(t.Context(), d), "k", func(
						context.Context, cacheguard.Result[string],
					) (cacheguard.Entry[string], error) {
						n := loads.Add(1)
						<-gate
						return cacheguard.Entry[string]{Value: fmt.Sprint("v", n), Keep: time.Hour},
							nil
					})
					if err != nil {
						t.Error(err)
					}
					got <- r
				}()
				synctest.Wait()
				return got
			}
			gate <- struct{}{}
			if r := <-get(false); r.Value != "v1" || loads.Load() != 1 {
				t.Errorf("without any value: %+v; want it to be loaded for whoever comes", r)
			}
			<-time.After(15 * time.Second)
			others := func(when, want string) {
				t.Helper()
				select {
				case r := <-get(false):
					if r.Value != want || r.Status != cacheguard.StatusStale {
						t.Errorf("%s: others got %+v; want %s, as stale", when, r, want)
					}
				default:
					t.Fatalf("%s: others wait", when)
				}
			}
			others("before anybody loads", "v1")
			first, second := get(true), get(true)
			others("while it is loaded", "v1")
			if n := loads.Load(); n != 2 {
				t.Errorf("%d loads; want one for both whose value it is", n-1)
			}
			change := c.Invalidate
			if name == "kept" { // so that the value is still there
				change = c.MarkStale
			}
			if err := change(t.Context(), "k"); err != nil {
				t.Fatal(err)
			}
			third := get(true)
			if n := loads.Load(); n != 3 {
				t.Errorf("%d loads after a change; want one more", n-2)
			}
			gate <- struct{}{}
			gate <- struct{}{}
			joined := "v2"
			if opts.StrongReads { // it came when that load had begun
				joined = "v3"
			}
			if a, b, c := (<-first).Value, (<-second).Value, (<-third).Value; a != "v2" ||
				b != joined || c != "v3" {
				t.Errorf("got %s, %s and, after the change, %s; want v2, %s and v3", a, b, c,
					joined)
			}
			if n := loads.Load(); n != 3 {
				t.Errorf("%d loads in all, want 3", n)
			}
		})
	}
}
