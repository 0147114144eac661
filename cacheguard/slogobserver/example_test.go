package slogobserver_test

import (
	"context"
	"errors"
	"log/slog"
	"os"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/cacheguard/memstore"
	"github.com/cacheguard/cacheguard/cacheguard/slogobserver"
)

func Example() {
	logger := slog.New(slog.NewTextHandler(os.Stdout, &slog.HandlerOptions{
		ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey || a.Key == "took" { // they change
				return slog.Attr{}
			}
			return a
		},
	}))
	store := memstore.New(memstore.Options{})
	defer store.Close()
	products, err := cacheguard.New(store, cacheguard.Options[string]{
		Name:     "product",
		Observer: slogobserver.New(slogobserver.Options{Logger: logger, Keys: true}),
	})
	if err != nil {
		panic(err)
	}
	defer products.Close()

	_, _ = products.Get(context.Background(), "42", func(context.Context) (string, error) {
		return "", errors.New("no such table")
	})
	// Output:
	// level=WARN msg="cacheguard: load" cache=product key="\"42\"" error="no such table"
}
