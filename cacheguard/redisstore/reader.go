package redisstore

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/redis/go-redis/v9"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/internal/redislink"
)

// directReads is how many reads at a time use a connection of their own.
const directReads = 4

// reader reads values. While there are few reads at a time, each runs on its caller's goroutine and
// on a connection of its own, which is the fastest. Further reads are collected into batches, which
// cost far less per read.
type reader struct {
	s       *Store
	under   atomic.Int32 // direct reads under way
	alarms  sync.Pool    // of *alarm
	running sync.WaitGroup
	wholes  atomic.Pointer[map[string]any] // names of the generations of whole caches, by cache; the map is never changed, only replaced

	mu    sync.Mutex              // guards lanes and their contents
	lanes map[*redis.Client]*lane // by the node of a cluster that has the keys
}

func (r *reader) init(s *Store) {
	r.s, r.lanes = s, make(map[*redis.Client]*lane)
	r.alarms.New = func() any { return newAlarm() }
}

// wait returns when no batch is under way any longer.
func (r *reader) wait() { r.running.Wait() }

// Get returns the frame of a key, and the generations of its cache and of these tags. On a single
// server they are read in the same trip; in a cluster they are the known ones. Commands use the
// values and the deadline of ctx. If ctx is cancelled and has no deadline, Get still waits for a
// read that is under way, for at most OpTimeout.
func (s *Store) Get(ctx context.Context, k cacheguard.Key, tags []string) ([]byte, cacheguard.Generations, error) {
	if s.closed.Load() {
		return nil, nil, errClosed
	}
	w := want{name: s.names.value(k), cache: k.Cache, tags: tags}
	b := s.health.of(w.name)
	if err := b.refusal(); err != nil {
		return nil, nil, err
	}
	if err := s.knowTime(ctx); err != nil {
		return nil, nil, err
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
	if r.under.Add(1) > directReads {
		r.under.Add(-1)
		return r.batched(ctx, w, s.opts.OpTimeout)
	}
	began := time.Now()
	frame, of, err := r.direct(ctx, w)
	r.under.Add(-1)
	if err == nil || !redislink.NoAnswer(err) {
		b.answered(w.name, err, time.Since(began))
		return frame, of, err
	}
	if ctx.Err() != nil { // the caller's time is over
		return nil, nil, err
	}
	return r.batched(ctx, w, s.opts.OpTimeout/2) // no answer: try again with the other half of the time
}

// want is the result that a reader wants: a value, and generations unless tags is nil.
type want struct {
	name  string
	cache string
	tags  []string
}

// direct reads on the caller's goroutine. The alarm serves as a deadline without the allocations of
// a context with a deadline.
func (r *reader) direct(ctx context.Context, w want) ([]byte, cacheguard.Generations, error) {
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
	}()
	within := &directRead{Context: ctx, deadline: deadline, rung: a.rung}
	switch {
	case w.tags == nil:
		frame, err := r.s.frameOf(r.s.link.Direct().Get(within, w.name).Bytes())
		return frame, nil, err
	case len(w.tags) == 0:
		within.args = [3]any{"mget", w.name, r.whole(w.cache)}
		within.both = *redis.NewStringSliceCmd(within, within.args[:]...)
		if err := r.s.link.Direct().Process(within, &within.both); err != nil {
			return nil, nil, fmt.Errorf("redisstore: %w", r.s.explained(err))
		}
		return within.answer()
	}
	pipe := r.s.link.Direct().Pipeline()
	value := pipe.Get(within, w.name)
	read := pipe.ZMScore(within, r.s.names.generations(w.cache), append([]string{""}, w.tags...)...)
	_, _ = redislink.Exec(within, pipe) // each command has its own error
	frame, err := r.s.frameOf(value.Bytes())
	if err != nil || frame == nil {
		return frame, nil, err
	}
	r.s.scored(read.Err())
	return frame, generationsOf(read.Val()), nil // nil generations if they can't be read
}

// answer splits the answer of MGET into the value and the generation. MGET returns nil for a value
// of a wrong type, so this value is a miss like any other.
func (c *directRead) answer() ([]byte, cacheguard.Generations, error) {
	both := c.both.Val()
	if len(both) != 2 {
		return nil, nil, fmt.Errorf("redisstore: MGET answered %d values for 2 keys", len(both))
	}
	if both[0] == "" {
		return nil, nil, nil
	}
	c.of[0] = wholeOf(both[1])
	return bytesOf(both[0]), c.of[:], nil
}

// whole returns the name of the generation of a whole cache, as an argument of a command.
func (r *reader) whole(cache string) any {
	known := r.wholes.Load()
	if known != nil {
		if name, ok := (*known)[cache]; ok {
			return name
		}
	}
	next := map[string]any{cache: r.s.names.whole(cache)}
	if known != nil {
		maps.Copy(next, *known)
	}
	r.wholes.CompareAndSwap(known, &next) // if another map was stored meanwhile, the next read adds this name
	return next[cache]
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

// bytesOf returns the bytes of the string without copying them. That is safe because nobody else
// has the string, and frames are never changed.
func bytesOf(s string) []byte {
	if s == "" {
		return []byte{}
	}
	return unsafe.Slice(unsafe.StringData(s), len(s))
}

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

// directRead is one direct read, in one piece of memory. It is its own context, so that the
// client's hooks find the values of the caller's context in it. It doesn't end with the caller's
// context, because a read from a socket could not notice that anyway.
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
