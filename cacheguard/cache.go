package cacheguard

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"sync/atomic"

	"github.com/cacheguard/cacheguard/internal/demand"
	"github.com/cacheguard/cacheguard/internal/frame"
	"github.com/cacheguard/cacheguard/internal/knowledge"
	"github.com/cacheguard/cacheguard/internal/lifetime"
	"github.com/cacheguard/cacheguard/internal/protocol"
	"github.com/cacheguard/cacheguard/internal/report"
	"github.com/cacheguard/cacheguard/internal/watch"
)

// Cache is a typed read-through cache. It is safe for concurrent use. Values that it returns may be
// shared with other callers that asked at the same time, so they must not be changed.
type Cache[V any] struct {
	store Store
	opts  Options[V] // with all defaults in place
	meaning

	flights flights[V]
	waits   watch.Board[Message] // of those flights, for loads in other processes
	tier    localTier[V]         // the process-local tier; without values if there is none
	plain   bool                 // what it answers needs nothing else: nobody to tell, no lot to draw, no copy
	sampler sampler              // of hits, which read it
	loads   loads                // under way
	life    life
	memory
	delivery
	listeners
	health
	demands     demand.Judge // of tokens
	comparisons comparisons  // with the origin
	doubts
}

// meaning is what the options mean.
type meaning struct {
	codec       uint32          // fingerprint of Options.Codec and Options.Version
	version     uint8           // of its keys
	protocol    protocol.Config // for the state machine
	tookTooLong error           // the cause with which LoadTimeout ends a load
	sentinels   sentinels
}

// memory is what this process knows of keys and tags beside their values.
type memory struct {
	changed       knowledge.Changes       // of keys, counted
	failures      knowledge.Failures      // of loads in this process, as error values
	refreshPauses knowledge.Pauses        // from refreshing what another process loads or what has failed
	invalidations knowledge.Invalidations // invalidations by tag
	hints         knowledge.Hints         // which tags values have
	presence      knowledge.Presence      // for how long the store has them
}

// listeners is who is told of something, and what tells the cache.
type listeners struct {
	tracer         LoadTracer // the observer, if it is one
	localHits      *localHits // counts what the local tier answers, if the observer is not told of each; else nil
	detachObserver func()
	detachWatcher  func()
	watched        bool // by a Watcher
	stopListening  func()
	sharesNoMore   func() // this cache its name
	leaveSwitch    func()
}

// health is how the store does. Reads can work while leases don't (out of memory, read-only), so
// each has its own trouble.
type health struct {
	reading, leasing, storing, changing trouble
	corruptSaid                         atomic.Bool
}

// New makes a typed read-through cache on a store that other caches and other processes share. It
// reports every invalid option at once, joined, and never dials. Close the cache before the store.
func New[V any](store Store, opts Options[V]) (*Cache[V], error) {
	opts, err := opts.withDefaults()
	if isNil(store) {
		err = errors.Join(errNilStore, err)
	}
	if err != nil {
		return nil, err
	}
	c := &Cache[V]{store: store, opts: opts, life: life{Life: lifetime.New(), ends: lifetime.New()}}
	c.codec, c.version = fingerprint(opts.Codec, opts.Version), uint8(opts.Version%Versions)
	c.tookTooLong = fmt.Errorf("cacheguard: load took longer than LoadTimeout of %v: %w", opts.LoadTimeout, context.DeadlineExceeded)
	c.sentinels = sentinelsOf(opts.Errors)
	c.protocol = protocol.Config{LeaseTTL: opts.LeaseTTL, FailClosed: opts.OnStoreDown == FailClosed, Soft: opts.SoftTimeout > 0}
	if c.tier, err = newLocalTier(opts.Local, &c.invalidations); err != nil {
		return nil, err
	}
	c.attach()
	c.plain = c.tier.values != nil && (opts.Observer == nil || c.localHits != nil) && opts.EarlyRefresh == 0 && opts.Local.Clone == nil
	c.reading.troubleLines, c.leasing.troubleLines = &readingLines, &leasingLines
	c.storing.troubleLines, c.changing.troubleLines = &storingLines, &changingLines
	if l := opts.Limiter; l != nil && l.fleet != nil {
		l.fleet.LogTo(opts.Logger)
	}
	c.beginSampling()
	c.doubtLease()
	c.sharesNoMore, c.leaveSwitch = c.doubtName(), opts.Switch.attach(opts.Name, opts.Logger)
	c.stopListening = store.Listen(opts.Name, c.received)
	return c, nil
}

var errNilStore = errors.New("cacheguard: the store is nil")

// isNil reports whether there is no store, also that of a constructor's ignored error.
func isNil(store Store) bool {
	v := reflect.ValueOf(store)
	return !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil()
}

// received acts on a message of the store: forget the flight and the local entry first, then wake,
// so that nobody who is woken by a change finds what is from before it.
func (c *Cache[V]) received(m Message) {
	switch m.Kind {
	case MessageRestored:
		since, interrupted := c.delivery.hears()
		c.invalidations.Missed(m.Generation)
		c.sealAll()
		c.refreshPauses.Clear()
		c.tier.values.Trust()
		c.waits.TellAll(m)
		if interrupted {
			c.deliverAgain(since)
		}
		return
	case MessageLost:
		c.delivery.hearsNothing()
		c.tier.values.Distrust()
		c.waits.TellAll(m) // they ask from time to time from now on
		return
	case MessageTags:
		c.invalidated(m.Tags, m.Generation)
		return
	case MessageChanged:
		if m.Load.IsZero() { // else it is being written
			c.presence.Gone(m.Key)
		}
		c.seal(m.Key)
		c.comparisons.times.Changed(m.Key, m.Load)
	}
	c.waits.Tell(m.Key, m)
}

// seal closes the key's flights to newcomers and forgets what this process knows of the key: that
// is from before the change that is being made.
func (c *Cache[V]) seal(id string) {
	c.changed.Of(id)
	for i := range c.flights {
		c.flights[i].Seal(id)
	}
	c.failures.Forget(id)
	c.refreshPauses.Forget(id)
	c.tier.values.Drop(id)
}

// keyID is the key as the store sees it.
func keyID(key string) string { return frame.KeyID(key) }

func (c *Cache[V]) key(id string) Key { return Key{c.opts.Name, id, c.version} }

// newID draws a token: one for each load, not for each process.
func newID() (id ID) {
	_, _ = rand.Read(id[:]) // never fails
	return id
}

// trouble is what the store can't do at present.
type trouble struct {
	*troubleLines
	now   atomic.Pointer[StoreTrouble] // nil: it can
	spell report.Spell
}

func (t *trouble) is() bool { return t.now.Load() != nil }

// stands reports whether there is trouble, or the log has it that there is: what goes well beside
// what fails may come between the two.
func (t *trouble) stands() bool { return t.is() || t.spell.Told() }

// troubleLines are what the log says of a trouble, and what the store is used for in that.
type troubleLines struct {
	begins, ends report.Line
	use          string
}

var (
	readingLines = troubleLines{
		report.Line{Level: slog.LevelWarn, Text: "cacheguard: store can't be used for reading", See: "the-store-cant-be-used",
			Means: "no hits; each process answers from stale values or its own loads, as OnStoreDown says"},
		report.Line{Level: slog.LevelInfo, Text: "cacheguard: store can be used again for reading", See: "the-store-cant-be-used"},
		"reading",
	}
	leasingLines = troubleLines{
		report.Line{Level: slog.LevelWarn, Text: "cacheguard: store can't be used for leases", See: "the-store-cant-be-used",
			Means: "each process loads for itself, and nothing is stored"},
		report.Line{Level: slog.LevelInfo, Text: "cacheguard: store can be used again for leases", See: "the-store-cant-be-used"},
		"leases",
	}
	storingLines = troubleLines{
		report.Line{Level: slog.LevelWarn, Text: "cacheguard: store can't be used for storing results", See: "the-store-cant-be-used",
			Means: "callers have their results, and the next ones load again"},
		report.Line{Level: slog.LevelInfo, Text: "cacheguard: store can be used again for storing results", See: "the-store-cant-be-used"},
		"storing results",
	}
	changingLines = troubleLines{
		report.Line{Level: slog.LevelWarn, Text: "cacheguard: store can't be used for changes", See: "changes-dont-arrive",
			Means: "other processes may serve old values; the changes are repeated until they arrive"},
		report.Line{Level: slog.LevelInfo, Text: "cacheguard: store can be used again for changes", See: "changes-dont-arrive"},
		"changes",
	}
)

// down takes note of trouble, and up of its end.
func (c *Cache[V]) down(ctx context.Context, t *trouble, key string, err error) {
	c.observe(ctx, Event{Kind: EventStoreError, Key: key, Err: err})
	if !t.is() {
		t.now.CompareAndSwap(nil, newTrouble(t.use, err))
	}
	if t.spell.Due() {
		t.spell.Begin(ctx, t.begins, c.opts.Logger, "cache", c.opts.Name, "error", err)
	}
}

func (c *Cache[V]) up(ctx context.Context, t *trouble) {
	if t.stands() {
		t.now.Store(nil)
		t.spell.End(ctx, t.ends, c.opts.Logger, "cache", c.opts.Name)
		c.nudge()
	}
}
