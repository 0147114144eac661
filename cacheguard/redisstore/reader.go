package redisstore

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/redis/go-redis/v9"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/internal/redislink"
)

const (
	directReads = 4                // most reads at a time on connections of their own
	slowTrip    = time.Millisecond // a batch that takes longer is slow
)

// reader reads values. While there are few reads at a time, each runs on its caller's goroutine and
// its own connection, which is fastest. In a crowd, reads are collected into batches, which cost
// far less per read. If four reads of a crowd could still be direct, other reads would take their
// places immediately, because a direct read ends before a batch. Half of the processor time would
// then go into a few of the reads. So reads beside batches are direct only while batches are slow,
// four at a time. Batches may be slow for two reasons. If the network is slow, direct reads are few
// and cost little. If the program keeps its processors busy, the one goroutine that sends batches
// seldom runs, and direct reads don't need it. In a cluster all reads go into batches.
type reader struct {
	s       *Store
	under   atomic.Int32 // reads under way
	directs atomic.Int32 // reads under way on connections of their own
	slow    atomic.Bool  // the last batch was slow
	size    valueSize    // of the values that batches read

	slowTrip time.Duration // the constant slowTrip; other values only in tests
	alarms   sync.Pool     // of *alarm
	running  sync.WaitGroup
	wholes   atomic.Pointer[wholes] // the names of the generations of whole caches, by cache

	mu     sync.Mutex              // guards the fields below, and what lanes contains
	lanes  map[*redis.Client]*lane // by the node of a cluster that has the keys
	closed bool
}

func (r *reader) init(s *Store) {
	r.s, r.lanes, r.slowTrip = s, make(map[*redis.Client]*lane), slowTrip
	r.size.init()
	r.wholes.Store(new(wholes))
	r.alarms.New = func() any { return newAlarm() }
}

// close lets no read join a batch any longer, and returns when no batch is left.
func (r *reader) close() {
	r.mu.Lock()
	r.closed = true
	r.mu.Unlock()
	r.running.Wait()
}

// Get returns the frame of a key, and the generations of its cache and of these tags. On a single
// server they are read in the same trip; in a cluster they are the known ones. A read on the
// caller's goroutine uses the values and the deadline of ctx. If ctx is cancelled, Get still waits
// for this read, for at most half of OpTimeout. A read in a batch doesn't use the values of ctx,
// and Get stops waiting for it when ctx ends.
func (s *Store) Get(
	ctx context.Context, k cacheguard.Key, tags []string,
) ([]byte, cacheguard.Generations, error) {
	if s.closed.Load() {
		return nil, nil, errClosed
	}
	w := want{name: s.names.value(k), cache: k.Cache, tags: tags}
	b := s.health.of(w.name)
	if err := b.refusal(); err != nil {
		return nil, nil, err
	}
	if !s.clock.known() {
		if err := s.knowTime(ctx); err != nil {
			return nil, nil, err
		}
	}
	r := &s.reads
	if s.cluster != nil {
		w.tags = nil
		frame, _, err := r.batched(ctx, w, s.opts.OpTimeout)
		if frame == nil || tags == nil {
			return frame, nil, err
		}
		return frame, s.known(k.Cache, tags), err
	}
	r.under.Add(1)
	defer r.under.Add(-1)
	if !r.mayReadDirectly() {
		return r.batched(ctx, w, s.opts.OpTimeout)
	}
	began := time.Now()
	frame, of, err := r.direct(ctx, w)
	if err == nil || !redislink.NoAnswer(err) || redislink.IsPanic(err) {
		if err != nil || b.troubled() {
			b.answered(w.name, err, time.Since(began))
		}
		return frame, of, err
	}
	if ctx.Err() != nil { // the caller's time is over
		return nil, nil, err
	}
	// No answer: try again with the other half of the time.
	return r.batched(ctx, w, s.opts.OpTimeout/2)
}

// mayReadDirectly reports whether a read may use a connection of its own. If so, it has taken one
// of the directReads places, and the caller must call direct, which gives the place back.
func (r *reader) mayReadDirectly() bool {
	if r.under.Load() > directReads && !r.slow.Load() {
		return false
	}
	if r.directs.Add(1) <= directReads {
		return true
	}
	r.directs.Add(-1)
	return false
}

// want says what a reader wants: a value and, unless tags is nil, generations.
type want struct {
	name  string
	cache string
	tags  []string
}

// direct reads on the caller's goroutine. The alarm serves as a deadline without the allocations of
// a context with a deadline. A panic of a hook is the error, as in [redislink.Shielded].
func (r *reader) direct(
	ctx context.Context, w want,
) (frame []byte, of cacheguard.Generations, err error) {
	defer r.directs.Add(-1)
	a := r.alarms.Get().(*alarm)
	d := r.s.opts.OpTimeout / 2
	deadline := time.Now().Add(d)
	if by, ok := ctx.Deadline(); ok && by.Before(deadline) {
		deadline, d = by, time.Until(by)
	}
	a.timer.Reset(d)
	defer func() {
		if a.timer.Stop() {
			r.alarms.Put(a)
		}
		if p := recover(); p != nil {
			err = redislink.Panicked(p)
		}
	}()
	within := &directRead{Context: ctx, deadline: deadline, rung: a.rung}
	switch {
	case w.tags == nil:
		frame, err = r.s.frameOf(r.s.link.Direct().Get(within, w.name).Bytes())
		return frame, nil, err
	case len(w.tags) > 0:
		return r.tagged(within, w)
	}
	whole, ok := r.wholes.Load().of[w.cache]
	if !ok {
		whole = r.whole(w.cache)
	}
	within.args = [3]any{"mget", w.name, whole}
	within.both = *redis.NewStringSliceCmd(within, within.args[:]...)
	if err := r.s.link.Direct().Process(within, &within.both); err != nil {
		return nil, nil, fmt.Errorf("redisstore: %w", r.s.explained(err))
	}
	both := within.both.Val()
	switch {
	case len(both) != 2:
		return nil, nil, fmt.Errorf("redisstore: MGET answered %d values for 2 keys", len(both))
	case both[0] == "":
		// Nothing is stored, or a value of a wrong type, which is a miss like any other.
		return nil, nil, nil
	}
	within.of[0] = wholeOf(both[1])
	return bytesOf(both[0]), within.of[:], nil
}

// tagged reads a value whose tags are known, together with their generations.
func (r *reader) tagged(ctx *directRead, w want) ([]byte, cacheguard.Generations, error) {
	pipe := r.s.link.Direct().Pipeline()
	value := pipe.Get(ctx, w.name)
	read := pipe.ZMScore(ctx, r.s.names.generations(w.cache), append([]string{""}, w.tags...)...)
	_, _ = redislink.Exec(ctx, pipe) // each command has its own error
	frame, err := r.s.frameOf(value.Bytes())
	if err != nil || frame == nil {
		return frame, nil, err
	}
	r.s.scored(read.Err())
	return frame, generationsOf(read.Val()), nil // empty generations if they can't be read
}

// wholeOf returns the separately stored generation of a whole cache. If the text is not a
// generation, it returns 0, and the script that is run next repairs the text.
func wholeOf(text string) int64 {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 0 || n >= pastAll || text[0] == '+' {
		return 0
	}
	return n
}

// wholes has the names of the generations of whole caches, by cache, as arguments of a command.
// They are kept, because making one costs an allocation. The map is never changed: to add a name,
// whole replaces the map by a larger copy.
type wholes struct{ of map[string]any }

// whole returns the name of the generation of a whole cache, as an argument of a command.
func (r *reader) whole(cache string) any {
	known := r.wholes.Load()
	if name, ok := known.of[cache]; ok {
		return name
	}
	next := &wholes{of: map[string]any{cache: r.s.names.whole(cache)}}
	maps.Copy(next.of, known.of)
	// If another map was stored meanwhile, the next read adds this name.
	r.wholes.CompareAndSwap(known, next)
	return next.of[cache]
}

// frameOf turns the answer of GET into what cacheguard.Store requires: nil if nothing is stored, an
// empty frame if something other than a string is stored.
func (s *Store) frameOf(b []byte, err error) ([]byte, error) {
	switch {
	case err == nil && b == nil:
		return []byte{}, nil
	case err == nil:
		return b, nil
	case errors.Is(err, redis.Nil):
		return nil, nil
	case isWrongType(err):
		return []byte{}, nil
	}
	return nil, fmt.Errorf("redisstore: %w", s.explained(err))
}

// bytesOf returns the bytes of a string that is not empty, without copying them. That is safe
// because nobody else has the string, and frames are never changed.
func bytesOf(s string) []byte { return unsafe.Slice(unsafe.StringData(s), len(s)) }

// alarm is a timer with the channel that the timer closes. An alarm whose timer hasn't fired is
// reused.
type alarm struct {
	timer *time.Timer
	rung  chan struct{}
}

func newAlarm() *alarm {
	a := &alarm{rung: make(chan struct{})}
	a.timer = time.AfterFunc(time.Hour, func() { close(a.rung) })
	return a
}

// directRead is one direct read, in one piece of memory. It is its own context, in which the
// client's hooks find the values of the caller's context. This context ends after half of
// OpTimeout, or earlier at the deadline of the caller's context. If the caller's context is
// cancelled, the read goes on, because a read from a socket could not notice that.
type directRead struct {
	context.Context
	deadline time.Time
	rung     <-chan struct{}

	args [3]any
	both redis.StringSliceCmd // the value and the generation of its cache
	of   [1]int64             // the generation as a number

	handed redislink.Handed
}

func (c *directRead) Carries() *redislink.Handed { return &c.handed }
func (c *directRead) Value(key any) any          { return c.handed.Value(c.Context, key) }

func (c *directRead) Deadline() (time.Time, bool) { return c.deadline, true }
func (c *directRead) Done() <-chan struct{}       { return c.rung }

func (c *directRead) Err() error {
	select {
	case <-c.rung:
		return context.DeadlineExceeded
	default:
		return nil
	}
}
