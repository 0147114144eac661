package tenure

import (
	"context"
	"fmt"
)

// Acquire is the common part of Lock and TryLock of all systems. It checks the name, the lock that
// the caller's context may carry, and whether the keeper is closed. Then it calls ask with a
// context that ends with the caller's context and with the keeper. The error names the package and
// the lock. If the context has ended, the error has the reason for that instead of the error of
// ask.
func (k *Keeper) Acquire(
	ctx context.Context, of, name string, ask func(context.Context) (*Hold, error),
) (*Hold, error) {
	if err := CheckName(name); err != nil {
		return nil, fmt.Errorf("%s: %w", of, err)
	}
	hold, err := k.Again(ctx, name)
	if hold == nil && err == nil {
		hold, err = k.within(ctx, ask)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %q: %w", of, name, err)
	}
	return hold, nil
}

// Take is Acquire for a lock that is taken from its holder. It ignores the lock that the caller's
// context may carry.
func (k *Keeper) Take(
	ctx context.Context, of, name string, ask func(context.Context) (*Hold, error),
) (*Hold, error) {
	if err := CheckName(name); err != nil {
		return nil, fmt.Errorf("%s: %w", of, err)
	}
	hold, err := k.within(ctx, ask)
	if err != nil {
		return nil, fmt.Errorf("%s: taking %q over: %w", of, name, err)
	}
	return hold, nil
}

func (k *Keeper) within(
	ctx context.Context, ask func(context.Context) (*Hold, error),
) (*Hold, error) {
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
