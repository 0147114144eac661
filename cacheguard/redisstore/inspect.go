package redisstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/internal/frame"
	"github.com/cacheguard/cacheguard/internal/redislink"
)

// Inspection is the result of [Store.Inspect] for a key. In its JSON durations are integers of
// nanoseconds, in members whose names end in _ns. If an entry never ends by itself, its remaining
// time is -1 there.
type Inspection struct {
	Cache string    `json:"cache"`
	Key   string    `json:"key"`
	Name  string    `json:"name"` // name of the value's key in Redis
	Now   time.Time `json:"now"`  // time on the clock by which values age

	State State    `json:"state"`
	Why   []string `json:"why"` // the meaning of the value and the lease for callers

	Value *InspectedValue `json:"value,omitempty"` // nil: no value is stored
	// The first one is the whole cache, without a name; a remnant has no entry for it.
	Tags []InspectedTag `json:"tags,omitempty"`
	// nil: nothing is stored under the lease's name.
	Lease   *InspectedLease   `json:"lease,omitempty"`
	Waiters *InspectedWaiters `json:"waiters,omitempty"`

	// NewerLeft is how long the value of a later program stays in Redis, if it is stored beside
	// this value. Zero: there is no value of a later program.
	NewerLeft time.Duration `json:"newer_left_ns,omitempty"`
}

// State is the state of a value. It decides which callers can still get the value.
type State string

// The states of a value.
const (
	StateAbsent  State = "absent"
	StateFresh   State = "fresh"
	StateStale   State = "stale"          // served at once while it is refreshed
	StateOnError State = "stale on error" // served when a load fails
	StateExpired State = "expired"        // only shown to the next load
	// Its cache or one of its tags was invalidated after its load began, or the times of
	// invalidations are lost.
	StateInvalid    State = "invalid"
	StateUnshared   State = "unshared"   // each caller loads for itself (hit-for-miss)
	StateRemnant    State = "remnant"    // the tags of a value that a writer has removed
	StateUnreadable State = "unreadable" // not a value: the next load overwrites it
)

// InspectedValue is the value that is stored under its name.
type InspectedValue struct {
	Size int           `json:"size"`    // size in Redis, in bytes
	Left time.Duration `json:"left_ns"` // time until Redis removes it
	// The reason why the value is unreadable, or what kind of data it is; if Err is set, only Size,
	// Left, Version, Flags, Load and Body may be set.
	Err     string `json:"error,omitempty"`
	Version byte   `json:"version"` // version of the frame
	Flags   byte   `json:"flags"`
	Load    string `json:"load,omitempty"` // id of the load that made it, in hexadecimal

	NotFound bool `json:"not_found"`
	// Fingerprint of the codec's name and Options.Version; 0 if there is no name, and no version.
	Fingerprint uint32 `json:"fingerprint"`
	// Name of the codec, if it is one of this module's except protocodec.
	Codec string `json:"codec,omitempty"`

	Made time.Time     `json:"made,omitzero"`
	Age  time.Duration `json:"age_ns"`
	Took time.Duration `json:"took_ns"` // how long the load took

	// The value is fresh from Made, for the time Fresh. Then the stale windows begin: for the time
	// Revalidate it is served at once and refreshed, for the time IfError it is served when a load
	// fails. The remaining times take marks and invalidated soft tags into account. A negative
	// FreshLeft says for how long the value hasn't been fresh.
	Fresh          time.Duration `json:"fresh_ns"`
	FreshLeft      time.Duration `json:"fresh_left_ns"`
	Revalidate     time.Duration `json:"revalidate_ns"`
	RevalidateLeft time.Duration `json:"revalidate_left_ns"`
	IfError        time.Duration `json:"if_error_ns"`
	IfErrorLeft    time.Duration `json:"if_error_left_ns"`

	Marked time.Time `json:"marked,omitzero"` // when MarkStale marked it
	// When its load began, on the clock of the generations.
	Stamp time.Time `json:"stamp,omitzero"`
	Note  string    `json:"note,omitempty"` // note of an observer, in hexadecimal

	Body []byte `json:"-"` // the value as the codec wrote it; if it is unreadable, all stored bytes
}

// InspectedTag is a tag of a value, or the whole cache, and the effect of its last invalidation on
// the value.
type InspectedTag struct {
	Name string `json:"name"`
	Soft bool   `json:"soft"`
	// The last time; for the whole cache it may be the time of its first use. Zero: never, or not
	// known.
	Invalidated time.Time `json:"invalidated,omitzero"`
	// The effect on the value: fresh (none), stale or invalid. Empty: the tag makes no difference,
	// because the value is only a remnant, or is invalid anyway.
	State State `json:"state,omitempty"`
}

// InspectedLease is the entry under the name of a lease: the lease, or in its place the record of
// the last load's end.
type InspectedLease struct {
	Left time.Duration `json:"left_ns"`
	// The reason why the entry counts neither as a lease nor as a record; if Err is set, only Left
	// is set, too.
	Err string `json:"error,omitempty"`
	// Id of the load that has the lease, or that left the record, in hexadecimal.
	Load    string    `json:"load,omitempty"`
	Granted time.Time `json:"granted,omitzero"`
	Awaited bool      `json:"awaited"` // a program waits on the common channel
	Inboxes bool      `json:"inboxes"` // the Waiters are told of the lease's end

	Outcome *InspectedOutcome `json:"outcome,omitempty"` // nil: it is a lease
}

// InspectedOutcome is the end of a load that left no value.
type InspectedOutcome struct {
	// Failed, unstored, unshared; empty: written by a later program.
	Kind string `json:"kind"`
	Text string `json:"text,omitempty"` // error of a load that failed
	// Size of a result that was not stored, in bytes.
	Size     int `json:"size,omitempty"`
	Failures int `json:"failures,omitempty"` // failures in a row
	// For this time after the load's end, calls that would load get this outcome instead.
	Backoff     time.Duration `json:"backoff_ns"`
	BackoffLeft time.Duration `json:"backoff_left_ns"`
}

// InspectedWaiters are the processes that are told when a lease ends.
type InspectedWaiters struct {
	// The reason why the entry is not a list of waiters; if Err is set, only Left is set, too.
	Err string `json:"error,omitempty"`
	// All processes that have the cache open are told.
	All bool `json:"all"`
	// How many processes had the cache open when the first of them began to wait.
	Processes int           `json:"processes,omitempty"`
	Inboxes   []string      `json:"inboxes,omitempty"`
	Left      time.Duration `json:"left_ns"`
}

// Inspect returns what is stored in Redis under a key of a cache, and what a call of
// [cacheguard.Cache.Get] would do with it. Inspect doesn't know the state inside processes: their
// local tiers, and changes that have not reached Redis yet. It only reads, usually in at most three
// trips, and asks Redis even if the store's breakers are open. The error is the reason why Redis
// can't be asked, or why no cache can have this name or version. Damaged or foreign data under the
// key is no error.
//
// In the repository, docs/redis.md lists the rights that Inspect needs, under "Inspecting".
func (s *Store) Inspect(ctx context.Context, cache, key string) (Inspection, error) {
	return s.InspectVersion(ctx, cache, key, 0)
}

// InspectVersion is [Store.Inspect] for caches with this [cacheguard.Options.Version]. These caches
// can't read a value that was made for another version. InspectVersion reports such a value if one
// of the module's own codecs except protocodec wrote it. For other codecs it can't know.
func (s *Store) InspectVersion(
	ctx context.Context, cache, key string, version int,
) (Inspection, error) {
	switch err := checkCache(cache); {
	case err != nil:
		return Inspection{}, err
	case version < 0:
		return Inspection{}, fmt.Errorf("redisstore: no cache can have the version %d", version)
	}
	k := cacheguard.Key{
		Cache: cache, Key: frame.KeyID(key), Version: uint8(version % cacheguard.Versions),
	}
	found, err := s.sight(ctx, k)
	if err != nil {
		return Inspection{}, s.blind(ctx, err)
	}
	found.version = version
	i := found.judged()
	i.Cache, i.Key, i.Name = cache, key, s.names.value(k)
	return i, nil
}

// checkCache returns an error if the name is empty or has a brace: no cache can have that name.
func checkCache(cache string) error {
	if cache == "" || strings.ContainsAny(cache, "{}") {
		return fmt.Errorf("redisstore: no cache can have the name %q", cache)
	}
	return nil
}

// blind adds to the error of a read-only step that the server is a Sentinel, if it is one.
func (s *Store) blind(ctx context.Context, err error) error {
	if !redislink.NoAnswer(err) && s.identify(ctx).mode == "sentinel" {
		return fmt.Errorf("redisstore: %w: %w", errSentinel, err)
	}
	return err
}

// entry is the data that is stored under one name.
type entry struct {
	b       []byte // nil: nothing is stored
	foreign bool   // not a string
	left    time.Duration
}

func (e entry) there() bool { return e.b != nil || e.foreign }

// reading is an entry whose read is under way.
type reading struct {
	get  *redis.StringCmd
	pttl *redis.DurationCmd
}

func read(ctx context.Context, pipe redis.Pipeliner, name string) reading {
	return reading{pipe.Get(ctx, name), pipe.PTTL(ctx, name)}
}

// entry returns the data that was read, or the error if the read failed.
func (r reading) entry() (e entry, err error) {
	e.b, err = r.get.Bytes()
	switch {
	case isWrongType(err):
		e.foreign = true
	case errors.Is(err, redis.Nil):
		return entry{}, nil
	case err != nil:
		return e, err
	case e.b == nil:
		e.b = []byte{}
	}
	e.left, err = remaining(r.pttl)
	return e, err
}

// remaining returns the answer of PTTL. For the answers -1 (no expiry) and -2 (no such name)
// go-redis returns durations of -1 and -2 nanoseconds; remaining returns -1 ns for both.
func remaining(cmd *redis.DurationCmd) (time.Duration, error) {
	d, err := cmd.Result()
	return max(d, -1), err
}

// sight is the result of all reads for one key.
type sight struct {
	now                   time.Time
	value, lease, waiters entry
	kind                  string // what the value is, if it is no string
	version               int
	// How long the value of the next format stays in Redis; 0: there is no such value.
	newer time.Duration

	whole  string                 // the generation of the cache as it is stored by itself
	scores cacheguard.Generations // generations of the cache and of the value's tags
}

// sight reads all names of a key at one moment. After that it reads when the key's cache and the
// value's tags were invalidated.
func (s *Store) sight(ctx context.Context, k cacheguard.Key) (found sight, err error) {
	pipeline := redis.UniversalClient.TxPipeline
	found, err = s.sightOf(ctx, k, pipeline)
	// While the slot is moving to another node, each name must be read alone. While the memory is
	// full, Redis refuses every command of a transaction, even one that only reads.
	if isTryAgain(err) || answered(err, "ASK") || answered(err, "OOM") {
		found, err = s.sightOf(ctx, k, redis.UniversalClient.Pipeline)
	}
	if err != nil {
		return found, err
	}
	if h, _, err := frame.Parse(found.value.b); err == nil {
		if found.whole, found.scores, err = s.scores(ctx, k.Cache, h.Tags.All()); err != nil {
			return found, err
		}
	}
	if found.value.foreign {
		found.kind = s.kind(ctx, s.names.value(k))
	}
	found.now, err = s.serverTime(ctx)
	return found, err
}

// kind returns the type of the data under a name, if the data is not a string. The right to ask for
// the type may be missing.
func (s *Store) kind(ctx context.Context, name string) string {
	kind, err := twice(ctx, s, func(
		ctx context.Context, rdb redis.UniversalClient,
	) (string, error) {
		return rdb.Type(ctx, name).Result()
	})
	if err != nil || kind == "none" || kind == "string" { // refused, or changed meanwhile
		return "something that is no string"
	}
	return "a " + kind
}

func (s *Store) sightOf(
	ctx context.Context, k cacheguard.Key, pipeline func(redis.UniversalClient) redis.Pipeliner,
) (sight, error) {
	value := s.names.value(k)
	return twice(ctx, s, func(
		ctx context.Context, rdb redis.UniversalClient,
	) (found sight, err error) {
		pipe := pipeline(rdb)
		readings := []reading{
			read(ctx, pipe, value), read(ctx, pipe, s.names.lease(value)),
			read(ctx, pipe, s.names.waiters(value)),
		}
		newer := pipe.PTTL(ctx, s.names.next(value))
		_, all := redislink.Exec(ctx, pipe)
		for n, to := range []*entry{&found.value, &found.lease, &found.waiters} {
			if *to, err = readings[n].entry(); err != nil {
				return found, cmp.Or(firstAnswer(all), err)
			}
		}
		if found.newer, err = newer.Result(); found.newer == -2 {
			found.newer = 0
		}
		return found, err
	})
}

// firstAnswer returns the error of a transaction, unless it says only that the transaction was
// aborted.
func firstAnswer(err error) error {
	if err == nil || errors.Is(err, redis.Nil) || answered(err, "EXECABORT") {
		return nil
	}
	return err
}

// scores reads the generations of a cache and of tags. It changes nothing. If the separate
// generation of the cache is lost, whole is empty. If the other generations are lost or damaged, of
// is empty, or its first generation is 0.
func (s *Store) scores(
	ctx context.Context, cache string, tags []string,
) (whole string, of cacheguard.Generations, err error) {
	_, err = twice(ctx, s, func(
		ctx context.Context, rdb redis.UniversalClient,
	) (_ struct{}, err error) {
		pipe := rdb.Pipeline()
		alone := pipe.Get(ctx, s.names.whole(cache))
		read := pipe.ZMScore(ctx, s.names.generations(cache), append([]string{""}, tags...)...)
		_, _ = redislink.Exec(ctx, pipe) // each command has its own error
		for _, err := range []error{alone.Err(), read.Err()} {
			if err != nil && !errors.Is(err, redis.Nil) && !isWrongType(err) {
				return struct{}{}, err
			}
		}
		whole, of = alone.Val(), nil
		if scores, err := read.Result(); err == nil && len(scores) == 1+len(tags) {
			of = generationsOf(scores)
		}
		return struct{}{}, nil
	})
	return whole, of, err
}

// serverTime reads the clock by which values age, without a script.
func (s *Store) serverTime(ctx context.Context) (time.Time, error) {
	return twice(ctx, s, func(ctx context.Context, rdb redis.UniversalClient) (time.Time, error) {
		if c, ok := rdb.(*redis.ClusterClient); ok {
			node, err := c.MasterForKey(ctx, s.names.clock())
			if err != nil {
				return time.Time{}, err
			}
			return node.Time(ctx).Result()
		}
		return rdb.Time(ctx).Result()
	})
}
