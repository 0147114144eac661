package cacheguard

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/cacheguard/cacheguard/internal/desk"
	"github.com/cacheguard/cacheguard/internal/flight"
	"github.com/cacheguard/cacheguard/internal/frame"
	"github.com/cacheguard/cacheguard/internal/option"
	"github.com/cacheguard/cacheguard/internal/protocol"
)

// LoadFunc computes the value of one key from the origin. An error that wraps ErrNotFound means
// "does not exist".
//
// ctx has the values of the caller that started the load, but does not end with the context of that
// caller. ctx ends when the last waiting caller leaves, when another load holds the lease
// (context.Cause returns ErrLeaseLost), when the cache is closed, or after LoadTimeout. A refresh
// in the background goes on without callers. So a load must not use a transaction or a request that
// ends with its caller.
type LoadFunc[V any] func(ctx context.Context) (V, error)

// EntryFunc is a load that sees the previous value and decides how its result is kept. If there is
// no previous value, prev.Status is StatusMiss. A load never sees a value that was invalidated
// before the load got its lease, nor a value that is too old for its context (see NotOlderThan). A
// load may ask the origin, by a date or a weak ETag, whether the previous value has changed. Even
// if the origin wrongly says that it has not, the load can't bring back an invalidated value.
//
// With ErrNotFound, the Entry's TTL, Tags, stale windows and NoStore still apply. For instance,
// ErrNotFound with NoStore means "does not exist, and don't remember this".
type EntryFunc[V any] func(ctx context.Context, prev Result[V]) (Entry[V], error)

// Entry is the result of an [EntryFunc]. If the result is not stored, the old value is removed,
// because it is out of date; NoShare with LeaveStored prevents this. NoShare takes precedence over
// NoStore.
//
// With NoShare and a TTL, the cache remembers for this TTL that results are not shared
// (hit-for-miss): each call then loads for itself, in parallel, without waiting. If the result of a
// load can be shared, the cache forgets this before the TTL is over. The value of a NoShare entry
// is not stored unless TTL and Keep are both set. With Keep, later loads see the value as their
// previous value, even loads for other callers.
//
// An invalid Entry, with an impossible TTL or tags, fails the load. For a result that is already
// out of date, set NoStore instead of a tiny TTL.
type Entry[V any] struct {
	Value V
	// Replaces Options.TTL, or NegativeTTL for "does not exist"; 1 ms to 10 years; 0: as in
	// Options.
	TTL time.Duration

	// Tags are the names of what the result depends on, for InvalidateTags. At most 64 tags, of 1
	// to 255 bytes each.
	//
	// If Tags and SoftTags are both nil, the result keeps the tags of the value that it replaces,
	// even if that value is stale or was invalidated by a tag. Every load and write without an
	// Entry keeps the tags in this way. An empty list that is not nil means that the result has no
	// tags. Invalidate, expiry and eviction remove the tags together with the value, so name the
	// tags in every load and write of the key.
	Tags []string

	// SoftTags are like Tags, for MarkStaleTags; 1 to 254 bytes each. A value has at most 64 tags
	// and soft tags together.
	SoftTags []string

	// Keep is how long the value stays in the store after the end of its TTL and stale windows, so
	// that the next load sees it as its previous value. Default 0; at most 10 years.
	Keep time.Duration

	// StaleWhileRevalidate and StaleIfError replace the two fields of [Options] with the same
	// names. Default 0: as in Options, but no stale windows for "does not exist". Negative: no
	// stale window.
	StaleWhileRevalidate, StaleIfError time.Duration

	// NoStore gives the result to all callers that wait, but doesn't store it. If the result is
	// larger than 4 KiB, other processes that wait load for themselves.
	NoStore bool

	// Give the result to the load's own caller only; every other caller loads for itself, in
	// parallel.
	NoShare bool

	// LeaveStored, with NoShare and without TTL, leaves the stored value as it is. Without
	// LeaveStored the stored value counts as out of date and is removed.
	LeaveStored bool

	// NotModified keeps prev.Value, or "does not exist", and begins a new lifetime. Without a
	// previous value it is an error.
	NotModified bool

	stamp int64 // the latest stamp that the value may get: see NotNewerThan; 0: no limit
}

// ofUnknownAge is the stamp of values that are made from a result without a stamp. All other stamps
// are later.
const ofUnknownAge = 1

// NotNewerThan returns the entry for a value that is made from an earlier result, such as a copy
// for another key. The value counts as loaded no later than that result. Otherwise it would count
// as loaded now, and a read with a later [Token] would get it. If nobody knows when the result was
// loaded, as after a load without a lease, the value counts as older than all tokens and changes. A
// load then doesn't store it: see NoStore. SetEntry only removes the old value.
//
// Changes of tags are compared with that time, too. If a tag of the copy is invalidated after that
// time, each further copy of the same result is out of date as soon as it is made, so each call
// makes a new copy. To prevent this, give the earlier value all tags of its copies.
func (e Entry[V]) NotNewerThan(r Result[V]) Entry[V] {
	switch {
	case r.stamp > ofUnknownAge && (e.stamp == 0 || r.stamp < e.stamp):
		e.stamp = r.stamp
	case r.stamp <= ofUnknownAge && r.Status != StatusMiss:
		e.stamp, e.NoStore = ofUnknownAge, true
	}
	return e
}

// wrong returns what is wrong with the entry's durations or tags.
func (e Entry[V]) wrong() error {
	if e.TTL < 0 || e.TTL > maxTTL || (e.TTL > 0 && e.TTL < minTTL) {
		return fmt.Errorf("Entry.TTL is %v, it must be 0 or from %v to %v", e.TTL, minTTL, maxTTL)
	}
	if e.Keep < 0 || e.Keep > maxTTL {
		return fmt.Errorf("Entry.Keep is %v, it must be from 0 to %v", e.Keep, maxTTL)
	}
	if err := errors.Join(
		option.AtMost("Entry.StaleWhileRevalidate", e.StaleWhileRevalidate, maxTTL),
		option.AtMost("Entry.StaleIfError", e.StaleIfError, maxTTL),
	); err != nil {
		return err
	}
	if _, err := e.allTags(); err != nil {
		return fmt.Errorf("Entry.Tags has %w", err)
	}
	return nil
}

// untagged reports whether the entry says nothing about tags. Then the result keeps the tags of the
// value that it replaces.
func (e Entry[V]) untagged() bool { return e.Tags == nil && e.SoftTags == nil }

// loader is a load function of one of the two kinds. The field of the other kind is nil. It is a
// struct and not a closure, because a closure would be an allocation for every hit.
type loader[V any] struct {
	value LoadFunc[V]
	entry EntryFunc[V]
}

func (l loader[V]) call(ctx context.Context, prev Result[V]) (Entry[V], error) {
	if l.entry != nil {
		return l.entry(ctx, prev)
	}
	v, err := l.value(ctx)
	return Entry[V]{Value: v}, err
}

// loaded is how a load ended.
type loaded[V any] struct {
	entry    Entry[V]
	notFound bool
	err      error // the load failed
	frame    []byte
	tags     frame.Tags // in the form of the frame
	keepErr  error      // why the result can't be stored
	took     time.Duration
	note     []byte // the tracer's
}

// unkept reports whether the value is only for the load's own caller, and is not kept for the next
// load.
func (out loaded[V]) unkept() bool { return out.entry.NoShare && out.entry.Keep == 0 }

// result returns the Result for the caller of this load.
func (out loaded[V]) result() Result[V] {
	return Result[V]{Value: out.entry.Value, NotFound: out.notFound, Status: StatusLoaded}
}

// start calls the user's load on its own goroutine, so that callers are answered even if the load
// ignores its context, never returns, panics or calls Goexit. The slot is given back only when the
// load returns, even if it returns late, because until then the load may use the origin. If a job
// that the load has brought (see package desk) keeps the slot, the job gives the slot back.
func (w *work[V]) start(ctx context.Context, slot func()) {
	c := w.run.cache
	in := &link{cache: c, parent: chainOf(ctx), began: flight.Now(), after: after(ctx)}
	// An origin with a coarse validator could say "not modified" and so bring back a value that is
	// too old.
	if after := in.after.unforged(c.store); after > 0 && w.prev.stamp <= after {
		w.prev.Result = Result[V]{Degraded: w.prev.Degraded}
	}
	for _, m := range w.all {
		in.keys = append(in.keys, m.key.Key)
	}
	if slot != nil {
		in.limiter = c.opts.Limiter
	} else {
		slot = nothing
	}
	ctx = context.WithValue(ctx, chainKey{}, in)
	if desk.From(ctx) != nil {
		in.job = desk.LoadOf(ctx)
		// The desk is for the call that began this load, and not for calls that the load makes.
		ctx = desk.With(ctx, nil)
	}
	c.loads.all.Add(1)
	c.loads.running.Add(1)
	began := time.Now()
	end := w.shown(began)
	go func() {
		defer c.loads.all.Done()
		defer slot()
		var outs []loaded[V]
		err := errGoexit
		defer func() { w.loadEnded(outs, err) }()
		var ended func(error, bool)
		defer func() {
			if v := recover(); v != nil {
				err = panicError(v)
			}
			in.over.Store(true)
			// Before any caller has the result, so that a caller that reads Stats afterwards
			// doesn't find this load.
			c.loads.running.Add(-1)
			end()
			outs = finished(outs, err, len(w.all), time.Since(began), noteOf(&w.note))
			notFound := true // stays true only if none of the keys exists
			for _, out := range outs {
				err, notFound = cmp.Or(err, out.err), notFound && out.notFound
			}
			if ended != nil {
				safely(func() { ended(err, notFound) })
			}
			c.observe(ctx, Event{
				Kind: EventLoad, Key: w.all[0].name, More: len(w.all) - 1, Took: outs[0].took,
				NotFound: notFound, Note: outs[0].note, Err: err, Audit: w.all[0].audits,
			})
		}()
		ctx, ended = c.trace(ctx, w.name(), &w.note)
		outs = w.call(ctx)
		err = nil
	}()
}

func nothing() {} // a literal in generic code would be an allocation

// shown adds the load to the list for a [Watcher]. end removes it from the list.
func (w *work[V]) shown(since time.Time) (end func()) {
	if !w.run.cache.watched {
		return nothing
	}
	leased := w.all[0].State != protocol.Alone
	return w.run.cache.loads.begin(&LoadUnder{
		Key: w.all[0].name, More: len(w.all) - 1, Since: since, Leased: leased,
		Audit: w.all[0].audits,
	}, w.callers)
}

// finished returns how a load of n keys ended for each key. If err is not nil, the load's goroutine
// ended by a panic or by Goexit. Then err is the error of every key.
func finished[V any](
	outs []loaded[V], err error, n int, took time.Duration, note []byte,
) []loaded[V] {
	if err != nil {
		outs = make([]loaded[V], n)
	}
	for i := range outs {
		outs[i].err = cmp.Or(err, outs[i].err)
		outs[i].took, outs[i].note = took, note
	}
	return outs
}

func panicError(v any) error { return &PanicError{Value: v, Stack: debug.Stack()} }

// previous is the stored value as a load sees it, and the tags that the load's result keeps.
type previous[V any] struct {
	Result[V]
	tags frame.Tags
}

// before returns the previous value for the load of this miss.
func (m *miss[V]) before() previous[V] {
	prev := previous[V]{m.had.res, m.had.tags}
	if m.had.servable() {
		prev.UsableFor = max(time.Until(m.servableUntil()), 0)
	}
	return prev
}

// complete turns the result of a load into a frame for the store. It checks the entry, recognises
// "does not exist", and encodes the value if another caller or the next load may need it.
func (c *Cache[V]) complete(
	prev previous[V], entry Entry[V], err error, note []byte,
) (out loaded[V]) {
	out.entry, out.err = entry, err
	if errors.Is(out.err, ErrNotFound) {
		out.notFound, out.err = true, nil
	}
	switch {
	case out.err != nil:
		return out
	case out.entry.wrong() != nil:
		out.err = fmt.Errorf("cacheguard: load returned a wrong Entry: %w", out.entry.wrong())
		return out
	case out.notFound:
	case out.entry.NotModified && prev.Status == StatusMiss:
		out.err = errors.New(
			"cacheguard: load returned Entry.NotModified, but there is no previous value")
		return out
	case out.entry.NotModified:
		out.entry.Value, out.notFound = prev.Value, prev.NotFound
	}
	if !out.notFound && c.opts.Empty != nil && c.opts.Empty(out.entry.Value) {
		out.notFound = true
	}
	if out.notFound {
		var zero V
		out.entry.Value = zero
	}
	if out.tags, _ = out.entry.allTags(); out.entry.untagged() {
		out.tags = prev.tags
	}
	out.frame, out.keepErr = c.encode(out.entry.Value, out.notFound ||
		out.unkept(), frame.Extension{Tags: out.tags, Note: note})
	return out
}

// inFront is in the place of the header while the codec appends a value. If the codec doesn't
// append, other bytes are in this place. They may even be memory of the caller's value, which the
// header must not overwrite.
const inFront = "a value is appended to this"

var errNotAppended = errors.New(
	"cacheguard: value can't be encoded: the codec's Append doesn't append to dst")

// encode returns a frame with room for the header, followed by the encoded value. frame.Seal writes
// the header later, because the header has the time of storing.
func (c *Cache[V]) encode(v V, notFound bool, a frame.Extension) ([]byte, error) {
	f := frame.Room(a)
	if notFound {
		return f, nil
	}
	start := len(f)
	copy(f, inFront)
	f, err := c.opts.Codec.Append(f, v)
	if err != nil {
		return nil, fmt.Errorf("cacheguard: value can't be encoded: %w", err)
	}
	if len(f) < start || string(f[:len(inFront)]) != inFront {
		return nil, errNotAppended
	}
	if size := len(f) - start; size > c.opts.MaxValueSize {
		return nil,
			fmt.Errorf("%w: %d bytes, MaxValueSize is %d", ErrTooLarge, size, c.opts.MaxValueSize)
	}
	c.doubtCodec(v, f[start:])
	return f, nil
}

// errorText returns the text of a load's error that other processes get. A panic in the user's
// ErrorText must not keep the load from ending, so it is replaced by a fixed text.
func (c *Cache[V]) errorText(err error) (text string) {
	defer func() {
		if recover() != nil {
			text = "load failed, and so did ErrorText"
		}
	}()
	if p := (*PanicError)(nil); errors.As(err, &p) {
		// Without the stack, which is only for this process.
		text = c.opts.ErrorText(fmt.Errorf("load panicked: %v", p.Value))
	} else {
		text = c.opts.ErrorText(err)
	}
	return c.sentinels.marked(text[:min(len(text), maxErrorText)], err)
}
