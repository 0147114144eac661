package redisstore

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/internal/redislink"
)

const (
	batchReads  = 128     // most reads in one batch
	batchBytes  = 1 << 20 // about how many bytes of values one batch may bring
	firstReads  = 32      // most reads in one batch while nothing is known about the size of values
	mostSenders = 4       // most batches of a lane that are under way at a time, if they are full
	mostReads   = 1 << 16 // most reads that wait in full batches: far more than come at once

	// mostPatience is how many times OpTimeout a read waits at most, while Redis answers other
	// reads.
	mostPatience = 4
)

// errGoexit is the error of reads whose goroutine was ended by runtime.Goexit in a hook of the
// client of a single server.
var errGoexit = fmt.Errorf("redisstore: %w", redislink.ErrGoexit)

// errManyReads is returned for a read that would have to wait behind thousands of other reads.
var errManyReads = fmt.Errorf("redisstore: %d reads wait already: %w", mostReads,
	cacheguard.ErrOverloaded)

// lane has the batches for one node, or for the only server. Each node of a cluster has its own
// lane, so that a dead node doesn't delay reads from other nodes. A lane exists as long as a
// goroutine sends its batches. Usually this is one goroutine, and further reads are collected while
// it waits for Redis. While full batches wait, there are more goroutines. Otherwise thousands of
// reads would wait for one trip after another.
type lane struct {
	next    *batch   // collects reads while another batch is under way
	waiting []*batch // full batches
	reads   int      // those in waiting
	senders int

	answered atomic.Int64 // when a batch was last answered, by clock.elapsed
}

// batch is a number of reads that are sent in one trip.
type batch struct {
	lane    *lane         // nil for a batch that is sent at once
	args    []any         // MGET and the names to read
	scores  []*scores     // there is one for each cache, so there are few
	readers atomic.Int32  // how many readers still wait for the batch
	done    chan struct{} // closed when the fields below are set

	frames
	err error // the error of all reads
}

// newBatch makes a batch with room for this many names and for the generation of a cache.
func newBatch(names int) *batch {
	b := &batch{args: make([]any, 1, 2+names), err: errGoexit}
	b.args[0] = "mget"
	return b
}

// names returns the names to read.
func (b *batch) names() []any { return b.args[1:] }

// scores are the generations of one cache that a batch's readers want.
type scores struct {
	cache string
	tags  []string               // the tags whose generations are wanted besides the cache's
	at    map[string]int         // index of each tag in tags
	of    cacheguard.Generations // nil or empty if they can't be read
}

// of returns the generations that the batch reads for a cache, or nil if it reads none.
func (b *batch) of(cache string) *scores {
	for _, all := range b.scores {
		if all.cache == cache {
			return all
		}
	}
	return nil
}

// want adds the generations of the cache and of these tags to the batch.
func (b *batch) want(cache string, tags []string) {
	all := b.of(cache)
	if all == nil {
		all = &scores{cache: cache}
		b.scores = append(b.scores, all)
	}
	for _, tag := range tags {
		if _, ok := all.at[tag]; ok {
			continue
		}
		if all.at == nil {
			all.at = make(map[string]int)
		}
		all.at[tag] = len(all.tags)
		all.tags = append(all.tags, tag)
	}
}

// generations returns the generations of the cache and of these tags that the batch has read, or
// nil.
func (b *batch) generations(cache string, tags []string) cacheguard.Generations {
	all := b.of(cache)
	switch {
	case all == nil || len(all.of) != 1+len(all.tags):
		return nil
	case len(tags) == 0:
		return all.of[:1:1] // shared, but nobody changes it
	}
	of := make(cacheguard.Generations, 1, 1+len(tags))
	of[0] = all.of[0]
	for _, tag := range tags {
		of = append(of, all.of[1+all.at[tag]])
	}
	return of
}

// batched adds the read to the next batch and waits for it; see wait.
func (r *reader) batched(
	ctx context.Context, w want, limit time.Duration,
) ([]byte, cacheguard.Generations, error) {
	b, i, err := r.join(w)
	if err != nil {
		return nil, nil, err
	}
	defer b.readers.Add(-1)
	if err := r.wait(ctx, b, limit); err != nil {
		return nil, nil, fmt.Errorf("redisstore: %w", r.s.explained(err))
	}
	if b.err != nil {
		return nil, nil, b.err
	}
	frame, err := b.frame(i)
	if err != nil || w.tags == nil {
		return frame, nil, err
	}
	return frame, b.generations(w.cache, w.tags), nil
}

// wait waits for a batch, until ctx is done, or until limit has passed without an answer to any
// batch of the lane. limit is what is left of OpTimeout. While Redis answers other batches, this
// batch only waits for its turn: many reads came at once, or the program keeps its processors busy.
// If its reads failed, their callers would load without a lease, and each process would do so, at
// the very moment when the origin gets the most requests. But the whole read takes no longer than
// mostPatience times OpTimeout.
func (r *reader) wait(ctx context.Context, b *batch, limit time.Duration) error {
	began := r.s.clock.elapsed()
	end := began + limit + (mostPatience-1)*r.s.opts.OpTimeout
	for until := began + limit; ; {
		a := r.alarms.Get().(*alarm)
		a.timer.Reset(until - r.s.clock.elapsed())
		var err error
		select {
		case <-b.done:
		case <-ctx.Done():
			err = ctx.Err()
		case <-a.rung:
			now, last := r.s.clock.elapsed(), time.Duration(b.lane.answered.Load())
			if until = min(last+limit, end); until > now {
				continue
			}
			select {
			case <-b.done: // and this goroutine was late
				return nil
			default:
				return fmt.Errorf("no answer within %v: %w", now-began, context.DeadlineExceeded)
			}
		}
		if a.timer.Stop() {
			r.alarms.Put(a)
		}
		return err
	}
}

// join adds a read to the lane's next batch. If too many reads wait already, or if the store is
// closed, it returns no batch and an error.
func (r *reader) join(w want) (*batch, int, error) {
	node, name := r.s.link.Node(w.name), any(w.name)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return nil, 0, errClosed
	}
	l := r.lanes[node]
	if l == nil {
		l = &lane{}
		r.lanes[node] = l
	}
	b := l.next
	if b == nil {
		if l.reads >= mostReads {
			return nil, 0, errManyReads
		}
		b = newBatch(14)
		b.lane, b.done = l, make(chan struct{})
		l.next = b
	}
	b.args = append(b.args, name)
	if w.tags != nil {
		b.want(w.cache, w.tags)
	}
	b.readers.Add(1)
	reads := len(b.names())
	full := reads >= r.size.reads()
	if full {
		l.waiting = append(l.waiting, b)
		l.reads += reads
		l.next = nil
	}
	if l.senders == 0 || full && l.senders < mostSenders {
		l.senders++
		r.running.Add(1)
		r.startSend(node, l)
	}
	return b, reads - 1, nil
}

// send sends one batch of a lane, and then starts the goroutine for the next one. Full batches come
// first. If there is none, send ends if the lane has other senders. The last sender also sends the
// batches that aren't full, until no batch is left.
func (r *reader) send(node *redis.Client, l *lane) {
	r.mu.Lock()
	var b *batch
	if len(l.waiting) > 0 {
		b = l.waiting[0]
		l.waiting = l.waiting[1:]
		l.reads -= len(b.names())
	} else if l.senders == 1 {
		b, l.next = l.next, nil
	}
	if b == nil {
		if l.senders--; l.senders == 0 {
			delete(r.lanes, node)
		}
		r.mu.Unlock()
		r.running.Done()
		return
	}
	r.mu.Unlock()
	defer r.startSend(node, l)
	defer close(b.done)
	defer b.recovers()
	if b.readers.Load() > 0 { // otherwise all readers have left while the batch waited
		if r.read(b); b.err == nil {
			l.answered.Store(int64(r.s.clock.elapsed()))
		}
	}
}

// recovers turns a panic of a hook of the client into the error of all reads. On this goroutine it
// would end the process, although the callers may recover from panics.
func (b *batch) recovers() {
	if p := recover(); p != nil {
		b.err = fmt.Errorf("redisstore: %w", redislink.Panicked(p))
	}
}

// startSend starts send behind the goroutines that are ready on this processor: the readers of the
// last batch, which have just been woken, or those that came together with the first reader. They
// join the batch before it is sent; otherwise many batches would have one or two reads. A processor
// runs its newest goroutine next. So startSend starts a second goroutine, which does nothing but
// take this place from send. runtime.Gosched would put the goroutine into a queue at which the
// processors of a busy program seldom look.
func (r *reader) startSend(node *redis.Client, l *lane) {
	go r.send(node, l)
	go func() {}()
}

// frames are the values that a batch has read.
type frames struct {
	texts []string // "" for an empty string or where nothing is stored; nil if bytes is set
	bytes [][]byte // nil where nothing is stored
	errs  []error
}

func (f frames) frame(i int) ([]byte, error) {
	switch {
	case f.errs != nil && f.errs[i] != nil:
		return nil, f.errs[i]
	case f.bytes != nil:
		return f.bytes[i], nil
	case f.texts[i] == "":
		return nil, nil
	}
	return bytesOf(f.texts[i]), nil
}

// size returns the number of bytes of all values.
func (f frames) size() (n int) {
	for _, text := range f.texts {
		n += len(text)
	}
	for _, value := range f.bytes {
		n += len(value)
	}
	return n
}

// valueSize is the average size of the values that batches have read lately. It limits the number
// of reads in a batch, so that the answer comes in time. If no answer comes, all reads of the batch
// fail, and the next batch of this size would fail, too.
type valueSize struct{ bytes atomic.Int64 }

func (s *valueSize) init() { s.bytes.Store(batchBytes / firstReads) }

// reads returns how many reads a batch may have.
func (s *valueSize) reads() int {
	return int(max(min(batchBytes/max(s.bytes.Load(), 1), batchReads), 1))
}

// learn notes what a batch has read. If two batches end at the same moment, the size of one of them
// may be lost.
func (s *valueSize) learn(b *batch) {
	was := s.bytes.Load()
	switch {
	case b.err == nil:
		s.bytes.Store((was + int64(b.frames.size()/len(b.names()))) / 2)
	case redislink.NoAnswer(b.err) && len(b.names()) > 1:
		// Perhaps the batch was too large: the next one has a quarter of its reads.
		s.bytes.Store(max(was, int64(4*batchBytes/len(b.names()))))
	}
}

func (r *reader) read(b *batch) {
	began, names := time.Now(), b.names()
	ask := r.s.manyAtOnce(b)
	b.frames, b.err = twice(context.Background(), r.s, func(
		ctx context.Context, rdb redis.UniversalClient,
	) (frames, error) {
		if _, single := rdb.(*redis.Client); single {
			return ask(ctx, rdb)
		}
		return readEach(ctx, r.s, rdb, names)
	})
	took := time.Since(began)
	r.slow.Store(took > r.slowTrip)
	r.size.learn(b)
	if errors.Is(b.err, errClosed) { // says nothing about Redis
		return
	}
	var last *breaker
	for i, name := range names { // consecutive names of one breaker are reported once
		name := name.(string)
		of := r.s.health.of(name)
		if of == last {
			continue
		}
		last = of
		err := b.err
		if err == nil && b.errs != nil {
			err = b.errs[i]
		}
		of.answered(name, err, took)
	}
}

// manyAtOnce sends one command for all names. If generations of a cache's tags are wanted, it sends
// one more command for this cache. For a value of a wrong type MGET returns nothing, so the value
// counts as a miss.
func (s *Store) manyAtOnce(b *batch) func(ctx context.Context,
	rdb redis.UniversalClient) (frames, error) {
	reads := len(b.names())
	args := b.args
	var untagged, tagged []*scores
	for _, all := range b.scores {
		if len(all.tags) == 0 {
			untagged, args = append(untagged, all), append(args, s.reads.whole(all.cache))
		} else {
			tagged = append(tagged, all)
		}
	}
	return func(ctx context.Context, rdb redis.UniversalClient) (frames, error) {
		values := redis.NewStringSliceCmd(ctx, args...)
		if len(tagged) == 0 {
			_ = rdb.Process(ctx, values)
		} else {
			pipe := rdb.Pipeline()
			_ = pipe.Process(ctx, values)
			read := make([]*redis.FloatSliceCmd, len(tagged))
			for i, all := range tagged {
				read[i] = pipe.ZMScore(ctx, s.names.generations(all.cache),
					append([]string{""}, all.tags...)...)
			}
			_, _ = redislink.Exec(ctx, pipe) // each command has its own error
			for i, all := range tagged {
				s.scored(read[i].Err())
				all.of = generationsOf(read[i].Val())
			}
		}
		texts, err := values.Result()
		if err != nil {
			return frames{}, err
		}
		if len(texts) != len(args)-1 {
			return frames{},
				fmt.Errorf("MGET answered %d values for %d keys", len(texts), len(args)-1)
		}
		for i, text := range texts[reads:] {
			untagged[i].of = cacheguard.Generations{wholeOf(text)}
		}
		return frames{texts: texts[:reads]}, nil
	}
}

// readEach reads the names with a pipeline, which a cluster client sends to the nodes that have the
// keys.
func readEach(
	ctx context.Context, s *Store, rdb redis.UniversalClient, names []any,
) (frames, error) {
	pipe := rdb.Pipeline()
	cmds := make([]*redis.StringCmd, len(names))
	for i, name := range names {
		cmds[i] = pipe.Get(ctx, name.(string))
	}
	if _, err := redislink.Exec(ctx, pipe); err != nil && !errors.Is(err, redis.Nil) &&
		redislink.NoAnswer(err) {
		return frames{}, err
	}
	got := frames{bytes: make([][]byte, len(names)), errs: make([]error, len(names))}
	for i, cmd := range cmds {
		got.bytes[i], got.errs[i] = s.frameOf(cmd.Bytes())
	}
	return got, nil
}
