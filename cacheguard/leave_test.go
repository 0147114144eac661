package cacheguard_test

import (
	"context"
	"testing"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/cacheguard/memstore"
)

// A result that is not shared and leaves what is stored goes to its own caller, and everybody else
// has what was there.
func TestLeaveStored(t *testing.T) {
	for name, local := range map[string]cacheguard.Local[string]{"store": {}, "local tier": {Entries: 10}} {
		t.Run(name, func(t *testing.T) {
			store := memstore.New(memstore.Options{})
			defer func() { _ = store.Close() }()
			c, err := cacheguard.New(store, cacheguard.Options[string]{Name: "page", Local: local})
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = c.Close() }()
			ctx := t.Context()
			if err := c.Set(ctx, "k", "for all"); err != nil {
				t.Fatal(err)
			}
			never := func(context.Context) (string, error) { t.Error("loaded"); return "", nil }
			if v, err := c.Get(ctx, "k", never); v != "for all" || err != nil {
				t.Fatal(v, err)
			}
			got, err := c.RefreshEntry(ctx, "k", func(context.Context, cacheguard.Result[string]) (cacheguard.Entry[string], error) {
				return cacheguard.Entry[string]{Value: "for one", NoShare: true, LeaveStored: true}, nil
			})
			if got.Value != "for one" || err != nil {
				t.Error(got, err)
			}
			if v, err := c.Get(ctx, "k", never); v != "for all" || err != nil {
				t.Error(v, err)
			}
		})
	}
}
