package storetest_test

import (
	"bytes"
	"context"
	"runtime"
	"time"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/internal/frame"
)

var ctx = context.Background()

func mutants() []mutant {
	var all []mutant
	for _, of := range [][]mutant{
		leaseMutants, fillMutants, outcomeMutants, holdMutants, writeMutants, valueMutants,
		messageMutants, harmMutants,
		generationMutants, manyMutants, markMutants, versionMutants,
	} {
		all = append(all, of...)
	}
	return all
}

// onLease makes a mutant that changes the answer to each request for the lease.
func onLease(
	change func(b *broken, k cacheguard.Key, ask cacheguard.LeaseAsk,
		answer *cacheguard.LeaseAnswer),
) func(*broken) {
	return func(b *broken) {
		b.lease = func(k cacheguard.Key, ask cacheguard.LeaseAsk) (cacheguard.LeaseAnswer, error) {
			answer, err := b.Store.Lease(ctx, k, ask)
			change(b, k, ask, &answer)
			return answer, err
		}
	}
}

var leaseMutants = []mutant{
	{
		name: "lease is granted to everybody",
		caught: []string{
			"lease is granted once", "lease of a seen value is held",
			"together: one of fifty is granted",
		},
		mutate: onLease(func(
			b *broken, k cacheguard.Key, ask cacheguard.LeaseAsk, answer *cacheguard.LeaseAnswer,
		) {
			if answer.State == cacheguard.LeaseHeld {
				g, _ := b.Store.Claim(ctx, k, ask.Token, ask.TTL)
				*answer = cacheguard.LeaseAnswer{State: cacheguard.LeaseGranted, Grant: g}
			}
		}),
	},
	{
		name:   "lease is checked and then taken",
		caught: []string{"together: one of fifty is granted"},
		mutate: func(b *broken) {
			b.lease = func(
				k cacheguard.Key, ask cacheguard.LeaseAsk,
			) (cacheguard.LeaseAnswer, error) {
				token := ask.Token
				ask.Token[0]++
				answer, err := b.Store.Lease(ctx, k, ask)
				if err != nil || answer.State != cacheguard.LeaseGranted {
					return answer, err
				}
				if err := b.Store.Release(ctx, k, ask.Token); err != nil {
					return answer, err
				}
				runtime.Gosched()
				answer.Grant, err = b.Store.Claim(ctx, k, token, ask.TTL)
				return answer, err
			}
		},
	},
	{
		name:   "lease refuses its own token",
		caught: []string{"lease knows its own token"},
		mutate: func(b *broken) {
			b.lease = func(
				k cacheguard.Key, ask cacheguard.LeaseAsk,
			) (cacheguard.LeaseAnswer, error) {
				if b.last(k).Token == ask.Token && b.alive(k) {
					return cacheguard.LeaseAnswer{
						State: cacheguard.LeaseHeld, Holder: ask.Token, Remaining: ask.TTL,
					}, nil
				}
				return b.Store.Lease(ctx, k, ask)
			}
		},
	},
	{
		name:   "lease gives its own token another number",
		caught: []string{"lease knows its own token"},
		mutate: func(b *broken) {
			b.lease = func(
				k cacheguard.Key, ask cacheguard.LeaseAsk,
			) (cacheguard.LeaseAnswer, error) {
				if err := b.Store.Release(ctx, k, ask.Token); err != nil {
					return cacheguard.LeaseAnswer{}, err
				}
				return b.Store.Lease(ctx, k, ask)
			}
		},
	},
	{
		name:   "lease has no numbers",
		caught: []string{"lease has a number for each grant"},
		mutate: func(b *broken) {
			onLease(func(
				_ *broken, _ cacheguard.Key, _ cacheguard.LeaseAsk, answer *cacheguard.LeaseAnswer,
			) {
				answer.Grant.Number = 0
			})(b)
			b.fill = ignoreNumber(b)
		},
	},
	{
		name: "lease doesn't look at the value",
		caught: []string{
			"lease finds the value", "lease takes a seen value for absent", "value of any size",
		},
		mutate: onLease(func(
			b *broken, k cacheguard.Key, ask cacheguard.LeaseAsk, answer *cacheguard.LeaseAnswer,
		) {
			if answer.State == cacheguard.LeaseValue {
				ask.Seen = frame.ID(answer.Frame)
				*answer, _ = b.Store.Lease(ctx, k, ask)
			}
		}),
	},
	{
		name:   "lease stays when the value is found",
		caught: []string{"lease finds the value"},
		mutate: onLease(func(
			b *broken, k cacheguard.Key, ask cacheguard.LeaseAsk, answer *cacheguard.LeaseAnswer,
		) {
			if answer.State == cacheguard.LeaseValue {
				ask.Seen = frame.ID(answer.Frame)
				_, _ = b.Store.Lease(ctx, k, ask)
			}
		}),
	},
	{
		name: "lease finds values that were seen",
		caught: []string{
			"lease takes a seen value for absent", "fill replaces what was seen",
			"outcome of a failed refresh",
			"value too short for an id",
		},
		mutate: onLease(func(
			b *broken, k cacheguard.Key, ask cacheguard.LeaseAsk, answer *cacheguard.LeaseAnswer,
		) {
			if v, _, _ := b.Store.Get(ctx, k, nil); v != nil &&
				answer.State == cacheguard.LeaseGranted {
				_ = b.Store.Release(ctx, k, ask.Token)
				*answer = cacheguard.LeaseAnswer{State: cacheguard.LeaseValue, Frame: v}
			}
		}),
	},
	{
		name:   "lease says that what was seen stands",
		caught: []string{"lease says if the seen value stands"},
		mutate: onLease(func(
			_ *broken, _ cacheguard.Key, ask cacheguard.LeaseAsk, answer *cacheguard.LeaseAnswer,
		) {
			answer.Stands = answer.State == cacheguard.LeaseGranted && ask.Seen != nil
		}),
	},
	{
		name:   "lease doesn't say that what was seen stands",
		caught: []string{"lease says if the seen value stands"},
		mutate: onLease(func(
			_ *broken, _ cacheguard.Key, _ cacheguard.LeaseAsk, answer *cacheguard.LeaseAnswer,
		) {
			answer.Stands, answer.Of = false, nil
		}),
	},
	{
		name:   "lease compares half of what was seen",
		caught: []string{"lease takes a seen value for absent"},
		mutate: func(b *broken) {
			b.lease = func(
				k cacheguard.Key, ask cacheguard.LeaseAsk,
			) (cacheguard.LeaseAnswer, error) {
				v, _, _ := b.Store.Get(ctx, k, nil)
				if id := frame.ID(v); len(id) == 16 && len(ask.Seen) == 16 &&
					bytes.Equal(id[:8], ask.Seen[:8]) {
					ask.Seen = id
				}
				return b.Store.Lease(ctx, k, ask)
			}
		},
	},
	{
		name:   "lease doesn't say who holds it",
		caught: []string{"lease says who holds it and for how long"},
		mutate: onLease(func(
			_ *broken, _ cacheguard.Key, _ cacheguard.LeaseAsk, answer *cacheguard.LeaseAnswer,
		) {
			answer.Holder = cacheguard.ID{}
		}),
	},
	{
		name: "lease doesn't say how long it is held",
		caught: []string{
			"lease says who holds it and for how long",
			"outcome answers everybody during its back-off",
		},
		mutate: onLease(func(
			_ *broken, _ cacheguard.Key, _ cacheguard.LeaseAsk, answer *cacheguard.LeaseAnswer,
		) {
			answer.Remaining = 0
		}),
	},
	{
		name:   "lease doesn't expire",
		caught: []string{"lease expires", "fill after the lease expired"},
		mutate: func(b *broken) {
			b.lease = func(
				k cacheguard.Key, ask cacheguard.LeaseAsk,
			) (cacheguard.LeaseAnswer, error) {
				ask.TTL = time.Hour
				return b.Store.Lease(ctx, k, ask)
			}
		},
	},
	{
		name:   "lease is for whole seconds",
		caught: []string{"lease lives until its expiry", "renewal prolongs the lease"},
		mutate: func(b *broken) {
			b.lease = func(
				k cacheguard.Key, ask cacheguard.LeaseAsk,
			) (cacheguard.LeaseAnswer, error) {
				ask.TTL = ask.TTL.Truncate(time.Second)
				return b.Store.Lease(ctx, k, ask)
			}
		},
	},
}

// ignoreNumber makes a mutant that fills for any grant of the holder's token.
func ignoreNumber(b *broken) func(cacheguard.Key, cacheguard.Grant, []byte,
	time.Duration) (cacheguard.FillAnswer, error) {
	return func(
		k cacheguard.Key, g cacheguard.Grant, f []byte, ttl time.Duration,
	) (cacheguard.FillAnswer, error) {
		token := g.Token
		g = b.last(k)
		if answer, err := b.Store.Lease(ctx, k,
			cacheguard.LeaseAsk{Token: token, TTL: ttl}); err == nil &&
			answer.State == cacheguard.LeaseGranted {
			g = answer.Grant
		}
		g.Token = token
		return b.Store.Fill(ctx, k, g, f, ttl)
	}
}

// onFill makes a mutant that calls instead if a fill had this answer.
func onFill(
	had cacheguard.FillAnswer,
	instead func(b *broken, k cacheguard.Key, g cacheguard.Grant, f []byte,
		ttl time.Duration) (cacheguard.FillAnswer, error),
) func(*broken) {
	return func(b *broken) {
		b.fill = func(
			k cacheguard.Key, g cacheguard.Grant, f []byte, ttl time.Duration,
		) (cacheguard.FillAnswer, error) {
			if answer, err := b.Store.Fill(ctx, k, g, f, ttl); err != nil || answer != had {
				return answer, err
			}
			return instead(b, k, g, f, ttl)
		}
	}
}

var fillMutants = []mutant{
	{
		name:   "fill ignores the number",
		caught: []string{"fill with the wrong number"},
		mutate: func(b *broken) {
			b.fill = func(
				k cacheguard.Key, g cacheguard.Grant, f []byte, ttl time.Duration,
			) (cacheguard.FillAnswer, error) {
				if last := b.last(k); last.Token == g.Token {
					g = last
				}
				return b.Store.Fill(ctx, k, g, f, ttl)
			}
		},
	},
	{
		name: "fill accepts a gone lease",
		caught: []string{
			"fill after an invalidation", "fill after the lease expired", "fill without a lease",
			"fill after a release",
			"fill after an outcome", "lease that was lost", "claim that is invalidated",
			"together: no old value survives an invalidation",
		},
		mutate: onFill(cacheguard.FillGone, func(
			b *broken, k cacheguard.Key, _ cacheguard.Grant, f []byte, ttl time.Duration,
		) (cacheguard.FillAnswer, error) {
			return cacheguard.FillStored, put(b.Store, k, f, ttl)
		}),
	},
	{
		name: "fill accepts another's lease",
		caught: []string{
			"fill of another's lease", "fill after a claim",
			"fill after an invalidation and a new load",
			"claim that is overtaken", "together: the last claim wins",
		},
		mutate: onFill(cacheguard.FillOther, func(
			b *broken, k cacheguard.Key, _ cacheguard.Grant, f []byte, ttl time.Duration,
		) (cacheguard.FillAnswer, error) {
			return b.Store.Fill(ctx, k, b.last(k), f, ttl)
		}),
	},
	{
		name:   "fill is checked and then stored",
		caught: []string{"together: no old value survives an invalidation"},
		mutate: func(b *broken) {
			b.fill = func(
				k cacheguard.Key, g cacheguard.Grant, f []byte, ttl time.Duration,
			) (cacheguard.FillAnswer, error) {
				h, err := b.Store.Renew(ctx, k, g, ttl)
				if err != nil || h != cacheguard.HoldingMine {
					return cacheguard.FillGone, err
				}
				runtime.Gosched()
				return cacheguard.FillStored, put(b.Store, k, f, ttl)
			}
		},
	},
	{
		name:   "fill mistakes another's lease for a gone one",
		caught: []string{"fill of another's lease", "fill after a claim"},
		mutate: onFill(cacheguard.FillOther, func(
			*broken, cacheguard.Key, cacheguard.Grant, []byte, time.Duration,
		) (cacheguard.FillAnswer, error) {
			return cacheguard.FillGone, nil
		}),
	},
	{
		name: "fill that is repeated is refused",
		caught: []string{
			"fill that is repeated", "fill that is repeated while the next one loads",
			"claim that is repeated",
		},
		mutate: onFill(cacheguard.FillStored, func(
			b *broken, _ cacheguard.Key, g cacheguard.Grant, _ []byte, _ time.Duration,
		) (cacheguard.FillAnswer, error) {
			answer := cacheguard.FillStored
			b.locked(func() {
				if b.filled[g] {
					answer = cacheguard.FillGone
				}
				b.filled[g] = true
			})
			return answer, nil
		}),
	},
	{
		name:   "fill that is repeated is stored again",
		caught: []string{"fill that is repeated after an invalidation"},
		mutate: func(b *broken) {
			b.fill = func(
				k cacheguard.Key, g cacheguard.Grant, f []byte, ttl time.Duration,
			) (cacheguard.FillAnswer, error) {
				answer, err := b.Store.Fill(ctx, k, g, f, ttl)
				again := false
				b.locked(func() { again, b.filled[g] = b.filled[g], true })
				if again && answer == cacheguard.FillGone {
					return cacheguard.FillStored, put(b.Store, k, f, ttl)
				}
				return answer, err
			}
		},
	},
	{
		name:   "fill keeps the lease",
		caught: []string{"fill ends the lease", "fill that is repeated"},
		mutate: onFill(cacheguard.FillStored, func(
			b *broken, k cacheguard.Key, g cacheguard.Grant, f []byte, ttl time.Duration,
		) (cacheguard.FillAnswer, error) {
			b.revive(k, true)
			return cacheguard.FillStored, nil
		}),
	},
	{
		name:   "fill is refused if somebody waits",
		caught: []string{"fill of an undisturbed load is stored"},
		mutate: onLease(func(
			b *broken, k cacheguard.Key, ask cacheguard.LeaseAsk, answer *cacheguard.LeaseAnswer,
		) {
			if ask.Wait && answer.State == cacheguard.LeaseHeld {
				_ = b.Store.Release(ctx, k, answer.Holder)
			}
		}),
	},
}
