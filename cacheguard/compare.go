package cacheguard

import (
	"bytes"
	"context"
	"encoding/hex"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/cacheguard/cacheguard/internal/frame"
	"github.com/cacheguard/cacheguard/internal/knowledge"
	"github.com/cacheguard/cacheguard/internal/protocol"
)

// Difference is the result of comparing the cache's answer with the origin: NoDifference, or the
// reason why they differ.
type Difference uint8

const (
	// NoDifference means that the answer is the same.
	NoDifference Difference = iota

	// DiffersMeanwhile has two possible causes. Either callers no longer got this answer after
	// Audit.Settle, because the value was just being changed or its TTL ended. Or a second load
	// gave the same value as the answer.
	DiffersMeanwhile

	// DiffersAllowed means that the value was younger than Audit.Tolerance.
	DiffersAllowed

	// DiffersMissed means that the origin has changed and the cache was not told. For instance, a
	// call of Invalidate is missing, or came later than Audit.Settle. Another possible cause is a
	// load that returns a different value for each caller.
	DiffersMissed

	// DiffersLost means that a message was lost, so the process-local tier still answers with a
	// value that the store no longer has. If the store has evicted the value, or another process
	// has refreshed it, the cause can also be that of DiffersMissed.
	DiffersLost

	// DiffersLate means that the value is in the store although its load began before a change of
	// the key, and this process remembers that change. If load and change were less than a quarter
	// of a second apart, their order is not known, and the difference is DiffersMissed. A process
	// remembers changes only if Audit.PerSecond is set, so in ModeShadow without an Audit such a
	// difference is DiffersMissed, too.
	DiffersLate

	// DiffersType has two possible causes. If the codec decodes the stored bytes and encodes the
	// value to different bytes, a release with another type wrote them (raise Options.Version). If
	// the codec encodes the loaded value to the stored bytes, it loses the part in which the two
	// values differ.
	DiffersType

	// DiffersMutated means that the store has the right value, but callers got a different one,
	// because a caller has changed the value that it shares with other callers. See [Local.Clone].
	DiffersMutated

	// Differences is one more than the last difference, for arrays that are indexed by Difference.
	Differences
)

var differenceNames = [...]string{
	"same", "meanwhile", "allowed", "missed", "lost", "late", "type", "mutated",
}

// String returns the difference as one word. Metrics use the same words.
func (d Difference) String() string {
	if int(d) < len(differenceNames) {
		return differenceNames[d]
	}
	return fmt.Sprintf("Difference(%d)", uint8(d))
}

// Wrong reports whether the value of the cache was wrong, and not only different meanwhile or as
// allowed. In ModeShadow no caller got the value.
func (d Difference) Wrong() bool { return d >= DiffersMissed && d < Differences }

// Story has the known facts about a difference. All times are on the store's clock.
type Story struct {
	// The load that made the callers' value, in hexadecimal, as package redisstore's inspector
	// prints it.
	Load  string
	Began time.Time     // when that load began
	Age   time.Duration // age of the value when it was compared
	Asked time.Time     // when the origin was asked, at the latest
	// What the store had after Audit.Settle: "the same", "the same, not fresh any more", "another
	// value", "no value".
	Stands string
	// When this process was last told of a change of the key, of one of the value's tags or of the
	// whole cache; zero if it doesn't remember one, or if Audit.PerSecond is 0.
	Changed time.Time
}

// comparisons counts the comparisons, and remembers when keys were changed if Audit.PerSecond is
// set.
type comparisons struct {
	compared, wrong atomic.Uint64
	running         atomic.Int32
	times           knowledge.Times
}

// tagTimes is the prefix of tags in times, which has keys and tags. The whole cache is a tag
// without a name.
const tagTimes = "\x00tag\x00"

// tagged remembers that values with these tags are changed now. Without tags, it remembers that all
// values are changed now.
func (c *comparisons) tagged(tags []string) {
	if len(tags) == 0 {
		c.times.Changed(tagTimes, [16]byte{})
	}
	for _, tag := range tags {
		c.times.Changed(tagTimes+tag, [16]byte{})
	}
}

// changedAt returns when a value was last changed, by its key, by a tag or with the whole cache,
// and the load of the writer. If it remembers no change, it returns zero.
func (c *comparisons) changedAt(id string, tags []string) (at time.Time, teller [16]byte) {
	at, teller = c.times.Of(id)
	for _, tag := range append(tags, "") {
		if other, _ := c.times.Of(tagTimes + tag); other.After(at) {
			at, teller = other, [16]byte{}
		}
	}
	return at, teller
}

// mostCompared is how many values are compared at a time. It bounds the goroutines, because each
// may wait for Audit.Settle.
const mostCompared = 1024

// compareBehind runs a comparison in the background, unless too many run. Its context has the
// values of the caller's context, and ends when the cache closes.
func (c *Cache[V]) compareBehind(values context.Context, do func(context.Context)) {
	if c.comparisons.running.Add(1) > mostCompared || !c.life.ends.Go(func() {
		defer c.comparisons.running.Add(-1)
		ctx, cancel := context.WithCancel(context.WithoutCancel(values))
		defer cancel()
		defer context.AfterFunc(c.life.ends.Closing, cancel)()
		do(ctx)
	}) {
		c.comparisons.running.Add(-1)
	}
}

// comparison has an answer that callers got, or would have got in shadow mode, and the value at the
// origin.
type comparison[V any] struct {
	key, id string
	had     *found[V]
	loaded  Result[V] // what the origin has
	// Asks the origin once more; nil: a difference is not checked with another load.
	again func() (Result[V], bool)
}

// compare compares an answer with the value at the origin, counts the result and tells observers.
func (c *Cache[V]) compare(ctx context.Context, of *comparison[V]) {
	had := of.had
	e := Event{
		Kind: EventCompared, Key: of.key, Local: had.res.Local, NotFound: had.res.NotFound,
		Took: had.res.Age, Note: had.note,
	}
	same, known := c.same(had.res, of.loaded)
	if !known {
		return
	}
	if !same {
		e.Story = &Story{
			Load: hex.EncodeToString(had.load[:]), Began: time.UnixMicro(had.stamp),
			Age: had.res.Age, Asked: c.store.Now(),
		}
		if !c.life.ends.Sleep(c.opts.Audit.Settle) {
			return // the cache was closed, so the cause can't be found any more
		}
		if e.Differs, known = c.cause(ctx, of, e.Story); !known {
			return
		}
	}
	c.comparisons.compared.Add(1)
	if e.Differs.Wrong() {
		c.comparisons.wrong.Add(1)
	}
	c.observe(ctx, e)
}

// same reports whether two answers are the same. known is false if the comparison failed, because
// the user's code panicked or the codec can't encode a value.
func (c *Cache[V]) same(a, b Result[V]) (same, known bool) {
	if a.NotFound || b.NotFound {
		return a.NotFound == b.NotFound, true
	}
	defer func() { _ = recover() }()
	if c.opts.Same != nil {
		return c.opts.Same(a.Value, b.Value), true
	}
	x, errX := c.opts.Codec.Append(nil, a.Value)
	y, errY := c.opts.Codec.Append(nil, b.Value)
	return bytes.Equal(x, y), errX == nil && errY == nil
}

// cause looks into the store and the local tier again, and returns the reason why the callers'
// value differs from the origin's.
func (c *Cache[V]) cause(
	ctx context.Context, of *comparison[V], s *Story,
) (d Difference, known bool) {
	had := of.had
	now, raw, err := c.read(ctx, c.key(of.id))
	if err != nil {
		return d, false
	}
	same := bytes.Equal(now.id, had.id) && now.res.Status != StatusMiss
	stands := same && now.good == protocol.Fresh
	switch {
	case stands:
		s.Stands = "the same"
	case same:
		s.Stands = "the same, not fresh any more"
	case now.res.Status == StatusMiss:
		s.Stands = "no value"
	default:
		s.Stands = "another value"
	}
	changed, teller := c.comparisons.changedAt(of.id, had.tags.All())
	if !changed.IsZero() {
		s.Changed = c.store.Now().Add(-time.Since(changed))
	}
	young := had.res.Age < c.opts.Audit.Tolerance
	lost := false
	if had.res.Local {
		held, ok := c.tier.found(of.id)
		lost = ok && bytes.Equal(held.id, had.id) && !stands
	}
	switch {
	case lost && young:
		return DiffersAllowed, true
	case !lost && !stands:
		return DiffersMeanwhile, true
	}
	if of.again != nil {
		loaded, ok := of.again()
		if !ok {
			return d, false
		}
		if same, known := c.same(had.res, loaded); !known {
			return d, false
		} else if same {
			// The first load read an older value, for instance from a replica that lags.
			return DiffersMeanwhile, true
		}
		of.loaded = loaded
	}
	if lost {
		return DiffersLost, true
	}
	return c.causeOfWhatStands(of, now.res, raw, young, teller != had.load &&
		s.Began.Before(s.Changed.Add(-protocol.ClockSlack))), true
}

// causeOfWhatStands is the part of cause for a value that is still in the store.
func (c *Cache[V]) causeOfWhatStands(
	of *comparison[V], now Result[V], raw []byte, young, late bool,
) Difference {
	if of.had.res.Local {
		held, ok := c.tier.found(of.id)
		if !ok || !bytes.Equal(held.id, of.had.id) {
			return DiffersMeanwhile
		}
		if same, known := c.same(now, of.loaded); same && known {
			return DiffersMutated
		}
	}
	switch {
	case c.isOfAnotherType(raw, now, of.loaded):
		return DiffersType
	case young:
		return DiffersAllowed
	case late:
		return DiffersLate
	}
	return DiffersMissed
}

// encodings is how often a value is encoded to test whether the codec always gives the same bytes.
// For instance, a codec may encode a map in another order each time.
const encodings = 8

// isOfAnotherType reports whether the stored bytes change if the codec decodes them and encodes the
// value again. It also returns true if the codec encodes the loaded value to the stored bytes,
// because then the codec loses the difference. If the codec encodes the same value to different
// bytes each time, the answer is not known, and isOfAnotherType returns false.
func (c *Cache[V]) isOfAnotherType(raw []byte, now, loaded Result[V]) (another bool) {
	if now.NotFound || loaded.NotFound {
		return false
	}
	defer func() { _ = recover() }()
	_, body, err := frame.Parse(raw)
	if err != nil {
		return false
	}
	if theirs, err := c.opts.Codec.Append(nil, loaded.Value); err == nil &&
		bytes.Equal(theirs, body) {
		return true
	}
	var first []byte
	for n := range encodings {
		again, err := c.opts.Codec.Append(nil, now.Value)
		switch {
		case err != nil || bytes.Equal(again, body) || n > 0 && !bytes.Equal(again, first):
			return false
		}
		first = again
	}
	return true
}
