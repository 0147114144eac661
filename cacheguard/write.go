package cacheguard

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/cacheguard/cacheguard/internal/flight"
	"github.com/cacheguard/cacheguard/internal/frame"
	"github.com/cacheguard/cacheguard/internal/knowledge"
)

// Set stores a value and ends any lease: no load that began before it can store after it. It is
// safe with one writer for each key; two writers' Sets can arrive in the other order than their
// writes to the origin: use Update or Invalidate then. Set goes through although ctx ends, as the
// origin has changed already.
//
// A value that Options.Empty holds for is stored as the null sentinel. A value that can't be stored
// (encoding, MaxValueSize) is an error, and what stood there is removed, for it is out of date.
func (c *Cache[V]) Set(ctx context.Context, key string, v V) error {
	return c.SetEntry(ctx, key, Entry[V]{Value: v})
}

// SetEntry is Set with a lifetime and tags of the value's own. NoStore, NoShare and NotModified are
// for loads: with one of them it is an error and nothing is done.
func (c *Cache[V]) SetEntry(ctx context.Context, key string, e Entry[V]) error {
	if err := c.enter(ctx); err != nil {
		return err
	}
	if e.NoStore || e.NoShare || e.NotModified {
		return errors.New("cacheguard: SetEntry takes no Entry with NoStore, NoShare or NotModified")
	}
	if err := e.wrong(); err != nil {
		return fmt.Errorf("cacheguard: %w", err)
	}
	c.changes.Add(1)
	id := keyID(key)
	out := loaded[V]{entry: e}
	var err error
	out.frame, out.notFound, err = c.encodeSafely(e)
	if err != nil || c.header(out, Grant{}).Soft <= 0 {
		return errors.Join(err, c.withdraw(ctx, key))
	}
	ctx = context.WithoutCancel(ctx)
	last := c.unsent.Last()
	c.seal(id)
	err = c.claimAndFill(ctx, c.key(id), &out)
	c.seal(id)
	if err != nil {
		c.unsent.AddKeys([]string{id}, c.loadedBy(), time.Time{})
		c.down(ctx, &c.changing, key, err)
		return fmt.Errorf("cacheguard: %s may still have its old value: %w", quoteKey(key), c.deliver()(err))
	}
	c.unsent.SentKeys([]string{id}, last, false)
	c.upForChanges(ctx)
	c.presence.Of(id).Stands(knowledge.ForGood)
	return nil
}

// claimAndFill stores a value in two steps. One could do both, but a copy of that one which is held
// up on its way could arrive after a later Set or Invalidate and bring the old value back; a late
// copy of a claim costs a miss, and one of a fill is refused. A fill that is refused lost to a
// later change, which is as good as a Set that came before it.
func (c *Cache[V]) claimAndFill(ctx context.Context, k Key, out *loaded[V]) error {
	token := newID()
	g, err := c.store.Claim(ctx, k, token, c.opts.LeaseTTL)
	if err == nil {
		if tags, ok := frame.RemnantTags([]byte(g.Left)); ok && out.entry.untagged() {
			out.frame = append(frame.Room(frame.Extension{Tags: tags}), out.frame[frame.HeaderSize:]...)
		}
		h := c.header(*out, g)
		frame.Seal(out.frame, h)
		if _, err = c.store.Fill(ctx, k, g, out.frame, h.Hard()+out.entry.Keep); err == nil {
			c.written(k.Key, g)
		}
	}
	if err != nil { // the claim may be there, and would keep loads waiting
		c.background(func(ctx context.Context) error { return c.store.Release(ctx, k, token) })
	}
	return err
}

// written takes note that the store was told of a value: one from before this grant is out of date.
func (c *Cache[V]) written(id string, g Grant) { c.lately.Keys([]string{id}, g.Stamp-1, time.Time{}) }

// encodeSafely encodes on the caller's goroutine, where the user's code may panic too.
func (c *Cache[V]) encodeSafely(e Entry[V]) (f []byte, notFound bool, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("cacheguard: value can't be encoded: panic: %v", p)
		}
	}()
	notFound = c.opts.Empty != nil && c.opts.Empty(e.Value)
	tags, _ := e.allTags()
	f, err = c.encode(e.Value, notFound, frame.Extension{Tags: tags})
	return f, notFound, err
}

// Invalidate removes values, fresh, stale and negative ones, error markers, and leases: no load
// that began before it can store after it, and no call of this process that starts after it joins
// such a load. Commit to the origin first, then call it. It goes through although ctx ends. When it
// returns an error, a KeyErrors with the keys for which it is not certain, this process remembers
// them and tells the store when it can (ErrPending), and serves nothing from before the call; until
// then, other processes may. See Flush.
func (c *Cache[V]) Invalidate(ctx context.Context, keys ...string) error {
	if !c.mayChange(ctx) {
		return ErrClosed
	}
	c.changes.Add(uint64(len(keys)))
	return c.invalidate(ctx, keys)
}

// MarkStale ages values: the next read of each refreshes it, and until then it is served within its
// stale windows, which begin now, at the latest. It ends leases too, for what is loaded now may be
// older than what the mark is for. Otherwise it is like Invalidate.
func (c *Cache[V]) MarkStale(ctx context.Context, keys ...string) error {
	if !c.mayChange(ctx) {
		return ErrClosed
	}
	c.changes.Add(uint64(len(keys)))
	return c.changeKeys(ctx, keys, c.store.Now())
}

func (c *Cache[V]) invalidate(ctx context.Context, keys []string) error {
	return c.changeKeys(ctx, keys, time.Time{})
}

// changeKeys has the store change keys, and everything in this process agree. mark is when they
// were marked stale; zero: they are invalidated.
func (c *Cache[V]) changeKeys(ctx context.Context, keys []string, mark time.Time) error {
	if len(keys) == 0 {
		return nil
	}
	c.doubtNames(ctx, &c.pattern, keys, keyPatternLine)
	ks := make([]Key, len(keys))
	names := make(map[string]string, len(keys))
	for i, key := range keys {
		id := keyID(key)
		ks[i], names[id] = c.key(id), key
		c.seal(id)
	}
	_, failed := c.tellKeys(context.WithoutCancel(ctx), ks, mark, c.unsent.Last())
	if failed == nil {
		c.upForChanges(ctx)
		return nil
	}
	ids := slices.Sorted(maps.Keys(failed))
	c.unsent.AddKeys(ids, c.loadedBy(), mark)
	c.down(ctx, &c.changing, names[ids[0]], failed[ids[0]])
	pending := c.deliver()
	named := make(KeyErrors, len(failed))
	for id, err := range failed {
		named[names[id]] = pending(err)
	}
	return named
}

// withdraw removes a value that a writer takes for out of date, and leases, like Invalidate. But
// nobody said that the key has no tags, as Invalidate does: they are left for the value to come.
func (c *Cache[V]) withdraw(ctx context.Context, key string) error {
	id, token, last := keyID(key), newID(), c.unsent.Last()
	k := c.key(id)
	stored := context.WithoutCancel(ctx)
	c.seal(id)
	_, err := c.store.Claim(stored, k, token, c.opts.LeaseTTL)
	if err == nil {
		err = c.store.Release(stored, k, token)
	}
	c.seal(id)
	if err != nil {
		return c.invalidate(ctx, []string{key})
	}
	c.lately.Keys([]string{id}, c.loadedBy(), time.Time{})
	c.unsent.SentKeys([]string{id}, last, false)
	c.upForChanges(ctx)
	return nil
}

// Update writes the origin under the key's lease and stores what write returns: safe with any
// number of writers, and against loads that read the origin before the write. Readers wait for it
// like for a load. write runs on the caller's context, with LoadTimeout; it is called once at most.
// One thing no cache can mend: when a process dies between its write and what follows while another
// writer has the key, the other's value may stay until its TTL is over.
//
// If write fails, its error is returned and nothing stays cached; an error that wraps ErrNotFound
// says that the thing is gone, and that is remembered. If write succeeded but the store can't be
// told, Update returns the value and an error that says so. If the store can't be used beforehand,
// FailClosed returns ErrUnavailable and doesn't write; FailOpen writes.
func (c *Cache[V]) Update(ctx context.Context, key string, write LoadFunc[V]) (V, error) {
	res, err := c.update(ctx, key, loader[V]{value: write})
	return res.Value, err
}

// UpdateEntry is Update for a write that decides how long its result is kept, and about its tags.
// What stood there before has been removed by then: a write sees no previous value, and can't say
// NotModified.
func (c *Cache[V]) UpdateEntry(ctx context.Context, key string, write func(ctx context.Context) (Entry[V], error)) (Result[V], error) {
	var load loader[V]
	if write != nil {
		load.entry = func(ctx context.Context, _ Result[V]) (Entry[V], error) { return write(ctx) }
	}
	return c.update(ctx, key, load)
}

func (c *Cache[V]) update(ctx context.Context, key string, write loader[V]) (res Result[V], err error) {
	if write.value == nil && write.entry == nil {
		return res, errors.New("cacheguard: the write function is nil")
	}
	if err := c.enter(ctx); err != nil {
		return res, err
	}
	id := keyID(key)
	if c.inside(ctx, id) {
		return res, recursion(key)
	}
	if !c.life.Begin() {
		return res, ErrClosed
	}
	c.changes.Add(1)
	m := c.missOf(&target[V]{flight.Solo[outcome[V]](), key, c.key(id), write}, found[V]{}, nil)
	m.Claims = true
	r := c.newRun(ctx, nil, m)
	runs := false
	defer func() {
		if !runs { // the store can't be used, or an observer has ended the goroutine
			r.cancel(nil)
			c.life.End()
		}
	}()
	// A write that outlives its context may reach the origin after what is invalidated below: once
	// more then.
	r.late = func() { _ = c.withdraw(ctx, key) }
	c.seal(id)
	m.asked = question{token: newID(), sent: r.now()}
	m.ans.Grant, m.storeErr = c.store.Claim(context.WithoutCancel(ctx), m.key, m.asked.token, c.opts.LeaseTTL)
	m.had.tags, _ = frame.RemnantTags([]byte(m.ans.Grant.Left))
	c.seal(id)
	if m.Down = m.storeErr != nil; m.Down {
		c.down(ctx, &c.changing, key, m.storeErr)
		if c.opts.OnStoreDown == FailClosed {
			return res, errors.Join(fmt.Errorf("%w: %w", ErrUnavailable, m.storeErr), c.invalidate(ctx, []string{key}))
		}
	}
	runs = true
	r.work()
	c.seal(id) // a flight that has begun since may load without the lease, from before the write
	out, _ := m.flight.Result(context.Background())
	c.presence.Of(id).Stands(knowledge.ForGood)
	if m.own.stored {
		c.written(id, m.ans.Grant)
	} else { // somebody else may have read the origin before this write and stored it after the claim was lost
		err = c.withdraw(ctx, key)
	}
	switch {
	case out.err != nil:
		return res, errors.Join(callersError(ctx, out.err), err)
	case out.res.NotFound:
		return out.res, errors.Join(ErrNotFound, err)
	}
	return out.res, err
}

// callersError is the error of a write that ran on its caller's context: if that has ended, what
// callers get is its error and not its cause.
func callersError(ctx context.Context, err error) error {
	if ctx.Err() != nil && errors.Is(err, context.Cause(ctx)) {
		return ctx.Err()
	}
	return err
}
