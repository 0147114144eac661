package storetest_test

import (
	"time"

	"github.com/cacheguard/cacheguard/cacheguard"
)

// ofOthers calls do for the other versions of a key. Mutants of steps that should do this use it.
func ofOthers(k cacheguard.Key, do func(k cacheguard.Key)) {
	own := k.Version
	for k.Version = range uint8(cacheguard.Versions) {
		if k.Version != own {
			do(k)
		}
	}
}

// stands returns the stored values of the other versions.
func (b *broken) stands(k cacheguard.Key) map[cacheguard.Key][]byte {
	all := make(map[cacheguard.Key][]byte)
	ofOthers(k, func(other cacheguard.Key) {
		if f, _, _ := b.Store.Get(ctx, other, nil); f != nil {
			all[other] = f
		}
	})
	return all
}

// putBack stores these values again.
func (b *broken) putBack(all map[cacheguard.Key][]byte) {
	for k, f := range all {
		ans, err := b.Store.Lease(ctx, k,
			cacheguard.LeaseAsk{Token: cacheguard.ID{0xee, k.Version}, TTL: time.Minute})
		if err == nil && ans.State == cacheguard.LeaseGranted {
			_, _ = b.Store.Fill(ctx, k, ans.Grant, f, time.Hour)
		}
	}
}

var versionMutants = []mutant{
	{
		name:   "versions are one",
		caught: []string{"versions stand side by side"},
		mutate: naming(func(k cacheguard.Key) cacheguard.Key { k.Version = 0; return k }),
	},
	{
		name:   "invalidation leaves other versions",
		caught: []string{"invalidation of all versions"},
		mutate: func(b *broken) {
			b.invalidate = func(keys []cacheguard.Key) error {
				for _, k := range keys {
					all := b.stands(k)
					if err := b.Store.Invalidate(ctx, []cacheguard.Key{k}); err != nil {
						return err
					}
					b.putBack(all)
				}
				return nil
			}
		},
	},
	{
		name:   "mark leaves other versions",
		caught: []string{"mark of all versions"},
		mutate: func(b *broken) {
			b.markStale = func(keys []cacheguard.Key, at int, mark []byte) error {
				for _, k := range keys {
					all := b.stands(k)
					if err := b.Store.MarkStale(ctx, []cacheguard.Key{k}, at, mark); err != nil {
						return err
					}
					for other := range all {
						// A mark can't be removed.
						if err := b.Store.Invalidate(ctx, []cacheguard.Key{other}); err != nil {
							return err
						}
					}
					b.putBack(all)
				}
				return nil
			}
		},
	},
	{
		name:   "claim leaves other versions",
		caught: []string{"claim of all versions"},
		mutate: func(b *broken) {
			b.claim = func(
				k cacheguard.Key, token cacheguard.ID, ttl time.Duration,
			) (cacheguard.Grant, error) {
				all := b.stands(k)
				g, err := b.Store.Claim(ctx, k, token, ttl)
				b.putBack(all)
				return g, err
			}
		},
	},
	{
		name:   "claim's fill leaves other versions",
		caught: []string{"claim's fill ends what other versions began meanwhile"},
		mutate: func(b *broken) {
			b.fill = func(
				k cacheguard.Key, g cacheguard.Grant, f []byte, ttl time.Duration,
			) (cacheguard.FillAnswer, error) {
				g.Claimed = false
				return b.Store.Fill(ctx, k, g, f, ttl)
			}
		},
	},
	{
		name:   "any fill ends other versions",
		caught: []string{"fill leaves other versions", "versions stand side by side"},
		mutate: func(b *broken) {
			b.fill = func(
				k cacheguard.Key, g cacheguard.Grant, f []byte, ttl time.Duration,
			) (cacheguard.FillAnswer, error) {
				g.Claimed = true
				return b.Store.Fill(ctx, k, g, f, ttl)
			}
		},
	},
	{
		name:   "reads of many know no versions",
		caught: []string{"versions are read together"},
		mutate: func(b *broken) {
			b.getMany = func(
				keys []cacheguard.Key, tags []string,
			) ([]cacheguard.Reply[[]byte], cacheguard.Generations) {
				even := make([]cacheguard.Key, len(keys))
				for i, k := range keys {
					k.Version = 0
					even[i] = k
				}
				return b.Store.GetMany(ctx, even, tags)
			}
		},
	},
	{
		name:   "claim's fill that is refused ends other versions",
		caught: []string{"claim's fill that is refused leaves other versions"},
		mutate: func(b *broken) {
			b.fill = func(
				k cacheguard.Key, g cacheguard.Grant, f []byte, ttl time.Duration,
			) (cacheguard.FillAnswer, error) {
				ans, err := b.Store.Fill(ctx, k, g, f, ttl)
				if g.Claimed && ans != cacheguard.FillStored {
					err = b.Store.Invalidate(ctx, []cacheguard.Key{k})
				}
				return ans, err
			}
		},
	},
}
