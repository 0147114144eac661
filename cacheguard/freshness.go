package cacheguard

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"github.com/cacheguard/cacheguard/internal/frame"
	"github.com/cacheguard/cacheguard/internal/protocol"
)

// drawsEarly is XFetch: it reports whether a reader who draws this number between 0 and 1 should
// refresh a value that is still fresh for left. Vattani, Chierichetti, Lowenstein: Optimal
// Probabilistic Cache Stampede Prevention, VLDB 2015, figure 3: now - took * beta * ln(draw) >=
// expiry.
func drawsEarly(left, took time.Duration, beta float64, draw func() float64) bool {
	if beta <= 0 || float64(left) > 37*beta*float64(took) { // no draw makes up for this: ln(2^-53) is -36.7
		return false
	}
	return -float64(took)*beta*math.Log(draw()) >= float64(left)
}

// jittered shortens a duration by a random share of up to jitter.
func jittered(d time.Duration, jitter float64) time.Duration {
	d -= time.Duration(float64(d) * jitter * rand.Float64())
	return max(d.Truncate(time.Millisecond), minTTL)
}

// found is what stands in the store under a key.
type found[V any] struct {
	res      Result[V]     // StatusMiss, StatusHit or StatusStale
	good     protocol.Use  // what res is good for, by its age: Nothing to Fresh
	keeps    time.Duration // for how long that lasts, at most
	early    bool          // it is fresh, and this reader is to refresh it
	marked   bool          // by a soft tag, since its load began
	unshared bool          // it is no value for any caller, only the previous one of the next load
	passing  bool          // and for now every call loads for itself
	corrupt  error         // why it is no value
	made
}

// made is what its frame says of where it comes from.
type made struct {
	id                  []byte        // of whatever stands there, for LeaseAsk.Seen
	load                ID            // the load that made it
	took                time.Duration // how long that took
	note                []byte        // of its tracer
	tags                frame.Tags    // what it depends on
	stamp               int64         // and as of when, on the clock of the generations
	revalidate, ifError time.Duration // its stale windows
}

// servable reports whether a caller may get it, fresh or stale.
func (got *found[V]) servable() bool { return got.good >= protocol.OnError }

// use is what it is good for on the way to another.
func (got *found[V]) use() protocol.Use {
	if got.passing {
		return protocol.Passing
	}
	return got.good
}

// open makes a value of the frame of a key, which was asked for then (unsent.Now). It never panics
// and never returns an error: what is not a value is a miss.
func (c *Cache[V]) open(asked uint64, id string, f []byte) (got found[V]) {
	if f != nil {
		c.openInto(&got, asked, id, f, c.store.Now())
	}
	return got
}

// openInto is open for what is there, at this time on the store's clock, into an empty place.
func (c *Cache[V]) openInto(got *found[V], asked uint64, id string, f []byte, now time.Time) {
	got.id = frame.ID(f)
	if tags, ok := frame.RemnantTags(f); ok {
		got.tags = tags
		return
	}
	h, body, err := frame.Parse(f)
	got.tags = h.Tags // also of what can't be used: they are kept by what takes its place
	if err == nil && h.Codec != c.codec && !h.Null {
		err = errors.New("frame was written by another codec, or for another Options.Version")
	}
	if err != nil {
		got.corrupt = err
		return
	}
	gone, mark := c.unsent.Has(asked, id, h.Tags, h.Stamp)
	if gone || protocol.TooFarAhead(h.Stamp, now) {
		return
	}
	if !mark.IsZero() && (h.Marked.IsZero() || mark.Before(h.Marked)) {
		h.Marked = mark
	}
	if !h.Null {
		v, err := c.decode(body)
		if err != nil {
			got.corrupt = err
			return
		}
		got.res.Value = v
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
		got.early = drawsEarly(got.res.FreshFor, h.Took, c.opts.EarlyRefresh, rand.Float64)
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

// mark ages a value that was marked stale so long ago.
func (got *found[V]) mark(ago time.Duration) {
	over := max(-got.res.FreshFor, ago, 0)
	got.marked, got.passing, got.early = true, false, false
	if !got.servable() {
		return
	}
	got.res.FreshFor = -over
	got.good = min(got.good, protocol.GoodFor(over, got.revalidate, got.ifError))
	got.res.Status = StatusStale
	got.keeps = 0
	if got.servable() {
		got.keeps = max(got.revalidate, got.ifError) - over
	}
}

func (c *Cache[V]) decode(body []byte) (v V, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("codec panicked: %v", p)
		}
	}()
	v, err = c.opts.Codec.Decode(body)
	return v, err
}
