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

// Difference says whether what callers are answered with is what the origin has, and if not, why.
type Difference uint8

const (
	// NoDifference is between what is the same.
	NoDifference Difference = iota

	// DiffersMeanwhile says that a moment later (Audit.Settle) callers would not have got it any
	// more: it was being changed, or its time was over.
	DiffersMeanwhile

	// DiffersAllowed says that it was younger than Audit.Tolerance.
	DiffersAllowed

	// DiffersMissed says that the origin has changed and nobody has said so: a call of Invalidate
	// is missing, say, or came later than Audit.Settle. Or the load returns something else for each
	// caller.
	DiffersMissed

	// DiffersLost says that the process-local tier still answers with what the store has no more: a
	// message was lost. Or it is DiffersMissed, and the store has evicted the value, or another
	// process has refreshed it.
	DiffersLost

	// DiffersLate says that it was loaded before a change of the key that this process was told of,
	// and is in the store all the same. Where the two were less than a quarter of a second apart
	// nobody can tell, and it is DiffersMissed.
	DiffersLate

	// DiffersType says that what the store has is not what the codec makes of the value that it is
	// read as: it was written by a release with another type (raise Options.Version). Or the codec
	// loses the part of values in which they differ.
	DiffersType

	// DiffersMutated says that the store has the right value, and not what callers got: one of them
	// has changed a value that it shares with others. See Local.Clone.
	DiffersMutated

	// Differences is one more than the last of them.
	Differences
)

var differenceNames = [...]string{"same", "meanwhile", "allowed", "missed", "lost", "late", "type", "mutated"}

// String is the difference in a word, as metrics have it.
func (d Difference) String() string {
	if int(d) < len(differenceNames) {
		return differenceNames[d]
	}
	return fmt.Sprintf("Difference(%d)", uint8(d))
}

// Wrong reports whether callers got what they should not have got.
func (d Difference) Wrong() bool { return d >= DiffersMissed && d < Differences }

// Story is what is known of a difference. Its times are by the store's clock.
type Story struct {
	Load    string        // that made the value which callers got, in hexadecimal, as the inspector of package redisstore says it
	Began   time.Time     // that load
	Age     time.Duration // of the value, when it was compared
	Asked   time.Time     // the origin, at the latest
	Stands  string        // in the store, Audit.Settle later: "the same", "the same, not fresh any more", "another value", "no value"
	Changed time.Time     // when this process was last told that the key is changed; zero: it doesn't remember that
}

// comparisons counts what was compared, and remembers when keys were changed.
type comparisons struct {
	compared, wrong atomic.Uint64
	running         atomic.Int32
	times           knowledge.Times
}

// mostCompared are compared at a time: no more goroutines than that wait for a difference to go
// away.
const mostCompared = 1024

// compareBehind does something about comparing, behind callers' backs, unless too many do. Its
// context has those values, and ends when the cache closes.
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

// comparison is of what callers were answered with, or would have been.
type comparison[V any] struct {
	key, id string
	had     *found[V]
	loaded  Result[V]                // what the origin has
	again   func() (Result[V], bool) // asks it once more; nil: that isn't done
}

// compare tells observers whether callers had what the origin has.
func (c *Cache[V]) compare(ctx context.Context, of *comparison[V]) {
	had := of.had
	e := Event{Kind: EventCompared, Key: of.key, Local: had.res.Local, NotFound: had.res.NotFound, Took: had.res.Age, Note: had.note}
	same, known := c.same(had.res, of.loaded)
	if !known {
		return
	}
	if !same {
		e.Story = &Story{
			Load: hex.EncodeToString(had.load[:]), Began: time.UnixMicro(had.stamp), Age: had.res.Age, Asked: c.store.Now(),
		}
		if !c.life.ends.Sleep(c.opts.Audit.Settle) {
			return // nobody knows
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

// same reports whether two answers are the same, if that is known: the user's code may panic, and
// values may be none for the codec.
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

// cause looks again, and says how it can be that callers got this and the origin has something
// else.
func (c *Cache[V]) cause(ctx context.Context, of *comparison[V], s *Story) (d Difference, known bool) {
	had := of.had
	now, raw, err := c.readFrame(ctx, c.key(of.id))
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
	changed, teller := c.comparisons.times.Of(of.id)
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
		} else if same { // what the first load has read was older: a replica that lags
			return DiffersMeanwhile, true
		}
		of.loaded = loaded
	}
	if lost {
		return DiffersLost, true
	}
	return c.causeOfWhatStands(of, now.res, raw, young, teller != had.load && s.Began.Before(s.Changed.Add(-protocol.ClockSlack))), true
}

// causeOfWhatStands is cause for a value that is in the store still.
func (c *Cache[V]) causeOfWhatStands(of *comparison[V], now Result[V], raw []byte, young, late bool) Difference {
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

// encodings is how often a value is encoded to see that the codec does it in one way only.
const encodings = 8

// isOfAnotherType reports whether bytes are not what the codec makes of the value that it reads
// them as, or what it makes of the other value, too. Of a codec that encodes a value in different
// ways nobody knows.
func (c *Cache[V]) isOfAnotherType(raw []byte, now, loaded Result[V]) (another bool) {
	if now.NotFound || loaded.NotFound {
		return false
	}
	defer func() { _ = recover() }()
	_, body, err := frame.Parse(raw)
	if err != nil {
		return false
	}
	if theirs, err := c.opts.Codec.Append(nil, loaded.Value); err == nil && bytes.Equal(theirs, body) {
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
