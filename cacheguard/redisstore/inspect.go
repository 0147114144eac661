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

// Inspection is what Inspect has found under a key. Its JSON has durations as integers of
// nanoseconds, in members whose names end in _ns. What ends by itself and has no end has -1 there.
type Inspection struct {
	Cache string    `json:"cache"`
	Key   string    `json:"key"`
	Name  string    `json:"name"` // of the value in Redis
	Now   time.Time `json:"now"`  // the clock by which values age

	State State    `json:"state"`
	Why   []string `json:"why"` // what that means for callers, of the value and of the lease

	Value   *InspectedValue   `json:"value,omitempty"` // nil: nothing is there
	Tags    []InspectedTag    `json:"tags,omitempty"`  // first the cache as a whole, without a name
	Lease   *InspectedLease   `json:"lease,omitempty"` // nil: nothing stands under its name
	Waiters *InspectedWaiters `json:"waiters,omitempty"`

	// NewerLeft is how long the value of a later program stays, which stands beside this one. Zero:
	// there is none.
	NewerLeft time.Duration `json:"newer_left_ns,omitempty"`
}

// State is what a value is good for.
type State string

// The states of a value.
const (
	StateAbsent     State = "absent"
	StateFresh      State = "fresh"
	StateStale      State = "stale"          // served at once while it is refreshed
	StateOnError    State = "stale on error" // served when a load fails
	StateExpired    State = "expired"        // shown to the next load, no more
	StateInvalid    State = "invalid"        // its cache or one of its tags was invalidated after its load began
	StateUnshared   State = "unshared"       // each caller loads for itself (hit-for-miss)
	StateRemnant    State = "remnant"        // the tags of a value that a writer has removed
	StateUnreadable State = "unreadable"     // not a value: the next load overwrites it
)

// InspectedValue is what stands under the name of a value.
type InspectedValue struct {
	Size    int           `json:"size"`            // in Redis, in bytes
	Left    time.Duration `json:"left_ns"`         // until Redis removes it
	Err     string        `json:"error,omitempty"` // why it is unreadable; then only Version, Flags and Load may mean something
	Version byte          `json:"version"`         // of the frame
	Flags   byte          `json:"flags"`
	Load    string        `json:"load,omitempty"` // the load that made it, in hexadecimal

	NotFound    bool   `json:"not_found"`
	Fingerprint uint32 `json:"fingerprint"`     // of the codec; 0: it has no name
	Codec       string `json:"codec,omitempty"` // its name, if it is one of this module's

	Made time.Time     `json:"made,omitzero"`
	Age  time.Duration `json:"age_ns"`
	Took time.Duration `json:"took_ns"` // the load

	// For so long after Made it is fresh, and after that served at once while it is refreshed, and
	// served when a load fails. What is left of each counts marks and invalidated soft tags;
	// FreshLeft below zero says since when it is over.
	Fresh          time.Duration `json:"fresh_ns"`
	FreshLeft      time.Duration `json:"fresh_left_ns"`
	Revalidate     time.Duration `json:"revalidate_ns"`
	RevalidateLeft time.Duration `json:"revalidate_left_ns"`
	IfError        time.Duration `json:"if_error_ns"`
	IfErrorLeft    time.Duration `json:"if_error_left_ns"`

	Marked time.Time `json:"marked,omitzero"` // stale, by MarkStale
	Stamp  time.Time `json:"stamp,omitzero"`  // when its load began, on the clock of the generations
	Note   string    `json:"note,omitempty"`  // an observer's, in hexadecimal

	Body []byte `json:"-"` // as the codec wrote it; of what is unreadable all there is
}

// InspectedTag is a tag of a value, or the whole of its cache, and what invalidations of it do to
// the value.
type InspectedTag struct {
	Name        string    `json:"name"`
	Soft        bool      `json:"soft"`
	Invalidated time.Time `json:"invalidated,omitzero"` // last; of a whole cache also when it was first used. Zero: never, or not known
	State       State     `json:"state,omitempty"`      // fresh: it takes nothing from the value; stale, or invalid. Empty: it doesn't matter
}

// InspectedLease is what stands under the name of a lease: the lease, or in its place the record of
// how the last load ended.
type InspectedLease struct {
	Left    time.Duration `json:"left_ns"`
	Err     string        `json:"error,omitempty"` // why it is neither; then the rest is empty
	Load    string        `json:"load,omitempty"`  // who has it, or whose end it is, in hexadecimal
	Granted time.Time     `json:"granted,omitzero"`
	Awaited bool          `json:"awaited"` // somebody waits on the common channel
	Inboxes bool          `json:"inboxes"` // its end is told to the Waiters

	Outcome *InspectedOutcome `json:"outcome,omitempty"` // nil: it is a lease
}

// InspectedOutcome is how a load ended that left no value.
type InspectedOutcome struct {
	Kind        string        `json:"kind"`               // failed, unstored, unshared; empty: a later program's
	Text        string        `json:"text,omitempty"`     // of a load that failed: its error
	Size        int           `json:"size,omitempty"`     // of a result that could not be stored, in bytes
	Failures    int           `json:"failures,omitempty"` // in a row
	Backoff     time.Duration `json:"backoff_ns"`         // for so long after its end everybody who would load gets this outcome
	BackoffLeft time.Duration `json:"backoff_left_ns"`
}

// InspectedWaiters are the processes that are told when a lease ends.
type InspectedWaiters struct {
	Err       string        `json:"error,omitempty"`     // why it is no note of them; then the rest is empty
	All       bool          `json:"all"`                 // all that have the cache open
	Processes int           `json:"processes,omitempty"` // that had it open when the first of them came
	Inboxes   []string      `json:"inboxes,omitempty"`
	Left      time.Duration `json:"left_ns"`
}

// Inspect says what stands in Redis under a key of a cache, and what follows for callers, as
// Cache.Get would judge it. What processes know besides is not in it: their local tiers, and
// changes that Redis could not be told of yet. It only reads, in up to three trips, and asks Redis
// whatever its breakers say. The error says why Redis can't be asked; whatever stands there is
// none.
//
// The documentation of the package has the rights that it needs.
func (s *Store) Inspect(ctx context.Context, cache, key string) (Inspection, error) {
	return s.InspectVersion(ctx, cache, key, 0)
}

// InspectVersion is Inspect for caches with this Options.Version. What was made for another one is
// unreadable to them; of the module's own codecs it says so, and of others it can't know.
func (s *Store) InspectVersion(ctx context.Context, cache, key string, version int) (Inspection, error) {
	switch err := checkCache(cache); {
	case err != nil:
		return Inspection{}, err
	case version < 0:
		return Inspection{}, fmt.Errorf("redisstore: no cache can have the version %d", version)
	}
	k := cacheguard.Key{Cache: cache, Key: frame.KeyID(key), Version: uint8(version % cacheguard.Versions)}
	found, err := s.sight(ctx, k)
	if err != nil {
		return Inspection{}, s.blind(ctx, err)
	}
	found.version = version
	i := found.judged()
	i.Cache, i.Key, i.Name = cache, key, s.names.value(k)
	return i, nil
}

// checkCache returns why no cache has this name.
func checkCache(cache string) error {
	if cache == "" || strings.ContainsAny(cache, "{}") {
		return fmt.Errorf("redisstore: no cache can have the name %q", cache)
	}
	return nil
}

// blind adds to an error of a step that only reads what its reader may want to know of the server.
func (s *Store) blind(ctx context.Context, err error) error {
	if !redislink.NoAnswer(err) && s.identify(ctx).mode == "sentinel" {
		return fmt.Errorf("redisstore: %w: %w", errSentinel, err)
	}
	return err
}

// entry is what stands under one name.
type entry struct {
	b       []byte // nil: nothing
	foreign bool   // no string
	left    time.Duration
}

func (e entry) there() bool { return e.b != nil || e.foreign }

// reading is an entry that is being read.
type reading struct {
	get  *redis.StringCmd
	pttl *redis.DurationCmd
}

func read(ctx context.Context, pipe redis.Pipeliner, name string) reading {
	return reading{pipe.Get(ctx, name), pipe.PTTL(ctx, name)}
}

// entry returns what was read, and an error if nothing was.
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

// remaining is what PTTL says: go-redis has its -1 and -2, no end and nothing, as so many
// nanoseconds.
func remaining(cmd *redis.DurationCmd) (time.Duration, error) {
	d, err := cmd.Result()
	return max(d, -1), err
}

// sight is all that was read for one key.
type sight struct {
	now                   time.Time
	value, lease, waiters entry
	version               int
	newer                 time.Duration // how long the value of the next format stays; 0: there is none

	whole  string                 // the generation of the cache as it stands alone
	scores cacheguard.Generations // that of the cache, and those of the value's tags
}

// sight reads what stands under the names of a key, at one moment, and then when its cache and its
// tags were invalidated.
func (s *Store) sight(ctx context.Context, k cacheguard.Key) (found sight, err error) {
	pipeline := redis.UniversalClient.TxPipeline
	found, err = s.sightOf(ctx, k, pipeline)
	if isTryAgain(err) || answered(err, "ASK") { // on its way to another node each name alone is found
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
	found.now, err = s.serverTime(ctx)
	return found, err
}

func (s *Store) sightOf(ctx context.Context, k cacheguard.Key, pipeline func(redis.UniversalClient) redis.Pipeliner) (sight, error) {
	value := s.names.value(k)
	return twice(ctx, s, func(ctx context.Context, rdb redis.UniversalClient) (found sight, err error) {
		pipe := pipeline(rdb)
		readings := []reading{read(ctx, pipe, value), read(ctx, pipe, s.names.lease(value)), read(ctx, pipe, s.names.waiters(value))}
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

// firstAnswer is the error of a transaction, if it says more than that it was aborted.
func firstAnswer(err error) error {
	if err == nil || errors.Is(err, redis.Nil) || answered(err, "EXECABORT") {
		return nil
	}
	return err
}

// scores reads the generations of a cache and of tags, and changes nothing: where something is lost
// or wrong, there is less.
func (s *Store) scores(ctx context.Context, cache string, tags []string) (whole string, of cacheguard.Generations, err error) {
	_, err = twice(ctx, s, func(ctx context.Context, rdb redis.UniversalClient) (_ struct{}, err error) {
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
