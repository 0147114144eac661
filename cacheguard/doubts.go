package cacheguard

import (
	"context"
	"log/slog"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cacheguard/cacheguard/internal/loss"
	"github.com/cacheguard/cacheguard/internal/report"
)

// doubts records which warnings a cache has logged. The warnings are about uses that work as
// documented, but probably not as the user intended. Each warning is logged once, because it would
// otherwise be repeated with every call.
type doubts struct {
	pattern, tagPattern, slow, lossy atomic.Bool // whether the warning was logged
	looks                            atomic.Int32
}

const seeDoubts = "allowed-and-hardly-meant"

var (
	keyPatternLine = report.Line{Level: slog.LevelWarn, See: seeDoubts,
		Text:  "cacheguard: a key with * in it was changed",
		Means: "only the key with this very name was changed; to change many keys, use InvalidateTags",
	}
	tagPatternLine = report.Line{Level: slog.LevelWarn, See: seeDoubts,
		Text:  "cacheguard: a tag with * in it was invalidated",
		Means: "only the tag with this very name was invalidated",
	}
	shortLine = report.Line{Level: slog.LevelWarn, See: seeDoubts,
		Text:  "cacheguard: a value is fresh for less time than its load took",
		Means: "the value's key is being loaded most of the time",
	}
	undecodableLine = report.Line{Level: slog.LevelWarn, See: seeDoubts,
		Text:  "cacheguard: the codec can't decode what it has encoded",
		Means: "each call is a miss and loads",
	}
	lossyLine = report.Line{Level: slog.LevelWarn, See: seeDoubts,
		Text:  "cacheguard: the codec loses a part of the value",
		Means: "a caller gets the lost part from a load, but not from a hit",
	}
	leaseLine = report.Line{Level: slog.LevelWarn, See: seeDoubts,
		Text:  "cacheguard: LeaseTTL is below what a step of the store may take",
		Means: "a lease may end before its process learns that it has it, so another process loads, too",
	}
	nameLine = report.Line{Level: slog.LevelWarn, See: seeDoubts,
		Text:  "cacheguard: two caches of this process have one name in one store, and other options",
		Means: "each cache serves values that the other one has stored",
	}
)

// once logs a warning if said is false, and sets said.
func (c *Cache[V]) once(ctx context.Context, said *atomic.Bool, line report.Line, args ...any) {
	if said.CompareAndSwap(false, true) {
		line.Log(ctx, c.opts.Logger, append([]any{"cache", c.opts.Name}, args...)...)
	}
}

// doubtNames warns if a changed key or tag has * in it. The user may have meant a pattern, but the
// name stands for this one key or tag.
func (c *Cache[V]) doubtNames(
	ctx context.Context, said *atomic.Bool, names []string, line report.Line,
) {
	if !said.Load() &&
		slices.ContainsFunc(names, func(name string) bool { return strings.Contains(name, "*") }) {
		c.once(ctx, said, line)
	}
}

// doubtLifetime warns if a value is fresh for less time than its load takes. Then its key is being
// loaded most of the time.
func (c *Cache[V]) doubtLifetime(ctx context.Context, took, fresh time.Duration) {
	if took > fresh {
		c.once(ctx, &c.slow, shortLine, "load", took, "fresh", fresh)
	}
}

// firstLooks is the number of encoded values that are decoded again to test whether the codec loses
// a part of them. Each has at most mostLooked bytes.
const (
	firstLooks = 3
	mostLooked = 64 << 10
)

// doubtCodec warns if the codec can't decode what it has encoded, or if it loses a part of the
// value, such as fields that are not exported. Callers get that part from a load, but not from a
// hit. It checks only the first values, so that later values cost nothing.
func (c *Cache[V]) doubtCodec(v V, encoded []byte) {
	if len(encoded) > mostLooked || c.looks.Load() >= firstLooks || c.looks.Add(1) > firstLooks {
		return
	}
	switch any(v).(type) {
	case []byte, string:
		return
	}
	defer func() { _ = recover() }() // a panic of the codec is reported when the value is read
	back, err := c.opts.Codec.Decode(slices.Clone(encoded))
	if err != nil {
		c.once(context.Background(), &c.lossy, undecodableLine, "error", err)
	} else if field := loss.Field(v, back); field != "" {
		c.once(context.Background(), &c.lossy, lossyLine, "part", field)
	}
}

// doubtLease warns if a lease can end before the store has answered the request for it.
func (c *Cache[V]) doubtLease() {
	if s, ok := c.store.(StepTimer); ok && c.opts.LeaseTTL < s.StepTimeout() {
		leaseLine.Log(context.Background(), c.opts.Logger, "cache", c.opts.Name, "LeaseTTL",
			c.opts.LeaseTTL, "step", s.StepTimeout())
	}
}

// StepTimer is implemented by a [Store] that knows how long one of its steps takes at most. [New]
// warns if LeaseTTL is shorter.
type StepTimer interface{ StepTimeout() time.Duration }

// name identifies the values of a cache by the cache's store and its name in this store.
type name struct {
	store Store
	name  string
}

// setting is an option that must be the same in all caches of one name, because they share values.
type setting struct {
	what  string
	value any
}

// settings returns the options that caches of one name must have in common.
func (c *Cache[V]) settings() []setting {
	o := &c.opts
	return []setting{
		{"the type of values", reflect.TypeFor[V]()}, {"Codec", c.codec},
		{"TTL", o.TTL}, {"NegativeTTL", o.NegativeTTL}, {"ErrorTTL", o.ErrorTTL},
		{"LeaseTTL", o.LeaseTTL},
		{"StaleWhileRevalidate", o.StaleWhileRevalidate}, {"StaleIfError", o.StaleIfError},
	}
}

// sharers are the open caches of one name in this process.
type sharers struct {
	settings []setting // of the first cache
	open     int
}

var (
	sharing   sync.Mutex // guards sharersOf
	sharersOf = map[name]*sharers{}
)

// doubtName warns if another cache of this process has the same name in the same store, but other
// settings. It returns the function to call when the cache is closed.
func (c *Cache[V]) doubtName() (closed func()) {
	if !reflect.ValueOf(c.store).Comparable() {
		return func() {}
	}
	n, mine := name{c.store, c.opts.Name}, c.settings()
	sharing.Lock()
	defer sharing.Unlock()
	all := sharersOf[n]
	if all == nil {
		all = &sharers{settings: mine}
		sharersOf[n] = all
	}
	all.open++
	for i, first := range all.settings {
		if first != mine[i] {
			nameLine.Log(context.Background(), c.opts.Logger, "cache", c.opts.Name,
				"option", first.what, "first", first.value, "second", mine[i].value)
			break
		}
	}
	return func() {
		sharing.Lock()
		defer sharing.Unlock()
		if all.open--; all.open == 0 {
			delete(sharersOf, n)
		}
	}
}
