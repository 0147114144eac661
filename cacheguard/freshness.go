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

// drawsEarly is XFetch. It draws a number between 0 and 1, and reports whether this reader should
// refresh a value that stays fresh for the time left. Vattani, Chierichetti, Lowenstein: Optimal
// Probabilistic Cache Stampede Prevention, VLDB 2015, figure 3: now - took * beta * ln(draw) >=
// expiry.
func drawsEarly(left, took time.Duration, beta float64, draw func() float64) bool {
	if beta <= 0 || float64(left) > 37*beta*float64(took) { // no draw leads to a refresh then: ln(2^-53), of the smallest draw, is -36.7
		return false
	}
	return -float64(took)*beta*math.Log(draw()) >= float64(left)
}

// jittered shortens a duration by a random share of up to jitter, so that durations which begin
// together don't end together.
func jittered(d time.Duration, jitter float64) time.Duration {
	d -= time.Duration(float64(d) * jitter * rand.Float64())
	return max(d.Truncate(time.Millisecond), minTTL)
}

// found is the value that the store has under a key, and the uses that the value is good for.
type found[V any] struct {
	res      Result[V]     // StatusMiss, StatusHit or StatusStale
	good     protocol.Use  // which uses res is good for at its age: Nothing to Fresh
	keeps    time.Duration // for how long res may still be served, fresh or stale
	early    bool          // the value is fresh, and this reader refreshes it early
	marked   bool          // a soft tag was marked stale since the value's load began
	unshared bool          // no caller gets the value; the next load sees it as its previous value
	passing  bool          // the value is unshared, and until its TTL ends every call loads for itself (hit-for-miss)
	corrupt  error         // why the bytes are no value
	made
}

// made has the facts that a frame records about the load that made it.
type made struct {
	id                  []byte        // identifies the stored bytes, even if they are no value; for LeaseAsk.Seen
	load                ID            // the load that made the value
	took                time.Duration // how long the load took
	note                []byte        // of the load's LoadTracer
	tags                frame.Tags    // what the value depends on
	stamp               int64         // the load's grant, on the clock of the generations
	revalidate, ifError time.Duration // its stale windows
}

// servable reports whether a caller may get the value, fresh or stale.
func (got *found[V]) servable() bool { return got.good >= protocol.OnError }

// use returns which uses the value is good for while the miss looks for a newer value.
func (got *found[V]) use() protocol.Use {
	if got.passing {
		return protocol.Passing
	}
	return got.good
}

// open decodes the frame of a key into got, which must be zero, so that a batch needs no copies. A
// nil frame leaves got zero. Take asked from unsent.Now before you ask the store. now is the time
// on the store's clock. open never panics and never returns an error, because bytes that are no
// value are a miss.
func (c *Cache[V]) open(got *found[V], asked uint64, id string, f []byte, now time.Time) {
	if f == nil {
		return
	}
	got.id = frame.ID(f)
	if tags, ok := frame.RemnantTags(f); ok {
		got.tags = tags
		return
	}
	h, body, err := frame.Parse(f)
	got.tags = h.Tags // even if the frame can't be used, because the value that replaces it keeps its tags
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

// mark makes a value stale. ago is the time since the value was marked stale.
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

// decode decodes a value. A panic of the codec is an error, because bytes from the store must not
// be able to end a goroutine of the program.
func (c *Cache[V]) decode(body []byte) (v V, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("codec panicked: %v", p)
		}
	}()
	v, err = c.opts.Codec.Decode(body)
	return v, err
}
