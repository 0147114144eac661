package cacheguard

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/cacheguard/cacheguard/internal/frame"
	"github.com/cacheguard/cacheguard/internal/knowledge"
	"github.com/cacheguard/cacheguard/internal/protocol"
)

// found is the value that the store has under a key, and the uses of this value.
type found[V any] struct {
	res   Result[V]     // StatusMiss, StatusHit or StatusStale
	good  protocol.Use  // which uses res is good for at its age: Nothing to Fresh
	keeps time.Duration // for how long res may still be served, fresh or stale
	early bool          // the value is fresh, and this reader refreshes it early
	// marked stale since its load began: by a soft tag, or by a mark that the store doesn't have
	// yet.
	marked   bool
	unshared bool // no caller gets the value; the next load sees it as its previous value
	// The value is unshared, and until its TTL ends every call loads for itself (hit-for-miss).
	passing bool
	corrupt error // why the bytes are no value
	made
}

// made has the facts that a frame records about the load that made it.
type made struct {
	// Identifies the stored bytes, even if they are no value; for LeaseAsk.Seen.
	id                  []byte
	load                ID            // the load that made the value
	took                time.Duration // how long the load took
	note                []byte        // of the load's LoadTracer
	tags                frame.Tags    // what the value depends on
	stamp               int64         // Grant.Stamp of the load's grant
	revalidate, ifError time.Duration // its stale windows
}

// servable reports whether a caller may get the value, fresh or stale.
func (got *found[V]) servable() bool { return got.good >= protocol.OnError }

// counts reports whether the value, or the statement that each caller loads for itself, must be
// checked against generations.
func (got *found[V]) counts() bool { return got.res.Status != StatusMiss || got.passing }

// use returns how the value may be used while the miss looks for a newer value.
func (got *found[V]) use() protocol.Use {
	if got.passing {
		return protocol.Passing
	}
	return got.good
}

// open decodes the frame of a key into got, which must be zero. open has no result, so that a batch
// needs no copies. A nil frame leaves got zero. asked is what unsent.Now returned before the store
// was asked. now is the time on the store's clock. open never panics and never returns an error,
// because bytes that are no value are a miss.
func (c *Cache[V]) open(got *found[V], asked uint64, id string, f []byte, now time.Time) {
	if f == nil {
		return
	}
	got.id = frame.ID(f)
	h, body, err := frame.Parse(f)
	// Even if the frame can't be used, because the value that replaces it keeps its tags.
	got.tags = h.Tags
	if err != nil || h.Codec != c.codec && !h.Null {
		got.refuse(f, err)
		return
	}
	if protocol.TooFarAhead(h.Stamp, now) {
		return
	}
	c.saw(h.Stamp)
	if c.unsent.Some() && c.changedUnsent(got, &h, asked, id) {
		return
	}
	if !h.Null {
		defer got.recovers()
		if got.res.Value, err = c.opts.Codec.Decode(body); err != nil {
			got.res, got.corrupt = Result[V]{}, err
			return
		}
	}
	got.load, got.took, got.stamp, got.note = h.ID, h.Took, h.Stamp, h.Note
	got.res.NotFound, got.res.stamp = h.Null, h.Stamp
	var over time.Duration
	got.res.Age, over, got.good = protocol.Judge(h, now)
	got.revalidate, got.ifError = h.Revalidate, h.IfError
	got.res.FreshFor = -over
	got.res.Status = StatusStale
	if got.good == protocol.Fresh {
		got.res.Status = StatusHit
		got.early = c.opts.EarlyRefresh > 0 &&
			drawsEarly(got.res.FreshFor, h.Took, c.opts.EarlyRefresh, rand.Float64)
	}
	if h.Unshared {
		got.unshared, got.passing = true, got.good == protocol.Fresh
		got.good, got.early, got.res.Status = protocol.Shown, false, StatusStale
		if h.Null {
			got.good, got.res = protocol.Nothing, Result[V]{}
		}
	}
	if got.servable() {
		got.keeps = max(h.Revalidate, h.IfError) - over
	}
}

// refuse notes that a frame is not a value. The frame is the remnant of a removed value, or bytes
// that can't be used.
func (got *found[V]) refuse(f []byte, err error) {
	if tags, ok := frame.RemnantTags(f); ok {
		got.tags = tags
		return
	}
	if got.corrupt = err; err == nil {
		got.corrupt = errors.New(
			"frame was written by another codec, or for another Options.Version")
	}
}

// changedUnsent reports whether the value with this header was changed by a change that the store
// doesn't have yet. If the value was only marked stale, changedUnsent notes the mark in got and in
// the header.
func (c *Cache[V]) changedUnsent(got *found[V], h *frame.Header, asked uint64, id string) bool {
	gone, mark := c.unsent.Has(asked, id, h.Tags, h.Stamp)
	got.marked = !mark.IsZero()
	if !mark.IsZero() && (h.Marked.IsZero() || mark.Before(h.Marked)) {
		h.Marked = mark
	}
	return gone
}

// recovers turns a panic of the codec into an error, because bytes from the store must not end the
// program.
func (got *found[V]) recovers() {
	if p := recover(); p != nil {
		got.corrupt = fmt.Errorf("codec panicked: %v", p)
	}
}

// ages makes a value older by d.
func (got *found[V]) ages(d time.Duration) {
	if got.res.Status == StatusMiss {
		return
	}
	got.res = got.res.later(d)
	got.keeps -= d
	if got.servable() && got.res.FreshFor <= 0 {
		got.good = min(got.good, protocol.GoodFor(-got.res.FreshFor, got.revalidate, got.ifError))
		got.res.Status, got.early = StatusStale, false
	}
}

// mark makes a value stale. ago is the time since the value was marked stale.
func (got *found[V]) mark(ago time.Duration) {
	got.marked, got.passing, got.early = true, false, false
	if !got.servable() {
		return
	}
	over := max(-got.res.FreshFor, ago, 0)
	got.res.FreshFor = -over
	got.good = min(got.good, protocol.GoodFor(over, got.revalidate, got.ifError))
	got.res.Status = StatusStale
	got.keeps = max(got.revalidate-over, got.ifError-over, 0)
}

// openWith opens a frame that came together with generations. It reports whether the value could be
// checked. The store was asked for the generations of the hint's tags, so a frame with other tags
// needs other generations.
func (c *Cache[V]) openWith(
	got *found[V], asked uint64, id string, raw []byte, hint *knowledge.Hint, gens Generations,
) (checked bool) {
	if c.open(got, asked, id, raw, c.store.Now()); !got.counts() {
		return true
	}
	if len(got.tags) > 0 || hint != knowledge.Untagged {
		c.hints.Note(id, got.tags)
	}
	return got.checkWith(hint, gens, c.store)
}

// checkWith checks a value against the generations of a hint's tags. It reports whether these are
// the generations that the value needs.
func (got *found[V]) checkWith(
	hint *knowledge.Hint, gens Generations, clock interface{ Now() time.Time },
) bool {
	if len(gens) != 1+len(hint.Tags) || gens[0] == 0 || !bytes.Equal(hint.Raw, got.tags) {
		return false
	}
	got.checkAgainst(gens, nil, clock)
	return true
}

// forget makes a value unusable. The value's id stays for the request for the lease. Its tags stay
// because the next value keeps them.
func (got *found[V]) forget() { *got = found[V]{made: made{id: got.id, tags: got.tags}} }

// checkAgainst forgets a value if its cache or one of its tags was invalidated after the value's
// load began. If one of its soft tags was invalidated, it makes the value stale. gens[0] is the
// generation of the cache, and gens[1+at[tag]] is the generation of a tag. If at is nil, the
// generations after the first one are in the order of the value's tags.
func (got *found[V]) checkAgainst(
	gens Generations, at map[string]int, clock interface{ Now() time.Time },
) {
	if !protocol.Counts(got.stamp, gens[0]) {
		got.forget()
		return
	}
	var tag []byte
	// This reads the tags in place, because a list would cost an allocation for each tag.
	for i, rest := 0, got.tags; len(rest) > 0; i++ {
		tag, rest = rest.Cut()
		n := i
		if at != nil {
			n = at[string(tag)]
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
