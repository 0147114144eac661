package cacheguard

import (
	"bytes"
	"context"
	"errors"
	"time"

	"github.com/cacheguard/cacheguard/internal/flight"
)

// lookUp reads what the store has. The error means that the store can't be used; if only this caller's time is over,
// that is not the store's fault nor the others' problem: it is as if nothing were there, and who asks for the lease
// looks again.
func (c *Cache[V]) lookUp(ctx context.Context, f *flight.Flight[outcome[V]], key string, k Key) (got found[V], storeErr error) {
	whole := false
	defer func() {
		if !whole { // Goexit in a codec, an observer or a function of the local tier ends this goroutine, not the key
			f.Land(outcome[V]{err: errGoexit})
		}
	}()
	stamp := c.near.stamp(k.Key)
	got, err := c.read(ctx, k)
	switch {
	case err == nil:
		c.up(ctx, &c.reading)
		c.near.keep(k.Key, stamp, got)
		if got.good == useNone {
			c.missed(ctx, key, got)
		}
	case errors.Is(err, ErrOverloaded):
		storeErr = err
	case !over(ctx):
		c.down(ctx, &c.reading, key, err)
		storeErr = err
	}
	if storeErr != nil {
		got = c.near.last(k.Key)
	}
	whole = true
	return got, storeErr
}

// over reports whether ctx has ended, also if its timer is a moment late.
func over(ctx context.Context) bool {
	by, ok := ctx.Deadline()
	return ctx.Err() != nil || (ok && !time.Now().Before(by))
}

// read returns what the store has under a key; what was invalidated by a tag is not there.
func (c *Cache[V]) read(ctx context.Context, k Key) (found[V], error) {
	asked := c.hints.of(k.Key)
	raw, of, err := c.store.Get(ctx, k, asked.list())
	if err != nil {
		return found[V]{}, err
	}
	got := c.open(raw)
	if got.res.Status == StatusMiss {
		return got, nil
	}
	c.hints.note(k.Key, got.tags)
	if asked == nil || !bytes.Equal(asked.raw, got.tags) {
		of = nil
	}
	return c.current(ctx, got, of)
}

// openRead opens a frame that came from the store, but not along with the generations. What has been heard doesn't count:
// messages may be late.
func (c *Cache[V]) openRead(ctx context.Context, raw []byte) (found[V], error) {
	got := c.open(raw)
	if got.res.Status == StatusMiss {
		return got, nil
	}
	return c.current(ctx, got, nil)
}

// openTold opens a frame that came with a message about a load that was waited for.
func (c *Cache[V]) openTold(ctx context.Context, raw []byte) (found[V], error) {
	got := c.open(raw)
	if got.res.Status == StatusMiss || c.heard.passes(got.tags, got.stamp) {
		return got, nil // messages come in the order of what they tell of
	}
	return c.current(ctx, got, nil)
}

// current returns what was found, or, if it was invalidated by a tag, that something unusable is there. of are the
// generations that came with it, if they did.
func (c *Cache[V]) current(ctx context.Context, got found[V], of Generations) (found[V], error) {
	if len(of) == 0 || of[0] == 0 {
		tags := got.tags.All()
		var err error
		if of, err = c.store.Generations(ctx, c.opts.Name, tags); err != nil {
			return found[V]{id: got.id}, err
		}
		if len(of) != 1+len(tags) {
			return found[V]{id: got.id}, errGenerations
		}
	}
	for i, generation := range of {
		if got.stamp > generation { // in the same microsecond nobody knows which was first
			continue
		}
		if i == 0 || !got.tags.Soft(i-1) {
			return found[V]{id: got.id}, nil
		}
		got.mark(c.store.Now().Sub(time.UnixMicro(generation)))
	}
	return got, nil
}

var errGenerations = errors.New("cacheguard: the store answered with another number of generations")

// keyErrs are errors by the number of the key; nil is none at all.
type keyErrs map[int]error

func (e keyErrs) at(i int) error { return e[i] }

// readMany is read for many keys.
func (c *Cache[V]) readMany(ctx context.Context, keys []Key) ([]found[V], keyErrs) {
	tags := []string{}
	var at map[string]int // of tags
	hints := make([]*hint, len(keys))
	for i, k := range keys {
		hints[i] = c.hints.of(k.Key)
		for _, tag := range hints[i].list() {
			if _, ok := at[tag]; !ok {
				if at == nil {
					at = make(map[string]int)
				}
				at[tag] = len(tags)
				tags = append(tags, tag)
			}
		}
	}
	var before []moment
	if c.near != nil {
		before = make([]moment, len(keys))
		for i, k := range keys {
			before[i] = c.near.stamp(k.Key)
		}
	}
	replies, of := c.store.GetMany(ctx, keys, tags)
	all := make([]found[V], len(keys))
	var errs keyErrs
	failed := func(i int, err error) {
		if errs == nil {
			errs = keyErrs{}
		}
		errs[i] = err
		all[i] = found[V]{id: all[i].id}
	}
	if len(replies) != len(keys) {
		for i := range keys {
			failed(i, errReplies)
		}
		return all, errs
	}
	if len(of) != 1+len(tags) || of[0] == 0 {
		of = nil
	}
	var unsure []int // what has tags that weren't asked for
	now := c.store.Now()
	for i := range replies {
		r := &replies[i]
		switch {
		case r.Err != nil:
			failed(i, r.Err)
			continue
		case r.Answer != nil:
			c.openInto(&all[i], r.Answer, now)
		}
		if all[i].res.Status == StatusMiss {
			continue
		}
		if hints[i] != untagged || len(all[i].tags) > 0 {
			c.hints.note(keys[i].Key, all[i].tags)
		}
		known := of != nil
		if known && len(all[i].tags) > 0 {
			for _, tag := range all[i].tags.All() {
				if _, ok := at[tag]; !ok {
					known = false
					break
				}
			}
		}
		if !known {
			unsure = append(unsure, i)
		} else if !all[i].after(of, at, now) {
			all[i] = found[V]{id: all[i].id}
		}
	}
	if len(unsure) > 0 {
		of, at, err := c.generations(ctx, all, unsure)
		for _, i := range unsure {
			if err != nil {
				failed(i, err)
			} else if !all[i].after(of, at, now) {
				all[i] = found[V]{id: all[i].id}
			}
		}
	}
	if len(errs) < len(keys) {
		c.up(ctx, &c.reading)
	}
	if c.near != nil {
		for i, k := range keys {
			c.near.keep(k.Key, before[i], all[i])
		}
	}
	return all, errs
}

var (
	errReplies = errors.New("cacheguard: the store answered another number of questions")
	errAnswer  = errors.New("cacheguard: the store gave an answer of an unknown kind")
)

// generations reads those of all tags of some values.
func (c *Cache[V]) generations(ctx context.Context, all []found[V], some []int) (Generations, map[string]int, error) {
	var tags []string
	at := make(map[string]int)
	for _, i := range some {
		for _, tag := range all[i].tags.All() {
			if _, ok := at[tag]; !ok {
				at[tag] = len(tags)
				tags = append(tags, tag)
			}
		}
	}
	of, err := c.store.Generations(ctx, c.opts.Name, tags)
	if err == nil && len(of) != 1+len(tags) {
		err = errGenerations
	}
	return of, at, err
}

// after reports whether a value was loaded after the last invalidation of its cache and its tags, and ages it if it was not
// after that of a soft one; at says where they are after the first of the generations.
func (got *found[V]) after(of Generations, at map[string]int, now time.Time) bool {
	if got.stamp <= of[0] {
		return false
	}
	if len(got.tags) > 0 {
		for i, tag := range got.tags.All() {
			generation := of[1+at[tag]]
			if got.stamp > generation {
				continue
			}
			if !got.tags.Soft(i) {
				return false
			}
			got.mark(now.Sub(time.UnixMicro(generation)))
		}
	}
	return true
}
