package tenure

import (
	"context"
	"fmt"
)

// Acquire is what Lock and TryLock have in common, whatever the system: it looks at the name, at what the caller's
// context carries, and at whether the keeper is closed; then it has ask do the rest, on a context that ends with the
// caller's and with the keeper. The error says of which package it is, and of which lock, and why the context has ended,
// if it has.
func (k *Keeper) Acquire(ctx context.Context, of, name string, ask func(context.Context) (*Hold, error)) (*Hold, error) {
	if err := CheckName(name); err != nil {
		return nil, fmt.Errorf("%s: %w", of, err)
	}
	hold, err := k.acquire(ctx, name, ask)
	if err != nil {
		return nil, fmt.Errorf("%s: %q: %w", of, name, err)
	}
	return hold, nil
}

func (k *Keeper) acquire(ctx context.Context, name string, ask func(context.Context) (*Hold, error)) (*Hold, error) {
	if again, err := k.Again(ctx, name); again != nil || err != nil {
		return again, err
	}
	within, leave, err := k.Enter(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
	if within.Err() != nil {
		return nil, Why(within)
	}
	hold, err := ask(within)
	if err != nil && within.Err() != nil {
		return nil, Why(within)
	}
	return hold, err
}
