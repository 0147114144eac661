package cacheguard

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"
)

// Options configures a Cache. The zero value of a field means its default; negative means off where
// off makes sense.
type Options[V any] struct {
	// Name is part of every key in the store, so it is unique among the caches of a store.
	// Required; at most 128 bytes; no braces, which Redis Cluster gives a meaning.
	Name string

	// TTL is how long a value is fresh. Default 5 minutes; at least 1 ms.
	TTL time.Duration

	// NegativeTTL is how long "does not exist" is remembered. Default 30 seconds; negative: not
	// stored.
	NegativeTTL time.Duration

	// ErrorTTL is how long a failed load answers newcomers, in the whole fleet, instead of a new
	// load. Default 1 second; negative: it answers only those who already waited for it.
	ErrorTTL time.Duration

	// Jitter shortens each value's TTL and NegativeTTL by a random share of up to this, so that
	// values stored together don't expire together. It never lengthens one, and never touches
	// leases. Default 0.1; negative: off; below 1.
	Jitter float64

	// StaleWhileRevalidate is how long after its TTL a value is still served at once, while one
	// process of the fleet refreshes it behind its callers' backs (RFC 5861, section 3). Default 0
	// or negative: not at all. It doesn't apply to "does not exist".
	StaleWhileRevalidate time.Duration

	// StaleIfError is how long after its TTL a value is served when its load fails, with the error
	// in Result.Err, when it is not begun because too many wait already, or when the store can't be
	// used (RFC 5861, section 4). Default 0 or negative: not at all. It doesn't apply to "does not
	// exist".
	StaleIfError time.Duration

	// SoftTimeout is how long a caller for whom there is a stale value, by either window, waits for
	// the load before it gets the stale one; the load goes on. Default 0 or negative: within
	// StaleWhileRevalidate it doesn't wait, within StaleIfError alone it waits for as long as the
	// load takes.
	SoftTimeout time.Duration

	// Backoff is how long the whole fleet leaves an origin alone after a failed load of a key for
	// which there is a value that can be served. It grows by half with each further failure, up to
	// three times, and is shortened by a random fifth at most; it is never shorter than ErrorTTL
	// nor longer than the value can be served. Default 10 seconds.
	Backoff time.Duration

	// EarlyRefresh is the beta of XFetch: before a value's TTL is over, a reader decides by lot to
	// refresh it behind its callers' backs, the more likely the nearer the end is and the longer
	// the load takes (see the package documentation). 1 is the paper's default, more is earlier. A
	// value that was Set has no load time, so its first expiry is not early. Default 0 or negative:
	// off.
	EarlyRefresh float64

	// Version is raised by one by a release of your program in which stored values mean something
	// else: a field was renamed, say, or has another type. Releases of neighbouring versions, like
	// 4 and 5, have their values and loads side by side, as long as both run, and what one of them
	// changes is changed for both. Values of any other version are misses. See "Changing what is
	// stored" in the package documentation. Default 0; at most 1,000,000.
	Version int

	// StrongReads has every call return what is at least as new as the changes (Invalidate,
	// MarkStale, InvalidateTags, Set, Update and the others) that had returned, in any process,
	// when it was begun. Without it this is so at once in the process that made the change, and in
	// the others when its message has arrived: a fraction of a millisecond as a rule. The price:
	// who comes while a look-up or a load of the key is under way in the process waits for it, and
	// then takes part in one more look-up, and where that finds nothing, as after a load that is
	// not stored, or a Refresh, in one more load. It excludes Local and SoftTimeout, and "What is
	// not promised" in the package documentation has what it needs of the store. Default: off.
	StrongReads bool

	// LeaseTTL is how long a process that dies can hold a key. A live leader renews its lease at a
	// third of it. Default 3 seconds; at least 10 ms.
	LeaseTTL time.Duration

	// LoadTimeout is the longest a load may take, and so the longest a key can be held. Default 30
	// seconds.
	LoadTimeout time.Duration

	// MaxLoads is how many loads of this cache run at a time in this process; up to 64 times as
	// many more wait for a slot, in order, for LoadTimeout at most. Default 64; negative: no limit.
	MaxLoads int

	// Limiter takes MaxLoads' place: one budget for several caches.
	Limiter *Limiter

	// MaxWaiters is how many callers may wait for one key at a time in this process; one more gets
	// ErrOverloaded. Default 65,536; negative: no limit.
	MaxWaiters int

	// OnStoreDown says what a Get does when the store can't be used. Default FailOpen.
	OnStoreDown StorePolicy

	// MaxValueSize is the size in bytes, encoded, above which a value is given to its callers but
	// not stored. Default 8 MiB.
	MaxValueSize int

	// Local is the process-local tier, in front of the store. Default: none.
	Local Local[V]

	// Codec turns values into bytes and back. Default: JSON, and string and []byte as they are. A
	// []byte value then aliases what was read: like every value, it is shared and must not be
	// changed.
	Codec Codec[V]

	// Empty reports values that mean "does not exist", such as an empty map: they are stored as the
	// null sentinel, and every caller gets the zero V and ErrNotFound instead.
	Empty func(V) bool

	// ErrorText is what of a load's error other processes get to read. Default: its message; at
	// most 256 bytes of either.
	ErrorText func(error) string

	// Errors are sentinels, such as sql.ErrConnDone or your own: for the error of a load that has
	// failed in another process, errors.Is says of them what it says in that process. At most 64,
	// none of them ErrNotFound, which needs no mention; the same in every process that uses the
	// cache. One that a release knows by another place in the list, or another text, it doesn't
	// recognise: append new ones. Default: none; context.DeadlineExceeded crosses in any case, and
	// context.Canceled never, which would say that the caller has given up.
	Errors []error

	// Switch takes the cache out of the path of its calls while the program runs, and may be that
	// of several caches. Default: none; the cache is always on.
	Switch *Switch

	// Audit has some of the hits checked against the origin. Default: none.
	Audit Audit

	// Same reports whether two values are the same to callers, where what is stored is compared
	// with what was loaded (Audit, ModeShadow). It may be called at any time by many goroutines,
	// and Close waits until it returns. Default: they are encoded in the same bytes, which a codec
	// that encodes a value in different ways (a map of gob, protobuf) makes useless.
	Same func(a, b V) bool

	// Observer is told of hits, loads and everything else. Default none.
	Observer Observer

	// Logger gets a line when something needs an operator, and when it is over; and one, once, for
	// each of what is allowed and hardly meant: a key or a tag with * in it is invalidated, which
	// stands for itself alone; a value is fresh for less time than its load took; the codec loses a
	// part of one of the first values, such as a field that is not exported; LeaseTTL is below what
	// a step of the store may take; another cache of this process has the same name in the same
	// store, and other options. Default slog.Default().
	Logger *slog.Logger
}

// Local configures the process-local tier: decoded values that are answered with without asking the
// store. A change by any process removes them as soon as its message arrives, and while messages
// don't arrive none is answered with. It needs a store whose messages arrive, so it works from the
// moment the store listens (see Warm).
type Local[V any] struct {
	// Entries is how many values the tier holds, or with Weigh their total weight. Default 0: there
	// is no tier.
	Entries int

	// TTL is how long a value is answered with until the store is asked again; never beyond the
	// value's own TTL. Default 1 minute; at least 1 ms.
	TTL time.Duration

	// Weigh returns the weight of a value, which counts as 1 at least. It may be called at any time
	// by many goroutines. Default: 1 for each.
	Weigh func(key string, v V) uint32

	// Clone copies a value, for each answer from the tier. Callers that share a flight share what
	// it brings, all the same. Default: none; then all who get a value share it and must not change
	// it.
	Clone func(V) V
}

// StorePolicy says what a Get does when there is no usable answer from the store.
type StorePolicy uint8

const (
	// FailOpen loads, coalesced in this process only, and stores nothing.
	FailOpen StorePolicy = iota
	// FailClosed returns ErrUnavailable.
	FailClosed
)

const (
	queuePerLoad  = 64
	maxName       = 128
	maxErrorText  = 256
	minTTL        = time.Millisecond
	minLease      = 10 * time.Millisecond
	maxTTL        = 10 * 365 * 24 * time.Hour // far below where microseconds in a float64, Lua's number, lose precision
	maxBeta       = 1000
	defaultLimits = 64
)

// withDefaults returns the options with every default in place, or everything that is wrong with
// them.
func (o Options[V]) withDefaults() (Options[V], error) {
	var bad complaints
	switch {
	case o.Name == "":
		bad.add("Name is required")
	case len(o.Name) > maxName:
		bad.add("Name has %d bytes, at most %d are allowed", len(o.Name), maxName)
	case strings.ContainsAny(o.Name, "{}"):
		bad.add("Name %q has a brace", o.Name)
	}
	o.defaultTimes(&bad)
	o.defaultNumbers(&bad)
	switch l := &o.Local; {
	case l.Entries < 0:
		bad.add("Local.Entries is %d, it can't be negative", l.Entries)
	case l.Entries == 0 && (l.TTL != 0 || l.Weigh != nil || l.Clone != nil):
		bad.add("Local.Entries is required for a local tier")
	}
	bad.duration("Local.TTL", &o.Local.TTL, time.Minute, minTTL, false)
	if o.StrongReads && o.Local.Entries > 0 {
		bad.add("StrongReads and Options.Local exclude each other")
	}
	if o.StrongReads && o.SoftTimeout > 0 {
		bad.add("StrongReads and Options.SoftTimeout exclude each other")
	}
	if o.OnStoreDown > FailClosed {
		bad.add("OnStoreDown is %d, which is no StorePolicy", o.OnStoreDown)
	}
	o.Audit.defaults(&bad)
	wrongSentinels(o.Errors, &bad)
	if o.Codec == nil {
		o.Codec = defaultCodec[V]()
	}
	if o.Switch == nil {
		o.Switch = new(Switch)
	}
	if o.ErrorText == nil {
		o.ErrorText = error.Error
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	return o, errors.Join(bad...)
}

func (o *Options[V]) defaultTimes(bad *complaints) {
	bad.duration("TTL", &o.TTL, 5*time.Minute, minTTL, false)
	bad.duration("NegativeTTL", &o.NegativeTTL, 30*time.Second, minTTL, true)
	bad.duration("ErrorTTL", &o.ErrorTTL, time.Second, minTTL, true)
	bad.duration("StaleWhileRevalidate", &o.StaleWhileRevalidate, 0, minTTL, true)
	bad.duration("StaleIfError", &o.StaleIfError, 0, minTTL, true)
	bad.duration("SoftTimeout", &o.SoftTimeout, 0, time.Microsecond, true)
	o.StaleWhileRevalidate, o.StaleIfError, o.SoftTimeout = max(o.StaleWhileRevalidate, 0), max(o.StaleIfError, 0), max(o.SoftTimeout, 0)
	bad.duration("Backoff", &o.Backoff, 10*time.Second, minTTL, false)
	bad.duration("LeaseTTL", &o.LeaseTTL, 3*time.Second, minLease, false)
	bad.duration("LoadTimeout", &o.LoadTimeout, 30*time.Second, minTTL, false)
}

func (o *Options[V]) defaultNumbers(bad *complaints) {
	switch {
	case o.Jitter == 0:
		o.Jitter = 0.1
	case o.Jitter < 0:
		o.Jitter = 0
	case !(o.Jitter < 1): // also not a number
		bad.add("Jitter is %v, it must be below 1", o.Jitter)
	}
	switch {
	case o.EarlyRefresh <= 0:
		o.EarlyRefresh = 0
	case !(o.EarlyRefresh <= maxBeta): // also not a number
		bad.add("EarlyRefresh is %v, it must be at most %v", o.EarlyRefresh, maxBeta)
	}
	if o.MaxLoads != 0 && o.Limiter != nil {
		bad.add("MaxLoads and Options.Limiter exclude each other")
	}
	if o.MaxLoads == 0 {
		o.MaxLoads = defaultLimits
	}
	if o.Limiter == nil && o.MaxLoads > 0 {
		o.Limiter = NewLimiter(o.MaxLoads, queuePerLoad*o.MaxLoads)
	}
	switch {
	case o.MaxWaiters == 0:
		o.MaxWaiters = 65536
	case o.MaxWaiters < 0:
		o.MaxWaiters = 0
	}
	if o.Version < 0 || o.Version > maxVersion {
		bad.add("Version is %d, it must be from 0 to %d", o.Version, maxVersion)
	}
	switch {
	case o.MaxValueSize == 0:
		o.MaxValueSize = 8 << 20
	case o.MaxValueSize < 0:
		bad.add("MaxValueSize is %d, it can't be negative", o.MaxValueSize)
	}
}

const maxVersion = 1_000_000

// complaints is what is wrong with options.
type complaints []error

func (c *complaints) add(format string, args ...any) {
	*c = append(*c, fmt.Errorf("cacheguard: Options."+format, args...))
}

// duration puts the default in place, or looks at what is there. off: it may be negative.
func (c *complaints) duration(name string, d *time.Duration, def, least time.Duration, off bool) {
	switch {
	case *d == 0:
		*d = def
	case *d < 0 && off:
		*d = -1
	case *d < least:
		c.add("%s is %v, below the least of %v", name, *d, least)
	case *d > maxTTL:
		c.add("%s is %v, above the most of %v", name, *d, maxTTL)
	}
}
