package cacheguard

import (
	"context"
	"errors"
	"maps"
	"slices"

	"github.com/cacheguard/cacheguard/internal/flight"
	"github.com/cacheguard/cacheguard/internal/protocol"
)

// GetMany returns the values of many keys. It reads the store in one trip, and asks in a second
// trip for the leases of all missing keys (redisstore: one trip for each 1,024 reads, in a cluster
// for each 128 at most, and for each 256 leases). Then it usually calls load once, with the keys
// that no other caller loads. There may be further calls, even at the same time or after GetMany
// has returned: to refresh values in the background, to check them for Options.Audit, and to load
// keys for which other loads brought no result or one that is too old. Each call takes one slot of
// MaxLoads. GetMany shares flights and leases with every Get of the same keys. A repeated key is
// loaded once. If its value is found, each repetition is counted, as a hit or as stale.
//
// GetMany returns every value that it has, even if it also returns an error. A key that doesn't
// exist is absent from the map, which is not an error. load must leave such a key out of its map,
// too. If keys fail, the error is a [KeyErrors] with each failed key and the error that Get would
// have returned for it. If GetMany still waits for a key when ctx ends, this key is one of the
// failed keys.
//
// If load returns a KeyErrors, or an error that wraps one, only the keys in it have failed. There
// are two exceptions: the KeyErrors is one of several joined errors, or it has a key that load was
// not asked for (it may be from a GetMany inside load). Then load's error is also the error of all
// keys without a value. Any other error is the error of all keys, and the map is ignored. If the
// other error wraps ErrNotFound, none of the keys exists. Values of keys that load was not asked
// for are ignored. Observers see one load, with the first key and the number of further keys.
func (c *Cache[V]) GetMany(
	ctx context.Context, keys []string,
	load func(ctx context.Context, missing []string) (map[string]V, error),
) (map[string]V, error) {
	if load == nil {
		return nil, errNoLoad
	}
	m := &many[V]{cache: c}
	m.load = func(ctx context.Context, missing []string) (map[string]Entry[V], error) {
		values, err := load(ctx, slices.Clone(missing)) // a copy, because load may change the list
		entries := make(map[string]Entry[V], len(values))
		for _, key := range missing {
			if v, ok := values[key]; ok {
				entries[key] = Entry[V]{Value: v}
			}
		}
		return entries, err
	}
	err := m.all(ctx, keys)
	return m.got, err
}

// GetManyEntries is like GetMany, with a load that decides how long each value is kept and which
// tags it has. The load sees no previous values and can't return NotModified.
func (c *Cache[V]) GetManyEntries(ctx context.Context, keys []string,
	load func(ctx context.Context,
		missing []string) (map[string]Entry[V], error)) (map[string]Result[V], error) {
	if load == nil {
		return nil, errNoLoad
	}
	m := &many[V]{cache: c, load: load, entries: true}
	err := m.all(ctx, keys)
	return m.results, err
}

// GetManyBy is like [Cache.GetMany], with ids that are not strings. key returns the key of an id.
// If several ids have the same key, the first of them is loaded, and all of them get its value. The
// index of a KeyErrors, from load or from GetManyBy, is the key and not the id.
func GetManyBy[K comparable, V any](
	ctx context.Context, c *Cache[V], ids []K, key func(K) string,
	load func(ctx context.Context, missing []K) (map[K]V, error),
) (map[K]V, error) {
	if key == nil || load == nil {
		return nil, errors.New("cacheguard: the key function or the load function is nil")
	}
	keys := make([]string, len(ids))
	byKey := make(map[string]K, len(ids))
	for i, id := range ids {
		keys[i] = key(id)
		if _, ok := byKey[keys[i]]; !ok {
			byKey[keys[i]] = id
		}
	}
	got, err := c.GetMany(ctx, keys, func(
		ctx context.Context, missing []string,
	) (map[string]V, error) {
		wanted := make([]K, len(missing))
		for i, k := range missing {
			wanted[i] = byKey[k]
		}
		loaded, err := load(ctx, wanted)
		values := make(map[string]V, len(loaded))
		for _, k := range missing {
			if v, ok := loaded[byKey[k]]; ok {
				values[k] = v
			}
		}
		return values, err
	})
	if got == nil {
		return nil, err
	}
	values := make(map[K]V, len(got))
	for i, id := range ids {
		if v, ok := got[keys[i]]; ok {
			values[id] = v
		}
	}
	return values, err
}

// many is one call of GetMany.
type many[V any] struct {
	cache   *Cache[V]
	load    manyFunc[V]
	entries bool                 // the caller wants results, not values
	got     map[string]V         // the values that the call has so far, unless entries is set
	results map[string]Result[V] // the results that the call has so far, if entries is set
	failed  KeyErrors

	since uint64   // results that were found before this time are too old
	after int64    // results whose load began before this time, on the store's clock, are too old
	came  uint64   // when the call began; a load in this process that began later is new enough
	again []string // keys for which only too old results were found
	// The misses whose flights the call waits for: first flights of other callers, then its own
	// flights.
	waits []*miss[V]
	leads int // how many flights the call leads
	round[V]
}

// round is one attempt of a GetMany. A further round is only for keys whose results were too old.
type round[V any] struct {
	behind []*miss[V]      // refreshes in the background of values that the call returns
	missed []*miss[V]      // the misses of keys that need a load, each key once
	seen   map[string]bool // the ids of the missed keys; nil: none was missed
	asOf   uint64          // the moment before the store was read, on the flights' clock
	mode   Mode            // mode of the cache's Switch
	group  group           // the group of the flights that the call takes part in
}

// all gets the results of the keys.
func (m *many[V]) all(ctx context.Context, keys []string) error {
	if err := m.cache.enter(ctx); err != nil {
		return err
	}
	if m.entries {
		m.results = make(map[string]Result[V], len(keys))
	} else {
		m.got = make(map[string]V, len(keys))
	}
	defer m.leave()
	keys = m.local(ctx, keys)
	m.after, m.came = m.cache.demanded(ctx), flight.Tick()
	m.get(ctx, keys, m.came, reads)
	for n := 1; len(m.again) > 0; n++ { // only with StrongReads, or if the context has a token
		keys, m.again, m.round = m.again, nil, round[V]{}
		if n == 2*attempts {
			m.alone(ctx, keys)
			break
		}
		if m.cache.opts.StrongReads {
			m.since = m.came
		}
		of := reads
		if m.after > 0 {
			of = group(n % 2) // refreshes, then reads, and so on: see notOlder
		}
		m.get(ctx, keys, flight.Tick(), of)
	}
	if len(m.failed) > 0 {
		return m.failed
	}
	return nil
}

// alone loads keys one by one, without the lease. These are the keys whose results were too old in
// all attempts.
func (m *many[V]) alone(ctx context.Context, keys []string) {
	m.after = 0
	for _, key := range keys {
		var res Result[V]
		err := m.cache.besideLease(ctx, key, m.one(key), &res)
		m.give(key, &res, err)
	}
}

// get reads the keys from the store and loads those that are missing.
func (m *many[V]) get(ctx context.Context, keys []string, asOf uint64, of group) {
	m.asOf, m.mode = asOf, m.cache.opts.Switch.Mode()
	// In shadow the group is direct even if of is refreshes: these loads may have no lease, and a
	// call of Refresh must not join a load without a lease.
	if m.group = of; m.mode != ModeOn {
		m.group = direct
	}
	m.read(ctx, keys)
	m.cache.refreshAllBehind(ctx, m.load, m.behind)
	m.join(ctx)
	m.wait(ctx)
}

// one returns a load for one of the keys. It is used if the key can't be loaded together with the
// others.
func (m *many[V]) one(key string) loader[V] {
	return loader[V]{entry: func(ctx context.Context, _ Result[V]) (Entry[V], error) {
		entries, err := m.load(ctx, []string{key})
		a := answersOf(entries, err, []string{key})
		return a.pick(key)
	}}
}

// answers is what a load of many keys returned.
type answers[V any] struct {
	entries map[string]Entry[V]
	failed  KeyErrors
	rest    error // the error of keys without an entry that are not in failed
}

// answersOf sorts the result of a load that was asked for these keys. If the load's error is a
// KeyErrors without other keys, or wraps only this KeyErrors, it names every key that failed. If
// the KeyErrors has other keys, or is one of several joined errors, it isn't known which keys
// failed. It may be from a GetMany inside the load, for instance. Then the load's error is also the
// error of the keys without an entry.
func answersOf[V any](entries map[string]Entry[V], err error, asked []string) (a answers[V]) {
	if err == nil {
		return answers[V]{entries: entries, rest: ErrNotFound}
	}
	if !errors.As(err, &a.failed) {
		return answers[V]{rest: err}
	}
	a.entries, a.rest = entries, ErrNotFound
	others := maps.Clone(a.failed)
	for _, key := range asked {
		delete(others, key)
	}
	alone := false
	// Unlike As, Unwrap doesn't look into several errors.
	for e := err; e != nil && !alone; e = errors.Unwrap(e) {
		_, alone = e.(KeyErrors)
	}
	switch {
	case alone && len(others) == 0:
	case !errors.Is(err, ErrNotFound):
		a.rest = err
	default: // some other key doesn't exist, which says nothing of these keys
		a.rest = errors.New(err.Error())
	}
	return a
}

// pick returns what the load returned for one key.
func (a *answers[V]) pick(key string) (e Entry[V], err error) {
	if err := a.failed[key]; err != nil {
		return e, err
	}
	e, ok := a.entries[key]
	switch {
	case !ok:
		return e, a.rest
	case e.NotModified:
		return e, errors.New(
			"cacheguard: a load of many keys returned Entry.NotModified, but it sees no previous values")
	}
	return e, nil
}

// give records the result of one key. If the result is too old, the key is tried again.
func (m *many[V]) give(key string, res *Result[V], err error) {
	switch {
	case !res.meets(err, m.after, m.came):
		m.again = append(m.again, key)
	case err == nil && m.entries:
		m.results[key] = *res
	case err == nil:
		m.got[key] = res.Value
	case wraps(err, ErrNotFound):
	default:
		if m.failed == nil {
			m.failed = KeyErrors{}
		}
		m.failed[key] = err
	}
}

// local answers the keys that the process-local tier has, and returns the other keys.
func (m *many[V]) local(ctx context.Context, keys []string) []string {
	c := m.cache
	// See since and demanded.
	if c.tier.values == nil || linkOf(ctx) != nil || c.opts.Switch.Mode() != ModeOn {
		return keys
	}
	var others []string
	for _, key := range keys {
		id := keyID(key)
		res, e := c.tier.get(id)
		if e == nil {
			others = append(others, key)
			continue
		}
		if got, early := e.dueEarly(res, c.opts.EarlyRefresh); early {
			m.refresh(key, c.key(id), got)
		}
		if c.sampler.due.Load() != 0 {
			c.sampledLocally(ctx, key, id, m.one(key), e, res.Age)
		}
		m.answer(ctx, key, &res)
	}
	if len(others) > 0 {
		c.store.Listening() // makes the store listen, because without messages the tier is not used
	}
	return others
}

// answer answers one key with a stored value.
func (m *many[V]) answer(ctx context.Context, key string, res *Result[V]) {
	err := m.cache.answer(ctx, key, res)
	m.give(key, res, err)
}

// refresh notes that the call must start a refresh of a value in the background.
func (m *many[V]) refresh(key string, k Key, got found[V]) {
	m.behind = append(m.behind, m.cache.missOf(m.target(key, k), got, nil))
}

// read answers the keys for which the store has a value that may be served, and notes the other
// keys as missed. It follows the same rules as Get.
func (m *many[V]) read(ctx context.Context, keys []string) {
	if len(keys) == 0 {
		return
	}
	c := m.cache
	ks, before := make([]Key, len(keys)), make([]uint64, len(keys))
	for i, key := range keys {
		ks[i] = c.key(keyID(key))
		before[i] = c.changed.Count(ks[i].Key)
	}
	if m.mode == ModeOff {
		for i, key := range keys {
			m.miss(c.offPath(m.target(key, ks[i])), before[i])
		}
		return
	}
	c.readMany(ctx, ks, func(i int, got *found[V], err error) {
		m.found(ctx, keys[i], ks[i], before[i], got, err)
	})
}

// found answers one key with the found value, or notes the key as missed. changed is the key's
// count of changes before the store was asked.
func (m *many[V]) found(
	ctx context.Context, key string, k Key, changed uint64, got *found[V], err error,
) {
	if m.seen[k.Key] || m.failed[key] != nil { // the key is repeated
		return
	}
	c := m.cache
	if err != nil {
		err = c.unread(ctx, key, k.Key, got, err)
	} else if !got.servable() {
		c.observeMiss(ctx, key, *got)
	}
	switch {
	case m.mode == ModeShadow:
		m.miss(c.inShadow(m.target(key, k), *got, err), changed)
		return
	case m.group == refreshes && (got.good != protocol.Fresh || got.res.stamp <= m.after):
		m.miss(c.missOf(m.target(key, k), *got, err), changed)
		return
	}
	switch kind, failed, behind := c.atOnce(k.Key, got, err); kind {
	case EventHit, EventStale:
		if got.res.Err = failed; behind {
			m.refresh(key, k, *got)
		}
		if kind == EventHit && c.sampler.due.Load() != 0 {
			c.sampled(ctx, key, k.Key, m.one(key), got)
		}
		m.answer(ctx, key, &got.res)
	case EventCoalesced, EventOverloaded:
		c.observe(ctx, Event{Kind: kind, Key: key, Err: failed})
		m.give(key, &Result[V]{}, failed)
	default:
		m.miss(c.missOfRead(m.target(key, k), got, err), changed)
	}
}

// target makes the target of a miss. Hits get no target, because it would cost two allocations per
// key.
func (m *many[V]) target(key string, k Key) *target[V] {
	return &target[V]{nil, key, k, m.one(key)}
}

// miss notes that a key needs a load. changed is the key's count of changes before the store was
// asked.
func (m *many[V]) miss(p *miss[V], changed uint64) {
	if m.seen[p.key.Key] {
		return
	}
	if m.seen == nil {
		m.seen = make(map[string]bool)
	}
	m.seen[p.key.Key] = true
	p.asked.changed = changed
	m.missed = append(m.missed, p)
}
