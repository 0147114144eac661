package cacheguard

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cacheguard/cacheguard/internal/frame"
)

// InvalidateTags invalidates every value that was stored with one of these tags (Entry.Tags), fresh, stale and
// negative ones, in a time that doesn't depend on how many there are: nothing that was loaded before it is served
// after it, whenever it is stored. A load that is under way goes on for those who wait for it already. What it doesn't
// touch are back-offs after failed loads.
//
// It goes through although ctx ends. What other processes read from the store agrees with it at once, and in a cluster
// when its message arrives; what they have at hand, flights and the local tier, always then. When it returns an error, old
// values may live until their TTL is over, in other processes than this one.
func (c *Cache[V]) InvalidateTags(ctx context.Context, tags ...string) error {
	return c.namedTags(ctx, tags, "")
}

// MarkStaleTags ages every value that was stored with one of these tags as a soft one (Entry.SoftTags): it is refreshed by
// the next read, and until then served within its stale windows, which begin now, at the latest. What is being loaded now
// may be older than the mark, and counts as such. Otherwise it is like InvalidateTags.
func (c *Cache[V]) MarkStaleTags(ctx context.Context, tags ...string) error {
	return c.namedTags(ctx, tags, softMark)
}

// namedTags invalidates tags that a user has named, of the kind that this marks.
func (c *Cache[V]) namedTags(ctx context.Context, tags []string, mark string) error {
	switch {
	case !c.changes(ctx):
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
	return c.invalidateTags(ctx, marked)
}

// wrongTags returns what is wrong with tags that are to be invalidated, as they were named and as they are marked.
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

// softMark begins the names of soft tags in frames and in the store, for which they are tags like others.
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

// InvalidateAll is InvalidateTags for a tag that all values of the cache have.
func (c *Cache[V]) InvalidateAll(ctx context.Context) error { return c.invalidateTags(ctx, nil) }

func (c *Cache[V]) invalidateTags(ctx context.Context, tags []string) error {
	if !c.changes(ctx) {
		return ErrClosed
	}
	ctx = context.WithoutCancel(ctx)
	c.sealAll()
	generation, err := c.store.InvalidateTags(ctx, c.opts.Name, tags)
	if err != nil { // it may have been done: this process knows better than to use what it has
		generation = c.store.Now().Add(clockSlack).UnixMicro()
		c.owed.add(tags, generation)
	}
	c.invalidated(tags, generation)
	if err != nil {
		c.down(ctx, &c.changing, "", err)
		what := "all values"
		if len(tags) > 0 {
			what = fmt.Sprintf("values with %s and %d more tags", quoteKey(tags[0]), len(tags)-1)
		}
		return fmt.Errorf("cacheguard: %s may still be served by other processes: %w", what, err)
	}
	c.up(ctx, &c.changing)
	return nil
}

// invalidated makes everything in this process agree with an invalidation by tag.
func (c *Cache[V]) invalidated(tags []string, generation int64) {
	c.heard.of(tags, generation)
	if len(tags) == 0 {
		c.near.forget()
	}
	c.sealAll()
}

// sealAll closes every flight to newcomers: what the loads under way depend on is known when they are over.
func (c *Cache[V]) sealAll() {
	c.changed.ofAll()
	c.reads.SealAll()
	c.refreshes.SealAll()
}

// heard is what this process has been told of invalidations by tag. Tags share buckets: that makes somebody ask the
// store in vain, now and then.
type heard struct {
	seed  maphash.Seed
	since atomic.Int64  // generations up to this one may have been missed
	whole atomic.Int64  // generation of the cache
	count atomic.Uint64 // of invalidations
	tags  [1024]struct {
		generation atomic.Int64
		count      atomic.Uint64 // at the last one
	}
}

// of takes note of an invalidation.
func (h *heard) of(tags []string, generation int64) {
	n := h.count.Add(1)
	if len(tags) == 0 {
		raise(&h.whole, generation)
	}
	for _, tag := range tags {
		b := &h.tags[h.bucket(tag)]
		raise(&b.generation, generation)
		for last := b.count.Load(); last < n && !b.count.CompareAndSwap(last, n); last = b.count.Load() {
		}
	}
}

func (h *heard) bucket(tag string) uint16 {
	return uint16(maphash.String(h.seed, tag) % uint64(len(h.tags)))
}

func (h *heard) buckets(tags frame.Tags) (all []uint16) {
	for _, tag := range tags.All() {
		all = append(all, h.bucket(tag))
	}
	return all
}

// after reports whether there was an invalidation of one of these tags after so many.
func (h *heard) after(count uint64, buckets []uint16) bool {
	for _, b := range buckets {
		if h.tags[b].count.Load() > count {
			return true
		}
	}
	return false
}

// passes reports whether a value with this stamp is not invalidated, as far as has been heard, and would have been heard
// of. False means: ask the store.
func (h *heard) passes(tags frame.Tags, stamp int64) bool {
	if stamp <= h.since.Load() || stamp <= h.whole.Load() {
		return false
	}
	for _, tag := range tags.All() {
		if stamp <= h.tags[h.bucket(tag)].generation.Load() {
			return false
		}
	}
	return true
}

// owed is the invalidations by tag of which the store could not be told. What they were for may stand there until its
// TTL is over, and this process doesn't use it.
type owed struct {
	mu  sync.Mutex                       // guards changes of all
	all atomic.Pointer[map[string]int64] // generations by tag, "" is the whole cache; nil: none. It is not changed, but replaced
}

// maxOwed tags are too many to remember: then it is the whole cache.
const maxOwed = 1024

func (o *owed) add(tags []string, generation int64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	all := make(map[string]int64)
	if old := o.all.Load(); old != nil {
		maps.Copy(all, *old)
	}
	if len(tags) == 0 || len(all)+len(tags) > maxOwed {
		all, tags = make(map[string]int64), []string{""}
	}
	for _, tag := range tags {
		all[tag] = generation
	}
	o.all.Store(&all)
}

// has reports whether a value is from before one of them.
func (o *owed) has(tags frame.Tags, stamp int64) bool {
	all := o.all.Load()
	if all == nil {
		return false
	}
	if stamp <= (*all)[""] {
		return true
	}
	for _, tag := range tags.All() {
		if stamp <= (*all)[tag] {
			return true
		}
	}
	return false
}

// raise sets v to n unless it is more.
func raise(v *atomic.Int64, n int64) {
	for old := v.Load(); old < n && !v.CompareAndSwap(old, n); old = v.Load() {
	}
}

// hints are which tags the values have that were seen last, so that their generations are read along with them, in one
// trip. A wrong hint costs a trip.
type hints struct {
	seed   maphash.Seed
	seen   [1024]atomic.Uint64                           // a bit by the key's hash: something was there
	tagged atomic.Pointer[[1 << 14]atomic.Pointer[hint]] // by the key's hash; nil until a value has tags
}

type hint struct {
	id   string
	raw  frame.Tags
	tags []string
}

// untagged is the hint that a value is there, and perhaps without tags.
var untagged = &hint{tags: []string{}}

// list is what to ask the store for; nil asks for nothing.
func (h *hint) list() []string {
	if h == nil {
		return nil
	}
	return h.tags
}

// of returns the hint for a key; nil says that probably nothing is there.
func (h *hints) of(id string) *hint {
	hash := maphash.String(h.seed, id)
	if h.seen[hash%1024].Load()&(1<<(hash>>10%64)) == 0 {
		return nil
	}
	if all := h.tagged.Load(); all != nil {
		if one := all[hash%uint64(len(all))].Load(); one != nil && one.id == id {
			return one
		}
	}
	return untagged
}

// note remembers which tags the key's value has.
func (h *hints) note(id string, tags frame.Tags) {
	hash := maphash.String(h.seed, id)
	if word, bit := &h.seen[hash%1024], uint64(1)<<(hash>>10%64); word.Load()&bit == 0 {
		word.Or(bit)
	}
	all := h.tagged.Load()
	if all == nil {
		if len(tags) == 0 {
			return
		}
		h.tagged.CompareAndSwap(nil, new([1 << 14]atomic.Pointer[hint]))
		all = h.tagged.Load()
	}
	place := &all[hash%uint64(len(all))]
	switch one := place.Load(); {
	case len(tags) == 0:
		if one != nil && one.id == id {
			place.CompareAndSwap(one, nil)
		}
	case one == nil || one.id != id || !bytes.Equal(one.raw, tags):
		place.Store(&hint{id: id, raw: bytes.Clone(tags), tags: tags.All()})
	}
}

var errGenerations = errors.New("cacheguard: the store answered with another number of generations")

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
