package cacheguard

import (
	"context"
	"encoding/hex"
	"time"

	"github.com/cacheguard/cacheguard/internal/frame"
)

// Store is the port to what the processes of a fleet share: one small set of steps, each of them
// atomic. redisstore implements it on Redis, memstore inside one process. Programs make a store and
// hand it to New; only an implementer of a store calls or writes these methods, and proves the
// result with package storetest.
//
// Every method is safe for concurrent use, returns within a time of its own (the store's operation
// timeout) whatever the context, and returns an error only if the outcome is unknown or the store
// can't be used: a refusal is an answer. A store may send a step twice (a reply can be lost), so
// every step must be harmless when repeated by its own token.
//
// A frame is opaque but for one thing: its bytes 2 to 17 are the id of the load that made it. A
// store compares them where a method says so; of something shorter it compares what is there.
//
// Values are invalidated by tag without being found: the store keeps a generation for each cache
// and for each of its tags that was ever invalidated, which is the time of the last invalidation on
// the clock of the one node that keeps them, and each grant says what that clock said before. A
// value counts if the stamp of its load is later than the generation of its cache and those of all
// its tags.
type Store interface {
	// Get returns the frame of a key, or nil when there is none. A value that is no string of bytes
	// (a wrong type) is returned as an empty, non-nil frame, or where generations are read along
	// with it, as none. Unless tags is nil, it comes with the generations of the key's cache and of
	// these tags, in the same trip if the store can; only those that came with a frame matter.
	Get(ctx context.Context, k Key, tags []string) (frame []byte, of Generations, err error)

	// GetMany is Get for many keys of one cache, in one trip if the store can. An empty frame may
	// be nil there.
	GetMany(ctx context.Context, keys []Key, tags []string) ([]Reply[[]byte], Generations)

	// Generations returns the generations of a cache and of tags of it. If the store doesn't know
	// since when the cache is, all values of it are from before now.
	Generations(ctx context.Context, cache string, tags []string) (Generations, error)

	// InvalidateTags makes the store's present time the generation of these tags, or without tags
	// that of the whole cache, and tells every process. It takes the same time however many values
	// have the tags.
	InvalidateTags(ctx context.Context, cache string, tags []string) (generation int64, err error)

	// Lease asks for the right to load a key, with the double check inside: a value that the asker
	// has not seen comes before any lease and any outcome that stands beside it.
	Lease(ctx context.Context, k Key, ask LeaseAsk) (LeaseAnswer, error)

	// LeaseMany is Lease for many keys of one cache, in one trip if the store can, with an answer
	// to each question.
	LeaseMany(ctx context.Context, keys []Key, asks []LeaseAsk) []Reply[LeaseAnswer]

	// Fill stores the frame for ttl and ends the lease, if the lease still carries the grant, and
	// tells the processes that wait. A fill that finds a value made by its own load reports it
	// stored.
	Fill(ctx context.Context, k Key, g Grant, frame []byte, ttl time.Duration) (FillAnswer, error)

	// FillMany is Fill for many keys of one cache, in one trip if the store can.
	FillMany(ctx context.Context, fills []FillAsk) []Reply[FillAnswer]

	// Conclude ends the lease without a value, if it still carries the grant: the outcome is
	// recorded under the lease's own name for keep, and those who wait are told. For the first
	// backoff of it everybody who asks is given the outcome, after that only those who name this
	// load in LeaseAsk.Awaited. With a keep of zero the lease is removed and only the message
	// tells. With Outcome.Drop the value that stands there is removed in the same step.
	Conclude(ctx context.Context, k Key, g Grant, o Outcome, keep, backoff time.Duration) error

	// Renew sets the lease's remaining time to ttl, if it still carries the grant.
	Renew(ctx context.Context, k Key, g Grant, ttl time.Duration) (Holding, error)

	// RenewMany is Renew for many keys of one cache, in one trip if the store can.
	RenewMany(ctx context.Context, keys []Key, grants []Grant, ttl time.Duration) []Reply[Holding]

	// Release removes the lease if it carries the token, whatever the number of its grant, and
	// tells those who wait to look again.
	Release(ctx context.Context, k Key, token ID) error

	// MarkStale writes the mark into the frames of the keys, of all versions, at byte at, if as
	// many zeros stand there, removes their leases and tells every process that they changed, one
	// step for each key. The error is like Invalidate's.
	MarkStale(ctx context.Context, keys []Key, at int, mark []byte) error

	// Claim removes the value and takes the lease over from whoever holds it, in one step, and
	// tells every process that the key changed. What is left of a value with tags, see Remnant,
	// takes its place for the rest of its time, and comes with the grant, so that the value to come
	// can keep them. Values and leases of the key's other versions are removed in the same step,
	// and once more by the fill, for they may have been made of what was so before.
	Claim(ctx context.Context, k Key, token ID, ttl time.Duration) (Grant, error)

	// Invalidate removes the values and the leases of the keys, of all versions, and tells every
	// process that they changed, one step for each key. The error is a KeyErrors with the keys for
	// which that is not certain.
	Invalidate(ctx context.Context, keys []Key) error

	// Now is the store's clock, the same for every process that shares the store: an estimate that
	// does not follow this machine's wall clock. Only when there is no estimate yet does it ask the
	// store.
	Now() time.Time

	// Clock asks what the clock of the generations of a cache says, in microseconds since 1970:
	// every grant before has a stamp of that at most, and every later one of that at least.
	Clock(ctx context.Context, cache string) (int64, error)

	// Listen has tell called for each message about keys of this cache, until stop is called. Calls
	// come one after another; tell must not block and must not call the store. It is told Lost when
	// messages may not arrive any more and Restored when they do again, and, once, when they do for
	// the first time or already.
	Listen(cache string, tell func(Message)) (stop func())

	// Listening reports whether messages arrive at present, and begins to listen if nothing has
	// yet. It doesn't block. While they don't arrive, waiters ask again from time to time.
	Listening() bool

	// Warm dials, subscribes and loads scripts ahead, so that the first stampede doesn't pay for
	// it.
	Warm(ctx context.Context) error
}

// Remnant returns what a claim leaves in the place of this frame: which tags it had, in bytes that
// are a value for nobody. It is nil if there were none; then there is nothing left. What is left of
// a remnant is the same one.
func Remnant(f []byte) []byte { return frame.Remnant(f) }

// Permits is what a Store implements, too, if it can keep a budget for the whole fleet:
// NewFleetLimiter needs it. Like the steps of a Store these are atomic, bounded in time, and
// harmless when repeated.
type Permits interface {
	// TakePermit makes the token one of at most max holders of a budget for ttl, or renews it if it
	// is one, and reports whether it is. If not, whoever returns a permit tells the listeners to
	// PermitsCache, with the budget's name as the key, and wait is when the first permit ends by
	// itself.
	TakePermit(ctx context.Context, budget string, token ID, max int, ttl time.Duration) (taken bool, wait time.Duration, err error)

	// ReturnPermit ends the token's permit.
	ReturnPermit(ctx context.Context, budget string, token ID) error
}

// PermitsCache stands for a cache's name in messages about permits. No cache can have it.
const PermitsCache = "{permits}"

// Key names one value: the cache's name and the key in it, any bytes up to a few hundred; New's
// caches see to both. Values and leases of different versions, of which there are Versions, stand
// side by side. They are of the same thing: a step that changes a key changes all its versions.
type Key struct {
	Cache   string
	Key     string
	Version uint8 // below Versions; see Options.Version
}

// Versions is how many versions of a key can stand in a store.
const Versions = 2

// ID is a token: unique for each load and each write, drawn at random.
type ID [16]byte

// String is the id in hexadecimal.
func (id ID) String() string { return hex.EncodeToString(id[:]) }

// IsZero reports whether the id is the zero one, which names no load.
func (id ID) IsZero() bool { return id == ID{} }

// Grant is a lease that was granted: the load's token and the number that the store gave to this
// very grant. Both stand in the lease and both must match, so that a copy of a command that arrives
// late can't act for another grant.
type Grant struct {
	Token  ID
	Number int64
	Stamp  int64  // what the clock of the generations said before; for this load's frame, not part of the lease
	Left   string // of a claim: what is left of the value, if something is

	Claimed bool // it is of a claim: its fill removes what there is of the key's other versions
}

// Is reports whether both are the same grant, whatever the stamps that came with the answers.
func (g Grant) Is(other Grant) bool { return g.Token == other.Token && g.Number == other.Number }

// Generations are times of invalidations, in microseconds since 1970 on the clock of the node that
// keeps them: first that of the whole cache, 0 if the store doesn't know it, then those of the tags
// that were asked for, 0 for one that was never invalidated.
type Generations []int64

// LeaseAsk is a question for the lease of one key.
type LeaseAsk struct {
	Token   ID            // of the load that would begin
	TTL     time.Duration // how long the lease lasts unless renewed
	Seen    []byte        // bytes 2 to 17 of the value the asker has seen and can't use: it counts as absent
	Awaited ID            // the load the asker has waited for, if any
	Tags    []string      // whose generations the asker wants with a value or Stands, if they come in the same trip
	Wait    bool          // the asker waits if the lease is held, and wants to be told
}

// LeaseState says which of its fields a LeaseAnswer uses.
type LeaseState uint8

const (
	LeaseGranted LeaseState = iota // Grant: the asker is the leader; also when its token already held the lease
	LeaseHeld                      // Holder, Remaining: somebody else loads
	LeaseValue                     // Frame: a value is there after all
	LeaseOutcome                   // Outcome, Holder, Remaining: that load ended without a value
)

// LeaseAnswer is the answer to a LeaseAsk.
type LeaseAnswer struct {
	State     LeaseState
	Grant     Grant
	Holder    ID            // whose lease, or whose outcome
	Remaining time.Duration // of the lease, or of the outcome's back-off; 0 if not known
	Frame     []byte
	Of        Generations // with a Frame or Stands, like those of Store.Get; none if they would cost another trip
	Outcome   Outcome
	Stands    bool // with LeaseGranted: the value that was Seen was still there then, so that the load may see it
	Failures  int  // with LeaseGranted: Outcome.Failures of the record whose place the lease took, if it is known
}

// Reply is the answer to one of many questions, or why there is none.
type Reply[T any] struct {
	Answer T
	Err    error
}

// FillAsk is one of the fills of FillMany.
type FillAsk struct {
	Key   Key
	Grant Grant
	Frame []byte
	TTL   time.Duration
}

// FillAnswer says what became of a fill.
type FillAnswer uint8

const (
	FillStored FillAnswer = iota
	FillGone              // refused: the lease is gone; it expired, was evicted, or the key was invalidated
	FillOther             // refused: another load has the lease
)

// Holding is the answer to a renewal.
type Holding uint8

const (
	HoldingMine  Holding = iota
	HoldingGone          // nobody has the lease
	HoldingOther         // another load has it
)

// OutcomeKind says how a load ended without a stored value.
type OutcomeKind uint8

const (
	OutcomeFailed   OutcomeKind = iota + 1 // Text: the load's error
	OutcomeUnstored                        // Frame: the result, to be used by those who waited and not stored
	OutcomeUnshared                        // the result is for nobody else: waiters load for themselves, in parallel
)

// Outcome is how a load ended without a stored value. Text and Frame are at most a few KiB.
type Outcome struct {
	Kind     OutcomeKind
	Text     string
	Frame    []byte
	Note     []byte // OutcomeFailed, OutcomeUnshared: an observer's, of at most 255 bytes; another one's is in its frame
	Failures int    // loads that failed in a row, this one included; it stays in the record and goes with no message
	Drop     bool   // what stands in the store is superseded and goes in the same step; it is not part of the record
}

// MessageKind says what a Message tells.
type MessageKind uint8

const (
	MessageChanged  MessageKind = iota + 1 // the key was claimed, by Load, or it was marked stale or invalidated
	MessageFilled                          // Load filled it; Frame if it is small
	MessageOutcome                         // Load ended without a value: Outcome
	MessageReleased                        // Load was given up
	MessageRestored                        // messages arrive from now on, and some may have been lost: look again at every key
	MessageLost                            // messages may not arrive from now on, until Restored
	MessageTags                            // Tags were invalidated, or without Tags the whole cache: Generation
)

// Message is what a store tells processes: of a change all that listen to the cache, of the end of
// a load at least those that wait for it. It means "look again"; what counts is the state in the
// store, except for a waiter that was told to wait for the very load the message names.
type Message struct {
	Kind    MessageKind
	Key     string
	Load    ID
	Frame   []byte
	Outcome Outcome

	Tags       []string
	Generation int64 // of the tags; with MessageRestored, up to which generation invalidations may not have been told
}
