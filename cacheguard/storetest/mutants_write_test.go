package storetest_test

import (
	"cmp"
	"crypto/rand"
	"time"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/cacheguard/memstore"
	"github.com/cacheguard/cacheguard/internal/frame"
)

// put stores a value, whatever was stored there before.
func put(s cacheguard.Store, k cacheguard.Key, f []byte, ttl time.Duration) error {
	var token cacheguard.ID
	rand.Read(token[:])
	g, err := s.Claim(ctx, k, token, time.Hour)
	if err == nil {
		_, err = s.Fill(ctx, k, g, f, ttl)
	}
	return err
}

func mustPut(s *memstore.Store, k cacheguard.Key, f []byte) {
	if err := put(s, k, f, time.Hour); err != nil {
		panic(err)
	}
}

func mustRelease(s *memstore.Store, k cacheguard.Key, token cacheguard.ID) {
	if err := s.Release(ctx, k, token); err != nil {
		panic(err)
	}
}

// onRenew makes a mutant that answers instead if a renewal had the answer had.
func onRenew(had, instead cacheguard.Holding) func(*broken) {
	return func(b *broken) {
		b.renew = func(
			k cacheguard.Key, g cacheguard.Grant, ttl time.Duration,
		) (cacheguard.Holding, error) {
			h, err := b.Store.Renew(ctx, k, g, ttl)
			if h == had {
				h = instead
			}
			return h, err
		}
	}
}

var holdMutants = []mutant{
	{
		name:   "renewal makes a lease",
		caught: []string{"renewal when nobody has the lease", "invalidation ends the lease"},
		mutate: func(b *broken) {
			b.renew = func(
				k cacheguard.Key, g cacheguard.Grant, ttl time.Duration,
			) (cacheguard.Holding, error) {
				h, err := b.Store.Renew(ctx, k, g, ttl)
				if h == cacheguard.HoldingGone {
					_, err = b.Store.Lease(ctx, k, cacheguard.LeaseAsk{Token: g.Token, TTL: ttl})
					h = cacheguard.HoldingMine
				}
				return h, err
			}
		},
	},
	{
		name: "renewal takes another's lease for its own",
		caught: []string{
			"renewal when another has the lease", "lease expires", "claim takes the lease over",
		},
		mutate: onRenew(cacheguard.HoldingOther, cacheguard.HoldingMine),
	},
	{
		name: "renewal takes a gone lease for another's",
		caught: []string{
			"renewal when nobody has the lease", "renewal after an outcome", "lease that was lost",
		},
		mutate: onRenew(cacheguard.HoldingGone, cacheguard.HoldingOther),
	},
	{
		name:   "renewal takes another's lease for a gone one",
		caught: []string{"renewal when another has the lease"},
		mutate: onRenew(cacheguard.HoldingOther, cacheguard.HoldingGone),
	},
	{
		name:   "renewal ignores the grant",
		caught: []string{"renewal with the wrong number", "renewal when another has the lease"},
		mutate: func(b *broken) {
			b.renew = func(
				k cacheguard.Key, _ cacheguard.Grant, ttl time.Duration,
			) (cacheguard.Holding, error) {
				return b.Store.Renew(ctx, k, b.last(k), ttl)
			}
		},
	},
	{
		name:   "renewal prolongs another's lease",
		caught: []string{"renewal when another has the lease", "renewal with the wrong number"},
		mutate: func(b *broken) {
			b.renew = func(
				k cacheguard.Key, g cacheguard.Grant, ttl time.Duration,
			) (cacheguard.Holding, error) {
				h, err := b.Store.Renew(ctx, k, g, ttl)
				if h == cacheguard.HoldingOther {
					_, _ = b.Store.Renew(ctx, k, b.last(k), ttl)
				}
				return h, err
			}
		},
	},
	{
		name:   "renewal does nothing",
		caught: []string{"renewal prolongs the lease", "renewal sets the remaining time"},
		mutate: func(b *broken) {
			b.renew = func(
				cacheguard.Key, cacheguard.Grant, time.Duration,
			) (cacheguard.Holding, error) {
				return cacheguard.HoldingMine, nil
			}
		},
	},
	{
		name: "release does nothing",
		caught: []string{
			"release frees the lease", "release with any number", "fill after a release",
			"message of a release",
		},
		mutate: func(b *broken) {
			b.release = func(cacheguard.Key, cacheguard.ID) error { return nil }
		},
	},
	{
		name:   "release of nothing fails",
		caught: []string{"release of nothing", "release that is repeated"},
		mutate: func(b *broken) {
			b.release = func(k cacheguard.Key, token cacheguard.ID) error {
				answer, err := b.Store.Lease(ctx, k,
					cacheguard.LeaseAsk{Token: token, TTL: time.Hour, Seen: token[:]})
				_ = b.Store.Release(ctx, k, token)
				if answer.State != cacheguard.LeaseGranted || b.last(k).Token != token {
					return errBeside
				}
				return err
			}
		},
	},
	{
		name: "release removes any lease",
		caught: []string{
			"release by another", "release that is repeated", "claim takes the lease over",
			"message of another's release",
		},
		mutate: func(b *broken) {
			b.release = func(k cacheguard.Key, _ cacheguard.ID) error {
				return b.Store.Release(ctx, k, b.last(k).Token)
			}
		},
	},
	{
		name:   "release removes the outcome",
		caught: []string{"release after an outcome"},
		mutate: func(b *broken) {
			b.release = func(k cacheguard.Key, token cacheguard.ID) error {
				var last ending
				b.locked(func() { last = b.ended[k] })
				if last.load == token {
					return b.Store.Invalidate(ctx, []cacheguard.Key{k})
				}
				return b.Store.Release(ctx, k, token)
			}
		},
	},
	{
		name:   "release removes the value",
		caught: []string{"release frees the lease"},
		mutate: func(b *broken) {
			b.release = func(k cacheguard.Key, token cacheguard.ID) error {
				return b.Store.Invalidate(ctx, []cacheguard.Key{k})
			}
		},
	},
}

// restore puts an outcome back that a step removed.
func (b *broken) restore(k cacheguard.Key) {
	var last ending
	b.locked(func() { last = b.ended[k] })
	if last.keep == 0 {
		return
	}
	v, _, _ := b.Store.Get(ctx, k, nil)
	answer, _ := b.Store.Lease(ctx, k,
		cacheguard.LeaseAsk{Token: last.load, TTL: time.Hour, Seen: frame.ID(v)})
	_ = b.Store.Conclude(ctx, k, answer.Grant, last.outcome, last.keep, last.backoff)
}

// onLeft makes a mutant whose claim leaves another remnant, or returns another one. The remnant
// lasts for keep, or for as long as the claim.
func onLeft(
	left func(string) string, say func(*cacheguard.Grant), keep time.Duration,
) func(*broken) {
	return func(b *broken) {
		b.claim = func(
			k cacheguard.Key, token cacheguard.ID, ttl time.Duration,
		) (cacheguard.Grant, error) {
			g, err := b.Store.Claim(ctx, k, token, ttl)
			if err != nil || g.Left == "" {
				return g, err
			}
			if err := put(b.Store, k, []byte(left(g.Left)), cmp.Or(keep, ttl)); err != nil {
				return g, err
			}
			if g, err = b.Store.Claim(ctx, k, token, ttl); say != nil {
				say(&g)
			}
			return g, err
		}
	}
}

var writeMutants = []mutant{
	{
		name:   "claim keeps the value",
		caught: []string{"claim removes the value"},
		mutate: func(b *broken) {
			b.claim = func(
				k cacheguard.Key, token cacheguard.ID, ttl time.Duration,
			) (cacheguard.Grant, error) {
				v, _, _ := b.Store.Get(ctx, k, nil)
				if v == nil {
					return b.Store.Claim(ctx, k, token, ttl)
				}
				_ = put(b.Store, k, v, time.Hour)
				answer, err := b.Store.Lease(ctx, k,
					cacheguard.LeaseAsk{Token: token, TTL: ttl, Seen: frame.ID(v)})
				return answer.Grant, err
			}
		},
	},
	{
		name:   "claim leaves nothing",
		caught: []string{"claim leaves the tags", "claim leaves the tags for as long"},
		mutate: func(b *broken) {
			b.claim = func(
				k cacheguard.Key, token cacheguard.ID, ttl time.Duration,
			) (cacheguard.Grant, error) {
				_ = b.Store.Invalidate(ctx, []cacheguard.Key{k})
				return b.Store.Claim(ctx, k, token, ttl)
			}
		},
	},
	{
		name:   "claim doesn't say what it leaves",
		caught: []string{"claim leaves the tags"},
		mutate: onLeft(func(left string) string { return left }, func(g *cacheguard.Grant) {
			g.Left = ""
		}, time.Hour),
	},
	{
		name:   "claim leaves the id of the value",
		caught: []string{"claim leaves the tags", "claim leaves the tags for as long"},
		mutate: onLeft(func(left string) string {
			return left[:2] + string(left[2]^0x80) + left[3:]
		}, nil, time.Hour),
	},
	{
		name:   "claim leaves the last tag out",
		caught: []string{"claim leaves the tags"},
		mutate: onLeft(func(left string) string {
			tags, _ := frame.RemnantTags([]byte(left))
			all := tags.All()
			tags, _ = frame.MakeTags(all[:max(1, len(all)-1)])
			return left[:frame.HeaderSize] + string(tags)
		}, nil, time.Hour),
	},
	{
		name:   "claim leaves tags for ever",
		caught: []string{"claim leaves the tags for as long"},
		mutate: onLeft(func(left string) string { return left }, nil, time.Hour),
	},
	{
		name:   "claim leaves tags for as long as it lasts",
		caught: []string{"claim leaves the tags for as long"},
		mutate: onLeft(func(left string) string { return left }, nil, 0),
	},
	{
		name:   "the second claim leaves nothing",
		caught: []string{"claim leaves the tags"},
		mutate: func(b *broken) {
			b.claim = func(
				k cacheguard.Key, token cacheguard.ID, ttl time.Duration,
			) (cacheguard.Grant, error) {
				if v, _, _ := b.Store.Get(ctx, k, nil); len(v) > 0 && v[0] == 0 &&
					b.last(k).Token != token {
					_ = b.Store.Invalidate(ctx, []cacheguard.Key{k})
				}
				return b.Store.Claim(ctx, k, token, ttl)
			}
		},
	},
	{
		name:   "invalidation leaves what a claim left",
		caught: []string{"invalidation removes what a claim left"},
		mutate: func(b *broken) {
			b.invalidate = func(keys []cacheguard.Key) error {
				for _, k := range keys {
					if v, _, _ := b.Store.Get(ctx, k, nil); len(v) > 0 && v[0] == 0 {
						defer func() { _ = put(b.Store, k, v, time.Hour) }()
					}
				}
				return b.Store.Invalidate(ctx, keys)
			}
		},
	},
	{
		name: "claim respects the holder",
		caught: []string{
			"claim takes the lease over", "fill after a claim", "claim that is overtaken",
		},
		mutate: func(b *broken) {
			b.claim = func(
				k cacheguard.Key, token cacheguard.ID, ttl time.Duration,
			) (cacheguard.Grant, error) {
				answer, err := b.Store.Lease(ctx, k, cacheguard.LeaseAsk{Token: token, TTL: ttl})
				answer.Grant.Token = token
				return answer.Grant, err
			}
		},
	},
	{
		name:   "claim respects the outcome",
		caught: []string{"claim removes the outcome"},
		mutate: func(b *broken) {
			b.claim = func(
				k cacheguard.Key, token cacheguard.ID, ttl time.Duration,
			) (cacheguard.Grant, error) {
				ended := false
				b.locked(func() { _, ended = b.ended[k] })
				if ended {
					return cacheguard.Grant{Token: token}, nil
				}
				return b.Store.Claim(ctx, k, token, ttl)
			}
		},
	},
	{
		name:   "claim gets a number each time",
		caught: []string{"claim that is repeated"},
		mutate: func(b *broken) {
			b.claim = func(
				k cacheguard.Key, token cacheguard.ID, ttl time.Duration,
			) (cacheguard.Grant, error) {
				_ = b.Store.Release(ctx, k, token)
				return b.Store.Claim(ctx, k, token, ttl)
			}
		},
	},
	{
		name:   "claim doesn't expire",
		caught: []string{"claim expires"},
		mutate: func(b *broken) {
			b.claim = func(
				k cacheguard.Key, token cacheguard.ID, _ time.Duration,
			) (cacheguard.Grant, error) {
				return b.Store.Claim(ctx, k, token, time.Hour)
			}
		},
	},
	{
		name: "invalidation keeps the lease",
		caught: []string{
			"invalidation ends the lease", "fill after an invalidation",
			"renewal when nobody has the lease",
			"outcome after an invalidation", "together: no old value survives an invalidation",
		},
		mutate: func(b *broken) {
			b.invalidate = func(keys []cacheguard.Key) error {
				for _, k := range keys {
					before := b.alive(k)
					if err := b.Store.Invalidate(ctx, []cacheguard.Key{k}); err != nil {
						return err
					}
					b.revive(k, before)
				}
				return nil
			}
		},
	},
	{
		name:   "invalidation keeps the outcome",
		caught: []string{"invalidation removes the outcome", "invalidation of several keys"},
		mutate: func(b *broken) {
			b.invalidate = func(keys []cacheguard.Key) error {
				for _, k := range keys {
					defer b.restore(k)
				}
				return b.Store.Invalidate(ctx, keys)
			}
		},
	},
	{
		name:   "invalidation keeps the value",
		caught: []string{"invalidation removes the value", "value of a wrong type can be removed"},
		mutate: func(b *broken) {
			b.invalidate = func(keys []cacheguard.Key) error {
				for _, k := range keys {
					v, _, _ := b.Store.Get(ctx, k, nil)
					if v != nil {
						defer func() { _ = put(b.Store, k, v, time.Hour) }()
					}
				}
				return b.Store.Invalidate(ctx, keys)
			}
		},
	},
	{
		name:   "invalidation is for the first key",
		caught: []string{"invalidation of several keys", "message of an invalidation"},
		mutate: func(b *broken) {
			b.invalidate = func(keys []cacheguard.Key) error {
				return b.Store.Invalidate(ctx, keys[:min(1, len(keys))])
			}
		},
	},
	{
		name:   "invalidation takes all keys for those of one cache",
		caught: []string{"invalidation of several keys"},
		mutate: func(b *broken) {
			b.invalidate = func(keys []cacheguard.Key) error {
				for _, k := range keys {
					k.Cache = keys[0].Cache
					_ = b.Store.Invalidate(ctx, []cacheguard.Key{k})
				}
				return nil
			}
		},
	},
	{
		name:   "invalidation of nothing fails",
		caught: []string{"invalidation of what isn't there"},
		mutate: func(b *broken) {
			b.invalidate = func(keys []cacheguard.Key) error { return cacheguard.KeyErrors{} }
		},
	},
}
