package cacheguard

import (
	"context"
	"errors"
	"fmt"
)

// Local returns the value that the process-local tier has for key, and whether it has one. It never
// asks the store and never loads. A found value is reported as a hit. "Does not exist" is a result
// with NotFound set. While a [Switch] is off or in shadow, Local finds nothing.
func (c *Cache[V]) Local(key string) (Result[V], bool) {
	if c.tier.values == nil || c.life.over.Load() || c.opts.Switch.Mode() != ModeOn {
		return Result[V]{}, false
	}
	res, e := c.tier.get(keyID(key))
	if e == nil {
		return Result[V]{}, false
	}
	_ = c.answer(context.Background(), key, &res)
	return res, true
}

// Peek returns the value that the process-local tier or the store has for key, and never loads. The
// value may be stale, even past its stale windows. If there is no usable value, the result has
// StatusMiss. "Does not exist" is a result with NotFound set. In both cases the error is nil. If
// the store can't be read, the error wraps ErrUnavailable, whatever OnStoreDown is. If too many
// reads of the store wait, the error wraps ErrOverloaded. While a [Switch] is off or in shadow,
// Peek finds nothing.
func (c *Cache[V]) Peek(ctx context.Context, key string) (Result[V], error) {
	if err := c.enter(ctx); err != nil {
		return Result[V]{}, err
	}
	if c.opts.Switch.Mode() != ModeOn {
		return Result[V]{}, nil
	}
	id, after := keyID(key), c.demanded(ctx)
	// The load of the key itself may have to see what the store has under its lease.
	if c.tier.values != nil && c.sinceIfRead(ctx, id) == 0 && !c.inside(ctx, id) {
		if res, e := c.tier.get(id); e != nil && res.NotOlderThan(Token{moment: after}) {
			return res, nil
		}
	}
	got, _, err := c.read(ctx, c.key(id))
	if err != nil {
		if timeIsUp(ctx) {
			<-ctx.Done()
			return Result[V]{}, ctx.Err()
		}
		if errors.Is(err, ErrOverloaded) { // the store is not known to have trouble
			c.observe(ctx, Event{Kind: EventOverloaded, Key: key, Err: err})
			return Result[V]{}, err
		}
		c.down(ctx, &c.reading, key, err)
		return Result[V]{Degraded: true}, fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	c.up(ctx, &c.reading)
	if got.corrupt != nil {
		c.observeMiss(ctx, key, got)
	}
	if got.unshared || !got.res.NotOlderThan(Token{moment: after}) {
		return Result[V]{}, nil
	}
	return got.res, nil
}
