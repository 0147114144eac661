package cacheguard

import (
	"context"
	"errors"
	"time"

	"github.com/cacheguard/cacheguard/internal/knowledge"
)

// unread handles a read that failed. If the caller's context has ended or its deadline is over, the
// store is not known to have trouble, and other callers of the flight must not get an error. So
// unread returns no error, and the value counts as missing. If there is a value, the request for
// the lease finds it. After any other failure, and if too many reads wait, unread returns the
// error, and sets got to the value of the local tier, if there is one that may be served as stale.
func (c *Cache[V]) unread(
	ctx context.Context, key, id string, got *found[V], err error,
) (storeErr error) {
	if !errors.Is(err, ErrOverloaded) {
		if timeIsUp(ctx) {
			return nil
		}
		c.down(ctx, &c.reading, key, err)
	}
	*got = c.tier.last(id)
	return err
}

// timeIsUp reports whether ctx has ended or its deadline is over. It also checks the deadline,
// because the timer of a context may fire a moment late.
func timeIsUp(ctx context.Context) bool {
	by, ok := ctx.Deadline()
	return ctx.Err() != nil || (ok && !time.Now().Before(by))
}

// openAlone opens a frame that came without generations. If the frame came by a message, it is
// enough to check it against the invalidations of earlier messages, because messages come in the
// order of the changes. Otherwise messages may arrive later than the frame, so openAlone reads the
// generations.
func (c *Cache[V]) openAlone(
	ctx context.Context, asked uint64, k Key, raw []byte, byMessage bool,
) (got found[V], err error) {
	if c.open(&got, asked, k.Key, raw, c.store.Now()); got.counts() &&
		!(byMessage && c.invalidations.Passes(got.tags, got.stamp)) {
		err = c.validate(ctx, []*found[V]{&got})
	}
	return got, err
}

var errGenerations = errors.New("cacheguard: the store answered with another number of generations")

// readMany is read for many keys. It calls tell for each key, with the found value or with the
// error. Keys for which one trip was enough come first, and keys that failed come last. got is only
// valid until the next call of tell.
func (c *Cache[V]) readMany(
	ctx context.Context, keys []Key, tell func(i int, got *found[V], err error),
) {
	asked := knowledge.TagSet{All: []string{}}
	for _, k := range keys {
		asked.Add(c.hints.Of(k.Key).Tags)
	}
	before, unsent := c.tier.moments(keys), c.unsent.Now()
	replies, gens := c.store.GetMany(ctx, keys, asked.All)
	replies = complete(replies, len(keys))
	if len(gens) != 1+len(asked.All) || gens[0] == 0 {
		gens = nil
	}
	works := false
	tellFound := func(i int, got *found[V]) {
		if !works {
			works = true
			c.up(ctx, &c.reading)
		}
		if before != nil {
			c.tier.keep(keys[i].Key, before[i], *got)
		}
		tell(i, got, nil)
	}
	// One variable for all keys, because a hundred of them may need more memory than their values.
	var got found[V]
	var unchecked []*found[V] // values that need generations which gens doesn't have
	var which, failed []int
	now := c.store.Now()
	for i, r := range replies {
		if r.Err != nil {
			failed = append(failed, i)
			continue
		}
		got = found[V]{}
		if c.open(&got, unsent, keys[i].Key, r.Answer, now); got.counts() {
			if len(asked.All) > 0 || len(got.tags) > 0 {
				c.hints.Note(keys[i].Key, got.tags)
			}
			if gens == nil || !asked.Covers(got.tags) {
				doubtful := got
				unchecked, which = append(unchecked, &doubtful), append(which, i)
				continue
			}
			got.checkAgainst(gens, asked.At, c.store)
		}
		tellFound(i, &got)
	}
	err := c.validate(ctx, unchecked)
	for n, i := range which {
		if err != nil {
			tell(i, unchecked[n], err)
		} else {
			tellFound(i, unchecked[n])
		}
	}
	for _, i := range failed {
		got = found[V]{}
		tell(i, &got, replies[i].Err)
	}
}

var (
	errReplies = errors.New("cacheguard: the store returned too few or too many answers")
	errAnswer  = errors.New("cacheguard: the store gave an answer of an unknown kind")
)

// validate reads the generations of all tags of some values that were just read, in one trip. It
// forgets the values that were invalidated, and makes values stale if a soft tag was invalidated.
// All values have aged during the trip. After an error it is not known which values were
// invalidated, so validate forgets all of them.
func (c *Cache[V]) validate(ctx context.Context, some []*found[V]) error {
	if len(some) == 0 {
		return nil
	}
	var asked knowledge.TagSet
	for _, got := range some {
		asked.Add(got.tags.All())
	}
	began := time.Now()
	gens, err := c.store.Generations(ctx, c.opts.Name, asked.All)
	took := time.Since(began)
	if err == nil && len(gens) != 1+len(asked.All) {
		err = errGenerations
	}
	for _, got := range some {
		got.ages(took) // before the check, which looks at the clock
		if err != nil {
			got.forget()
		} else {
			got.checkAgainst(gens, asked.At, c.store)
		}
	}
	return err
}
