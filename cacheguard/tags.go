package cacheguard

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/cacheguard/cacheguard/internal/frame"
	"github.com/cacheguard/cacheguard/internal/report"
)

// InvalidateTags invalidates every value that was stored with one of these tags (Entry.Tags): fresh
// values, stale values and "does not exist". The cost does not depend on the number of values. If a
// value's load began before the call, the value is never served after the call, even if it is
// stored later. A running load goes on for the callers of its process that already wait for it.
// Callers in other processes don't get its value if it has one of the tags: they wait for a later
// load. Back-offs after failed loads are not affected.
//
// The call is carried out even if ctx ends. When other processes read the store, they see the
// invalidation at once; in a Redis cluster they see it when the message about it arrives. Their
// local tiers, and calls that join a load under way, see it when the message arrives. If the error
// wraps [ErrPending], this process repeats the invalidation until the store has it, and other
// processes may serve old values until then.
func (c *Cache[V]) InvalidateTags(ctx context.Context, tags ...string) error {
	return c.namedTags(ctx, tags, "")
}

// MarkStaleTags makes a value stale if it was stored with one of these tags as a soft tag
// (Entry.SoftTags). The next read of a value refreshes it. Until the refresh is done, the value is
// served within its stale windows, which begin now at the latest. Values that are being loaded now
// become stale, too. In all other respects MarkStaleTags is like InvalidateTags.
func (c *Cache[V]) MarkStaleTags(ctx context.Context, tags ...string) error {
	return c.namedTags(ctx, tags, softMark)
}

// namedTags invalidates tags that a user has named. mark is the prefix that tags of this kind have
// in the store: softMark for soft tags, else "".
func (c *Cache[V]) namedTags(ctx context.Context, tags []string, mark string) error {
	if err := c.mayChange(ctx); err != nil || len(tags) == 0 {
		return err
	}
	marked := make([]string, len(tags))
	for i, tag := range tags {
		if tag != "" { // an empty tag stays empty, so that wrongTags rejects it
			marked[i] = mark + tag
		}
	}
	if err := wrongTags(tags, marked); err != nil {
		return fmt.Errorf("cacheguard: %w", err)
	}
	c.doubtNames(ctx, &c.tagPattern, tags, tagPatternLine)
	return c.invalidateTags(ctx, marked)
}

// wrongTags returns the error in the tags of a call that invalidates tags. tags are the user's
// names. marked are the same names with the prefix of their kind.
func wrongTags(tags, marked []string) error {
	if err := plain(tags); err != nil {
		return err
	}
	// A call may name any number of tags, but MakeTags takes at most as many as a frame may have.
	for some := range slices.Chunk(marked, frame.MaxTags) {
		if _, err := frame.MakeTags(some); err != nil {
			return err
		}
	}
	return nil
}

// softMark is the prefix of soft tags in frames and in the store. The store doesn't distinguish the
// two kinds of tags, so it needs no separate steps for soft tags.
const softMark = "\x00"

// plain returns an error if a tag has the prefix of soft tags.
func plain(tags []string) error {
	for _, tag := range tags {
		if strings.HasPrefix(tag, softMark) {
			return fmt.Errorf("a tag that begins with a zero byte: %s", report.QuoteKey(tag))
		}
	}
	return nil
}

// allTags returns the tags of both kinds, encoded for a frame.
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

// InvalidateAll invalidates all values of the cache. It works like InvalidateTags with a tag that
// every value has.
func (c *Cache[V]) InvalidateAll(ctx context.Context) error { return c.invalidateTags(ctx, nil) }

func (c *Cache[V]) invalidateTags(ctx context.Context, tags []string) error {
	if err := c.mayChange(ctx); err != nil {
		return err
	}
	c.changes.Add(uint64(max(len(tags), 1)))
	ctx = context.WithoutCancel(ctx)
	c.sealAll()
	_, tags, err := c.tellTags(ctx, tags, c.unsent.Last(), false)
	// The store may have carried out the invalidation or not. In both cases this process must not
	// use its old values.
	if err != nil {
		generation := c.loadedBy()
		c.unsent.AddTags(tags, generation)
		c.invalidated(tags, generation)
		c.down(ctx, &c.changing, "", err)
		what := "all values"
		if len(tags) > 0 {
			what = "values with tag " + report.QuoteKey(strings.TrimPrefix(tags[0], softMark))
			if more := len(tags) - 1; more > 0 {
				what += fmt.Sprintf(" or one of %d further tags", more)
			}
		}
		return fmt.Errorf("cacheguard: %s may still be served by other processes: %w", what,
			c.deliver()(err))
	}
	c.upForChanges(ctx)
	return nil
}

// invalidated applies an invalidation by tag to all values and flights of this process.
func (c *Cache[V]) invalidated(tags []string, generation int64) {
	c.saw(generation)
	c.invalidations.Of(tags, generation)
	if len(tags) == 0 {
		c.tier.values.Forget()
	}
	c.comparisons.tagged(tags)
	c.sealAll()
}

// sealAll closes all flights to new callers, because the tags of a load's result are only known
// when the load is over.
func (c *Cache[V]) sealAll() {
	c.changed.OfAll()
	for i := range c.flights {
		c.flights[i].SealAll()
	}
}
