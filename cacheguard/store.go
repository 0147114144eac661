package cacheguard

import (
	"context"
	"encoding/hex"
	"time"

	"github.com/cacheguard/cacheguard/internal/frame"
)

// Store is the store that the processes of a fleet share. It has a small set of steps, each of them
// atomic. Package redisstore implements it on Redis, package memstore inside one process. A program
// makes a store and passes it to [New]. Only an author of a new store needs to know these methods;
// package storetest tests such a store.
//
// Every method is safe for concurrent use. Each of its trips to the store ends within the store's
// operation timeout, even if its context ends later; only Warm may take longer. A method returns an
// error only if the outcome is unknown or the store can't be used. A refusal, for instance of a
// lease, is an answer and not an error. A store may send a step twice, because a reply can be lost.
// So a repeated step with the same token must do no harm.
//
// A frame is an encoded value. A store doesn't look into it, with three exceptions. First, bytes 2
// to 17 of a frame are the id of the load that made it, and some methods compare them. If a frame
// is shorter, the store compares only the bytes that exist. Second, [Store.MarkStale] writes into a
// frame. Third, [Store.Claim] replaces a frame by its [Remnant].
//
// To invalidate by tag, a store doesn't search for values. It keeps a generation for each cache and
// for each of its invalidated tags. A generation is the time of the last invalidation, on the clock
// of the node that keeps the generations. Each grant has a stamp, which is the time on the same
// clock before the load. A value is valid only if the stamp of its load is later than the
// generation of its cache and the generations of all its tags.
type Store interface {
	// Get returns the frame of a key, or nil if there is none. If the key's data is not a string,
	// Get returns an empty frame that is not nil. It may return nil instead if it reads generations
	// in the same trip. If tags is not nil, Get also returns the generations of the key's cache and
	// of these tags, or no generations if they would cost another trip. If there is no frame,
	// callers ignore the generations. A frame that a store returns, here or by another method,
	// belongs to the caller: values may share its memory.
	Get(ctx context.Context, k Key, tags []string) (frame []byte, of Generations, err error)

	// GetMany is Get for many keys of one cache, in one trip if the store can do that. If Get would
	// return an empty frame, GetMany may return nil.
	GetMany(ctx context.Context, keys []Key, tags []string) ([]Reply[[]byte], Generations)

	// Generations returns the generations of a cache and of some of its tags. If the generation of
	// the cache is missing, for instance because it was evicted, the store sets it to the present
	// time. So no value that was loaded before is valid.
	Generations(ctx context.Context, cache string, tags []string) (Generations, error)

	// InvalidateTags sets the generation of these tags to the store's present time, and sends a
	// message to every process that listens to the cache. Without tags it sets the generation of
	// the whole cache. The time that it takes does not depend on how many values have the tags.
	InvalidateTags(ctx context.Context, cache string, tags []string) (generation int64, err error)

	// Lease asks for the right to load a key. It contains the double check: if there is a value
	// that the asker has not seen, Lease returns the value, even if there is also a lease or an
	// outcome. So if another process has filled the key since the asker's look-up, the asker
	// doesn't load the key again.
	Lease(ctx context.Context, k Key, ask LeaseAsk) (LeaseAnswer, error)

	// LeaseMany is Lease for many keys of one cache, in one trip if the store can do that. It
	// returns one answer for each request, in the same order.
	LeaseMany(ctx context.Context, keys []Key, asks []LeaseAsk) []Reply[LeaseAnswer]

	// Fill stores the frame for ttl, ends the lease, and sends a message to the processes that
	// wait. If the lease no longer carries the grant, Fill does nothing, so that a late load
	// overwrites nothing. But if the stored value is from the same load, Fill returns FillStored,
	// because this call is a copy of a Fill that was already carried out.
	Fill(ctx context.Context, k Key, g Grant, frame []byte, ttl time.Duration) (FillAnswer, error)

	// FillMany is Fill for many keys of one cache, in one trip if the store can do that.
	FillMany(ctx context.Context, fills []FillAsk) []Reply[FillAnswer]

	// Conclude ends the lease without a value, if the lease still carries the grant. It stores the
	// outcome in place of the lease for the time keep, and sends it to the processes that wait.
	// During the time backoff, which begins now, Lease answers every request with the outcome,
	// unless there is a value that the asker has not seen. After that, Lease answers with the
	// outcome only if LeaseAsk.Awaited names this load. So a process that missed the message still
	// gets the result of the load for which it waited. If keep is zero, the outcome is only in the
	// message and is not stored. If Outcome.Drop is set, the stored value is removed in the same
	// step.
	Conclude(ctx context.Context, k Key, g Grant, o Outcome, keep, backoff time.Duration) error

	// Renew sets the lease's remaining time to ttl, if the lease still carries the grant.
	Renew(ctx context.Context, k Key, g Grant, ttl time.Duration) (Holding, error)

	// RenewMany is Renew for many keys of one cache, in one trip if the store can do that.
	RenewMany(ctx context.Context, keys []Key, grants []Grant, ttl time.Duration) []Reply[Holding]

	// Release removes the lease if it carries the token, and tells the processes that wait to look
	// again. It ignores the number of the grant: if a process got no answer to its request for the
	// lease, it doesn't know the number.
	Release(ctx context.Context, k Key, token ID) error

	// MarkStale writes the mark into the frames of the keys, beginning with the byte number at,
	// unless some of the bytes there are not zero: an earlier mark stays. In the same step it
	// removes the leases of the key and tells every process that listens to the cache that the key
	// changed. MarkStale changes all versions of a key, in one step for each key. The error is like
	// that of Invalidate.
	MarkStale(ctx context.Context, keys []Key, at int, mark []byte) error

	// Claim removes the value, takes the lease over from any other holder, and tells every process
	// that listens to the cache that the key changed, all in one step. If the value has tags, its
	// remnant (see [Remnant]) takes its place until the value would have expired. Grant.Left then
	// has a copy of the remnant, so that the next value can keep the tags. Claim also removes the
	// values and leases of the key's other versions. The later fill removes them once more, because
	// another release may have loaded them from the origin before the write.
	Claim(ctx context.Context, k Key, token ID, ttl time.Duration) (Grant, error)

	// Invalidate removes the values and the leases of the keys, of all versions, and tells every
	// process that listens to the cache that the keys changed, in one step for each key. The error
	// is a [KeyErrors] with the keys that may not have been invalidated.
	Invalidate(ctx context.Context, keys []Key) error

	// Now returns an estimate of the store's clock. The ages of values are measured on this clock,
	// because all processes share it, while the wall clocks of two machines may differ. Now asks
	// the store only if this process has no estimate yet.
	Now() time.Time

	// Clock asks for the time on the clock of a cache's generations, in microseconds since 1970. No
	// grant before the call has a later stamp. No grant after the call has an earlier one, unless
	// the store's clock was set back in between.
	Clock(ctx context.Context, cache string) (int64, error)

	// Listen calls tell for each message about keys or tags of this cache, until you call stop. It
	// calls tell for one message after another. tell must not block and must not call the store.
	// tell gets MessageLost when messages may no longer arrive, and MessageRestored when they
	// arrive again. tell also gets MessageRestored once at the beginning: as soon as messages
	// arrive, or at once if they already do.
	Listen(cache string, tell func(Message)) (stop func())

	// Listening reports whether messages arrive at present. If the store doesn't listen yet,
	// Listening makes it begin. It doesn't block. While messages don't arrive, waiting processes
	// ask the store from time to time.
	Listening() bool

	// Warm connects, subscribes and loads scripts in advance, so that the first calls don't wait
	// for this work.
	Warm(ctx context.Context) error
}

// Remnant returns the bytes that [Store.Claim] stores in place of this frame. A remnant has the
// tags of the frame, in a form that no process takes for a value. If the frame has no tags, Remnant
// returns nil, and Claim stores nothing. The remnant of a remnant is the same remnant.
func Remnant(f []byte) []byte { return frame.Remnant(f) }

// Permits is implemented by a [Store] that can limit the loads of the whole fleet.
// [NewFleetLimiter] needs it. Like the methods of Store, these methods are atomic and bounded in
// time, and can be repeated without harm.
type Permits interface {
	// TakePermit gives the token a permit of a budget for ttl, or renews the permit that it has. A
	// budget has at most max permits. taken reports whether the token has a permit now. If not,
	// wait is the time after which the first permit of another token ends if it is not renewed.
	// When a permit is returned after a token got none, listeners to PermitsCache get a message
	// with the budget's name as the key.
	TakePermit(ctx context.Context, budget string, token ID, max int,
		ttl time.Duration) (taken bool, wait time.Duration, err error)

	// ReturnPermit ends the token's permit.
	ReturnPermit(ctx context.Context, budget string, token ID) error
}

// PermitsCache takes the place of a cache's name in messages about permits. No cache can have this
// name, because Options.Name allows no braces.
const PermitsCache = "{permits}"

// Key is the name of one value: the name of its cache, and a key in this cache. Both may have any
// bytes. Caches made by [New] use a few hundred bytes at most. Values and leases of a key's
// different versions are stored side by side. All versions are of the same data, so a step that
// changes a key changes all its versions.
type Key struct {
	Cache   string
	Key     string
	Version uint8 // below Versions; see Options.Version
}

// Versions is the number of versions of a key that can be stored side by side: one of an old
// release and one of a new release during a rolling deployment.
const Versions = 2

// ID is a token. Each load and each write has its own random ID.
type ID [16]byte

// String returns the id in hexadecimal.
func (id ID) String() string { return hex.EncodeToString(id[:]) }

// IsZero reports whether this is the zero ID, which is the id of no load.
func (id ID) IsZero() bool { return id == ID{} }

// Grant is a lease that was granted: the load's token, and a number that the store gives to each
// grant. The store keeps both with the lease. A fill, a conclusion or a renewal acts on a lease
// only if both match, so that a late copy of it can't act for another grant. Release compares only
// the token.
type Grant struct {
	Token  ID
	Number int64
	// Stamp is a time before the load, on the clock of the generations. It goes into the load's
	// frame and is not part of the lease.
	Stamp int64
	Left  string // remnant of the claimed value, if this is the grant of a claim and it had tags

	// Claimed is true for the grant of a claim. Its fill also removes the key's other versions.
	Claimed bool
}

// Is reports whether both are the same grant. It ignores the stamps, which may differ when a step
// was repeated.
func (g Grant) Is(other Grant) bool { return g.Token == other.Token && g.Number == other.Number }

// Generations are times of invalidations, in microseconds since 1970 on the clock of the node that
// keeps them. The first generation is that of the whole cache, or 0 if the store doesn't know it.
// The others are for the requested tags, in order. A tag that was never invalidated has 0.
type Generations []int64

// LeaseAsk is a request for the lease of one key.
type LeaseAsk struct {
	Token ID            // the token of the load that begins if the lease is granted
	TTL   time.Duration // how long the lease lasts unless it is renewed
	// Bytes 2 to 17 of a value that the asker has seen and can't use; the store treats that value
	// as absent.
	Seen    []byte
	Awaited ID // the load that the asker has waited for, if any
	// If the answer has a Frame or Stands, the asker also wants the generations of these tags,
	// unless they cost another trip.
	Tags []string
	Wait bool // if the lease is held, the asker waits and wants a message
}

// LeaseState is the meaning of a [LeaseAnswer]. It also shows which fields of the answer are set.
type LeaseState uint8

const (
	// LeaseGranted means that the asker has the lease and loads. It is also the answer if the
	// asker's token already has the lease, because the first answer may have been lost. Grant is
	// set.
	LeaseGranted LeaseState = iota

	// LeaseHeld means that another load has the lease. Holder and Remaining are set.
	LeaseHeld

	// LeaseValue means that there is a value that the asker has not seen. Frame is set.
	LeaseValue

	// LeaseOutcome means that the load Holder ended without a value. Outcome, Holder and Remaining
	// are set.
	LeaseOutcome
)

// LeaseAnswer is the answer to a [LeaseAsk].
//
// Remaining is 0 for an outcome whose back-off is over. For a held lease it is 0 only if the store
// doesn't know the end of the lease; then the asker polls.
type LeaseAnswer struct {
	State     LeaseState
	Grant     Grant
	Holder    ID            // the load that has the lease, or whose outcome this is
	Remaining time.Duration // time left of the lease, or of the outcome's back-off
	Frame     []byte
	// Of has the generations, as Store.Get returns them, if Frame or Stands is set. It is empty if
	// they would cost another trip.
	Of      Generations
	Outcome Outcome
	// Stands is true if the lease was granted while the value LeaseAsk.Seen was still stored. Then
	// the load may use that value as its previous value.
	Stands bool
	// Failures is the Outcome.Failures of the outcome that a granted lease replaced, if it is
	// known. The back-off grows with it.
	Failures int
}

// Reply is the answer to one of many requests, or the error in place of an answer.
type Reply[T any] struct {
	Answer T
	Err    error
}

// FillAsk is one of the fills of [Store.FillMany].
type FillAsk struct {
	Key   Key
	Grant Grant
	Frame []byte
	TTL   time.Duration
}

// FillAnswer is the answer to a fill: stored, or the reason why it was refused.
type FillAnswer uint8

const (
	FillStored FillAnswer = iota // the value is stored
	// The fill was refused, because no load has the lease: the lease expired or was evicted, or the
	// key was invalidated.
	FillGone
	FillOther // the fill was refused, because another load has the lease
)

// Holding is the answer to a renewal. It shows which load has the lease.
type Holding uint8

const (
	HoldingMine  Holding = iota // the load of this grant has the lease, which was renewed
	HoldingGone                 // no load has the lease
	HoldingOther                // another load has the lease
)

// OutcomeKind is the way in which a load ended without a stored value.
type OutcomeKind uint8

const (
	OutcomeFailed OutcomeKind = iota + 1 // the load failed; Text is its error
	// The load has a result that is not stored. Frame is the result, for the calls that waited.
	OutcomeUnstored
	// The load has a result for its own caller or process only. Other calls that waited load for
	// themselves, in parallel.
	OutcomeUnshared
)

// Outcome describes the end of a load without a stored value. Text has at most 2 KiB, and Frame has
// at most 4 KiB.
type Outcome struct {
	Kind  OutcomeKind
	Text  string
	Frame []byte
	// Note is the observer's note, of at most 255 bytes. OutcomeUnstored has the note in Frame
	// instead.
	Note []byte
	// Failures is the number of loads that have failed in a row, including this load. It is stored
	// with the outcome, but not sent in messages.
	Failures int
	// Drop means that the stored value is out of date and is removed in the same step. Drop is not
	// stored with the outcome.
	Drop bool
}

// MessageKind is the kind of a [Message].
type MessageKind uint8

const (
	// The key was claimed by Load, or was marked stale or invalidated.
	MessageChanged  MessageKind = iota + 1
	MessageFilled               // Load stored a value; Frame has it if it is small
	MessageOutcome              // Load ended without a value; Outcome says how
	MessageReleased             // Load gave up its lease
	// Messages arrive from now on; earlier messages may have been lost, so look again at every key.
	MessageRestored
	// Messages may not arrive from now on, until MessageRestored.
	MessageLost
	// Tags were invalidated, or without Tags the whole cache; Generation is the new generation.
	MessageTags
)

// Message is a message from the store to processes. A message about a change goes to all processes
// that listen to the cache. A message about the end of a load goes at least to the processes that
// wait for the load. A process treats a message as a hint to look into the store again, because
// messages can be late or lost. There is one exception: if a process waits for the load that the
// message names, it uses the result in the message.
type Message struct {
	Kind    MessageKind
	Key     string
	Load    ID
	Frame   []byte
	Outcome Outcome

	Tags []string
	// Generation of a MessageTags is the new generation of the tags. Generation of a
	// MessageRestored means that messages about invalidations up to this generation may have been
	// lost.
	Generation int64
}
