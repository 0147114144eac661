package main

import (
	"context"

	"github.com/maypok86/otter/v2"

	"github.com/cacheguard/cacheguard/bench/internal/contender"
)

var otterContender = contender.Contender{
	Name: "otter", What: "in memory, with a loader, and nothing between processes",
	Note: of("github.com/maypok86/otter/v2") +
		", 10,000 entries, ExpiryWriting of -ttl; \"does not exist\" is stored like any other entry. " +
		"It uses no Redis: each process loads for itself, and a change reaches only the process that is told of it.",
	Better: "It needs no server, and its hits are faster than any that leave the process.",
	Open: func(_ context.Context, r contender.Rig) (contender.Protection, error) {
		cache, err := otter.New(&otter.Options[string, outcome]{
			MaximumSize: 10_000, ExpiryCalculator: otter.ExpiryWriting[string, outcome](r.TTL),
		})
		return &ottered{r, cache}, err
	},
}

type outcome struct {
	value string
	found bool
}

type ottered struct {
	contender.Rig
	cache *otter.Cache[string, outcome]
}

func (o *ottered) Get(ctx context.Context, key string) (string, bool, error) {
	got, err := o.cache.Get(ctx, key,
		otter.LoaderFunc[string, outcome](func(ctx context.Context, key string) (outcome, error) {
			value, found, err := o.Load(ctx, key)
			return outcome{value, found}, err
		}))
	return got.value, got.found, err
}

func (o *ottered) Invalidate(_ context.Context, key string) error {
	o.cache.Invalidate(key)
	return nil
}

func (o *ottered) Close() error {
	o.cache.StopAllGoroutines()
	return nil
}
