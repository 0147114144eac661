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
	batchReads  = 128 // most reads in one trip
	mostSenders = 4   // batches of a lane that are under way at a time, if they are full
	mostBatches = 512 // full ones that wait for their trip: many more reads than callers come at once, and a little memory
)

// errManyReads turns reads away that would have to wait behind thousands of others.
var errManyReads = fmt.Errorf("redisstore: %d reads wait already: %w", batchReads*mostBatches, cacheguard.ErrOverloaded)

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
