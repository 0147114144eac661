package memstore

import (
	"context"
	"slices"
	"time"

	"github.com/cacheguard/cacheguard/cacheguard"
)

// maxTags is the largest number of invalidated tags that are remembered for a cache. If there are
// more, the whole cache is invalidated and the tags are forgotten.
const maxTags = 100_000

// generations are the times of the last invalidations of a cache and of its tags.
type generations struct {
	whole int64
	tags  map[string]int64
}

// generations returns the generations of a cache. The generation of a cache that was never
// invalidated is a microsecond before the time when the store was made.
func (t *turn) generations(cache string) *generations {
	g := t.invalidated[cache]
	if g == nil {
		g = &generations{whole: t.began.UnixMicro() - 1, tags: make(map[string]int64)}
		t.invalidated[cache] = g
	}
	return g
}

// stamp returns the time on the clock of the generations. The clock moves with each reading, so
// that no two stamps are the same.
func (s *Store) stamp(now time.Duration) int64 {
	s.stamped = s.nextStamp(now)
	return s.stamped
}

// nextStamp returns the stamp that stamp would return now. The stamp of a grant is also its number.
func (s *Store) nextStamp(now time.Duration) int64 {
	return max(s.stamped+1, s.began.Add(now).UnixMicro())
}

func (t *turn) of(cache string, tags []string) cacheguard.Generations {
	g := t.generations(cache)
	all := cacheguard.Generations{g.whole}
	for _, tag := range tags {
		all = append(all, g.tags[tag])
	}
	return all
}

// Generations returns the generations of a cache and its tags. See [cacheguard.Store].
func (s *Store) Generations(
	ctx context.Context, cache string, tags []string,
) (of cacheguard.Generations, err error) {
	err = s.step(ctx, func(t *turn) { of = t.of(cache, tags) })
	return of, err
}

// Clock returns a stamp like that of a grant.
func (s *Store) Clock(ctx context.Context, cache string) (now int64, err error) {
	err = s.step(ctx, func(t *turn) { now = t.stamp(t.now) })
	return now, err
}

// InvalidateTags invalidates every value that has one of the tags, or the whole cache if there are
// no tags. See [cacheguard.Store].
func (s *Store) InvalidateTags(
	ctx context.Context, cache string, tags []string,
) (generation int64, err error) {
	err = s.step(ctx, func(t *turn) {
		g := t.generations(cache)
		generation = t.stamp(t.now)
		for _, tag := range tags {
			g.tags[tag] = generation
		}
		if len(tags) == 0 || len(g.tags) > maxTags {
			g.whole = generation
			clear(g.tags)
		}
		t.tell(cacheguard.Key{Cache: cache}, cacheguard.Message{
			Kind: cacheguard.MessageTags, Tags: slices.Clone(tags), Generation: generation,
		})
	})
	return generation, err
}

// MarkStale writes the mark into the frames of the keys and ends the keys' leases. See
// [cacheguard.Store].
func (s *Store) MarkStale(ctx context.Context, keys []cacheguard.Key, at int, mark []byte) error {
	return s.each(ctx, keys, func(t *turn, k cacheguard.Key) {
		for k.Version = range uint8(cacheguard.Versions) {
			slot := t.slot(k)
			was := slot
			slot.MarkStale(t.now, at, string(mark))
			t.keep(k, &was, &slot)
		}
		t.changed(k, cacheguard.ID{})
	})
}

// each runs one step for each key.
func (s *Store) each(
	ctx context.Context, keys []cacheguard.Key, do func(*turn, cacheguard.Key),
) error {
	failed := cacheguard.KeyErrors{}
	for _, k := range keys {
		if err := s.step(ctx, func(t *turn) { do(t, k) }); err != nil {
			failed[k.Key] = err
		}
	}
	if len(failed) > 0 {
		return failed
	}
	return nil
}
