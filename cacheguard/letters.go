package cacheguard

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/cacheguard/cacheguard/internal/frame"
	"github.com/cacheguard/cacheguard/internal/knowledge"
	"github.com/cacheguard/cacheguard/internal/protocol"
)

// letterSize is the largest number of changes in one letter.
const letterSize = 512

// sendOne sends one change: in odd rounds the newest change, in even rounds each change in turn. If
// the store takes it, repeat sends all others next. The choice varies because the store may refuse
// only some changes. If there is only one change, sendOne leaves it to send.
func (c *Cache[V]) sendOne(round int) error {
	each := c.unsent.Letters(1)
	if len(each) <= 1 {
		return nil
	}
	i := round / 2 % len(each)
	if round%2 == 1 {
		i = len(each) - 1
	}
	_, err := c.sendLetter(each[i])
	return err
}

// send sends all changes that are left. A change that fails doesn't keep the others from being
// sent.
func (c *Cache[V]) send() (err error) {
	for {
		some := false
		for _, l := range c.unsent.Letters(letterSize) {
			sent, wrong := c.sendLetter(l)
			some = some || sent > 0
			if l.Whole && wrong == nil {
				break // after a change of the whole cache, the other letters need not be sent
			}
			if err = cmp.Or(err, wrong); wrong != nil && sent == 0 && c.life.Closing.Err() != nil {
				return err // while the cache closes, a single time-out is enough
			}
		}
		if err != nil || !some {
			return err
		}
	}
}

// sendLetter sends the changes in a letter, and counts those that the store got late. If one kind
// of change fails, the other kinds are sent nevertheless. sent also has the changes that the store
// had before.
func (c *Cache[V]) sendLetter(l knowledge.Letter) (sent int, err error) {
	ctx := context.Background()
	sent, err = c.verify(ctx, &l)
	if l.Whole || len(l.Tags) > 0 {
		n, _, tagsErr := c.tellTags(ctx, l.Tags, l.Through, true)
		sent += c.late(n)
		err = errors.Join(err, tagsErr)
	}
	for _, part := range []struct {
		ids  []string
		mark time.Time
	}{{l.Gone, time.Time{}}, {l.Stale, l.Mark}} {
		if len(part.ids) > 0 {
			n, failed := c.tellKeys(ctx, c.keysOf(part.ids), part.mark, l.Through, true)
			sent += c.late(n)
			for _, keyErr := range failed { // one error is enough
				err = errors.Join(err, keyErr)
				break
			}
		}
	}
	return sent, err
}

// late counts changes that the store got late. It returns how many changes were sent.
func (d *delivery) late(sent knowledge.Sent) (all int) {
	d.sentLate.Add(uint64(sent.Late))
	return sent.All
}

func (c *Cache[V]) keysOf(ids []string) []Key {
	ks := make([]Key, len(ids))
	for i, id := range ids {
		ks[i] = c.key(id)
	}
	return ks
}

// verify checks whether the store still has the changes that it had before, and adds the lost
// changes to the letter. If a failover has lost the change of a key, the new server has one of
// three things under the key. A value that was loaded after the change stays. A value from before
// the change must be invalidated again. If there is no value, there may still be a lease from
// before the change, so the key is invalidated, too.
func (c *Cache[V]) verify(ctx context.Context, l *knowledge.Letter) (sent int, err error) {
	if len(l.AgainTags) > 0 {
		names := make([]string, len(l.AgainTags))
		for i, told := range l.AgainTags {
			names[i] = told.Name
		}
		n, tagsErr := c.verifyTags(ctx, l,
			slices.DeleteFunc(names, func(tag string) bool { return tag == "" }))
		sent, err = n, tagsErr
	}
	if len(l.AgainKeys) == 0 {
		return sent, err
	}
	ids := make([]string, len(l.AgainKeys))
	for i, told := range l.AgainKeys {
		ids[i] = told.Name
	}
	keys := c.keysOf(ids)
	for version := range uint8(Versions - 1) {
		for _, k := range keys[:len(ids)] {
			k.Version = (k.Version + 1 + version) % Versions
			keys = append(keys, k)
		}
	}
	replies, _ := c.store.GetMany(ctx, keys, nil)
	replies = complete(replies, len(keys))
	for i, told := range l.AgainKeys {
		wrong, known := replies[i].Err, knows(replies[i].Answer, told)
		for n := i + len(ids); n < len(keys); n += len(ids) { // other versions may have no value
			wrong = cmp.Or(wrong, replies[n].Err)
			known = known && (replies[n].Answer == nil || knows(replies[n].Answer, told))
		}
		switch {
		case wrong != nil:
			err = errors.Join(err, wrong)
		case known:
			sent += c.unsent.SentKeys(ids[i:i+1], l.Through, false).All
		default:
			for n := i; n < len(keys); n += len(ids) {
				if isFromBefore(replies[n].Answer, told) {
					c.unsent.Lost(told.Name, false)
				}
			}
			l.AddKey(told.Name, told.Mark)
		}
	}
	return sent, err
}

// knows reports whether a frame shows that the store has the change: the frame was loaded after the
// change, or the change was a stale mark and the frame has a stale mark.
func knows(f []byte, told knowledge.Told) bool {
	h, _, wrong := frame.Parse(f)
	return wrong == nil && (h.Stamp > told.Generation || !told.Mark.IsZero() && !h.Marked.IsZero())
}

// isFromBefore reports whether a frame shows that the store has lost the change: the frame was
// certainly loaded before the change. Certainly means earlier by more than twice ClockSlack,
// because the clock that loadedBy used may have been wrong by ClockSlack in both directions.
func isFromBefore(f []byte, told knowledge.Told) bool {
	h, _, wrong := frame.Parse(f)
	return wrong == nil && !knows(f, told) &&
		h.Stamp < told.Generation-2*protocol.ClockSlack.Microseconds()
}

// verifyTags is verify for tags, by their generations. An empty name is the whole cache.
func (c *Cache[V]) verifyTags(
	ctx context.Context, l *knowledge.Letter, names []string,
) (sent int, err error) {
	gens, err := c.store.Generations(ctx, c.opts.Name, names)
	if err == nil && len(gens) != 1+len(names) {
		err = errGenerations
	}
	if err != nil {
		return 0, err
	}
	for _, told := range l.AgainTags {
		at := gens[1+slices.Index(names, told.Name)] // index 0 is the whole cache
		switch {
		case at >= told.Generation:
			sent += c.unsent.SentTag(told.Name, l.Through).All
		case told.Name == "":
			c.unsent.Lost("", true)
			l.Whole, l.Tags = true, nil
			return sent, nil
		default:
			c.unsent.Lost(told.Name, true)
			l.Tags = append(l.Tags, told.Name)
		}
	}
	return sent, nil
}

// tellKeys invalidates keys in the store, or marks them stale if mark is not zero. An invalidation
// also replaces all earlier unsent changes of its key. A mark replaces only the earlier unsent
// marks of its key. Only changes with a number of at most through are replaced, and sent counts
// these changes. failed has the errors of the store, by key. late says that the changes are
// repeated.
func (c *Cache[V]) tellKeys(
	ctx context.Context, ks []Key, mark time.Time, through uint64, late bool,
) (sent knowledge.Sent, failed KeyErrors) {
	var err error
	restored := c.delivery.restored.Load()
	if mark.IsZero() {
		err = c.store.Invalidate(ctx, ks)
	} else {
		err = c.store.MarkStale(ctx, ks, frame.MarkStart, frame.Mark(mark))
	}
	if err != nil && !errors.As(err, &failed) {
		failed = make(KeyErrors, len(ks))
		for _, k := range ks {
			failed[k.Key] = err
		}
	}
	done := make([]string, 0, len(ks))
	for _, k := range ks {
		// Even if the store failed, because this process knows of the change and must not use older
		// values.
		c.seal(k.Key)
		if failed[k.Key] == nil {
			done = append(done, k.Key)
			if mark.IsZero() {
				c.presence.Gone(k.Key)
			}
		}
	}
	c.told(restored, func() {
		c.lately.Keys(done, c.loadedBy(), mark, late)
		sent = c.unsent.SentKeys(done, through, !mark.IsZero())
	})
	return sent, failed
}

// tagsAtOnce is the largest number of tags that a store is told of in one step. The tags of a step
// get the same generation. So if the changes are verified later, the generation of each tag is
// known exactly.
const tagsAtOnce = 256

// tellTags invalidates tags in the store and in this process, or the whole cache if there are no
// tags. sent and late are as for tellKeys. If the store fails, left has the tags that it may not
// have.
func (c *Cache[V]) tellTags(
	ctx context.Context, tags []string, through uint64, late bool,
) (sent knowledge.Sent, left []string, err error) {
	for {
		restored, some := c.delivery.restored.Load(), tags[:min(len(tags), tagsAtOnce)]
		generation, err := c.store.InvalidateTags(ctx, c.opts.Name, some)
		if err != nil {
			return sent, tags, err
		}
		c.invalidated(some, generation)
		c.told(restored, func() {
			c.lately.Tags(some, generation, late)
			n := c.unsent.SentTags(some, through)
			sent.All, sent.Late = sent.All+n.All, sent.Late+n.Late
		})
		if tags = tags[len(some):]; len(tags) == 0 {
			return sent, nil, nil
		}
	}
}
