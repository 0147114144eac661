package slogobserver

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/internal/eventcount"
	"github.com/cacheguard/cacheguard/internal/report"
)

// Options configures an [Observer]. The zero value of a field means its default, and so does a
// negative number.
type Options struct {
	// Logger gets the records. Default: the logger that [slog.Default] returns at the time of each
	// record.
	Logger *slog.Logger

	// Interval, Burst and Every limit the number of records. The limit applies to each kind of
	// event in each cache, to each level of this kind, and for wrong answers to each cause. In each
	// Interval the first Burst events have a record, and after them every Every-th event. Defaults:
	// Interval 1 minute, Burst 5, and no further records.
	Interval time.Duration
	Burst    int
	Every    int

	// Trace is the level of events that need no action, for instance misses, loads, leases, fills
	// and callers that waited. Default: they are not logged. Hits are never logged.
	Trace slog.Leveler

	// Keys adds the key to records. Default: records have no key. But the records "slow load" (see
	// SlowLoad) and "wrong answer" have a hash of the key.
	Keys bool

	// SlowLoad is the duration from which a load is slow. Each slow load is logged as a warning,
	// "slow load". Interval and Burst don't apply to these records. To find the cause you must know
	// the key. Without Keys, the record has key_hash, which is the first 16 digits of the key's
	// SHA-256. With this hash you can check whether the load was for a certain key (printf %s KEY |
	// sha256sum). Default 0. Zero or negative: no load is slow.
	SlowLoad time.Duration
}

// Observer writes log records. It is safe for concurrent use if its Logger is.
type Observer struct {
	opts Options

	mu     sync.Mutex // guards counts
	counts map[about]*count
}

// about is the key by which events are counted.
type about struct {
	cache   string
	kind    cacheguard.EventKind
	differs cacheguard.Difference
	// With the level, loads that Trace shows don't use up the records of loads that failed.
	level slog.Level
}

// count counts the events of one kind in one interval, and the events left out since the last
// record.
type count struct {
	from    time.Time
	events  int
	leftOut int
}

var (
	_ cacheguard.Observer   = (*Observer)(nil)
	_ cacheguard.HitsUntold = (*Observer)(nil)
)

// New returns an Observer for one cache or several.
func New(opts Options) *Observer {
	if opts.Interval <= 0 {
		opts.Interval = time.Minute
	}
	if opts.Burst <= 0 {
		opts.Burst = 5
	}
	return &Observer{opts: opts, counts: make(map[about]*count)}
}

// LocalHitsUntold returns true, because the observer needs no events for hits of the process-local
// tier. See [cacheguard.HitsUntold].
func (o *Observer) LocalHitsUntold() bool { return true }

// Observe logs an event if its level and the limits allow it. See [cacheguard.Observer].
func (o *Observer) Observe(ctx context.Context, e cacheguard.Event) {
	level, ok := o.level(e)
	if !ok {
		return
	}
	logger := o.opts.Logger
	if logger == nil {
		logger = slog.Default()
	}
	if !logger.Enabled(ctx, level) {
		return
	}
	text, leftOut, write := e.Kind.String(), 0, true
	slow := o.isSlow(e)
	if slow {
		text = "slow load"
	} else {
		if e.Differs.Wrong() {
			text = "wrong answer"
		}
		leftOut, write = o.sample(about{e.Cache, e.Kind, e.Differs, level}, time.Now())
	}
	if !write {
		return
	}
	attrs := make([]slog.Attr, 0, 8)
	attrs = append(attrs, slog.String("cache", e.Cache))
	if o.opts.Keys {
		attrs = append(attrs, slog.String("key", report.QuoteKey(e.Key)))
	} else if slow || e.Differs.Wrong() { // without the hash an operator could not find the key
		attrs = append(attrs, slog.String("key_hash", report.HashKey(e.Key)))
	}
	if e.More > 0 {
		attrs = append(attrs, slog.Int("more_keys", e.More))
	}
	if e.Took > 0 && e.Story == nil { // if there is a story, it has the age of the answer
		attrs = append(attrs, slog.Duration("took", e.Took))
	}
	if e.NotFound {
		attrs = append(attrs, slog.Bool("not_found", true))
	}
	if e.Differs != 0 {
		attrs = append(attrs, slog.String("differs", e.Differs.String()))
	}
	if e.Story != nil {
		attrs = append(attrs, slog.Attr{Key: "story", Value: slog.GroupValue(story(e.Story)...)})
	}
	if e.Reason != 0 {
		attrs = append(attrs, slog.String("reason", e.Reason.String()))
	}
	if e.Err != nil {
		attrs = append(attrs, slog.Any("error", e.Err))
	}
	if leftOut > 0 {
		attrs = append(attrs, slog.Int("left_out", leftOut))
	}
	switch { // add the attributes "means" and "see", as in the other log lines of this module
	case slow && e.Audit:
		attrs = append(attrs, slog.Bool("audit", true),
			slog.String("means", "nobody waits for this load: it was made by an audit"),
			slog.String("see", "docs/operations.md#slow-loads"))
	case slow:
		attrs = append(attrs,
			slog.String("means",
				"callers wait for this key, unless they get a stale value meanwhile"),
			slog.String("see", "docs/operations.md#slow-loads"))
	case e.Differs.Wrong():
		attrs = append(attrs,
			slog.String("means", "a caller got a value that differs from the origin"),
			slog.String("see", "docs/operations.md#old-values"))
	}
	logger.LogAttrs(ctx, level, "cacheguard: "+text, attrs...)
}

// story returns the attributes that describe a difference.
func story(s *cacheguard.Story) []slog.Attr {
	attrs := []slog.Attr{
		slog.String("load", s.Load), slog.Time("began", s.Began), slog.Duration("age", s.Age),
		slog.Time("asked", s.Asked),
		slog.String("stands", s.Stands),
	}
	if !s.Changed.IsZero() {
		attrs = append(attrs, slog.Time("changed", s.Changed))
	}
	return attrs
}

// isSlow reports whether an event is the end of a slow load. Slow loads are always logged.
func (o *Observer) isSlow(e cacheguard.Event) bool {
	return e.Kind == cacheguard.EventLoad && o.opts.SlowLoad > 0 && e.Took >= o.opts.SlowLoad
}

// level returns the level of an event, and whether it is logged at all.
func (o *Observer) level(e cacheguard.Event) (level slog.Level, ok bool) {
	if o.isSlow(e) {
		return slog.LevelWarn, true
	}
	switch e.Kind {
	case cacheguard.EventHit, cacheguard.EventSampled:
		return 0, false
	case cacheguard.EventStoreError, cacheguard.EventFillUnknown:
		return slog.LevelError, true
	case cacheguard.EventFillRefused:
		return slog.LevelInfo, true
	}
	// A stale value in place of an error is logged, although the failed load or step of the store
	// has its own record, because it may have failed in another process.
	stale := e.Kind == cacheguard.EventStale && e.Err != nil && !eventcount.GivenUp(e.Err)
	if stale || eventcount.Problem(&e) {
		return slog.LevelWarn, true
	}
	if o.opts.Trace == nil {
		return 0, false
	}
	return o.opts.Trace.Level(), true
}

// sample counts an event. It reports whether to log it, and how many events were left out before
// it.
func (o *Observer) sample(what about, now time.Time) (leftOut int, write bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	c := o.counts[what]
	if c == nil {
		c = &count{from: now}
		o.counts[what] = c
	}
	if now.Sub(c.from) >= o.opts.Interval {
		c.from, c.events = now, 0
	}
	c.events++
	over := c.events - o.opts.Burst
	if over > 0 && (o.opts.Every <= 0 || over%o.opts.Every != 0) {
		c.leftOut++
		return 0, false
	}
	leftOut, c.leftOut = c.leftOut, 0
	return leftOut, true
}
