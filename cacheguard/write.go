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
	"github.com/cacheguard/cacheguard/internal/report"
)

// Set stores a value and ends any lease of its key. So a load that began before Set can't store its
// result after Set. Use Set only if each key has one writer. If a key has several writers, their
// Sets and their writes to the origin can arrive in different orders. So use [Cache.Update] or
// [Cache.Invalidate] instead. Set is carried out even if ctx ends, because the origin has already
// changed.
//
// If [Options.Empty] returns true for the value, the null sentinel is stored. If the value can't be
// encoded or is larger than MaxValueSize, Set returns an error and removes the old value, which is
// out of date.
func (c *Cache[V]) Set(ctx context.Context, key string, v V) error {
	return c.SetEntry(ctx, key, Entry[V]{Value: v})
}

// SetEntry is like Set, with a lifetime and tags for this value. NoStore, NoShare and NotModified
// are only for loads. With one of them, SetEntry returns an error and does nothing.
func (c *Cache[V]) SetEntry(ctx context.Context, key string, e Entry[V]) error {
	if err := c.mayChange(ctx); err != nil {
		return err
	}
	if e.NoStore && e.stamp != ofUnknownAge || e.NoShare || e.NotModified {
		return errors.New(
			"cacheguard: SetEntry takes no Entry with NoStore, NoShare or NotModified")
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
		return c.invalidateLater(ctx, key, err)
	}
	c.unsent.SentKeys([]string{id}, last, false)
	c.upForChanges(ctx)
	c.presence.Of(id).Stands(knowledge.ForGood)
	return nil
}

// invalidateLater is for a change that the store may not have: the invalidation of its key is
// repeated in the background until the store has it.
func (c *Cache[V]) invalidateLater(ctx context.Context, key string, err error) error {
	c.addUnsent([]string{keyID(key)}, time.Time{})
	c.down(ctx, &c.changing, key, err)
	pending := c.deliver()(err)
	if !errors.Is(pending, ErrPending) { // the cache is being closed, so this is the last try
		return c.invalidate(ctx, []string{key})
	}
	return fmt.Errorf("cacheguard: %s may still have its old value: %w", report.QuoteKey(key),
		pending)
}

// claimAndFill stores a value in two steps, a claim and a fill. A single step would be faster, but
// a late copy of it could bring the old value back after a later Set or Invalidate. A late copy of
// a claim only costs a miss, and a late copy of a fill is refused.
//
// The fill itself is refused in three cases. If a later change has won, the result is as if this
// Set had come before that change. If the lease was over, the key has no value. If a failover has
// lost the claim, the key has its old value, and the note that written makes lets this process
// remove the old value.
func (c *Cache[V]) claimAndFill(ctx context.Context, k Key, out *loaded[V]) error {
	restored, token := c.delivery.restored.Load(), newID()
	g, err := c.store.Claim(ctx, k, token, c.opts.LeaseTTL)
	if err == nil {
		if tags, ok := frame.RemnantTags([]byte(g.Left)); ok && out.entry.untagged() {
			out.frame = append(frame.Room(frame.Extension{Tags: tags}),
				out.frame[frame.HeaderSize:]...)
		}
		h := c.header(*out, g)
		h.Created = c.store.Now()
		frame.Seal(out.frame, h)
		if _, err = c.store.Fill(ctx, k, g, out.frame, h.Hard()+out.entry.Keep); err == nil {
			c.written(k.Key, g, restored)
		}
	}
	if err != nil { // the claim may have been carried out, and loads would wait for its lease
		c.background(func(ctx context.Context) error { return c.store.Release(ctx, k, token) })
	}
	return err
}

// written notes that the store has a new value. If a failover loses the new value, the note tells
// this process that a value from before the grant is out of date.
func (c *Cache[V]) written(id string, g Grant, restored uint64) {
	c.told(restored, func() { c.lately.Keys([]string{id}, g.Stamp-1, time.Time{}, false) })
}

// encodeSafely encodes on the caller's goroutine. It turns a panic of the user's code into an
// error, because this goroutine, unlike a load's, has no other recover.
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

// Invalidate removes the values, the remembered errors and the leases of keys. The values may be
// fresh, stale or "does not exist". If a load began before Invalidate, it can't store its result
// after Invalidate, and no later call of this process joins the load. Commit to the origin first,
// then call Invalidate. Invalidate is carried out even if ctx ends.
//
// The error of Invalidate is ErrClosed, or a [KeyErrors] with the keys that may not have been
// invalidated. If the error wraps [ErrPending], this process repeats the call until the store has
// carried it out, and serves no value from before the call. Other processes may serve old values
// until then. See [Cache.Flush].
func (c *Cache[V]) Invalidate(ctx context.Context, keys ...string) error {
	if err := c.mayChange(ctx); err != nil {
		return err
	}
	c.changes.Add(uint64(len(keys)))
	return c.invalidate(ctx, keys)
}

// MarkStale makes the values of keys stale. The next read of a key refreshes its value. Until the
// refresh is done, the value is served within its stale windows, which begin now at the latest.
// MarkStale also ends leases, because a running load may have read the origin before your change.
// In all other respects MarkStale is like Invalidate.
func (c *Cache[V]) MarkStale(ctx context.Context, keys ...string) error {
	if err := c.mayChange(ctx); err != nil {
		return err
	}
	c.changes.Add(uint64(len(keys)))
	return c.changeKeys(ctx, keys, c.store.Now())
}

// addUnsent notes changes that the store doesn't have. Afterwards it seals once more: until the
// changes were noted, a read could find an old value and keep it in the local tier.
func (c *Cache[V]) addUnsent(ids []string, mark time.Time) {
	c.unsent.AddKeys(ids, c.loadedBy(), mark)
	for _, id := range ids {
		c.seal(id)
	}
}

func (c *Cache[V]) invalidate(ctx context.Context, keys []string) error {
	return c.changeKeys(ctx, keys, time.Time{})
}

// changeKeys changes keys in the store and everywhere in this process. mark is the time at which
// the keys are marked stale. If mark is zero, the keys are invalidated.
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
	_, failed := c.tellKeys(context.WithoutCancel(ctx), ks, mark, c.unsent.Last(), false)
	if failed == nil {
		c.upForChanges(ctx)
		return nil
	}
	ids := slices.Sorted(maps.Keys(failed))
	c.addUnsent(ids, mark)
	c.down(ctx, &c.changing, names[ids[0]], failed[ids[0]])
	pending := c.deliver()
	named := make(KeyErrors, len(failed))
	for id, err := range failed {
		named[names[id]] = pending(err)
	}
	return named
}

// withdraw removes an out-of-date value and the leases of its key, for a writer. Unlike Invalidate,
// it leaves the value's tags for the next value, because the writer stores no value that could name
// its own tags. For this purpose it claims the key and releases the claim. If a step fails, the key
// is invalidated instead, at once or later, and its tags are removed, too.
func (c *Cache[V]) withdraw(ctx context.Context, key string) error {
	id, token, last := keyID(key), newID(), c.unsent.Last()
	restored := c.delivery.restored.Load()
	k := c.key(id)
	stored := context.WithoutCancel(ctx)
	c.seal(id)
	_, err := c.store.Claim(stored, k, token, c.opts.LeaseTTL)
	if err == nil {
		err = c.store.Release(stored, k, token)
	}
	c.seal(id)
	switch {
	case unanswered(err): // an invalidation would probably get no answer either
		return c.invalidateLater(ctx, key, err)
	case err != nil: // an invalidation may still work: for example, it needs no memory
		return c.invalidate(ctx, []string{key})
	}
	c.told(restored, func() {
		c.lately.Keys([]string{id}, c.loadedBy(), time.Time{}, false)
		c.unsent.SentKeys([]string{id}, last, false)
	})
	c.upForChanges(ctx)
	return nil
}

// Update calls write under the key's lease and stores what write returns. It is safe with any
// number of writers of a key, and with concurrent loads that read the origin before the write.
// Readers wait for Update in the same way as for a load. write runs with the caller's context, for
// LoadTimeout at most, and is called at most once. No cache can prevent the following case: if a
// process dies right after its write to the origin, while another writer has the key's lease, the
// other writer's value may be stored until its TTL ends.
//
// If write fails, Update returns write's error, and no value stays stored. If the error wraps
// ErrNotFound, "does not exist" is stored. If write succeeds but the change can't reach the store,
// Update returns the value and an error. If the value can't be encoded or is larger than
// MaxValueSize, Update returns it without an error, and no value stays stored. If the store is
// unavailable before the write, OnStoreDown decides: with FailClosed, Update returns ErrUnavailable
// and doesn't call write; with FailOpen, it calls write.
func (c *Cache[V]) Update(ctx context.Context, key string, write LoadFunc[V]) (V, error) {
	res, err := c.update(ctx, key, loader[V]{value: write})
	return res.Value, err
}

// UpdateEntry is like Update, with a write that decides how long its result is kept and which tags
// the result has. The previous value is removed before write is called, so write doesn't see it and
// can't return NotModified.
func (c *Cache[V]) UpdateEntry(
	ctx context.Context, key string, write func(ctx context.Context) (Entry[V], error),
) (Result[V], error) {
	var load loader[V]
	if write != nil {
		load.entry = func(ctx context.Context, _ Result[V]) (Entry[V], error) { return write(ctx) }
	}
	return c.update(ctx, key, load)
}

func (c *Cache[V]) update(
	ctx context.Context, key string, write loader[V],
) (res Result[V], err error) {
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
		if !runs { // the store is unavailable, or an observer called Goexit
			r.cancel(nil)
			c.life.End()
		}
	}()
	// A write that outlives its context may reach the origin after the invalidation below. So the
	// key is invalidated once more when write returns.
	r.late = func() { _ = c.withdraw(ctx, key) }
	c.seal(id)
	m.asked = question{token: newID(), sent: r.now()}
	restored := c.delivery.restored.Load()
	m.ans.Grant, m.storeErr = c.store.Claim(context.WithoutCancel(ctx), m.key, m.asked.token,
		c.opts.LeaseTTL)
	m.had.tags, _ = frame.RemnantTags([]byte(m.ans.Grant.Left))
	c.seal(id)
	if m.Down = m.storeErr != nil; m.Down {
		c.down(ctx, &c.changing, key, m.storeErr)
		if c.opts.OnStoreDown == FailClosed {
			return res,
				errors.Join(fmt.Errorf("%w: %w", ErrUnavailable, m.storeErr), c.withdraw(ctx, key))
		}
	}
	runs = true
	r.work()
	// A flight that began in the meantime may load without the lease, and may have read before the
	// write.
	c.seal(id)
	out, _ := m.flight.Result(context.Background())
	c.presence.Of(id).Stands(knowledge.ForGood)
	if m.ownLoad.stored {
		c.written(id, m.ans.Grant, restored)
	} else {
		// After the claim was lost, another load may have stored a value that it read before this
		// write.
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

// callersError returns the error of a write that ran with its caller's context. If that context has
// ended, the caller gets ctx.Err() and not the context's cause, as from every other call.
func callersError(ctx context.Context, err error) error {
	if ctx.Err() != nil && wraps(err, context.Cause(ctx)) {
		return ctx.Err()
	}
	return err
}
