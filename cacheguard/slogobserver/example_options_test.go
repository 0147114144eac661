package slogobserver_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/cacheguard/memstore"
	"github.com/cacheguard/cacheguard/cacheguard/slogobserver"
)

// While a developer looks for a fault, misses and loads are in the log, too, and each load of more
// than two seconds is a warning. Of one kind of event there are 20 records a minute, then every
// hundredth.
func ExampleNew() {
	logger := slog.New(slog.NewTextHandler(os.Stdout, &slog.HandlerOptions{
		Level: slog.LevelDebug,
		ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key != slog.MessageKey { // the others change
				return slog.Attr{}
			}
			return a
		},
	}))
	observer := slogobserver.New(slogobserver.Options{
		Logger:   logger,
		Trace:    slog.LevelDebug,
		SlowLoad: 2 * time.Second,
		Interval: time.Minute,
		Burst:    20,
		Every:    100,
	})
	store := memstore.New(memstore.Options{})
	defer store.Close()
	products, err := cacheguard.New(store,
		cacheguard.Options[string]{Name: "product", Observer: observer})
	if err != nil {
		panic(err)
	}
	defer products.Close()

	load := func(context.Context) (string, error) { return "lamp", nil }
	fmt.Println(products.Get(context.Background(), "42", load))
	// Unordered output:
	// msg="cacheguard: miss"
	// msg="cacheguard: lease asked"
	// msg="cacheguard: lease granted"
	// msg="cacheguard: load"
	// msg="cacheguard: filled"
	// msg="cacheguard: loaded"
	// lamp <nil>
}
