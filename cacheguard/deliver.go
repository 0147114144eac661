package cacheguard

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cacheguard/cacheguard/internal/knowledge"
	"github.com/cacheguard/cacheguard/internal/protocol"
	"github.com/cacheguard/cacheguard/internal/report"
)

// delivery makes sure that the store gets every change. If a change could not reach the store,
// delivery repeats it until the store has it. If another server may have replaced the store's
// server, delivery also repeats recent changes that had reached the store, because a failover can
// lose acknowledged writes.
type delivery struct {
	unsent knowledge.Unsent
	lately knowledge.Lately // recent changes that the store has

	changes, sentLate atomic.Uint64 // for Stats
	restored          atomic.Uint64 // how often messages were interrupted and restored

	latest atomic.Int64 // the latest stamp or generation that this process knows

	mu     sync.Mutex // guards the fields below
	heard  bool       // messages have arrived at least once
	deaf   time.Time  // since when messages don't arrive; zero: they arrive
	runs   bool       // repeat is running on its goroutine
	began  time.Time
	before uint64        // sentLate when repeat began
	last   error         // the error of the last try, which explains why changes are left
	none   chan struct{} // closed when no change is left; nil while no Flush waits
	wake   chan struct{}
	signed bool      // messages have begun to arrive again since the last try
	tried  time.Time // when repeat tried last
}

const (
	// The first repeat comes soon, because most troubles are short. The pauses grow from
	// firstRepeat to mostRepeat, because some troubles last for hours.
	firstRepeat, mostRepeat = 50 * time.Millisecond, 4 * time.Second

	// leastNudge is the shortest time between a try and a further try that a sign of recovery
	// causes.
	leastNudge = time.Second

	// mostAlone limits the time during which repeat tries only one change at a time. After this
	// time repeat tries all changes that are left. The time is one second per change that is left,
	// and mostAlone if more than 300 changes are left. So a store that takes no changes gets about
	// one change per second, or all changes every 5 minutes.
	mostAlone = 5 * time.Minute

	// toldAgain limits the changes that are repeated after an interruption of messages. They are at
	// most this old when the interruption begins. Redis replicates after it has answered. So a
	// failover loses changes that only the old master had when it died, and changes that reached
	// the old master after it was cut off from its replicas. In a cluster a failover usually
	// interrupts no messages. Then the repeated changes are at most this old when the process
	// notices the failover. By default a cluster waits for 15 seconds before it replaces a master.
	toldAgain = 30 * time.Second

	// answersArrive is the longest time for which a reply from before a delivery may still be on
	// its way in this process. During this time the delivered changes are not forgotten, so that an
	// old value in such a reply is recognised.
	answersArrive = time.Minute
)

var (
	forgottenLine = report.Line{Level: slog.LevelWarn, See: "changes-dont-arrive",
		Text:  "cacheguard: messages were interrupted after more changes than are remembered",
		Means: "changes that a failover has lost are not all repeated: old values may be served until their TTL is over",
	}
	undeliveredLine = report.Line{Level: slog.LevelError, See: "changes-dont-arrive",
		Text:  "cacheguard: closed before the store could be told of all changes",
		Means: "old values may be served until their TTL is over",
	}
	allChangesLine = report.Line{
		Level: slog.LevelInfo, Text: "cacheguard: store has all changes now",
		See: "changes-dont-arrive",
	}
)

// loadedBy is the latest stamp that a value loaded by now can have: the store's clock, plus the
// error of this process' estimate. If the store's clock was set back, stamps continue from where
// they were until the clock has caught up. So loadedBy is at least the latest stamp that this
// process knows. Other processes may know later stamps.
func (c *Cache[V]) loadedBy() int64 {
	return max(c.store.Now().Add(protocol.ClockSlack).UnixMicro(), c.delivery.latest.Load())
}

// saw notes a stamp or a generation for loadedBy.
func (d *delivery) saw(stamp int64) { knowledge.Raise(&d.latest, stamp) }

// deliver starts repeat unless it runs. It returns a function for the error of the call that made
// the change. The function adds ErrPending to the error. If the cache is being closed, nothing will
// be repeated, and the function returns the error unchanged.
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
	// The cache is being closed: repeat may have made its last try.
	if !d.runs || c.life.Closing.Err() != nil {
		return func(err error) error { return err }
	}
	return func(err error) error { return fmt.Errorf("%w: %w", ErrPending, err) }
}

// upForChanges notes that a change has reached the store. If no change is left, it ends the trouble
// for changes. Otherwise it tells repeat to try soon, and repeat ends the trouble.
func (c *Cache[V]) upForChanges(ctx context.Context) {
	if !c.changing.stands() {
		return
	}
	if c.unsent.Count() == 0 {
		c.up(ctx, &c.changing)
	}
	c.nudge()
}

// hearsNothing notes the time from which messages don't arrive. From then on another server may
// have taken over.
func (d *delivery) hearsNothing() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.deaf.IsZero() {
		d.deaf = time.Now()
	}
}

// hears notes that messages arrive, and returns the time from which they did not arrive. If
// messages arrive for the first time, and the first try to listen succeeded, nothing was
// interrupted. Then all changes so far went to the present server.
func (d *delivery) hears() (since time.Time, interrupted bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	since, interrupted = d.deaf, d.heard || !d.deaf.IsZero()
	d.deaf, d.heard = time.Time{}, true
	if interrupted {
		d.restored.Add(1)
	}
	if since.IsZero() {
		since = time.Now()
	}
	return since, interrupted
}

// told calls note, which notes in lately the changes that the store has acknowledged. before is the
// number of restorations before the changes were sent. If messages were restored since, another
// server may have replaced the server that acknowledged the changes, and deliverAgain has not seen
// the changes. So told repeats them.
func (c *Cache[V]) told(before uint64, note func()) {
	noted := time.Now()
	if note(); c.delivery.restored.Load() != before {
		c.deliverAgain(noted)
	}
}

// deliverAgain repeats the changes since a time after messages were interrupted, because another
// server may have taken over.
func (c *Cache[V]) deliverAgain(since time.Time) {
	if more := c.lately.Again(since, &c.unsent); more > 0 {
		forgottenLine.Log(context.Background(), c.opts.Logger, "cache", c.opts.Name, "changes",
			more)
	}
	if c.unsent.Count() > 0 {
		c.deliver()
		c.delivery.mu.Lock()
		c.delivery.signed = true
		c.delivery.mu.Unlock()
		c.hurry()
	}
}

// hurry makes the next try begin at once.
func (c *Cache[V]) hurry() {
	d := &c.delivery
	d.mu.Lock()
	defer d.mu.Unlock()
	select {
	case d.wake <- struct{}{}:
	default: // a try is already requested, or repeat has never run
	}
}

// nudge is hurry for signs that the store may take changes again. A sign may be wrong, so nudge
// does nothing within leastNudge of the last try. If no change is left, nudge always ends the pause
// of repeat, because Flush and Shutdown wait for the end of repeat.
func (c *Cache[V]) nudge() {
	c.delivery.mu.Lock()
	runs, soon := c.delivery.runs, time.Since(c.delivery.tried) < leastNudge
	c.delivery.mu.Unlock()
	if runs && (!soon || c.unsent.Count() == 0) {
		c.hurry()
	}
}

// repeat sends changes until the store has all of them. It tries a single change first, so that a
// store that is down doesn't get thousands of changes at once.
func (c *Cache[V]) repeat() {
	d := &c.delivery
	pause, all := firstRepeat, time.Now()
	for round := 0; ; round++ {
		timer := time.NewTimer(jittered(pause, 0.5))
		select {
		case <-timer.C:
			pause = min(3*pause, mostRepeat)
		case <-d.wake:
			pause = 2 * firstRepeat // if this try is a moment too early, the next one is soon
		case <-c.life.Closing.Done(): // one last try, at once
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
		if through, all := c.delivered(err); all {
			time.AfterFunc(answersArrive, func() { c.unsent.Forget(through) })
			return
		}
		if err != nil {
			c.fails(context.Background(), &c.changing, err)
		}
		if c.life.Closing.Err() != nil {
			undeliveredLine.Log(context.Background(), c.opts.Logger, "cache", c.opts.Name,
				"changes", c.unsent.Count(), "error", err)
			return
		}
	}
}

// delivered reports whether no change is left. If none is left, it ends the trouble, wakes the
// calls of Flush, and returns the number of the latest change.
func (c *Cache[V]) delivered(err error) (through uint64, all bool) {
	d := &c.delivery
	d.mu.Lock()
	defer d.mu.Unlock()
	d.last = err
	left, through := c.unsent.Rest()
	if left > 0 {
		return 0, false
	}
	d.runs = false
	if c.changing.stands() {
		c.changing.now.Store(nil)
		c.changing.spell.End(context.Background(), allChangesLine, c.opts.Logger, "cache",
			c.opts.Name,
			"repeated", d.sentLate.Load()-d.before, "after",
			time.Since(d.began).Round(time.Millisecond))
	}
	if d.none != nil {
		close(d.none)
		d.none = nil
	}
	return through, true
}

// Flush waits until the store has every change that this process has made with Invalidate,
// MarkStale, Set, Update and their variants. That includes changes whose call returned an error
// that wraps [ErrPending], and changes that are repeated after a failover. If no change is left,
// Flush returns nil at once. Otherwise the next try begins at once. If ctx ends before the store
// has every change, or if the cache is closed, the error says how many changes are left and why.
func (c *Cache[V]) Flush(ctx context.Context) error {
	if ctx == nil {
		return errNoContext
	}
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

// undelivered returns an error that says how many changes are left, and why, or nil if none are
// left.
func (c *Cache[V]) undelivered(why error) error {
	n := c.unsent.Count()
	if n == 0 {
		return nil
	}
	c.delivery.mu.Lock()
	defer c.delivery.mu.Unlock()
	return fmt.Errorf("cacheguard: the store has not been told of %d changes of cache %q: %w", n,
		c.opts.Name,
		errors.Join(why, c.delivery.last))
}
