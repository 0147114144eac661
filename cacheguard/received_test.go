package cacheguard_test

import (
	"context"
	"log/slog"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/cacheguard/memstore"
)

// TestCallsThatAMessageWakesFindNothingOld looks at what a call finds in its process in the very
// moment in which a message wakes it: no flight that began before the change, and no local value.
func TestCallsThatAMessageWakesFindNothingOld(t *testing.T) {
	for name, message := range map[string]cacheguard.Message{
		"changed":  {Kind: cacheguard.MessageChanged, Key: "k"},
		"restored": {Kind: cacheguard.MessageRestored, Generation: time.Now().UnixMicro()},
	} {
		t.Run(name+"/flight", func(t *testing.T) {
			c, err := cacheguard.New(memstore.New(memstore.Options{}),
				cacheguard.Options[string]{Name: "c"})
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			loads, ends := make(chan struct{}), make(chan struct{})
			got := make(chan error, 1)
			go func() {
				_, err := c.Get(t.Context(), "k", func(context.Context) (string, error) {
					close(loads)
					<-ends
					return "old", nil
				})
				got <- err
			}()
			<-loads
			open := c.OpenFlights()
			if open != 1 {
				t.Fatalf("%d flights are open, want that of the load", open)
			}
			defer c.WhenTold("k", func() { open = c.OpenFlights() })()
			c.Receive(message)
			if open != 0 {
				t.Error("when the message woke calls, they could still join the flight of the old load")
			}
			close(ends)
			if err := <-got; err != nil {
				t.Error(err)
			}
		})
		t.Run(name+"/local", func(t *testing.T) {
			c, err := cacheguard.New(memstore.New(memstore.Options{}), cacheguard.Options[string]{
				Name: "c", TTL: time.Hour,
				Local: cacheguard.Local[string]{Entries: 10, TTL: time.Hour},
			})
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			if _, err := c.Get(t.Context(), "k", func(context.Context) (string, error) {
				return "old", nil
			}); err != nil {
				t.Fatal(err)
			}
			local := func() bool { _, ok := c.Local("k"); return ok }
			had := local()
			if !had {
				t.Fatal("the value is not in the local tier")
			}
			defer c.WhenTold("k", func() { had = local() })()
			c.Receive(message)
			if had {
				t.Error("when the message woke calls, the local tier still had the old value")
			}
		})
	}
}

// cutStore is a store whose messages can get lost, and whose GetMany can be held.
type cutStore struct {
	cacheguard.Store
	tell func(cacheguard.Message)
	deaf atomic.Bool
	gate atomic.Pointer[chan struct{}]
}

func (s *cutStore) Listen(cache string, tell func(cacheguard.Message)) func() {
	s.tell = tell
	return s.Store.Listen(cache, func(m cacheguard.Message) {
		if !s.deaf.Load() {
			tell(m)
		}
	})
}

func (s *cutStore) Listening() bool { return !s.deaf.Load() && s.Store.Listening() }

func (s *cutStore) lose() {
	s.deaf.Store(true)
	s.tell(cacheguard.Message{Kind: cacheguard.MessageLost})
}

func (s *cutStore) restore() {
	s.deaf.Store(false)
	s.tell(cacheguard.Message{Kind: cacheguard.MessageRestored})
}

func (s *cutStore) GetMany(
	ctx context.Context, keys []cacheguard.Key, tags []string,
) ([]cacheguard.Reply[[]byte], cacheguard.Generations) {
	if gate := s.gate.Load(); gate != nil {
		<-*gate
	}
	return s.Store.GetMany(ctx, keys, tags)
}

// A failover has lost an invalidation of this process. When messages arrive again, a read gets the
// old value before the invalidation is repeated. The local tier doesn't keep it.
func TestReadBetweenAFailoverAndTheRepeatedChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		must := func(err error) {
			t.Helper()
			if err != nil {
				t.Fatal(err)
			}
		}
		returning := func(v string) cacheguard.LoadFunc[string] {
			return func(context.Context) (string, error) { return v, nil }
		}
		shared := memstore.New(memstore.Options{})
		store := &cutStore{Store: shared}
		opts := cacheguard.Options[string]{
			Name: "c", TTL: time.Hour, Jitter: -1, Logger: slog.New(slog.DiscardHandler),
		}
		other, err := cacheguard.New(shared, opts)
		must(err)
		defer other.Close()
		opts.Local = cacheguard.Local[string]{Entries: 10, TTL: time.Hour}
		c, err := cacheguard.New(store, opts)
		must(err)
		defer c.Close()
		time.Sleep(time.Millisecond)
		_, err = other.Get(t.Context(), "k", returning("old"))
		must(err)
		k := cacheguard.Key{Cache: "c", Key: "k"}
		old, _, err := shared.Get(t.Context(), k, nil)
		must(err)
		time.Sleep(time.Second)
		must(c.Invalidate(t.Context(), "k"))
		// The failover: the new master has the old value.
		store.lose()
		g, err := shared.Lease(t.Context(), k,
			cacheguard.LeaseAsk{Token: cacheguard.ID{1}, TTL: time.Second})
		must(err)
		_, err = shared.Fill(t.Context(), k, g.Grant, old, time.Hour)
		must(err)
		time.Sleep(time.Second)
		stop := c.WhenTold("other", func() {
			done := make(chan struct{})
			go func() {
				defer close(done)
				_, _ = c.GetMany(t.Context(), []string{"k"}, func(
					context.Context, []string,
				) (map[string]string, error) {
					return map[string]string{"k": "loaded"}, nil
				})
			}()
			// A hit returns at once; a miss waits until this message has been handled.
			for range 100_000 {
				select {
				case <-done:
				default:
					runtime.Gosched()
				}
			}
			gate := make(chan struct{})
			store.gate.Store(&gate)
		})
		// Another process refreshes the key a moment later, before the change is repeated.
		store.restore()
		stop()
		if v, err := other.Refresh(t.Context(), "k", returning("new")); v == "old" || err != nil {
			t.Fatal(v, err)
		}
		close(*store.gate.Load())
		must(c.Flush(t.Context()))
		time.Sleep(time.Minute)
		r, err := c.GetResult(t.Context(), "k", returning("new"))
		if r.Value == "old" {
			t.Errorf("a minute after the failover: %q, local %v, %v", r.Value, r.Local, err)
		}
	})
}
