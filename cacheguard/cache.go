package cacheguard

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"sync/atomic"
	"time"

	"github.com/cacheguard/cacheguard/internal/demand"
	"github.com/cacheguard/cacheguard/internal/frame"
	"github.com/cacheguard/cacheguard/internal/knowledge"
	"github.com/cacheguard/cacheguard/internal/lifetime"
	"github.com/cacheguard/cacheguard/internal/protocol"
	"github.com/cacheguard/cacheguard/internal/report"
	"github.com/cacheguard/cacheguard/internal/watch"
)

// Cache is a typed read-through cache. It is safe for concurrent use. A value that it returns may
// be shared with other callers, so the value must not be changed.
type Cache[V any] struct {
	store Store
	opts  Options[V] // with all defaults filled in
	meaning

	flights flights[V]
	waits   watch.Board[Message] // the misses that wait for messages about loads in other processes
	// The process-local tier; if there is none, its field values is nil.
	tier localTier[V]
	checks
	loads loads // running loads
	life  life
	memory
	delivery
	listeners
	health
	demands demand.Judge // of tokens
	doubts
}

// meaning has the settings that New derives from the options.
type meaning struct {
	codec       uint32          // fingerprint of Options.Codec and Options.Version
	version     uint8           // Key.Version of the keys of this cache
	protocol    protocol.Config // for the state machine
	tookTooLong error           // the cause with which LoadTimeout ends a load
	sentinels   sentinels
	// A hit of the tier only returns the value: it needs no event, no early refresh and no copy.
	plain bool
}

// checks is for the hits that do more than answer a call.
type checks struct {
	sampler     sampler     // picks hits for audits and Watchers
	comparisons comparisons // with the origin
}

// memory is what this process knows of keys and tags, besides values.
type memory struct {
	changed  knowledge.Changes  // counts the changes of keys
	failures knowledge.Failures // of loads in this process, as error values
	// For keys whose refresh another process does, or whose refresh failed or got no answer about
	// the lease.
	refreshPauses knowledge.Pauses
	invalidations knowledge.Invalidations // invalidations by tag
	hints         knowledge.Hints         // which tags values have
	presence      knowledge.Presence      // which keys the store has a value of, and for how long
}

// listeners are the connections of the cache to its Observer, its store, its Switch and other
// caches.
type listeners struct {
	tracer LoadTracer // the Observer, if it is a LoadTracer
	// Counts the hits of the local tier if the Observer needs no events for them (see HitsUntold);
	// else nil.
	localHits      *localHits
	detachObserver func()
	detachWatcher  func()
	watched        bool // the Observer is a Watcher
	stopListening  func()
	sharesNoMore   func() // ends the check for other caches with this name
	leaveSwitch    func()
}

// health shows which uses of the store work at present. Each kind of use has its own trouble,
// because reads can work while leases don't, for instance if Redis is out of memory or read-only.
type health struct {
	reading, leasing, storing, changing trouble
	corruptSaid                         atomic.Bool
}

// New makes a typed read-through cache on a store that other caches and other processes share. Its
// error joins the errors of all invalid options. New doesn't connect to the store. Close the cache
// before the store.
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
	c.tookTooLong = fmt.Errorf("cacheguard: load took longer than LoadTimeout of %v: %w",
		opts.LoadTimeout, context.DeadlineExceeded)
	c.sentinels = sentinelsOf(opts.Errors)
	c.protocol = protocol.Config{
		LeaseTTL: opts.LeaseTTL, FailClosed: opts.OnStoreDown == FailClosed,
		Soft: opts.SoftTimeout > 0,
	}
	if c.tier, err = newLocalTier(opts.Local, &c.invalidations); err != nil {
		return nil, err
	}
	c.demands.Go = c.life.Go
	c.attach()
	c.plain = c.tier.values != nil && (opts.Observer == nil || c.localHits != nil) &&
		opts.EarlyRefresh == 0 && opts.Local.Clone == nil
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

// isNil reports whether the store is nil, or is an interface with a nil pointer. A program gets
// such a pointer from a constructor if it ignores the constructor's error.
func isNil(store Store) bool {
	v := reflect.ValueOf(store)
	return !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil()
}

// received handles a message of the store. It seals flights and removes local values before it
// wakes waiting calls. So if a change wakes a call, the call finds nothing from before the change.
func (c *Cache[V]) received(m Message) {
	switch m.Kind {
	case MessageRestored:
		// First, because a new server may still have values that recent changes have removed. Until
		// these changes are noted, a read could return such a value.
		if since, interrupted := c.delivery.hears(); interrupted {
			c.deliverAgain(since.Add(-toldAgain))
		}
		c.saw(m.Generation)
		c.invalidations.Missed(c.delivery.latest.Load())
		c.sealAll()
		c.failures.EndGraces()
		c.refreshPauses.Clear()
		c.tier.values.Trust()
		c.waits.TellAll(m)
		return
	case MessageLost:
		c.delivery.hearsNothing()
		c.invalidations.Lost()
		c.tier.values.Distrust()
		c.waits.TellAll(m) // from now on, waiting calls ask the store from time to time
		return
	case MessageTags:
		c.invalidated(m.Tags, m.Generation)
		return
	case MessageChanged:
		// A message with a Load is from a writer that has claimed the key and stores a value soon.
		if m.Load.IsZero() {
			c.presence.Gone(m.Key)
		}
		c.seal(m.Key)
		c.comparisons.times.Changed(m.Key, m.Load)
	}
	c.waits.Tell(m.Key, m)
}

// seal closes the key's flights to new callers. It also forgets the key's error, refresh pause and
// local value, because they may be from before the change. Callers that joined before the change
// still get the flight's result.
func (c *Cache[V]) seal(id string) {
	c.changed.Of(id)
	for i := range c.flights {
		c.flights[i].Seal(id)
	}
	c.failures.Forget(id)
	c.refreshPauses.Forget(id)
	c.tier.values.Drop(id)
}

// keyID returns the form of the key that the store uses.
func keyID(key string) string { return frame.KeyID(key) }

func (c *Cache[V]) key(id string) Key { return Key{c.opts.Name, id, c.version} }

// newID returns a random token. Each load gets its own token, because otherwise two loads of one
// process could mistake each other's lease for their own.
func newID() (id ID) {
	_, _ = rand.Read(id[:]) // never fails
	return id
}

// trouble records whether the store fails at present for one kind of use.
type trouble struct {
	*troubleLines
	now   atomic.Pointer[StoreTrouble] // nil: no trouble
	last  atomic.Int64                 // when the use last failed, in Unix nanoseconds
	spell report.Spell
}

func (t *trouble) is() bool { return t.now.Load() != nil }

// stands reports whether there is trouble, now or according to the last line of the log. The two
// can differ for a moment, if one call succeeds while another call fails.
func (t *trouble) stands() bool { return t.is() || t.spell.Told() }

// troubleLines are the lines of the log about a trouble, and the name of the use.
type troubleLines struct {
	begins, ends report.Line
	use          string
}

var (
	readingLines = troubleLines{
		report.Line{Level: slog.LevelWarn, Text: "cacheguard: store can't be used for reading",
			See:   "the-store-cant-be-used",
			Means: "no hits; calls get stale values, or their process loads, or they fail, as OnStoreDown says"},
		report.Line{
			Level: slog.LevelInfo, Text: "cacheguard: store can be used again for reading",
			See: "the-store-cant-be-used",
		},
		"reading",
	}
	leasingLines = troubleLines{
		report.Line{Level: slog.LevelWarn, Text: "cacheguard: store can't be used for leases",
			See:   "the-store-cant-be-used",
			Means: "each process loads for itself, and nothing is stored"},
		report.Line{
			Level: slog.LevelInfo, Text: "cacheguard: store can be used again for leases",
			See: "the-store-cant-be-used",
		},
		"leases",
	}
	storingLines = troubleLines{
		report.Line{Level: slog.LevelWarn,
			Text:  "cacheguard: store can't be used for storing results",
			See:   "the-store-cant-be-used",
			Means: "callers get their results, but later calls load again"},
		report.Line{
			Level: slog.LevelInfo, Text: "cacheguard: store can be used again for storing results",
			See: "the-store-cant-be-used",
		},
		"storing results",
	}
	changingLines = troubleLines{
		report.Line{Level: slog.LevelWarn, Text: "cacheguard: store can't be used for changes",
			See:   "changes-dont-arrive",
			Means: "other processes may serve old values; the changes are repeated until they arrive"},
		report.Line{
			Level: slog.LevelInfo, Text: "cacheguard: store can be used again for changes",
			See: "changes-dont-arrive",
		},
		"changes",
	}
)

// down notes that a use of the store has failed, and writes to the log if a line is due. If the
// cause is known and differs from the last cause, or if an access right is missing that was not
// missing before in this trouble, a line is due at once, but at most three lines are written a
// minute. up notes that a use has succeeded.
func (c *Cache[V]) down(ctx context.Context, t *trouble, key string, err error) {
	c.observe(ctx, Event{Kind: EventStoreError, Key: key, Err: err})
	c.fails(ctx, t, err)
}

// fails is down without an event.
func (c *Cache[V]) fails(ctx context.Context, t *trouble, err error) {
	t.last.Store(time.Now().UnixNano())
	now := t.now.Load()
	if _, cause := report.Where(err); now == nil ||
		cause != "" && (cause != now.Cause || report.Lacks(err) != now.lacks) {
		another := newTrouble(t.use, err)
		news := now != nil && another.follows(now)
		if t.now.CompareAndSwap(now, another) && news {
			t.spell.Anew() // so that the log gets a line with the new cause or the missing right
		}
	}
	if t.spell.Due() {
		t.spell.Begin(ctx, t.begins, c.opts.Logger, "cache", c.opts.Name, "error", err)
	}
}

func (c *Cache[V]) up(ctx context.Context, t *trouble) {
	if t.stands() {
		c.ends(ctx, t)
	}
}

// ends notes that a trouble is over.
func (c *Cache[V]) ends(ctx context.Context, t *trouble) {
	t.now.Store(nil)
	t.spell.End(ctx, t.ends, c.opts.Logger, "cache", c.opts.Name)
	c.nudge()
}
