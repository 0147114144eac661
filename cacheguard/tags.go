package cacheguard

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/cacheguard/cacheguard/internal/frame"
)

// InvalidateTags invalidates every value that was stored with one of these tags (Entry.Tags): fresh,
// stale and negative values. The time does not depend on their number. A value that was loaded
// before the call is never served after it, even if it is stored later. A load that is under way
// goes on for callers that already wait. Back-offs after failed loads are not affected.
//
// The call is carried out even if ctx ends. Other processes' reads of the store see it at once, in a
// cluster when its message arrives. Their flights and local tiers follow when the message arrives.
// If the error wraps ErrPending, the store could not be told yet: this process repeats it, and until
// then other processes may serve old values.
func (c *Cache[V]) InvalidateTags(ctx context.Context, tags ...string) error {
	return c.namedTags(ctx, tags, "")
}

// MarkStaleTags makes every value stale that was stored with one of these tags as a soft tag
// (Entry.SoftTags). The next read refreshes it; until then it is served within its stale windows,
// which begin now at the latest. Values that are being loaded now become stale, too. Otherwise it
// is like InvalidateTags.
func (c *Cache[V]) MarkStaleTags(ctx context.Context, tags ...string) error {
	return c.namedTags(ctx, tags, softMark)
}

// namedTags invalidates tags that a user has named, of the kind that this marks.
func (c *Cache[V]) namedTags(ctx context.Context, tags []string, mark string) error {
	switch {
	case !c.mayChange(ctx):
		return ErrClosed
	case len(tags) == 0:
		return nil
	}
	marked := make([]string, len(tags))
	for i, tag := range tags {
		if tag != "" { // which is wrong of either kind
			marked[i] = mark + tag
		}
	}
	if err := wrongTags(tags, marked); err != nil {
		return fmt.Errorf("cacheguard: %w", err)
	}
	c.doubtNames(ctx, &c.tagPattern, tags, tagPatternLine)
	return c.invalidateTags(ctx, marked)
}

// wrongTags returns what is wrong with tags that are to be invalidated, as they were named and as
// they are marked.
func wrongTags(tags, marked []string) error {
	if err := plain(tags); err != nil {
		return err
	}
	for some := range slices.Chunk(marked, frame.MaxTags) { // of any number, but frames have no more
		if _, err := frame.MakeTags(some); err != nil {
			return err
		}
	}
	return nil
}

// softMark begins the names of soft tags in frames and in the store, for which they are tags like
// others.
const softMark = "\x00"

// plain returns what is wrong with tags that would be taken for soft ones.
func plain(tags []string) error {
	for _, tag := range tags {
		if strings.HasPrefix(tag, softMark) {
			return fmt.Errorf("a tag that begins with a zero byte: %s", quoteKey(tag))
		}
	}
	return nil
}

// allTags are both kinds, as they stand in a frame.
func (e Entry[V]) allTags() (frame.Tags, error) {
	if err := plain(e.Tags); err != nil {
		return nil, err
	}
	if len(e.SoftTags) == 0 {
		return frame.MakeTags(e.Tags)
	}
	all := slices.Grow(slices.Clone(e.Tags), len(e.SoftTags))
	for _, tag := range e.SoftTags {
		if tag == "" {
			return nil, errors.New("an empty soft tag")
		}
		all = append(all, softMark+tag)
	}
	return frame.MakeTags(all)
}

// InvalidateAll invalidates all values of the cache, like InvalidateTags with a tag that every value
// has.
func (c *Cache[V]) InvalidateAll(ctx context.Context) error { return c.invalidateTags(ctx, nil) }

func (c *Cache[V]) invalidateTags(ctx context.Context, tags []string) error {
	if !c.mayChange(ctx) {
		return ErrClosed
	}
	c.changes.Add(uint64(max(len(tags), 1)))
	ctx = context.WithoutCancel(ctx)
	c.sealAll()
	last := c.unsent.Last()
	generation, err := c.store.InvalidateTags(ctx, c.opts.Name, tags)
	if err != nil { // it may have been done: this process knows better than to use what it has
		generation = c.loadedBy()
		c.unsent.AddTags(tags, generation)
	}
	c.invalidated(tags, generation)
	if err != nil {
		c.down(ctx, &c.changing, "", err)
		what := "all values"
		if len(tags) > 0 {
			what = fmt.Sprintf("values with %s and %d more tags", quoteKey(tags[0]), len(tags)-1)
		}
		return fmt.Errorf("cacheguard: %s may still be served by other processes: %w", what, c.deliver()(err))
	}
	c.lately.Tags(tags, generation)
	c.unsent.SentTags(tags, last)
	c.upForChanges(ctx)
	return nil
}

// invalidated makes everything in this process agree with an invalidation by tag.
func (c *Cache[V]) invalidated(tags []string, generation int64) {
	c.invalidations.Of(tags, generation)
	if len(tags) == 0 {
		c.tier.values.Forget()
	}
	c.sealAll()
}

// sealAll closes every flight to newcomers: what the loads under way depend on is known when they
// are over.
func (c *Cache[V]) sealAll() {
	c.changed.OfAll()
	for i := range c.flights {
		c.flights[i].SealAll()
	}
}
