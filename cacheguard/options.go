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
	// Name is part of every key in the store. Each cache of a store needs a name of its own.
	// Required; at most 128 bytes; no braces, because Redis Cluster gives them a meaning.
	Name string

	// TTL is how long a value is fresh. Default 5 minutes; at least 1 ms.
	TTL time.Duration

	// NegativeTTL is how long "does not exist" is remembered. Default 30 seconds; negative: not
	// stored.
	NegativeTTL time.Duration

	// ErrorTTL is how long the whole fleet answers new callers with the error of a failed load
	// instead of loading again. Default 1 second; negative: only callers that already waited get
	// the error.
	ErrorTTL time.Duration

	// Jitter is the largest share by which a value's TTL or NegativeTTL is shortened at random, so
	// that values stored together don't expire together. It does not affect leases. Default 0.1;
	// negative: off; below 1.
	Jitter float64

	// StaleWhileRevalidate is how long after its TTL a value is served at once while one process
	// of the fleet refreshes it in the background (RFC 5861, section 3). It does not apply to "does
	// not exist". Default 0 or negative: not at all.
	StaleWhileRevalidate time.Duration

	// StaleIfError is how long after its TTL a value is served if its load fails, if the load can't
	// begin because too many loads wait, or if the store is unavailable (RFC 5861, section 4).
	// Result.Err has the reason. It does not apply to "does not exist". Default 0 or negative: not
	// at all.
	StaleIfError time.Duration

	// SoftTimeout is how long a caller waits for a load while there is a stale value in one of the
	// two windows. Then the caller gets the stale value, and the load goes on. Default 0 or
	// negative: within StaleWhileRevalidate callers don't wait; within StaleIfError alone they wait
	// for the load.
	SoftTimeout time.Duration

	// Backoff is how long no process of the fleet loads a key again after a failed load, if there
	// is a stale value to serve. It grows by half with each further failure, up to three times
	// Backoff, and is shortened at random by a fifth at most. It is at least ErrorTTL, and ends when
	// the stale value can't be served any longer. Default 10 seconds.
	Backoff time.Duration

	// EarlyRefresh is the beta of XFetch (Vattani, Chierichetti, Lowenstein, VLDB 2015): a reader
	// decides at random to refresh a value in the background before its TTL is over. The nearer the
	// end and the slower the load, the more likely. 1 is the paper's default; a larger beta
	// refreshes earlier. A value from Set has no load time and is not refreshed early. Default 0 or
	// negative: off.
	EarlyRefresh float64

	// Version tells releases of your program apart. Raise it by one in a release in which stored
	// values mean something else, for instance because a field has a new name or type. Releases
	// with neighbouring versions, such as 4 and 5, keep their values side by side while both run,
	// and a change by either reaches both. Values of other versions are misses. See "Changing what
	// is stored" in the package documentation. Default 0; at most 1,000,000.
	Version int

	// StrongReads makes every call return a value at least as new as every change that had
	// returned, in any process, before the call began: Invalidate, MarkStale, InvalidateTags, Set,
	// Update and their variants. Without it, this holds at once in the process that made the
	// change, and in others when its message arrives, usually within a fraction of a millisecond.
	//
	// The price: a call that begins while the process already looks up or loads the key waits for
	// that, and then for one more look-up, shared by all such calls. If the look-up finds nothing,
	// for instance after a load that was not stored, it waits for one more load, too. StrongReads
	// excludes Local and SoftTimeout. "What is not promised" in the package documentation has its
	// limits. Default: off.
	StrongReads bool

	// LeaseTTL is how long a key stays leased after its leader has died. A live leader renews its
	// lease after each third of LeaseTTL. Default 3 seconds; at least 10 ms.
	LeaseTTL time.Duration

	// LoadTimeout is the longest a load may take, and so the longest a key can be held. Default 30
	// seconds.
	LoadTimeout time.Duration

	// MaxLoads is how many loads of this cache run at a time in this process. Up to 64 times as
	// many wait for a slot, in order, for LoadTimeout at most. Default 64; negative: no limit.
	MaxLoads int

	// Limiter replaces MaxLoads by a budget that several caches share. Default: none.
	Limiter *Limiter

	// MaxWaiters is how many callers may wait for one key at a time in this process. Further
	// callers get ErrOverloaded. Default 65,536; negative: no limit.
	MaxWaiters int

	// OnStoreDown says what a Get does while the store is unavailable. Default FailOpen.
	OnStoreDown StorePolicy

	// MaxValueSize is the largest size of an encoded value, in bytes. Callers get a larger value,
	// but it is not stored. Default 8 MiB.
	MaxValueSize int

	// Local is the process-local tier, in front of the store. Default: none.
	Local Local[V]

	// Codec turns values into bytes and back. Default: JSON, except that string and []byte are
	// stored as they are. A []byte value then aliases the bytes that were read; like every value,
	// it is shared and must not be changed.
	Codec Codec[V]

	// Empty reports whether a value means "does not exist", for instance an empty map. Such a value
	// is stored as the null sentinel, and every caller gets the zero V and ErrNotFound. Default: no
	// value means that.
	Empty func(V) bool

	// ErrorText returns the text of a load's error that other processes may read. At most 256 bytes
	// of it are used. Default: the error's message.
	ErrorText func(error) string

	// Errors are sentinel errors, such as sql.ErrConnDone or your own, that errors.Is recognises in
	// every process. If a load fails in another process, errors.Is reports for them what it reports
	// there. At most 64; not ErrNotFound, which needs no mention. Every process that uses the cache
	// needs the same list: an error is recognised by its place in the list and its text, so append
	// new ones. context.DeadlineExceeded always crosses; context.Canceled never does, because it
	// would tell callers that they gave up themselves. Default: none.
	Errors []error

	// Switch takes the cache out of the path of its calls while the program runs. Several caches
	// may share one. Default: none; the cache is always on.
	Switch *Switch

	// Audit compares some hits with the origin. Default: none.
	Audit Audit

	// Same reports whether two values are equal for callers. Audit and ModeShadow use it to compare
	// a stored value with a loaded one. Many goroutines may call it at any time; Close waits until
	// it returns. Default: both have the same encoded bytes. If the codec can encode one value in
	// different ways (gob with maps, protobuf), set Same.
	Same func(a, b V) bool

	// Observer is told of hits, loads and all other events. Default: none.
	Observer Observer

	// Logger gets a line when something needs an operator, and a line when it is over. It also gets
	// one line, once, for each use that is allowed but probably a mistake: a key or tag with * in it
	// is invalidated (* has no special meaning); a value is fresh for less time than its load took;
	// the codec loses a part of a value, such as a field that is not exported; LeaseTTL is shorter
	// than a step of the store may take; another cache of this process has the same name and store,
	// but other options. docs/operations.md explains each line. Default slog.Default().
	Logger *slog.Logger
}

// Local configures the process-local tier: decoded values that are served without asking the store.
// A change by any process removes a value as soon as its message arrives. While messages don't
// arrive, the tier is not used; so it works from the moment the store listens (see Store.Warm).
type Local[V any] struct {
	// Entries is how many values the tier holds, or with Weigh their total weight. Default 0: there
	// is no tier.
	Entries int

	// TTL is how long a value is served before the store is asked again, and never longer than the
	// value's own TTL. Default 1 minute; at least 1 ms.
	TTL time.Duration

	// Weigh returns the weight of a value; 0 counts as 1. Many goroutines may call it at any time.
	// Default: each value weighs 1.
	Weigh func(key string, v V) uint32

	// Clone copies a value for each answer from the tier. Callers that share a flight still share
	// its result. Default: none; all callers share the value and must not change it.
	Clone func(V) V
}

// StorePolicy says what a Get does without a usable answer from the store.
type StorePolicy uint8

const (
	// FailOpen loads, coalesced within this process, and stores nothing.
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
