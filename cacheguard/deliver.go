package cacheguard

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cacheguard/cacheguard/internal/frame"
	"github.com/cacheguard/cacheguard/internal/knowledge"
	"github.com/cacheguard/cacheguard/internal/protocol"
	"github.com/cacheguard/cacheguard/internal/report"
)

// delivery sees that the store is told of every change. What it could not be told of is repeated
// until it was, and what it was told of lately is repeated when another server may have taken the
// place of the one that was told.
type delivery struct {
	unsent knowledge.Unsent
	lately knowledge.Lately // what the store was told

	changes, sentLate atomic.Uint64 // for Stats

	mu     sync.Mutex // guards what follows
	heard  bool       // messages have arrived once
	deaf   time.Time  // since when they don't; zero: they do
	runs   bool       // repeat does
	began  time.Time
	before uint64        // how many were sent late before that
	last   error         // why there is something left
	none   chan struct{} // closed when there is nothing left; nil while nobody waits for that
	wake   chan struct{}
	signed bool      // messages have arrived again since
	tried  time.Time // when repeat has tried last
}

const (
	// Repeats begin soon, for most troubles are short, and go on ever more seldom: what is wrong may
	// be wrong for hours.
	firstRepeat, mostRepeat = 50 * time.Millisecond, 4 * time.Second

	// leastNudge is how long after a try the store's first answer may bring the next one.
	leastNudge = time.Second

	// mostAlone is how long one change at a time is tried at most until all are. It is less for few:
	// a second for each, so that a store which takes none of them is asked about one in a second.
	mostAlone = 5 * time.Minute

	// letterSize is how many keys the store is told of in one call.
	letterSize = 512

	// toldAgain is how old a change may be, when messages break off, that is repeated when they
	// arrive again. Redis replicates behind the answer: what a master knew alone when it died, or
	// heard after it was cut off, is lost by a failover. In a cluster that is noticed without a
	// break, by default after 15 seconds.
	toldAgain = 30 * time.Second

	// answersArrive is how long after a delivery an answer from before it may still be on its way
	// through this process.
	answersArrive = time.Minute
)

var (
	forgottenLine = report.Line{Level: slog.LevelWarn, See: "changes-dont-arrive",
		Text:  "cacheguard: messages were interrupted after more changes than are remembered",
		Means: "of the older changes, those which a failover has lost are not repeated: old values may be served until their TTL is over",
	}
	undeliveredLine = report.Line{Level: slog.LevelError, See: "changes-dont-arrive",
		Text:  "cacheguard: closed before the store could be told of all changes",
		Means: "old values may be served until their TTL is over",
	}
	allChangesLine = report.Line{Level: slog.LevelInfo, Text: "cacheguard: store has all changes now", See: "changes-dont-arrive"}
)

// loadedBy is the latest stamp of what may have been loaded by now.
func (c *Cache[V]) loadedBy() int64 { return c.store.Now().Add(protocol.ClockSlack).UnixMicro() }

// deliver begins to repeat changes, unless that is being done. It returns what says so in the error
// for who made them.
func (c *Cache[V]) deliver() (pending func(error) error) {
	d := &c.delivery
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.wake == nil {
		d.wake = make(chan struct{}, 1)
	}
	if !d.runs {
		d.runs = c.life.Go(c.repeat)
		d.began, d.before, d.last = time.Now(), d.sentLate.Load(), nil
	}
	if !d.runs { // the cache is being closed
		return func(err error) error { return err }
	}
	return func(err error) error { return fmt.Errorf("%w: %w", ErrPending, err) }
}

// upForChanges says that the store takes changes again, if nothing is left that is repeated: that
// says it itself.
func (c *Cache[V]) upForChanges(ctx context.Context) {
	if !c.changing.stands() {
		return
	}
	if c.unsent.Count() == 0 {
		c.up(ctx, &c.changing)
	}
	c.nudge()
}

// hearsNothing takes note of when messages began not to arrive: with the server that sent them.
func (d *delivery) hearsNothing() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.deaf.IsZero() {
		d.deaf = time.Now()
	}
}

// hears takes note that messages arrive, and reports since when they did not. If they do for the
// first time, and at the first try, nothing was interrupted: what this process has said or begun so
// far is as it was, and another server can't have come in between.
func (d *delivery) hears() (since time.Time, interrupted bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	since, interrupted = d.deaf, d.heard || !d.deaf.IsZero()
	d.deaf, d.heard = time.Time{}, true
	if since.IsZero() {
		since = time.Now()
	}
	return since, interrupted
}

// deliverAgain repeats what the store was told of lately: messages were interrupted at that time,
// and another server may answer now.
func (c *Cache[V]) deliverAgain(interrupted time.Time) {
	if more := c.lately.Again(interrupted.Add(-toldAgain), &c.unsent); more > 0 {
		forgottenLine.Log(context.Background(), c.opts.Logger, "cache", c.opts.Name, "changes", more)
	}
	if c.unsent.Count() > 0 {
		c.deliver()
		c.delivery.mu.Lock()
		c.delivery.signed = true
		c.delivery.mu.Unlock()
		c.hurry()
	}
}

// hurry has the next try begin at once.
func (c *Cache[V]) hurry() {
	d := &c.delivery
	d.mu.Lock()
	defer d.mu.Unlock()
	select {
	case d.wake <- struct{}{}:
	default: // it will, or there is nothing to be done
	}
}

// nudge is hurry for a sign that the store may take changes again, which may be a wrong one.
func (c *Cache[V]) nudge() {
	if c.unsent.Count() == 0 {
		return
	}
	c.delivery.mu.Lock()
	soon := time.Since(c.delivery.tried) < leastNudge
	c.delivery.mu.Unlock()
	if !soon {
		c.hurry()
	}
}

// repeat tells the store of changes until there are none of which it was not told.
func (c *Cache[V]) repeat() {
	d := &c.delivery
	pause, all := firstRepeat, time.Now()
	for round := 0; ; round++ {
		timer := time.NewTimer(jittered(pause, 0.5))
		select {
		case <-timer.C:
			pause = min(3*pause, mostRepeat)
		case <-d.wake:
			pause = 2 * firstRepeat // it may be too soon by a moment
		case <-c.life.Closing.Done(): // once more, at once
		}
		timer.Stop()
		d.mu.Lock()
		alone := !d.signed && c.life.Closing.Err() == nil
		d.signed, d.tried = false, time.Now()
		d.mu.Unlock()
		left := time.Duration(c.unsent.Count())
		if time.Since(all) >= min(left*time.Second, mostAlone) {
			alone = false
		}
		var err error
		if alone {
			err = c.sendOne(round)
		}
		if err == nil {
			all = time.Now()
			err = c.send()
		}
		if c.delivered(err) {
			through := c.unsent.Last()
			time.AfterFunc(answersArrive, func() { c.unsent.Forget(through) })
			return
		}
		if err != nil && c.changing.spell.Told() && c.changing.spell.Due() {
			c.changing.spell.Begin(context.Background(), c.changing.begins, c.opts.Logger,
				"cache", c.opts.Name, "error", err)
		}
		if c.life.Closing.Err() != nil {
			undeliveredLine.Log(context.Background(), c.opts.Logger, "cache", c.opts.Name, "changes", c.unsent.Count(), "error", err)
			return
		}
	}
}

// delivered reports whether nothing is left, and tells who waits for that.
func (c *Cache[V]) delivered(err error) bool {
	d := &c.delivery
	d.mu.Lock()
	defer d.mu.Unlock()
	d.last = err
	if c.unsent.Count() > 0 {
		return false
	}
	d.runs = false
	if d.none != nil {
		close(d.none)
		d.none = nil
	}
	if c.changing.stands() {
		c.changing.now.Store(nil)
		c.changing.spell.End(context.Background(), allChangesLine, c.opts.Logger, "cache", c.opts.Name,
			"repeated", d.sentLate.Load()-d.before, "after", time.Since(d.began).Round(time.Millisecond))
	}
	return true
}

// sendOne tells the store of one change, by turns of the newest one and of one of the others: if it
// takes that, it is told of all, and else not asked about thousands.
func (c *Cache[V]) sendOne(round int) error {
	each := c.unsent.Letters(1)
	if len(each) <= 1 {
		return nil
	}
	i := round / 2 % len(each)
	if round%2 == 1 {
		i = len(each) - 1
	}
	sent, err := c.sendLetter(each[i])
	c.sentLate.Add(uint64(sent))
	return err
}

// send tells the store of all that it was not told of, as far as that goes: what it can't be told
// of doesn't hold up the rest.
func (c *Cache[V]) send() (err error) {
	for {
		some := false
		for _, l := range c.unsent.Letters(letterSize) {
			sent, wrong := c.sendLetter(l)
			c.sentLate.Add(uint64(sent))
			some = some || sent > 0
			if err = cmp.Or(err, wrong); wrong != nil && sent == 0 && c.life.Closing.Err() != nil {
				return err // Close doesn't wait for a time-out for each
			}
		}
		if err != nil || !some {
			return err
		}
	}
}

// sendLetter tells the store of some changes. What can be said of one kind is said although another
// one can't.
func (c *Cache[V]) sendLetter(l knowledge.Letter) (sent int, err error) {
	ctx := context.Background()
	sent, err = c.verify(ctx, &l)
	if l.Whole || len(l.Tags) > 0 {
		generation, tagsErr := c.store.InvalidateTags(ctx, c.opts.Name, l.Tags)
		if tagsErr == nil {
			c.invalidated(l.Tags, generation)
			c.lately.Tags(l.Tags, generation)
			sent += c.unsent.SentTags(l.Tags, l.Through)
		}
		err = errors.Join(err, tagsErr)
	}
	for _, part := range []struct {
		ids  []string
		mark time.Time
	}{{l.Gone, time.Time{}}, {l.Stale, l.Mark}} {
		if len(part.ids) > 0 {
			n, failed := c.tellKeys(ctx, c.keysOf(part.ids), part.mark, l.Through)
			sent += n
			for _, keyErr := range failed { // one is enough
				err = errors.Join(err, keyErr)
				break
			}
		}
	}
	return sent, err
}

func (c *Cache[V]) keysOf(ids []string) []Key {
	ks := make([]Key, len(ids))
	for i, id := range ids {
		ks[i] = c.key(id)
	}
	return ks
}

// verify asks the store for changes that it was told of, and adds to the letter those that it
// doesn't know: it lost them with the server that did. That server's successor has at a key what
// was loaded since, which stays, or else what is from before the change, or nothing, beside which a
// lease from before it may stand.
func (c *Cache[V]) verify(ctx context.Context, l *knowledge.Letter) (sent int, err error) {
	if len(l.AgainTags) > 0 {
		names := make([]string, len(l.AgainTags))
		for i, told := range l.AgainTags {
			names[i] = told.Name
		}
		n, tagsErr := c.verifyTags(ctx, l, slices.DeleteFunc(names, func(tag string) bool { return tag == "" }))
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
		for n := i + len(ids); n < len(keys); n += len(ids) { // of other versions, of which there may be nothing
			wrong = cmp.Or(wrong, replies[n].Err)
			known = known && (replies[n].Answer == nil || knows(replies[n].Answer, told))
		}
		switch {
		case wrong != nil:
			err = errors.Join(err, wrong)
		case known:
			sent += c.unsent.SentKeys(ids[i:i+1], l.Through, false)
		default:
			l.AddKey(told.Name, told.Mark)
		}
	}
	return sent, err
}

// knows reports whether a frame is from after a change, or has its mark.
func knows(f []byte, told knowledge.Told) bool {
	h, _, wrong := frame.Parse(f)
	return wrong == nil && (h.Stamp > told.Generation || !told.Mark.IsZero() && !h.Marked.IsZero())
}

func (c *Cache[V]) verifyTags(ctx context.Context, l *knowledge.Letter, names []string) (sent int, err error) {
	gens, err := c.store.Generations(ctx, c.opts.Name, names)
	if err == nil && len(gens) != 1+len(names) {
		err = errGenerations
	}
	if err != nil {
		return 0, err
	}
	for _, told := range l.AgainTags {
		at := gens[1+slices.Index(names, told.Name)] // of the whole cache: the first
		switch {
		case at >= told.Generation:
			sent += c.unsent.SentTag(told.Name, l.Through)
		case told.Name == "":
			l.Whole, l.Tags = true, nil
			return sent, nil
		default:
			l.Tags = append(l.Tags, told.Name)
		}
	}
	return sent, nil
}

// tellKeys has the store invalidate keys, or mark them stale as of that time, which stands for
// earlier changes of them up to a number, too. It returns how many of those were unsent, and by id
// the errors of the keys of which the store could not be told.
func (c *Cache[V]) tellKeys(ctx context.Context, ks []Key, mark time.Time, through uint64) (sent int, failed KeyErrors) {
	var err error
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
		c.seal(k.Key) // also when the store failed: this process knows better than to use what it has
		if failed[k.Key] == nil {
			done = append(done, k.Key)
			if mark.IsZero() {
				c.presence.Gone(k.Key)
			}
		}
	}
	c.lately.Keys(done, c.loadedBy(), mark)
	return c.unsent.SentKeys(done, through, !mark.IsZero()), failed
}

// Flush waits until the store has been told of every change that this process made: calls of
// Invalidate, MarkStale, Set and their like that have returned an error which wraps ErrPending, and
// those that are repeated after a failover. It returns nil at once if there is none. The next try
// begins at once. If ctx ends before, or the cache is closed, the error says how many are left and
// why.
func (c *Cache[V]) Flush(ctx context.Context) error {
	d := &c.delivery
	d.mu.Lock()
	if c.unsent.Count() == 0 {
		d.mu.Unlock()
		return nil
	}
	if d.none == nil {
		d.none = make(chan struct{})
	}
	none := d.none
	d.mu.Unlock()
	c.hurry()
	select {
	case <-none:
		return nil
	case <-ctx.Done():
		return c.undelivered(ctx.Err())
	case <-c.life.Closing.Done():
		return c.undelivered(ErrClosed)
	}
}

// undelivered says how many changes are left, and why; nil if there are none.
func (c *Cache[V]) undelivered(why error) error {
	n := c.unsent.Count()
	if n == 0 {
		return nil
	}
	c.delivery.mu.Lock()
	defer c.delivery.mu.Unlock()
	return fmt.Errorf("cacheguard: the store has not been told of %d changes of cache %q: %w", n, c.opts.Name,
		errors.Join(why, c.delivery.last))
}
