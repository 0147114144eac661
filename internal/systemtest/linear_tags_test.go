package systemtest_test

import (
	"context"
	"testing"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/internal/redistest"
)

// The registers of linear_test.go, changed by tag, all together, or by a mark, while the
// generations get lost, too.

func tagOf(key string) string { return "tag of " + key }

// changedBy is a way that tells the cache after the origin has changed.
func changedBy(name string, tell func(context.Context, *cacheguard.Cache[fact], string) error) way {
	return way{name: name, make: func(
		ctx context.Context, c *cacheguard.Cache[fact], l *ledger, key string,
	) (fact, error) {
		f := l.change(key)
		return f, tell(ctx, c, key)
	}}
}

var (
	byTag = changedBy("InvalidateTags", func(
		ctx context.Context, c *cacheguard.Cache[fact], key string,
	) error {
		return c.InvalidateTags(ctx, "unknown", tagOf(key))
	})
	byAll = changedBy("InvalidateAll", func(
		ctx context.Context, c *cacheguard.Cache[fact], _ string,
	) error {
		return c.InvalidateAll(ctx)
	})
	byMark = changedBy("MarkStale", func(
		ctx context.Context, c *cacheguard.Cache[fact], key string,
	) error {
		return c.MarkStale(ctx, key)
	})
)

var stepsWithTags = []string{
	"lease", "fill", "renew", "release", "invalidate", "bump", "mark", "generations",
}

// registerKinds are read one by one, with tags, or many at a time, without.
var registerKinds = map[string]registerKind{
	"tags": {
		ways: []way{byTag, byTag, byAll, ways[0]},
		read: func(
			ctx context.Context, r *registers, m int, key string,
		) (cacheguard.Result[fact], error) {
			return r.members[m].cache.GetEntry(ctx, key, func(
				ctx context.Context, _ cacheguard.Result[fact],
			) (cacheguard.Entry[fact], error) {
				f, err := r.load(key)(ctx)
				return cacheguard.Entry[fact]{Value: f, Tags: []string{"common", tagOf(key)}}, err
			})
		},
		scripts: stepsWithTags, evicts: []string{":{facts}:tags"}, least: 15,
	},
	"many": {
		ways: []way{byAll, byAll, ways[0]},
		read: func(
			ctx context.Context, r *registers, m int, key string,
		) (cacheguard.Result[fact], error) {
			keys := []string{registerKey(0), registerKey(1), registerKey(2), registerKey(3)}
			got, err := r.members[m].cache.GetMany(ctx, keys, func(
				ctx context.Context, missing []string,
			) (map[string]fact, error) {
				all := make(map[string]fact)
				for _, k := range missing {
					f, err := r.load(k)(ctx)
					if err != nil {
						return nil, err
					}
					all[k] = f
				}
				return all, nil
			})
			if f, ok := got[key]; ok {
				return cacheguard.Result[fact]{Value: f}, nil
			}
			return cacheguard.Result[fact]{}, err
		},
		scripts: stepsWithTags, evicts: []string{":{facts}:tags"}, least: 15, each: true,
	},
}

func TestLinearByTags(t *testing.T) {
	for kind, k := range registerKinds {
		for name, change := range registerOptions {
			for where, together := range map[string]bool{"single": true, "known": false} {
				for fleet, members := range map[string]int{"alone": 1, "fleet": 3} {
					k := k
					k.together = together
					if name == "plain" {
						// Without windows it is as good as an invalidation.
						k.ways = append(k.ways[:len(k.ways):len(k.ways)], byMark)
					}
					t.Run(kind+"/"+name+"/"+where+"/"+fleet, func(t *testing.T) {
						if !redistest.Full() && (name != "plain" || members == 1) {
							t.Skip("this takes long: set CACHEGUARD_TEST=full for it")
						}
						t.Parallel()
						r := newRegisters(t, members, k, change)
						r.run(t)
						in := func(reading) bool { return true }
						if members > 1 {
							in = r.duringNoChange()
						}
						r.check(t, in)
					})
				}
			}
		}
	}
}
