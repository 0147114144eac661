package storetest_test

import (
	"errors"
	"slices"
	"time"

	"github.com/cacheguard/cacheguard/cacheguard"
)

// onGetMany makes a mutant that changes the values that are returned for many keys.
func onGetMany(
	change func(keys []cacheguard.Key,
		replies []cacheguard.Reply[[]byte]) []cacheguard.Reply[[]byte],
) func(*broken) {
	return func(b *broken) {
		b.getMany = func(
			keys []cacheguard.Key, tags []string,
		) ([]cacheguard.Reply[[]byte], cacheguard.Generations) {
			replies, of := b.Store.GetMany(ctx, keys, tags)
			return change(keys, replies), of
		}
	}
}

// onGetManyTags makes a mutant that changes the generations that come with many values.
func onGetManyTags(
	change func(b *broken, cache string, tags []string,
		of cacheguard.Generations) cacheguard.Generations,
) func(*broken) {
	return func(b *broken) {
		b.getMany = func(
			keys []cacheguard.Key, tags []string,
		) ([]cacheguard.Reply[[]byte], cacheguard.Generations) {
			replies, of := b.Store.GetMany(ctx, keys, tags)
			if len(keys) > 0 {
				of = change(b, keys[0].Cache, tags, of)
			}
			return replies, of
		}
	}
}

// asking makes a mutant that changes the requests for many leases.
func asking(change func(ask *cacheguard.LeaseAsk)) func(*broken) {
	return func(b *broken) {
		b.leaseMany = func(
			keys []cacheguard.Key, asks []cacheguard.LeaseAsk,
		) []cacheguard.Reply[cacheguard.LeaseAnswer] {
			asks = slices.Clone(asks)
			for i := range asks {
				change(&asks[i])
			}
			return b.Store.LeaseMany(ctx, keys, asks)
		}
	}
}

// onLeaseMany makes a mutant that changes the answers to requests for many leases.
func onLeaseMany(
	change func(b *broken, keys []cacheguard.Key, asks []cacheguard.LeaseAsk,
		replies []cacheguard.Reply[cacheguard.LeaseAnswer]),
) func(*broken) {
	return func(b *broken) {
		b.leaseMany = func(
			keys []cacheguard.Key, asks []cacheguard.LeaseAsk,
		) []cacheguard.Reply[cacheguard.LeaseAnswer] {
			replies := b.Store.LeaseMany(ctx, keys, asks)
			change(b, keys, asks, replies)
			return replies
		}
	}
}

var errBeside = errors.New("another key has failed")

// failTogether fails all answers if one of them is bad.
func failTogether[T any](replies []cacheguard.Reply[T], bad func(T) bool) []cacheguard.Reply[T] {
	if slices.ContainsFunc(replies, func(r cacheguard.Reply[T]) bool { return bad(r.Answer) }) {
		for i := range replies {
			replies[i].Err = errBeside
		}
	}
	return replies
}

func reversed[T any](replies []cacheguard.Reply[T]) []cacheguard.Reply[T] {
	slices.Reverse(replies)
	return replies
}

// most removes the replies beyond the first n.
func most[T any](n int, replies []cacheguard.Reply[T]) []cacheguard.Reply[T] {
	for i := n; i < len(replies); i++ {
		replies[i] = cacheguard.Reply[T]{}
	}
	return replies
}

var manyMutants = []mutant{
	{
		name:   "many reads are answered in another order",
		caught: []string{"many: reads", "many: a thousand"},
		mutate: onGetMany(func(
			_ []cacheguard.Key, replies []cacheguard.Reply[[]byte],
		) []cacheguard.Reply[[]byte] {
			return reversed(replies)
		}),
	},
	{
		name:   "many reads leave out what is absent",
		caught: []string{"many: reads", "many: reads with generations"},
		mutate: onGetMany(func(
			_ []cacheguard.Key, replies []cacheguard.Reply[[]byte],
		) []cacheguard.Reply[[]byte] {
			return slices.DeleteFunc(replies, func(r cacheguard.Reply[[]byte]) bool {
				return r.Answer == nil
			})
		}),
	},
	{
		name:   "many reads are of 256 keys",
		caught: []string{"many: a thousand"},
		mutate: onGetMany(func(
			_ []cacheguard.Key, replies []cacheguard.Reply[[]byte],
		) []cacheguard.Reply[[]byte] {
			return most(256, replies)
		}),
	},
	{
		name:   "many reads answer a key once",
		caught: []string{"many: reads"},
		mutate: onGetMany(func(
			keys []cacheguard.Key, replies []cacheguard.Reply[[]byte],
		) []cacheguard.Reply[[]byte] {
			seen := map[cacheguard.Key]bool{}
			for i, k := range keys {
				if seen[k] {
					replies[i].Answer = nil
				}
				seen[k] = true
			}
			return replies
		}),
	},
	{
		name:   "many reads of one key share its bytes",
		caught: []string{"many: reads"},
		mutate: onGetMany(func(
			keys []cacheguard.Key, replies []cacheguard.Reply[[]byte],
		) []cacheguard.Reply[[]byte] {
			for i := range keys {
				replies[i] = replies[slices.Index(keys, keys[i])]
			}
			return replies
		}),
	},
	{
		name:   "many reads fail together",
		caught: []string{"many: what is broken beside them"},
		mutate: onGetMany(func(
			_ []cacheguard.Key, replies []cacheguard.Reply[[]byte],
		) []cacheguard.Reply[[]byte] {
			return failTogether(replies, func(f []byte) bool { return f != nil && len(f) == 0 })
		}),
	},
	{
		name:   "many reads of none fail",
		caught: []string{"many: none"},
		mutate: onGetMany(func(
			keys []cacheguard.Key, replies []cacheguard.Reply[[]byte],
		) []cacheguard.Reply[[]byte] {
			if len(keys) == 0 {
				replies = append(replies, cacheguard.Reply[[]byte]{Err: errBeside})
			}
			return replies
		}),
	},
	{
		name:   "many reads have generations in the wrong order",
		caught: []string{"many: reads with generations"},
		mutate: onGetManyTags(func(
			_ *broken, _ string, _ []string, of cacheguard.Generations,
		) cacheguard.Generations {
			slices.Reverse(of[min(1, len(of)):])
			return of
		}),
	},
	{
		name:   "many reads have generations of another cache",
		caught: []string{"many: reads with generations"},
		mutate: onGetManyTags(func(
			b *broken, cache string, tags []string, of cacheguard.Generations,
		) cacheguard.Generations {
			if of != nil {
				of, _ = b.Store.Generations(ctx, cache+"x", tags)
			}
			return of
		}),
	},
	{
		name:   "many reads have generations although nobody asked",
		caught: []string{"many: reads", "many: reads with generations"},
		mutate: onGetManyTags(func(
			b *broken, cache string, tags []string, _ cacheguard.Generations,
		) cacheguard.Generations {
			of, _ := b.Store.Generations(ctx, cache, tags)
			return of
		}),
	},
	{
		name: "many leases are answered in another order",
		caught: []string{
			"many: leases of each kind", "many: leases of large values", "many: a thousand",
			"many: fills of each kind",
		},
		mutate: onLeaseMany(func(
			_ *broken, _ []cacheguard.Key, _ []cacheguard.LeaseAsk,
			replies []cacheguard.Reply[cacheguard.LeaseAnswer],
		) {
			reversed(replies)
		}),
	},
	{
		name:   "many leases are granted to the first who asks",
		caught: []string{"many: leases of each kind", "many: a thousand"},
		mutate: func(b *broken) {
			b.leaseMany = func(
				keys []cacheguard.Key, asks []cacheguard.LeaseAsk,
			) []cacheguard.Reply[cacheguard.LeaseAnswer] {
				asks = slices.Clone(asks)
				for i := range asks {
					asks[i].Token = asks[0].Token
				}
				return b.Store.LeaseMany(ctx, keys, asks)
			}
		},
	},
	{
		name:   "many leases fail together",
		caught: []string{"many: leases of each kind", "many: a thousand"},
		mutate: onLeaseMany(func(
			_ *broken, _ []cacheguard.Key, _ []cacheguard.LeaseAsk,
			replies []cacheguard.Reply[cacheguard.LeaseAnswer],
		) {
			failTogether(replies, func(a cacheguard.LeaseAnswer) bool {
				return a.State == cacheguard.LeaseHeld
			})
		}),
	},
	{
		name:   "many leases are of 256 keys",
		caught: []string{"many: a thousand"},
		mutate: onLeaseMany(func(
			_ *broken, _ []cacheguard.Key, _ []cacheguard.LeaseAsk,
			replies []cacheguard.Reply[cacheguard.LeaseAnswer],
		) {
			most(256, replies)
		}),
	},
	{
		name:   "many leases leave large values out",
		caught: []string{"many: leases of large values"},
		mutate: onLeaseMany(func(
			_ *broken, _ []cacheguard.Key, _ []cacheguard.LeaseAsk,
			replies []cacheguard.Reply[cacheguard.LeaseAnswer],
		) {
			for i, r := range replies {
				if len(r.Answer.Frame) > 1<<16 {
					replies[i].Answer.Frame = nil
				}
			}
		}),
	},
	{
		name: "many leases don't look at the value",
		caught: []string{
			"many: leases of each kind", "many: leases of large values", "many: a thousand",
		},
		mutate: onLeaseMany(func(
			b *broken, keys []cacheguard.Key, asks []cacheguard.LeaseAsk,
			replies []cacheguard.Reply[cacheguard.LeaseAnswer],
		) {
			for i, r := range replies {
				if r.Answer.State == cacheguard.LeaseValue {
					asks[i].Seen = r.Answer.Frame[2:18]
					replies[i].Answer, replies[i].Err = b.Store.Lease(ctx, keys[i], asks[i])
				}
			}
		}),
	},
	{
		name:   "many leases are granted to everybody",
		caught: []string{"many: leases of each kind", "many: leases of one key"},
		mutate: onLeaseMany(func(
			_ *broken, _ []cacheguard.Key, asks []cacheguard.LeaseAsk,
			replies []cacheguard.Reply[cacheguard.LeaseAnswer],
		) {
			for i, r := range replies {
				if r.Answer.State == cacheguard.LeaseHeld {
					replies[i].Answer = cacheguard.LeaseAnswer{
						State: cacheguard.LeaseGranted,
						Grant: cacheguard.Grant{Token: asks[i].Token, Number: 1, Stamp: 1},
					}
				}
			}
		}),
	},
	{
		name: "many leases don't say who holds them",
		caught: []string{
			"many: leases of each kind", "many: leases of one key", "many: a thousand",
		},
		mutate: onLeaseMany(func(
			_ *broken, _ []cacheguard.Key, _ []cacheguard.LeaseAsk,
			replies []cacheguard.Reply[cacheguard.LeaseAnswer],
		) {
			for i := range replies {
				replies[i].Answer.Holder = cacheguard.ID{}
			}
		}),
	},
	{
		name:   "many leases don't count failures",
		caught: []string{"many: leases of each kind"},
		mutate: onLeaseMany(func(
			_ *broken, _ []cacheguard.Key, _ []cacheguard.LeaseAsk,
			replies []cacheguard.Reply[cacheguard.LeaseAnswer],
		) {
			for i := range replies {
				replies[i].Answer.Failures = 0
			}
		}),
	},
	{
		name:   "many leases don't say that what was seen stands",
		caught: []string{"many: leases of each kind"},
		mutate: onLeaseMany(func(
			_ *broken, _ []cacheguard.Key, _ []cacheguard.LeaseAsk,
			replies []cacheguard.Reply[cacheguard.LeaseAnswer],
		) {
			for i := range replies {
				replies[i].Answer.Stands = false
			}
		}),
	},
	{
		name:   "many leases forget what was seen",
		caught: []string{"many: leases of each kind"},
		mutate: asking(func(ask *cacheguard.LeaseAsk) { ask.Seen = nil }),
	},
	{
		name:   "many leases forget who was waited for",
		caught: []string{"many: leases of each kind"},
		mutate: asking(func(ask *cacheguard.LeaseAsk) { ask.Awaited = cacheguard.ID{} }),
	},
	{
		name:   "many leases forget who waits",
		caught: []string{"many: leases of those who wait"},
		mutate: asking(func(ask *cacheguard.LeaseAsk) { ask.Wait = false }),
	},
	{
		name:   "many leases last equally long",
		caught: []string{"many: leases expire"},
		mutate: asking(func(ask *cacheguard.LeaseAsk) { ask.TTL = time.Hour }),
	},
	{
		name:   "many fills are answered in another order",
		caught: []string{"many: fills of each kind", "many: a thousand"},
		mutate: func(b *broken) {
			b.fillMany = func(
				fills []cacheguard.FillAsk,
			) []cacheguard.Reply[cacheguard.FillAnswer] {
				replies := b.Store.FillMany(ctx, fills)
				replies[0], replies[1] = replies[1], replies[0]
				return reversed(replies)
			}
		},
	},
	{
		name: "many fills stop at one that is refused",
		caught: []string{
			"many: fills of each kind", "many: a thousand", "many: what is broken beside them",
		},
		mutate: func(b *broken) {
			b.fillMany = func(
				fills []cacheguard.FillAsk,
			) []cacheguard.Reply[cacheguard.FillAnswer] {
				replies := make([]cacheguard.Reply[cacheguard.FillAnswer], len(fills))
				for i := range replies {
					replies[i].Answer = cacheguard.FillGone
				}
				for i, f := range fills {
					if replies[i].Answer, _ = b.Store.Fill(ctx, f.Key, f.Grant, f.Frame,
						f.TTL); replies[i].Answer != cacheguard.FillStored {
						break
					}
				}
				return replies
			}
		},
	},
	{
		name: "many fills need no lease",
		caught: []string{
			"many: fills of each kind", "many: a thousand", "many: what is broken beside them",
		},
		mutate: func(b *broken) {
			b.fillMany = func(
				fills []cacheguard.FillAsk,
			) []cacheguard.Reply[cacheguard.FillAnswer] {
				for _, f := range fills {
					_ = put(b.Store, f.Key, f.Frame, f.TTL)
				}
				return make([]cacheguard.Reply[cacheguard.FillAnswer], len(fills))
			}
		},
	},
	{
		name:   "many fills have one frame",
		caught: []string{"many: fills of each kind", "many: a thousand"},
		mutate: func(b *broken) {
			b.fillMany = func(
				fills []cacheguard.FillAsk,
			) []cacheguard.Reply[cacheguard.FillAnswer] {
				fills = slices.Clone(fills)
				for i := range fills {
					fills[i].Frame = fills[0].Frame
				}
				return b.Store.FillMany(ctx, fills)
			}
		},
	},
	{
		name:   "many fills live equally long",
		caught: []string{"many: filled values expire"},
		mutate: func(b *broken) {
			b.fillMany = func(
				fills []cacheguard.FillAsk,
			) []cacheguard.Reply[cacheguard.FillAnswer] {
				fills = slices.Clone(fills)
				for i := range fills {
					fills[i].TTL = fills[0].TTL
				}
				return b.Store.FillMany(ctx, fills)
			}
		},
	},
	{
		name:   "many fills that are repeated are refused",
		caught: []string{"many: fills of one key", "many: fills of each kind"},
		mutate: func(b *broken) {
			b.fillMany = func(
				fills []cacheguard.FillAsk,
			) []cacheguard.Reply[cacheguard.FillAnswer] {
				replies := make([]cacheguard.Reply[cacheguard.FillAnswer], len(fills))
				for i, f := range fills {
					if v, _, _ := b.Store.Get(ctx, f.Key, nil); v != nil {
						replies[i].Answer = cacheguard.FillGone
						continue
					}
					replies[i].Answer, replies[i].Err = b.Store.Fill(ctx, f.Key, f.Grant, f.Frame,
						f.TTL)
				}
				return replies
			}
		},
	},
	{
		name:   "many fills tell nobody",
		caught: []string{"many: leases of those who wait"},
		mutate: func(b *broken) {
			b.fillMany = func(
				fills []cacheguard.FillAsk,
			) []cacheguard.Reply[cacheguard.FillAnswer] {
				for _, f := range fills {
					_ = b.Store.Release(ctx, f.Key, f.Grant.Token)
					_ = put(b.Store, f.Key, f.Frame, f.TTL)
				}
				return make([]cacheguard.Reply[cacheguard.FillAnswer], len(fills))
			}
		},
	},
	{
		name:   "many renewals are answered in another order",
		caught: []string{"many: renewals of each kind"},
		mutate: func(b *broken) {
			b.renewMany = func(
				keys []cacheguard.Key, grants []cacheguard.Grant, ttl time.Duration,
			) []cacheguard.Reply[cacheguard.Holding] {
				return reversed(b.Store.RenewMany(ctx, keys, grants, ttl))
			}
		},
	},
	{
		name:   "many renewals are told what the first is told",
		caught: []string{"many: renewals of each kind", "many: what is broken beside them"},
		mutate: func(b *broken) {
			b.renewMany = func(
				keys []cacheguard.Key, grants []cacheguard.Grant, ttl time.Duration,
			) []cacheguard.Reply[cacheguard.Holding] {
				replies := b.Store.RenewMany(ctx, keys, grants, ttl)
				for i := range replies {
					replies[i] = replies[0]
				}
				return replies
			}
		},
	},
	{
		name:   "many renewals make leases",
		caught: []string{"many: renewals of each kind"},
		mutate: func(b *broken) {
			b.renewMany = func(
				keys []cacheguard.Key, grants []cacheguard.Grant, ttl time.Duration,
			) []cacheguard.Reply[cacheguard.Holding] {
				replies := b.Store.RenewMany(ctx, keys, grants, ttl)
				for i, r := range replies {
					if r.Answer == cacheguard.HoldingGone {
						_, _ = b.Store.Lease(ctx, keys[i],
							cacheguard.LeaseAsk{Token: grants[i].Token, TTL: ttl})
					}
				}
				return replies
			}
		},
	},
	{
		name:   "many renewals don't shorten",
		caught: []string{"many: renewals set the remaining time"},
		mutate: func(b *broken) {
			b.renewMany = func(
				keys []cacheguard.Key, grants []cacheguard.Grant, _ time.Duration,
			) []cacheguard.Reply[cacheguard.Holding] {
				return b.Store.RenewMany(ctx, keys, grants, time.Hour)
			}
		},
	},
	{
		name:   "many renewals do nothing",
		caught: []string{"many: renewals set the remaining time"},
		mutate: func(b *broken) {
			b.renewMany = func(
				keys []cacheguard.Key, _ []cacheguard.Grant, _ time.Duration,
			) []cacheguard.Reply[cacheguard.Holding] {
				return make([]cacheguard.Reply[cacheguard.Holding], len(keys))
			}
		},
	},
}
