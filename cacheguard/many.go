package cacheguard

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/cacheguard/cacheguard/internal/flight"
	"github.com/cacheguard/cacheguard/internal/protocol"
)

// GetMany returns the values of many keys. It reads the store in one trip, and asks in a second
// trip for the leases of all missing keys. Then it calls load once, with the keys that no other
// caller loads. load takes one slot of MaxLoads. GetMany shares flights and leases with every Get
// of the same keys. A repeated key is treated as one key.
//
// GetMany returns every value that it has, even if it also returns an error. A key that doesn't
// exist is absent from the map, which is not an error. load must leave such a key out of its map,
// too. If keys fail, the error is a [KeyErrors] with each failed key and the error that Get would
// have returned for it. If GetMany still waits for a key when ctx ends, this key is one of the
// failed keys.
//
// If load returns a KeyErrors, only the keys in it have failed. Any other error is the error of all
// keys, and the map is ignored. If that error wraps ErrNotFound, none of the keys exists. Values of
// keys that load was not asked for are ignored. Observers see one load, with the first key and the
// number of further keys.
func (c *Cache[V]) GetMany(ctx context.Context, keys []string, load func(ctx context.Context, missing []string) (map[string]V, error)) (map[string]V, error) {
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
// tags the value has. The load sees no previous values and can't return NotModified.
func (c *Cache[V]) GetManyEntries(ctx context.Context, keys []string,
	load func(ctx context.Context, missing []string) (map[string]Entry[V], error)) (map[string]Result[V], error) {
	if load == nil {
		return nil, errNoLoad
	}
	m := &many[V]{cache: c, load: load, entries: true}
	err := m.all(ctx, keys)
	return m.results, err
}

// GetManyBy is like [Cache.GetMany], with ids that are not strings. key returns the key of an id.
// If several ids have the same key, the first of them is loaded, and all of them get its value. If
// load or GetManyBy returns a KeyErrors, its index is the key and not the id.
func GetManyBy[K comparable, V any](ctx context.Context, c *Cache[V], ids []K, key func(K) string, load func(ctx context.Context, missing []K) (map[K]V, error)) (map[K]V, error) {
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
	got, err := c.GetMany(ctx, keys, func(ctx context.Context, missing []string) (map[string]V, error) {
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

	since uint64     // results that were found before this time are too old
	after int64      // results whose load began before this time, on the store's clock, are too old
	came  uint64     // when the call began; a load in this process that began later is new enough
	again []string   // keys for which only too old results were found
	waits []*miss[V] // the misses whose flights the call waits for: first flights of other callers, then its own flights
	leads int        // how many flights the call leads
	round[V]
}

// round is one attempt of a GetMany. There is a second one only for results that are too old.
type round[V any] struct {
	behind []*miss[V] // refreshes in the background of values that the call returns
	missed []*miss[V] // the misses of keys that need a load
	asOf   uint64     // the moment before the store was read, on the flights' clock
	mode   Mode       // mode of the cache's Switch
	group  group      // the group of the flights that the call takes part in
}

// all gets the results of the keys. A repeated key is treated as one key.
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
			of = group(n % 2) // reads, refreshes, and so on: see notOlder
		}
		m.get(ctx, keys, flight.Tick(), of)
	}
	if len(m.failed) > 0 {
		return m.failed
	}
	return nil
}

// alone loads the keys that are still too old after several attempts, one by one and without the
// lease.
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
	m.group = m.cache.groupIn(m.mode, of)
	m.read(ctx, keys)
	m.refreshBehind(ctx)
	m.join(ctx)
	m.wait(ctx)
}

// one returns a load for one of the keys. It is used if the key can't be loaded together with the
// others.
func (m *many[V]) one(key string) loader[V] {
	return loader[V]{entry: func(ctx context.Context, _ Result[V]) (Entry[V], error) {
		entries, err := m.load(ctx, []string{key})
		return pick(entries, err, key)
	}}
}

// pick returns what a load of many keys returned for one key.
func pick[V any](entries map[string]Entry[V], err error, key string) (e Entry[V], _ error) {
	if err != nil {
		var some KeyErrors
		if !errors.As(err, &some) {
			return e, err
		}
		if err := some[key]; err != nil {
			return e, err
		}
	}
	e, ok := entries[key]
	switch {
	case !ok:
		return e, ErrNotFound
	case e.NotModified:
		return e, errors.New("cacheguard: a load of many keys returned Entry.NotModified, but it sees no previous values")
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
	case errors.Is(err, ErrNotFound):
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
	if c.tier.values == nil || linkOf(ctx) != nil || c.opts.Switch.Mode() != ModeOn { // see since and demanded
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
	c.readMany(ctx, ks, func(i int, got *found[V], err error) { m.found(ctx, keys[i], ks[i], before[i], got, err) })
}

// found answers one key with the found value, or notes the key as missed. changed is the key's
// count of changes before the store was asked.
func (m *many[V]) found(ctx context.Context, key string, k Key, changed uint64, got *found[V], err error) {
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
	case m.group == refreshes:
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
		p := c.missOf(m.target(key, k), *got, err)
		p.Reads = true
		m.miss(p, changed)
	}
}

// target makes the target of a miss. A hit has none, because the target and its load cost two
// allocations for each key.
func (m *many[V]) target(key string, k Key) *target[V] { return &target[V]{nil, key, k, m.one(key)} }

// miss notes that a key needs a load. changed is the key's count of changes before the store was
// asked.
func (m *many[V]) miss(p *miss[V], changed uint64) {
	p.asked.changed = changed
	m.missed = append(m.missed, p)
}

// refreshBehind starts the refreshes of values that the caller already has.
func (m *many[V]) refreshBehind(ctx context.Context) {
	lead := slices.DeleteFunc(m.behind, func(p *miss[V]) bool { return !m.cache.leadsRefresh(p) })
	if len(lead) > 0 {
		m.cache.runBehind(ctx, m.load, lead...)
	}
}

// join joins the flights of all missed keys, and starts one run for the flights that this call
// leads.
func (m *many[V]) join(ctx context.Context) {
	c := m.cache
	seen := make(map[string]bool, len(m.missed))
	var began []*miss[V]
	offered, ended := false, false
	defer func() {
		if !ended { // Goexit in an observer
			for _, p := range began {
				p.flight.Land(outcome[V]{err: errGoexit})
			}
		}
	}()
	for _, p := range m.missed {
		id := p.key.Key
		if seen[id] {
			continue
		}
		seen[id] = true
		if c.inside(ctx, id) { // a load that waits for its own key would wait for ever
			m.give(p.name, &Result[V]{}, recursion(p.name))
			continue
		}
		f, leads := c.flights[m.group].JoinBegun(id, c.opts.MaxWaiters, max(m.since, c.sinceIfRead(ctx, id)), m.asOf)
		switch {
		case f == nil:
			m.give(p.name, &Result[V]{}, c.turnAway(ctx, p.name, id))
			continue
		case !leads:
			p.flight = f
			m.waits = append(m.waits, p)
			continue
		}
		p.flight = f
		began = append(began, p)
		if c.changed.Count(id) != p.asked.changed { // callers that join from now on must not get a value that was read before the change
			p.had.forget()
			p.Seen = protocol.Nothing
		}
		if p.Reads {
			offered = c.offer(p) || offered
		}
	}
	ended = true
	if offered { // if a load makes this call, it may return after SoftTimeout, while the new load still needs a slot
		ctx = outsideSlots(ctx)
	}
	m.waits, m.leads = append(m.waits, began...), len(began)
	if len(began) > 0 {
		c.runAll(ctx, m.load, began...)
	}
}

// wait waits for the flights, one after another, and records their outcomes.
func (m *many[V]) wait(ctx context.Context) {
	c, began := m.cache, time.Now()
	for _, p := range m.waits {
		c.urge(ctx, p.flight)
	}
	for len(m.waits) > 0 {
		p := m.waits[0]
		m.waits = m.waits[1:]
		out, err := m.result(ctx, p, began)
		var res Result[V]
		switch {
		case err != nil:
		case len(m.waits) < m.leads:
			err = c.led(ctx, p, out, began, &res)
		case c.opts.StrongReads && m.since == 0 && c.tooOld(out, p.flight, m.asOf):
			m.again = append(m.again, p.name)
			continue
		default:
			err = c.shared(ctx, p.flight, p.name, p.load, out, began, &res)
		}
		m.give(p.name, &res, err)
	}
}

// result waits for one flight. SoftTimeout applies to the whole call. since is when the call began
// to wait.
func (m *many[V]) result(ctx context.Context, p *miss[V], since time.Time) (*outcome[V], error) {
	c := m.cache
	if c.opts.SoftTimeout <= 0 {
		return p.flight.Result(ctx)
	}
	return c.resultWithin(ctx, p.flight, max(c.opts.SoftTimeout-time.Since(since), 0))
}

// leave leaves the flights that the call still waits for. There are such flights if Goexit has
// ended the call. Without leave, their loads could not be cancelled.
func (m *many[V]) leave() {
	for _, p := range m.waits {
		p.flight.Leave()
	}
}
