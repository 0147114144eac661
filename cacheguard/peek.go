package cacheguard

import (
	"context"
	"fmt"
)

// Local returns what the process-local tier answers with at present, which counts as a hit, and
// whether it has anything. It asks nobody and never loads. What does not exist is NotFound, and no
// error. While a Switch is off or in shadow there is nothing.
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

// Peek returns what the store has, and never loads. Absence is StatusMiss, not an error; so is a
// value that can't be used. The null sentinel is NotFound, and no error either. While a Switch is
// off or in shadow everything is absent.
func (c *Cache[V]) Peek(ctx context.Context, key string) (Result[V], error) {
	if err := c.enter(ctx); err != nil {
		return Result[V]{}, err
	}
	if c.opts.Switch.Mode() != ModeOn {
		return Result[V]{}, nil
	}
	id, after := keyID(key), c.demanded(ctx)
	if c.tier.values != nil {
		if res, e := c.tier.get(id); e != nil && res.NotOlderThan(Token{moment: after}) {
			return res, nil
		}
	}
	got, err := c.read(ctx, c.key(id))
	if err != nil {
		if timeIsUp(ctx) {
			<-ctx.Done()
			return Result[V]{}, ctx.Err()
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
