package cacheguard

import (
	"bytes"
	"math/rand/v2"
	"time"

	"github.com/cacheguard/cacheguard/internal/knowledge"
	"github.com/cacheguard/cacheguard/internal/local"
	"github.com/cacheguard/cacheguard/internal/protocol"
)

// kept is an entry of the process-local tier: a value, and when it was found. until and at are
// durations since the cache was made.
type kept[V any] struct {
	// When the tier stops serving the value: at the end of its freshness or of Local.TTL.
	until time.Duration
	at    time.Duration // when it was found
	found[V]

	// How many invalidations by tag were known when the store was asked for the value.
	known   uint64
	buckets []uint16 // the hash buckets of its tags, in which later invalidations are counted
}

// localTier is the process-local tier of a cache.
type localTier[V any] struct {
	values        *local.Tier[kept[V]] // nil: there is no tier
	opts          Local[V]
	invalidations *knowledge.Invalidations
	// The tier's times are durations since made, on the monotonic clock. A hit reads this clock
	// only once.
	made time.Time
}

func newLocalTier[V any](
	opts Local[V], invalidations *knowledge.Invalidations,
) (n localTier[V], err error) {
	if opts.Entries == 0 {
		return n, nil
	}
	cfg := local.Config[kept[V]]{Entries: opts.Entries}
	if opts.Weigh != nil {
		cfg.Weigh = func(key string, e *kept[V]) uint32 { return opts.Weigh(key, e.res.Value) }
	}
	n = localTier[V]{opts: opts, invalidations: invalidations, made: time.Now()}
	n.values, err = local.New(cfg)
	return n, err
}

// fresh returns the entry with which the tier may answer now. It also returns the present time, so
// that its callers need not read the clock again.
func (n *localTier[V]) fresh(id string) (e *kept[V], now time.Duration) {
	if e = n.values.Get(id); e != nil {
		if now = time.Since(n.made); now < e.until && !n.invalidations.After(e.known, e.buckets) {
			return e, now
		}
	}
	return nil, 0
}

// get returns a fresh value from the tier, as the result of a call, and the tier's entry.
func (n *localTier[V]) get(id string) (res Result[V], e *kept[V]) {
	e, now := n.fresh(id)
	if e == nil {
		return res, nil
	}
	res = e.res.later(now - e.at)
	if n.opts.Clone != nil {
		var ok bool
		if res.Value, ok = n.cloned(res.Value); !ok {
			return Result[V]{}, nil
		}
	}
	return res, e
}

// dueEarly reports whether a call that got this entry must refresh the value early, and returns the
// value to refresh.
func (e *kept[V]) dueEarly(res Result[V], beta float64) (found[V], bool) {
	if beta <= 0 || !drawsEarly(res.FreshFor, e.took, beta, rand.Float64) {
		return found[V]{}, false
	}
	return e.later(res.Age - e.res.Age), true // not res, whose value may be the caller's copy
}

// later returns the found value with its age after a further time d.
func (e *kept[V]) later(d time.Duration) (got found[V]) {
	got = e.found
	got.ages(d)
	return got
}

// found returns the value with which the tier would answer now. The value is not a copy, so it must
// not be changed.
func (n *localTier[V]) found(id string) (got found[V], ok bool) {
	if n.values == nil {
		return got, false
	}
	e, now := n.fresh(id)
	if e == nil {
		return got, false
	}
	return e.later(now - e.at), true
}

// moment returns the present moment of a key. Call moment before you ask the store, and pass the
// moment to keep with the answer. If the key changes before the answer arrives, the answer may be
// old. Then the moment is over, and keep doesn't keep the answer.
func (n *localTier[V]) moment(id string) (m moment) {
	if n.values != nil {
		m = moment{known: n.invalidations.Count(), Stamp: n.values.Stamp(id)}
	}
	return m
}

// moments is moment for many keys; nil if there is no tier.
func (n *localTier[V]) moments(keys []Key) (all []moment) {
	if n.values != nil {
		all = make([]moment, len(keys))
		for i, k := range keys {
			all[i] = n.moment(k.Key)
		}
	}
	return all
}

// moment identifies the last change of a key, and the last invalidation by tag, that this process
// knew when it asked for a value.
type moment struct {
	local.Stamp
	known uint64
}

// keep puts a fresh value into the tier. It does nothing if the key was changed after the moment m,
// or if changes may have been missed. Call keep before callers get the value, so that their next
// call finds the value in the tier. The user's functions may call Goexit inside keep. The callers
// of keep are prepared for that.
func (n *localTier[V]) keep(id string, m moment, got found[V]) {
	if n.values != nil {
		n.put(id, m, got, n.values.Put)
	}
}

// replace is keep for a value that this process has stored itself. After replace, slower readers
// can't put older values into the tier. If the new value can't be kept, replace drops the tier's
// old entry, because the old entry is out of date.
func (n *localTier[V]) replace(id string, m moment, got found[V]) {
	if n.values == nil {
		return
	}
	kept := false
	defer func() {
		if !kept {
			n.values.Drop(id)
		}
	}()
	kept = n.put(id, m, got, n.values.Replace)
}

func (n *localTier[V]) put(
	id string, m moment, got found[V], put func(string, local.Stamp, *kept[V]) bool,
) (done bool) {
	if got.good != protocol.Fresh {
		return false
	}
	defer func() { _ = recover() }() // the user's Weigh must not be able to kill a load
	var ok bool
	// With Local.Clone a copy, because callers may then change the value that they got.
	if got.res.Value, ok = n.cloned(got.res.Value); !ok {
		return false
	}
	// Copies, because slices of the frame would keep all of it in memory.
	got.id, got.tags, got.note = bytes.Clone(got.id), bytes.Clone(got.tags), nil
	got.res.Local, got.res.Status, got.res.Degraded = true, StatusHit, false
	at := time.Since(n.made)
	return put(id, m.Stamp, &kept[V]{
		found: got, at: at, until: at + min(got.res.FreshFor, n.opts.TTL),
		known: m.known, buckets: n.invalidations.Buckets(got.tags),
	})
}

// last returns the tier's value of a key after a read of the store has failed, even while messages
// don't arrive. The value may have been changed since it was found. So it may be served only while
// the store can't be used, only as a stale value, and only within its stale windows.
func (n *localTier[V]) last(id string) (got found[V]) {
	if n.values == nil {
		return got
	}
	e := n.values.Distrusted(id)
	if e == nil || n.invalidations.After(e.known, e.buckets) {
		return got
	}
	since := time.Since(n.made) - e.at
	// Its time has ended, or it has no stale window.
	if e.keeps <= since || e.keeps <= e.res.FreshFor {
		return got
	}
	got = e.later(since)
	got.res.FreshFor = min(got.res.FreshFor, -time.Nanosecond) // stale, even if its TTL is not over
	got.res.Status, got.good = StatusStale, protocol.OnError
	var ok bool
	if got.res.Value, ok = n.cloned(got.res.Value); !ok {
		return found[V]{}
	}
	return got
}

// cloned returns a copy of a value for one caller, if Local.Clone is set. ok is false if Clone
// panicked.
func (n *localTier[V]) cloned(v V) (clone V, ok bool) {
	if n.opts.Clone == nil {
		return v, true
	}
	defer func() { _ = recover() }()
	return n.opts.Clone(v), true
}
