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

const (
	directReads = 4   // reads at a time that each have a connection of their own
	batchReads  = 128 // most reads in one trip
	mostSenders = 4   // batches of a lane that are under way at a time, if they are full
	mostBatches = 512 // full ones that wait for their trip: many more reads than callers come at once, and a little memory
)

// errManyReads turns reads away that would have to wait behind thousands of others.
var errManyReads = fmt.Errorf("redisstore: %d reads wait already: %w", batchReads*mostBatches, cacheguard.ErrOverloaded)

// reader reads values: on the caller's own goroutine and connection while few do so at a time, which is the quickest
// for each, and in batches beyond that, which is many times cheaper for all.
type reader struct {
	s       *Store
	under   atomic.Int32 // direct reads under way
	alarms  sync.Pool    // of *alarm
	running sync.WaitGroup
	wholes  atomic.Pointer[map[string]any] // names of the generations of whole caches, by cache; it is not changed, but replaced

	mu    sync.Mutex              // guards lanes and what is in them
	lanes map[*redis.Client]*lane // by the node of a cluster that has the keys
}

// lane is the batches for one node, or for the only server. Each node of a cluster has its own, so that one that is dead
// keeps nobody from reading what the others have. It is there as long as somebody sends its batches: one goroutine, so that
// reads collect meanwhile, and more while full batches wait, or thousands of reads would take one trip after the other.
type lane struct {
	next    *batch   // collects reads while another batch is under way
	waiting []*batch // full ones
	senders int
}

// batch is reads that go in one trip.
type batch struct {
	names   []string
	tags    map[string]*scores // by cache
	readers atomic.Int32       // who still wait for it
	done    chan struct{}      // closed when the fields below are set

	frames [][]byte
	errs   []error // nil if none failed
	err    error   // of all of them
}

// scores are the generations that a batch's readers want of one cache.
type scores struct {
	tags []string
	at   map[string]int         // in tags
	of   cacheguard.Generations // nil if they can't be read
}

// want adds the cache itself and these tags.
func (b *batch) want(cache string, tags []string) {
	all := b.tags[cache]
	if all == nil {
		if b.tags == nil {
			b.tags = make(map[string]*scores)
		}
		all = &scores{tags: []string{""}, at: map[string]int{"": 0}}
		b.tags[cache] = all
	}
	for _, tag := range tags {
		if _, ok := all.at[tag]; !ok {
			all.at[tag] = len(all.tags)
			all.tags = append(all.tags, tag)
		}
	}
}

// generations are what was read of the cache itself and of these tags, or nil.
func (b *batch) generations(cache string, tags []string) cacheguard.Generations {
	all := b.tags[cache]
	switch {
	case all == nil || len(all.of) != len(all.tags):
		return nil
	case len(tags) == 0:
		return all.of[:1:1] // nobody changes it
	}
	of := make(cacheguard.Generations, 1, 1+len(tags))
	of[0] = all.of[0]
	for _, tag := range tags {
		of = append(of, all.of[all.at[tag]])
	}
	return of
}

func (r *reader) init(s *Store) {
	r.s, r.lanes = s, make(map[*redis.Client]*lane)
	r.alarms.New = func() any { return newAlarm() }
}

// wait returns when no batch is under way.
func (r *reader) wait() { r.running.Wait() }

// Get returns the frame of a key, and the generations of its cache and these tags: read in the same trip, or in a
// cluster as far as they are known. ctx lends its values to the call and its deadline; when ctx is cancelled without
// one, a read that is under way is still waited for, for OpTimeout at most.
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
	if ctx.Err() != nil { // it was this caller's time that was over
		return nil, nil, err
	}
	return r.batched(ctx, w, s.opts.OpTimeout/2) // no answer: once more, with the other half of the time
}

// want is what a reader wants: a value, and unless tags is nil generations.
type want struct {
	name  string
	cache string
	tags  []string
}

// direct reads on this goroutine. The alarm is a deadline without the allocations of a context's.
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
			return nil, nil, fmt.Errorf("redisstore: %w", explained(r.s, err))
		}
		return within.answer()
	}
	pipe := r.s.link.Direct().Pipeline()
	value := pipe.Get(within, w.name)
	read := pipe.ZMScore(within, r.s.names.generations(w.cache), append([]string{""}, w.tags...)...)
	_, _ = pipe.Exec(within) // each command has its own error
	frame, err := r.s.frameOf(value.Bytes())
	if err != nil || frame == nil {
		return frame, nil, err
	}
	r.s.scored(read.Err())
	return frame, generationsOf(read.Val()), nil // without generations, if they can't be read
}

// answer takes MGET's answer apart. It has nothing for a value of a wrong type, which is a miss like any other.
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

// whole is the name of the generation of a whole cache, as an argument.
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
	r.wholes.CompareAndSwap(known, &next) // or another one is there, and this one comes with the next read
	return next[cache]
}

// batched adds the read to the next batch and waits for it, for ctx and limit at most.
func (r *reader) batched(ctx context.Context, w want, limit time.Duration) ([]byte, cacheguard.Generations, error) {
	b, i := r.join(w)
	if b == nil {
		return nil, nil, errManyReads
	}
	defer b.readers.Add(-1)
	a := r.alarms.Get().(*alarm)
	a.timer.Reset(limit)
	defer func() {
		if a.timer.Stop() {
			r.alarms.Put(a)
		}
	}()
	select {
	case <-b.done:
	case <-ctx.Done():
		return nil, nil, ctx.Err()
	case <-a.rung:
		return nil, nil, fmt.Errorf("redisstore: no answer within %v: %w", limit, context.DeadlineExceeded)
	}
	switch {
	case b.err != nil:
		return nil, nil, b.err
	case b.errs != nil && b.errs[i] != nil:
		return nil, nil, b.errs[i]
	}
	if w.tags == nil {
		return b.frames[i], nil, nil
	}
	return b.frames[i], b.generations(w.cache, w.tags), nil
}

// join returns no batch when too many wait.
func (r *reader) join(w want) (*batch, int) {
	node := r.s.link.Node(w.name)
	r.mu.Lock()
	defer r.mu.Unlock()
	l := r.lanes[node]
	if l == nil {
		l = &lane{}
		r.lanes[node] = l
	}
	b := l.next
	if b == nil {
		if len(l.waiting) >= mostBatches {
			return nil, 0
		}
		b = &batch{done: make(chan struct{}), names: make([]string, 0, 16)}
		l.next = b
	}
	b.names = append(b.names, w.name)
	if w.tags != nil {
		b.want(w.cache, w.tags)
	}
	b.readers.Add(1)
	full := len(b.names) == batchReads
	if full {
		l.waiting = append(l.waiting, b)
		l.next = nil
	}
	if l.senders == 0 || full && l.senders < mostSenders {
		l.senders++
		r.running.Add(1)
		go r.send(node, l)
	}
	return b, len(b.names) - 1
}

// send sends a lane's batches until there is none that is full, and the last one of several until there is none at all.
func (r *reader) send(node *redis.Client, l *lane) {
	defer r.running.Done()
	for {
		r.mu.Lock()
		var b *batch
		if len(l.waiting) > 0 {
			b = l.waiting[0]
			l.waiting = l.waiting[1:]
		} else if l.senders == 1 {
			b, l.next = l.next, nil
		}
		if b == nil {
			if l.senders--; l.senders == 0 {
				delete(r.lanes, node)
			}
			r.mu.Unlock()
			return
		}
		r.mu.Unlock()
		if b.readers.Load() > 0 { // or all have left while it waited
			r.read(b)
		}
		close(b.done)
	}
}

type frames struct {
	frames [][]byte
	errs   []error
}

func (r *reader) read(b *batch) {
	began := time.Now()
	got, err := twice(context.Background(), r.s, func(ctx context.Context, rdb redis.UniversalClient) (frames, error) {
		if _, single := rdb.(*redis.Client); single {
			return r.s.readMany(ctx, rdb, b)
		}
		return readEach(ctx, r.s, rdb, b.names)
	})
	b.frames, b.errs, b.err = got.frames, got.errs, err
	took := time.Since(began)
	var last *breaker
	for i, name := range b.names { // those of one breaker together count once, if they are neighbours
		of := r.s.health.of(name)
		if of == last {
			continue
		}
		last = of
		if err == nil && got.errs != nil {
			of.answered(name, got.errs[i], took)
		} else {
			of.answered(name, err, took)
		}
	}
}

// readMany is one command for all, and one for each cache of which the generations of tags are wanted. MGET gives nothing for
// a value of a wrong type, which is a miss like any other.
func (s *Store) readMany(ctx context.Context, rdb redis.UniversalClient, b *batch) (frames, error) {
	args := make([]any, 0, 1+len(b.names)+len(b.tags))
	args = append(args, "mget")
	for _, name := range b.names {
		args = append(args, name)
	}
	var untagged []*scores
	var tagged []string
	for cache, all := range b.tags {
		if len(all.tags) == 1 {
			untagged, args = append(untagged, all), append(args, s.reads.whole(cache))
		} else {
			tagged = append(tagged, cache)
		}
	}
	values := redis.NewStringSliceCmd(ctx, args...)
	if len(tagged) == 0 {
		_ = rdb.Process(ctx, values)
	} else {
		pipe := rdb.Pipeline()
		_ = pipe.Process(ctx, values)
		scores := make([]*redis.FloatSliceCmd, len(tagged))
		for i, cache := range tagged {
			scores[i] = pipe.ZMScore(ctx, s.names.generations(cache), b.tags[cache].tags...)
		}
		_, _ = pipe.Exec(ctx) // each command has its own error
		for i, cache := range tagged {
			s.scored(scores[i].Err())
			b.tags[cache].of = generationsOf(scores[i].Val())
		}
	}
	vals, err := values.Result()
	if err != nil {
		return frames{}, err
	}
	if len(vals) != len(args)-1 {
		return frames{}, fmt.Errorf("MGET answered %d values for %d keys", len(vals), len(args)-1)
	}
	got := frames{frames: make([][]byte, len(b.names))}
	for i, v := range vals[:len(b.names)] { // "" stands for nothing, too
		if v != "" {
			got.frames[i] = bytesOf(v)
		}
	}
	for i, v := range vals[len(b.names):] {
		untagged[i].of = cacheguard.Generations{wholeOf(v)}
	}
	return got, nil
}

// readEach is a pipeline, which a cluster client sends to the nodes that have the keys.
func readEach(ctx context.Context, s *Store, rdb redis.UniversalClient, names []string) (frames, error) {
	pipe := rdb.Pipeline()
	cmds := make([]*redis.StringCmd, len(names))
	for i, name := range names {
		cmds[i] = pipe.Get(ctx, name)
	}
	if _, err := pipe.Exec(ctx); err != nil && !errors.Is(err, redis.Nil) && redislink.NoAnswer(err) {
		return frames{}, err
	}
	got := frames{frames: make([][]byte, len(names)), errs: make([]error, len(names))}
	for i, cmd := range cmds {
		got.frames[i], got.errs[i] = s.frameOf(cmd.Bytes())
	}
	return got, nil
}

// frameOf turns GET's answer into the port's: nil for nothing, an empty frame for what is no string.
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
	return nil, fmt.Errorf("redisstore: %w", explained(s, err))
}

// bytesOf is the string's own bytes, without a copy. Nobody else has the string, and frames are not changed.
func bytesOf(s string) []byte {
	if s == "" {
		return []byte{}
	}
	return unsafe.Slice(unsafe.StringData(s), len(s))
}

// alarm is a timer and the channel it closes. One that has not rung is used again.
type alarm struct {
	timer *time.Timer
	rung  chan struct{}
}

func newAlarm() *alarm {
	a := &alarm{rung: make(chan struct{})}
	a.timer = time.AfterFunc(time.Hour, func() { close(a.rung) })
	return a
}

// directRead is one direct read, in one piece of memory. It is its own context, which has the values of the caller's, for
// the client's hooks, but not its end, which a read of a socket couldn't see anyway.
type directRead struct {
	context.Context
	deadline time.Time
	rung     <-chan struct{}

	args [3]any
	both redis.StringSliceCmd // the value, and the generation of its cache
	of   [1]int64             // that generation
}

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
