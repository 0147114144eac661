package cacheguard

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/cacheguard/cacheguard/internal/option"
)

// Options configures a Cache. The zero value of a field means its default. If a feature can be
// turned off, a negative value of its field turns it off.
type Options[V any] struct {
	// Name is part of every key in the store. Each cache of a store needs its own name. Required.
	// At most 128 bytes, without braces, because Redis Cluster uses the text in braces to place
	// keys.
	Name string

	// TTL is how long a value is fresh. Default 5 minutes; at least 1 ms.
	TTL time.Duration

	// NegativeTTL is how long "does not exist" is remembered. Default 30 seconds. Negative: "does
	// not exist" is not stored.
	NegativeTTL time.Duration

	// ErrorTTL is how long the whole fleet answers new callers with the error of a failed load
	// instead of loading again. Default 1 second. Negative: only callers that waited for the load
	// get its error.
	ErrorTTL time.Duration

	// Jitter shortens a value's TTL or NegativeTTL by a random share, so that values stored
	// together don't expire together. Jitter is the largest share. It affects neither leases nor
	// the TTL of an Entry. Default 0.1; must be below 1. Negative: TTLs are not shortened.
	Jitter float64

	// StaleWhileRevalidate is how long after its TTL a value is served while one process of the
	// fleet refreshes it in the background (RFC 5861, section 3). No caller waits for the refresh,
	// unless SoftTimeout is set. StaleWhileRevalidate does not apply to "does not exist". Default
	// 0. Zero or negative turns it off.
	StaleWhileRevalidate time.Duration

	// StaleIfError is how long after its TTL a value is served if its load fails, if the load can't
	// begin because too many loads wait, or if the store is unavailable (RFC 5861, section 4).
	// Result.Err has the reason. StaleIfError does not apply to "does not exist". Default 0. Zero
	// or negative turns it off.
	StaleIfError time.Duration

	// SoftTimeout is how long a caller waits for a load before it gets a stale value that is within
	// StaleWhileRevalidate or StaleIfError. The load then goes on. Default 0. Zero or negative
	// turns SoftTimeout off: within StaleWhileRevalidate a caller gets the stale value at once;
	// after that, within StaleIfError, it waits until the load ends.
	SoftTimeout time.Duration

	// Backoff is how long the whole fleet doesn't load a key again after a failed load, if there is
	// a stale value to serve. The pause grows by half with each further failure, up to three times
	// Backoff, and is then shortened at random by a fifth at most. It ends when the stale value
	// can't be served any longer, but lasts at least ErrorTTL. Without a stale value the pause is
	// ErrorTTL. Default 10 seconds.
	Backoff time.Duration

	// EarlyRefresh is the beta of XFetch (Vattani, Chierichetti, Lowenstein, VLDB 2015): a reader
	// decides at random to refresh a value in the background before its TTL is over. The refresh
	// becomes more likely as the TTL runs out, and is more likely for values that took long to
	// load. 1 is the paper's default; a larger beta refreshes earlier. A value from Set has no load
	// time and is not refreshed early. Default 0. Zero or negative turns EarlyRefresh off.
	EarlyRefresh float64

	// Version tells releases of your program apart. Raise Version by one in a release that changes
	// the meaning of stored values, for instance because a field has a new name or type. Releases
	// with neighbouring versions, such as 4 and 5, keep their values side by side while both run,
	// and a change made by one of them reaches the values of both. Values of other versions are
	// misses. See "A new release of your program" in docs/deploying.md. Default 0; at most
	// 1,000,000.
	Version int

	// With StrongReads, every call returns a value at least as new as every change that had
	// returned, in any process, before the call began. A change is a call of Invalidate, MarkStale,
	// InvalidateTags, Set, Update or a variant of them. After MarkStale and MarkStaleTags, the
	// older value may still be served, as stale, within its stale windows. Without StrongReads, the
	// process that made a change has this guarantee at once. Other processes have it when the
	// message about the change arrives, usually within a fraction of a millisecond.
	//
	// The cost of StrongReads: if a call begins while the process already looks up or loads the
	// key, the call waits for this flight, and then for a second look-up. All such calls share the
	// second look-up. If the second look-up finds nothing, for instance after a load that was not
	// stored, the call waits for one more load, too. StrongReads can't be combined with Local or
	// SoftTimeout. "What is not promised" in the package documentation names the limits of
	// StrongReads. Default: off.
	StrongReads bool

	// LeaseTTL is how long a lease lasts unless its leader, the process that loads the key, renews
	// it. The leader renews the lease after each third of LeaseTTL. If the leader dies, other
	// processes wait until its lease ends, a few milliseconds longer than LeaseTTL at most. Then
	// one of them loads. Default 3 seconds; at least 10 ms.
	LeaseTTL time.Duration

	// LoadTimeout is the longest time that a load may take. After it the load's context ends and
	// its lease is given up, so a load that hangs can't block its key for longer. Default 30
	// seconds.
	LoadTimeout time.Duration

	// MaxLoads is how many loads of this cache run at a time in this process. The write of an
	// Update is not counted, nor is a load inside another load of this cache. Up to 64 times
	// MaxLoads further loads wait for a slot, in order, each for LoadTimeout at most. Default 64.
	// Negative: no limit.
	MaxLoads int

	// Limiter replaces MaxLoads by a limit that several caches share. All of them need the same
	// Limiter object, so that a load inside another load takes no second slot. Default: none;
	// MaxLoads applies.
	Limiter *Limiter

	// MaxWaiters is how many callers may wait for one key at a time in this process. Further
	// callers get ErrOverloaded. Default 65,536. Negative: no limit.
	MaxWaiters int

	// OnStoreDown is the behaviour of a Get while the store is unavailable and no stale value can
	// be served. Default FailOpen.
	OnStoreDown StorePolicy

	// MaxValueSize is the largest size of an encoded value, in bytes. A larger value goes to the
	// callers in the process that loaded it, but is not stored. Other processes that wait load for
	// themselves. Default 8 MiB.
	MaxValueSize int

	// Local is the process-local tier, in front of the store. Default: none.
	Local Local[V]

	// Codec turns values into bytes and back. Default: [JSON], except that string and []byte are
	// stored as they are. A []byte value is then a part of the bytes that were read, without a
	// copy. Like every value, it is shared and must not be changed.
	Codec Codec[V]

	// Empty reports whether a value means "does not exist", for instance an empty map. Then the
	// null sentinel is stored instead, and every caller gets the zero V and ErrNotFound. Default:
	// every value exists.
	Empty func(V) bool

	// ErrorText returns the text of a load's error that other processes get. Use it to keep secrets
	// out of that text. At most 256 bytes of the text are used. Default: the error's message.
	ErrorText func(error) string

	// Errors are sentinel errors, such as sql.ErrConnDone or your own, that errors.Is recognises in
	// every process. So errors.Is also works for a load that failed in another process. At most 64.
	// ErrNotFound is not allowed, because every process recognises it anyway. Every process that
	// uses the cache needs the same list. A process recognises an error by its place in the list
	// and its text, so append new errors at the end. context.DeadlineExceeded is always recognised.
	// Don't list context.Canceled, because callers would take it for the end of their own context;
	// New doesn't refuse it. Default: none.
	Errors []error

	// Switch turns the cache off and on while the program runs; see [Switch]. Several caches may
	// share a Switch. Default: none; the cache is always on.
	Switch *Switch

	// Audit compares some hits with the value at the origin. Default: no hits are compared.
	Audit Audit

	// Same reports whether two values are the same for callers. Audit and ModeShadow use it to
	// compare a stored value with a loaded one. Many goroutines may call it at any time; Close
	// waits until it returns. Default: two values are the same if their encoded bytes are equal. If
	// the codec can encode one value in different ways (gob with maps, protobuf), set Same.
	Same func(a, b V) bool

	// Observer gets an event for each hit, each load and every other event of the cache. Default:
	// none.
	Observer Observer

	// Logger gets a line when an operator should look at a problem, and a second line when the
	// problem has ended. It also gets one line for each of the following uses, which are allowed
	// but probably mistakes: a key or tag with * in it is invalidated or marked stale (* matches
	// only itself); a value is fresh for less time than its load took; the codec loses a part of a
	// value, such as a field that is not exported; LeaseTTL is shorter than a step of the store may
	// take; another cache of this process has the same name and store, but other options.
	// docs/operations.md explains each line. Default slog.Default().
	Logger *slog.Logger
}

// Local configures the process-local tier: decoded values that are served without asking the store.
// If any process changes a value, the tier removes it as soon as the message about the change
// arrives. While messages don't arrive, the tier is not used, because it could serve old values. So
// it is used only after the store has subscribed to messages (see Store.Warm). There is one
// exception: while messages don't arrive and the store is unavailable, the tier serves values
// within their stale windows, as stale.
type Local[V any] struct {
	// Entries is the largest number of values in the tier. With Weigh it is the total weight of the
	// values. Default 0: there is no tier.
	Entries int

	// TTL is how long a value is served before the store is asked again, but never beyond the
	// value's own TTL. Default 1 minute; at least 1 ms.
	TTL time.Duration

	// Weigh returns the weight of a value. A weight of 0 means 1. Many goroutines may call it at
	// any time. Default: each value weighs 1.
	Weigh func(key string, v V) uint32

	// Clone copies a value for each call that is answered from the tier. So the caller may change
	// its copy. Callers that share a look-up in the store or a load still share its result.
	// Default: no copies; all callers share the value and must not change it.
	Clone func(V) V
}

// StorePolicy is the behaviour of a Get if the store gives no usable answer. See
// [Options.OnStoreDown].
type StorePolicy uint8

const (
	// FailOpen loads in this process and stores nothing. Callers of this process that ask at the
	// same time still share one load.
	FailOpen StorePolicy = iota
	// FailClosed loads nothing and returns ErrUnavailable.
	FailClosed
)

const (
	queuePerLoad = 64
	maxName      = 128
	maxErrorText = 256
	minTTL       = time.Millisecond
	minLease     = 10 * time.Millisecond
	// Far below the times whose microseconds lose precision in a float64, which is Lua's number
	// type.
	maxTTL        = 10 * 365 * 24 * time.Hour
	maxBeta       = 1000
	defaultLimits = 64
)

// withDefaults returns the options with every default filled in. The error joins the errors of all
// options, so that a user sees all of them at once.
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

// defaultTimes fills in and checks the durations. It sets negative stale windows and a negative
// SoftTimeout to zero, so that the rest of the package tests only for zero.
func (o *Options[V]) defaultTimes(bad *complaints) {
	bad.duration("TTL", &o.TTL, 5*time.Minute, minTTL, false)
	bad.duration("NegativeTTL", &o.NegativeTTL, 30*time.Second, minTTL, true)
	bad.duration("ErrorTTL", &o.ErrorTTL, time.Second, minTTL, true)
	bad.duration("StaleWhileRevalidate", &o.StaleWhileRevalidate, 0, minTTL, true)
	bad.duration("StaleIfError", &o.StaleIfError, 0, minTTL, true)
	bad.duration("SoftTimeout", &o.SoftTimeout, 0, time.Microsecond, true)
	o.StaleWhileRevalidate, o.StaleIfError, o.SoftTimeout = max(o.StaleWhileRevalidate, 0),
		max(o.StaleIfError, 0), max(o.SoftTimeout, 0)
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
	case !(o.Jitter < 1): // written this way, the test also rejects NaN
		bad.add("Jitter is %v, it must be below 1", o.Jitter)
	}
	switch {
	case o.EarlyRefresh <= 0:
		o.EarlyRefresh = 0
	case !(o.EarlyRefresh <= maxBeta): // also rejects NaN
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

// complaints collects the errors of all options.
type complaints []error

func (c *complaints) add(format string, args ...any) {
	*c = append(*c, fmt.Errorf("cacheguard: Options."+format, args...))
}

// duration sets an option to its default if it is zero, and checks it otherwise. If off is true, a
// negative value is allowed and becomes -1.
func (c *complaints) duration(name string, d *time.Duration, def, least time.Duration, off bool) {
	if *d < 0 && off {
		*d = -1
		return
	}
	name = "cacheguard: Options." + name
	*c = append(*c, option.AtMost(name, *d, maxTTL), option.Duration(name, d, def, least))
}
