package cacheguard

import (
	"bytes"
	"context"
	"errors"
	"time"

	"github.com/cacheguard/cacheguard/internal/knowledge"
	"github.com/cacheguard/cacheguard/internal/protocol"
)

// lookUp finds what the store has. If it mayLead, it may ask for the lease at once; then the run goes on that has asked. The error means that
// the store can't be used.
func (c *Cache[V]) lookUp(ctx context.Context, of *target[V], mayLead bool) (got found[V], goesOn *run[V], storeErr error) {
	whole := false
	defer func() {
		if !whole { // Goexit in a codec, an observer or a function of the local tier ends this goroutine, not the key
			of.flight.Land(outcome[V]{err: errGoexit})
		}
	}()
	id := of.key.Key
	before, expected := c.tier.moment(id), c.presence.Of(id)
	got, goesOn, err := c.find(ctx, of, mayLead, expected)
	switch {
	case goesOn != nil:
		c.presence.Looked(expected, false, 0)
	case err == nil:
		c.up(ctx, &c.reading)
		c.presence.Looked(expected, got.id != nil, got.keeps)
		c.tier.keep(id, before, got)
		if !got.servable() {
			c.observeMiss(ctx, of.name, got)
		}
	default:
		storeErr = c.unread(ctx, of.name, id, &got, err)
	}
	whole = true
	return got, goesOn, storeErr
}

// unread goes on with a value that could not be read. If only this caller's time is over, that is not the store's fault nor the others'
// problem: it is as if nothing were there, and who asks for the lease looks again. Else it is an error, and what the local tier has must do.
func (c *Cache[V]) unread(ctx context.Context, key, id string, got *found[V], err error) (storeErr error) {
	if !errors.Is(err, ErrOverloaded) {
		if timeIsUp(ctx) {
			return nil
		}
		c.down(ctx, &c.reading, key, err)
	}
	*got = c.tier.last(id)
	return err
}

// timeIsUp reports whether ctx has ended, also if its timer is a moment late.
func timeIsUp(ctx context.Context) bool {
	by, ok := ctx.Deadline()
	return ctx.Err() != nil || (ok && !time.Now().Before(by))
}

// read returns what the store has under a key; what was invalidated by a tag is not there.
func (c *Cache[V]) read(ctx context.Context, k Key) (found[V], error) {
	hint, asked := c.hints.Of(k.Key), c.unsent.Now()
	raw, gens, err := c.store.Get(ctx, k, hint.Tags)
	if err != nil {
		return found[V]{}, err
	}
	got, checked := c.openWith(asked, k.Key, raw, hint, gens)
	if !checked {
		return c.validateOne(ctx, got)
	}
	return got, nil
}

// openWith opens a frame that came with the generations that were asked for, and reports whether they are those that it needs.
func (c *Cache[V]) openWith(asked uint64, id string, raw []byte, hint *knowledge.Hint, gens Generations) (got found[V], checked bool) {
	if got = c.open(asked, id, raw); got.res.Status == StatusMiss {
		return got, true
	}
	c.hints.Note(id, got.tags)
	return got, got.checkWith(hint, gens, c.store)
}

// checkWith is checkAgainst for the generations that were asked for by a hint. It reports whether they are those that the value needs.
func (got *found[V]) checkWith(hint *knowledge.Hint, gens Generations, clock interface{ Now() time.Time }) bool {
	if len(gens) != 1+len(hint.Tags) || gens[0] == 0 || !bytes.Equal(hint.Raw, got.tags) {
		return false
	}
	got.checkAgainst(gens, nil, clock)
	return true
}

// openAlone opens a frame that came without the generations. What has been heard of them counts only if this was told by a
// message, too: messages come in the order of what they tell of, but they may be late.
func (c *Cache[V]) openAlone(ctx context.Context, asked uint64, k Key, raw []byte, byMessage bool) (found[V], error) {
	got := c.open(asked, k.Key, raw)
	if got.res.Status == StatusMiss || byMessage && c.invalidations.Passes(got.tags, got.stamp) {
		return got, nil
	}
	return c.validateOne(ctx, got)
}

var errGenerations = errors.New("cacheguard: the store answered with another number of generations")

// readMany is read for many keys.
func (c *Cache[V]) readMany(ctx context.Context, keys []Key) ([]found[V], map[int]error) {
	hints, asked := make([]*knowledge.Hint, len(keys)), knowledge.TagSet{All: []string{}}
	for i, k := range keys {
		hints[i] = c.hints.Of(k.Key)
		asked.Add(hints[i].Tags)
	}
	before, unsent := c.tier.moments(keys), c.unsent.Now()
	replies, gens := c.store.GetMany(ctx, keys, asked.All)
	if len(gens) != 1+len(asked.All) || gens[0] == 0 {
		gens = nil
	}
	all := make([]found[V], len(keys))
	var unchecked []int // what has tags that weren't asked for
	var errs map[int]error
	failed := func(i int, err error) {
		if errs == nil {
			errs = make(map[int]error)
		}
		errs[i] = err
	}
	now := c.store.Now()
	for i, r := range complete(replies, len(keys)) {
		got := &all[i]
		if r.Err != nil {
			failed(i, r.Err)
			continue
		}
		if r.Answer != nil {
			c.openInto(got, unsent, keys[i].Key, r.Answer, now)
		}
		if got.res.Status == StatusMiss {
			continue
		}
		if hints[i] != knowledge.Untagged || len(got.tags) > 0 {
			c.hints.Note(keys[i].Key, got.tags)
		}
		if gens != nil && asked.Covers(got.tags) {
			got.checkAgainst(gens, asked.At, c.store)
		} else {
			unchecked = append(unchecked, i)
		}
	}
	if err := c.validate(ctx, all, unchecked); err != nil {
		for _, i := range unchecked {
			failed(i, err)
		}
	}
	if len(errs) < len(keys) {
		c.up(ctx, &c.reading)
	}
	for i := range before {
		c.tier.keep(keys[i].Key, before[i], all[i])
	}
	return all, errs
}

var (
	errReplies = errors.New("cacheguard: the store answered another number of questions")
	errAnswer  = errors.New("cacheguard: the store gave an answer of an unknown kind")
)

// validate reads the generations of all tags of some values, in one trip, and leaves of what was invalidated that something
// unusable is there. An error means that nobody can say what was: then that is so for all of them.
func (c *Cache[V]) validate(ctx context.Context, all []found[V], some []int) error {
	if len(some) == 0 {
		return nil
	}
	var asked knowledge.TagSet
	for _, i := range some {
		asked.Add(all[i].tags.All())
	}
	gens, err := c.store.Generations(ctx, c.opts.Name, asked.All)
	if err == nil && len(gens) != 1+len(asked.All) {
		err = errGenerations
	}
	for _, i := range some {
		if got := &all[i]; err != nil {
			got.forget()
		} else {
			got.checkAgainst(gens, asked.At, c.store)
		}
	}
	return err
}

// validateOne is validate for one value.
func (c *Cache[V]) validateOne(ctx context.Context, got found[V]) (found[V], error) {
	one := []found[V]{got}
	err := c.validate(ctx, one, []int{0})
	return one[0], err
}

// forget leaves of a value that something unusable is there, and its tags for what takes its place.
func (got *found[V]) forget() { *got = found[V]{made: made{id: got.id, tags: got.tags}} }

// checkAgainst leaves of a value that something unusable is there if its cache or one of its tags was invalidated since it was
// loaded, and ages it if one of its soft tags was. at says where the tags are after the first of the generations; nil: in the
// order in which the value has them.
func (got *found[V]) checkAgainst(gens Generations, at map[string]int, clock interface{ Now() time.Time }) {
	if !protocol.Counts(got.stamp, gens[0]) {
		got.forget()
		return
	}
	if len(got.tags) == 0 {
		return
	}
	for i, tag := range got.tags.All() {
		n := i
		if at != nil {
			n = at[tag]
		}
		switch generation := gens[1+n]; {
		case protocol.Counts(got.stamp, generation):
		case got.tags.Soft(i):
			got.mark(clock.Now().Sub(time.UnixMicro(generation)))
		default:
			got.forget()
			return
		}
	}
}
