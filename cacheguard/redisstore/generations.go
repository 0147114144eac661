package redisstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/redis/go-redis/v9"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/internal/protocol"
)

const (
	maxTags      = 100_000 // invalidated tags that are remembered for each cache, about 10 MB
	tagsInAStep  = 256     // most tags that one script invalidates
	maxKnownTags = 1 << 16 // generations that a cluster client keeps for each cache

	// How much the clocks of two nodes, or a clock and its estimate, may differ.
	doubt = protocol.ClockSlack

	// pastAll is above every generation, stamp and number of a grant. Numbers in Lua and scores in
	// Redis are float64, which represent every microsecond below pastAll exactly, up to the year
	// 2255.
	pastAll = 1 << 53

	// grantMember is the member of the generations whose score is the stamp of the last grant. No
	// tag has this name: a tag that begins with a zero byte is a soft tag, and has further bytes.
	grantMember = "\x00"
)

// Generations returns the generations of a cache and of tags of it.
func (s *Store) Generations(
	ctx context.Context, cache string, tags []string,
) (cacheguard.Generations, error) {
	if s.cluster == nil {
		if of := s.lookAtGenerations(ctx, cache, tags); of != nil {
			return of, nil
		}
		_, of, err := s.readGenerations(ctx, cache, tags)
		return of, err
	}
	if of := s.known(cache, tags); of != nil {
		return of, nil
	}
	since := s.cluster.since()
	_, of, err := s.readGenerations(ctx, cache, tags)
	if err != nil { // a node that is away must not make all values unusable
		if of := s.cluster.find(cache, tags, false); of != nil {
			return of, nil // the last known generations
		}
		if len(tags) == 0 && ctx.Err() == nil {
			// As if the whole cache had never been invalidated.
			return cacheguard.Generations{1}, nil
		}
		return nil, err
	}
	s.cluster.learn(cache, tags, of, since)
	return of, nil
}

// known returns the generations that a cluster client needn't read, or nil. It starts the
// subscription if that hasn't been started yet.
func (s *Store) known(cache string, tags []string) cacheguard.Generations {
	if !s.Listening() {
		return nil
	}
	return s.cluster.find(cache, tags, true)
}

// lookAtGenerations reads the stored generations with one command. It returns nil if the cache's
// generation is missing, if a generation is damaged, or if Redis can't be asked.
func (s *Store) lookAtGenerations(
	ctx context.Context, cache string, tags []string,
) cacheguard.Generations {
	if len(tags) == 0 {
		name := s.names.whole(cache)
		whole, err := look(ctx, s, name, func(
			ctx context.Context, rdb redis.UniversalClient,
		) (string, error) {
			// MGET returns no error if nothing or something other than a string is stored.
			all := redis.NewStringSliceCmd(ctx, "mget", name)
			_ = rdb.Process(ctx, all)
			return strings.Join(all.Val(), ""), all.Err()
		})
		if n := wholeOf(whole); err == nil && n != 0 {
			return cacheguard.Generations{n}
		}
		return nil
	}
	name := s.names.generations(cache)
	scores, err := look(ctx, s, name, func(
		ctx context.Context, rdb redis.UniversalClient,
	) ([]float64, error) {
		return rdb.ZMScore(ctx, name, append([]string{""}, tags...)...).Result()
	})
	if err != nil || len(scores) != 1+len(tags) {
		return nil
	}
	if of := generationsOf(scores); of[0] != 0 {
		return of
	}
	return nil
}

// generationsOf returns the generations for the scores. If one of the scores can't be a generation,
// the first generation is 0: then the generations are unknown, and a later script repairs them.
func generationsOf(scores []float64) cacheguard.Generations {
	of := make(cacheguard.Generations, len(scores))
	for i, score := range scores {
		if !(score >= 0 && score < pastAll) {
			of[0] = 0
			return of
		}
		of[i] = int64(score)
	}
	return of
}

// generationsIn is generationsOf for the reply that a script got from ZMSCORE.
func generationsIn(answer any) cacheguard.Generations {
	all, _ := answer.([]any)
	if len(all) == 0 {
		return nil
	}
	scores := make([]float64, len(all))
	for i, v := range all {
		if s, ok := v.(string); ok {
			var err error
			if scores[i], err = strconv.ParseFloat(s, 64); err != nil {
				return nil
			}
		}
	}
	return generationsOf(scores)
}

// readGenerations asks Redis for generations, and for the time at the node that has them.
func (s *Store) readGenerations(
	ctx context.Context, cache string, tags []string,
) (now int64, of cacheguard.Generations, err error) {
	name := s.names.generations(cache)
	args := make([]any, len(tags))
	for i, tag := range tags {
		args[i] = tag
	}
	reply, err := look(ctx, s, name, func(
		ctx context.Context, rdb redis.UniversalClient,
	) ([]any, error) {
		return generationsScript.Run(ctx, rdb, []string{name, s.names.whole(cache)},
			args...).Slice()
	})
	if err != nil {
		return 0, nil, err
	}
	if len(reply) < 2 {
		return 0, nil, fmt.Errorf("redisstore: the generations script answered %q", reply)
	}
	of = make(cacheguard.Generations, 1+len(tags))
	for i, v := range reply { // nil for a tag that was never invalidated
		n := generation(v)
		if i == 0 {
			now = n
		} else if i <= len(of) {
			of[i-1] = n
		}
	}
	return now, of, nil
}

// generation returns v as a generation, or 0 if v is not a generation.
func generation(v any) int64 {
	s, _ := v.(string)
	n, err := strconv.ParseFloat(s, 64)
	if err != nil || !(n >= 0 && n < pastAll) {
		return 0
	}
	return int64(n)
}

// Clock returns the time on the clock of a cache's generations.
func (s *Store) Clock(ctx context.Context, cache string) (int64, error) {
	now, _, err := s.readGenerations(ctx, cache, nil)
	if err == nil && now == 0 {
		err = errors.New("redisstore: the generations script answered without the time")
	}
	return now, err
}

// stamp returns the time on the clock of a cluster's generations. While the node that has the
// generations is away, the stamp is an estimate that is too early rather than too late. With an
// early stamp a valid result may count as invalid, but an invalid one never counts as valid.
func (s *Store) stamp(ctx context.Context, cache string) int64 {
	now, _, err := s.readGenerations(ctx, cache, []string{grantMember})
	if err != nil {
		return s.clock.now().Add(-doubt).UnixMicro()
	}
	return now
}

// InvalidateTags invalidates these tags, or the whole cache if there are none: it sets their
// generation to the present time.
func (s *Store) InvalidateTags(
	ctx context.Context, cache string, tags []string,
) (generation int64, err error) {
	if len(tags) == 0 {
		return s.bump(ctx, cache, nil)
	}
	for some := range slices.Chunk(tags, tagsInAStep) {
		if generation, err = s.bump(ctx, cache, some); err != nil {
			return 0, err
		}
	}
	return generation, nil
}

func (s *Store) bump(ctx context.Context, cache string, tags []string) (int64, error) {
	s.changes()
	name := s.names.generations(cache)
	var payload []byte
	args := []any{s.channelOf(cache), s.names.channel(), nil, maxTags}
	for _, tag := range tags {
		payload = append(append(payload, byte(len(tag))), tag...)
		args = append(args, tag)
	}
	args[2] = encodeMessage(kindTags, cacheguard.Key{Cache: cache}, cacheguard.ID{}, payload...)
	reply, err := change(ctx, s, name, func(
		ctx context.Context, rdb redis.UniversalClient,
	) (string, error) {
		return bumpScript.Run(ctx, rdb, []string{name, s.names.whole(cache)}, args...).Text()
	})
	if err != nil {
		return 0, err
	}
	n := generation(reply)
	if n == 0 {
		return 0, fmt.Errorf("redisstore: the script that invalidates tags answered %q", reply)
	}
	if s.cluster != nil {
		s.cluster.heard(cache, tags, n, s.latest())
	}
	return n, nil
}

// latest returns an upper bound of all generations that can exist now, as far as this process knows
// the time.
func (s *Store) latest() int64 { return s.clock.now().Add(doubt).UnixMicro() }

// generationsKnown has the generations that a cluster client knows. In a cluster the generations of
// each cache are in one slot, so reading them with every value would cost another command, and one
// node would get all these commands. So while messages arrive, the client reads them once and
// learns of changes from messages. Without messages it reads them with every value. Generations
// only grow, so the larger of two is the newer one, in whichever order they arrived.
//
// Anybody may have published a message. If its generation is later than the clock or earlier than
// the known one, each by more than doubt, the client doesn't believe the message. Then it reads the
// generation again, and uses the result even if it is smaller. So a forged message costs one more
// read and has no lasting effect. The same read corrects the known generation after a clock was set
// back, and after somebody has repaired the generation in Redis by hand.
type generationsKnown struct {
	trust atomic.Int64 // grows when messages stop arriving, and when they arrive again

	mu      sync.RWMutex // guards the fields below and their contents
	caches  map[string]*cacheGenerations
	cleared int // how often something was forgotten
	doubts  int // number of doubts so far; see known.doubted
}

// moment is taken before generations are read. If a change was heard or forgotten after this
// moment, the answer must not undo it.
type moment struct {
	trust           int64
	cleared, doubts int
}

func (g *generationsKnown) since() moment {
	trust := g.trust.Load()
	g.mu.RLock()
	defer g.mu.RUnlock()
	return moment{trust, g.cleared, g.doubts}
}

type cacheGenerations struct {
	whole known
	tags  map[string]known
}

// known is a generation. trust is the value of generationsKnown.trust when the generation was read,
// or unread.
type known struct {
	generation, trust int64
	// Number of the last doubt, which only a read that began after it can settle; 0: none.
	doubted int
}

const unread = -1 // no read has confirmed the generation, so a later invalidation may be unknown

// find returns the known generations, or nil if some are not known. If sure is set, it returns only
// generations that were read since messages began to arrive without a break.
func (g *generationsKnown) find(cache string, tags []string, sure bool) cacheguard.Generations {
	now := g.trust.Load()
	g.mu.RLock()
	defer g.mu.RUnlock()
	in := g.caches[cache]
	if in == nil || (sure && in.whole.trust != now) {
		return nil
	}
	of := make(cacheguard.Generations, 1, 1+len(tags))
	of[0] = in.whole.generation
	for _, tag := range tags {
		one, ok := in.tags[tag]
		if !ok || (sure && one.trust != now) {
			return nil
		}
		of = append(of, one.generation)
	}
	return of
}

// learn stores the generations in an answer of Redis.
func (g *generationsKnown) learn(
	cache string, tags []string, of cacheguard.Generations, since moment,
) {
	g.mu.Lock()
	defer g.mu.Unlock()
	in := g.caches[cache]
	if in == nil {
		in = &cacheGenerations{tags: make(map[string]known)}
		if g.caches == nil {
			g.caches = make(map[string]*cacheGenerations)
		}
		g.caches[cache] = in
	}
	g.makeRoom(in, len(tags))
	trust := since.trust
	// An invalidation may have been heard of and forgotten while the answer was on its way.
	if since.cleared != g.cleared {
		trust = unread
	}
	in.whole = in.whole.read(of[0], trust, since.doubts)
	for i, tag := range tags {
		in.tags[tag] = in.tags[tag].read(of[i+1], trust, since.doubts)
	}
}

func (g *generationsKnown) makeRoom(in *cacheGenerations, n int) {
	if len(in.tags)+n > maxKnownTags {
		clear(in.tags)
		g.cleared++
	}
}

// heard records a message about an invalidation. latest is an upper bound of its generation.
func (g *generationsKnown) heard(cache string, tags []string, generation, latest int64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	in := g.caches[cache]
	if in == nil { // nothing is known yet; the answer to an earlier read may be on its way
		g.cleared++
		return
	}
	if len(tags) == 0 {
		in.whole = g.told(in.whole, generation, latest)
		return
	}
	g.makeRoom(in, len(tags))
	// Also tags that aren't known: the answer to an earlier read may be on its way.
	for _, tag := range tags {
		one, ok := in.tags[tag]
		if !ok {
			one.trust = unread
		}
		in.tags[tag] = g.told(one, generation, latest)
	}
}

// told returns what is known of a generation after a message.
func (g *generationsKnown) told(k known, generation, latest int64) known {
	believed := generation >= k.generation-doubt.Microseconds() && generation <= latest
	if believed { // a later message, or the answer to a read, may have come before this message
		k.generation = max(k.generation, generation)
	}
	// A read that has begun already may have missed this invalidation, too.
	if !believed || k.doubted != 0 {
		g.doubts++
		k.trust, k.doubted = unread, g.doubts
	}
	return k
}

// read returns what is known of a generation after a read. doubts is the number of doubts when the
// read began.
func (k known) read(generation, trust int64, doubts int) known {
	switch {
	case k.doubted == 0:
		return known{generation: max(k.generation, generation), trust: max(k.trust, trust)}
	case k.doubted <= doubts:
		return known{generation: generation, trust: trust}
	}
	k.generation = max(k.generation, generation)
	return k
}
