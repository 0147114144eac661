package cacheguard_test

import (
	"context"
	"testing"
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
