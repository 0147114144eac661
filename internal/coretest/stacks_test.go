//go:build !race

package coretest_test

import (
	"context"
	"math"
	"runtime"
	"runtime/debug"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/cacheguard/memstore"
)

// room is how many bytes an adapter has of its own, above the call and beside some closures.
const room = 64

// A burst costs what its stacks cost: a goroutine that waits in a call must fit into the 2 KiB that
// it begins with, together with the frames of who calls. The race detector needs more stack, so
// this is tested without it.
func TestStacksOfWaiters(t *testing.T) {
	const (
		crowd = 1000
		most  = 2600 // bytes of stack for each caller: who has outgrown 2 KiB has 4 KiB
	)
	// With one processor at a time hardly anybody waits for a lock; without collections no stack
	// shrinks.
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	type call func(ctx context.Context, c *cacheguard.Cache[string],
		load func(context.Context) (string, error)) error
	for name, call := range map[string]call{
		"Get": func(
			ctx context.Context, c *cacheguard.Cache[string],
			load func(context.Context) (string, error),
		) error {
			_, err := c.Get(ctx, "key", load)
			return err
		},
		"GetResult": func(
			ctx context.Context, c *cacheguard.Cache[string],
			load func(context.Context) (string, error),
		) error {
			_, err := c.GetResult(ctx, "key", load)
			return err
		},
		"GetEntry": func(
			ctx context.Context, c *cacheguard.Cache[string],
			load func(context.Context) (string, error),
		) error {
			_, err := c.GetEntry(ctx, "key", func(
				ctx context.Context, _ cacheguard.Result[string],
			) (e cacheguard.Entry[string], err error) {
				e.Value, err = load(ctx)
				return e, err
			})
			return err
		},
		"Refresh": func(
			ctx context.Context, c *cacheguard.Cache[string],
			load func(context.Context) (string, error),
		) error {
			_, err := c.Refresh(ctx, "key", load)
			return err
		},
		"RefreshEntry": func(
			ctx context.Context, c *cacheguard.Cache[string],
			load func(context.Context) (string, error),
		) error {
			_, err := c.RefreshEntry(ctx, "key", func(
				ctx context.Context, _ cacheguard.Result[string],
			) (e cacheguard.Entry[string], err error) {
				e.Value, err = load(ctx)
				return e, err
			})
			return err
		},
	} {
		bubble(t, name, func(t *testing.T) {
			store := memstore.New(memstore.Options{})
			defer store.Close()
			c := openOn(t, store, cacheguard.Options[string]{})
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			burst := func() (each, plain int) {
				release := make(chan struct{})
				load := func(context.Context) (string, error) { <-release; return "v", nil }
				wait := func() { <-release }
				// Of so many that need little, the collector learns to begin others with 2 KiB.
				stackOf(crowd, wait)
				plain = stackOf(crowd, wait)
				each = stackOf(crowd, func() {
					if err := roomy(func() error { return call(ctx, c, load) }); err != nil {
						t.Error(err)
					}
				})
				close(release)
				synctest.Wait()
				time.Sleep(time.Hour) // on the fake clock, so that the next burst loads, too
				return each, plain
			}
			// If the machine is busy, a caller may be interrupted while it has a lock. The others
			// wait for the lock then, which is deeper. So the least of some bursts counts.
			least := math.MaxInt
			for range 10 {
				each, plain := burst()
				t.Logf("%d bytes of stack for each caller, %d for a goroutine that waits for a channel",
					each, plain)
				if least = min(least, each); least <= most {
					return
				}
			}
			t.Errorf("%d bytes of stack for each caller, with an adapter of %d; want %d at most",
				least, room, most)
		})
	}
}

// roomy calls do with room more on the stack.
//
//go:noinline
func roomy(do func() error) error {
	var own [room]byte
	err := do()
	runtime.KeepAlive(&own)
	return err
}

// stackOf is how many bytes of stack each of some goroutines needs that wait in do.
func stackOf(n int, do func()) int {
	runtime.GC() // also those of goroutines that have ended
	before := stackInUse()
	for range n {
		go do()
	}
	synctest.Wait()
	return (stackInUse() - before) / n
}

func stackInUse() int {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int(m.StackInuse)
}
