package cacheguard

import (
	"bytes"
	"math/rand/v2"
	"time"

	"github.com/cacheguard/cacheguard/internal/knowledge"
	"github.com/cacheguard/cacheguard/internal/local"
	"github.com/cacheguard/cacheguard/internal/protocol"
)

// kept is what the process-local tier holds of a value: what was found, and when.
type kept[V any] struct {
	until time.Duration // since the cache was made: the end of its freshness, or of Local.TTL
	at    time.Duration // and when it was found
	found[V]

	known   uint64   // how many invalidations by tag were known when it was asked for
	buckets []uint16 // of its tags
}

// localTier is the process-local tier of a cache.
type localTier[V any] struct {
	values        *local.Tier[kept[V]] // nil: there is no tier
	opts          Local[V]
	invalidations *knowledge.Invalidations
	made          time.Time // all instants count from here, on the monotonic clock: one reading is enough for a hit
}

func newLocalTier[V any](opts Local[V], invalidations *knowledge.Invalidations) (n localTier[V], err error) {
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

// fresh returns what the tier answers with at present, and when that is.
func (n *localTier[V]) fresh(id string) (e *kept[V], now time.Duration) {
	if e = n.values.Get(id); e != nil {
		if now = time.Since(n.made); now < e.until && !n.invalidations.After(e.known, e.buckets) {
			return e, now
		}
	}
	return nil, 0
}

// get returns a fresh value from the tier, as an answer, and what it was made of.
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

// dueEarly reports whether a reader who was answered with this is to refresh it before its time,
// and then what to refresh.
func (e *kept[V]) dueEarly(res Result[V], beta float64) (found[V], bool) {
	if beta <= 0 || !drawsEarly(res.FreshFor, e.took, beta, rand.Float64) {
		return found[V]{}, false
	}
	return e.later(res.Age - e.res.Age), true // not the caller's own copy
}

// later is what was found when it is so much older.
func (e *kept[V]) later(d time.Duration) (got found[V]) {
	got = e.found
	got.res = e.res.later(d)
	got.keeps -= d
	return got
}

// found is what the tier answers with at present, for nobody to change.
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

// moment is taken before the store is asked for what is then kept.
func (n *localTier[V]) moment(id string) (m moment) {
	if n.values != nil {
		m.known = n.invalidations.Count()
		m.Stamp = n.values.Stamp(id)
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

// moment says up to which change of a key, and up to which invalidation by tag, a value is known to
// be true.
type moment struct {
	local.Stamp
	known uint64
}

// keep puts a fresh value into the tier, unless it was changed since the moment was taken or nobody
// could say. It comes before the value is answered with, so that who asks again finds it; it may
// end the goroutine (Goexit in the user's functions), which its callers see to.
func (n *localTier[V]) keep(id string, m moment, got found[V]) {
	if n.values != nil {
		n.put(id, m, got, n.values.Put)
	}
}

// replace is keep for what this process has stored itself: what was there is out of date, whether
// or not this takes its place, and so is what slower readers have read.
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

func (n *localTier[V]) put(id string, m moment, got found[V], put func(string, local.Stamp, *kept[V]) bool) (done bool) {
	if got.good != protocol.Fresh {
		return false
	}
	defer func() { _ = recover() }() // the user's Weigh must not be able to kill a load
	var ok bool
	if got.res.Value, ok = n.cloned(got.res.Value); !ok { // those who got this one may change theirs
		return false
	}
	got.id, got.tags, got.note = bytes.Clone(got.id), bytes.Clone(got.tags), nil // not with the whole frame behind it
	got.res.Local, got.res.Status, got.res.Degraded = true, StatusHit, false
	at := time.Since(n.made)
	return put(id, m.Stamp, &kept[V]{
		found: got, at: at, until: at + min(got.res.FreshFor, n.opts.TTL),
		known: m.known, buckets: n.invalidations.Buckets(got.tags),
	})
}

// last returns what the tier has of a key, although nobody can say whether it was changed since:
// good for being served as stale, within its windows, while the store can't be used.
func (n *localTier[V]) last(id string) (got found[V]) {
	if n.values == nil {
		return got
	}
	e := n.values.Distrusted(id)
	if e == nil || n.invalidations.After(e.known, e.buckets) {
		return got
	}
	since := time.Since(n.made) - e.at
	if e.keeps <= since || e.keeps <= e.res.FreshFor { // over, or without a stale window
		return got
	}
	got = e.found
	got.keeps -= since
	got.res = got.res.later(since)
	got.res.FreshFor = min(got.res.FreshFor, -time.Nanosecond) // it counts as stale whatever its age
	got.res.Status, got.good = StatusStale, protocol.OnError
	var ok bool
	if got.res.Value, ok = n.cloned(got.res.Value); !ok {
		return found[V]{}
	}
	return got
}

// cloned is a copy of a value for one caller, if callers have copies.
func (n *localTier[V]) cloned(v V) (clone V, ok bool) {
	if n.opts.Clone == nil {
		return v, true
	}
	defer func() { _ = recover() }()
	return n.opts.Clone(v), true
}
