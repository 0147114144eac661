package storetest_test

import (
	"time"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/cacheguard/storetest"
)

// onTell makes a mutant that changes each message, or keeps it back.
func onTell(change func(m *cacheguard.Message) bool) func(*broken) {
	return func(b *broken) {
		b.listen = func(cache string, tell func(cacheguard.Message)) func() {
			return b.Store.Listen(cache, func(m cacheguard.Message) {
				if change(&m) {
					tell(m)
				}
			})
		}
	}
}

// without makes a mutant that keeps messages of one kind back.
func without(kind cacheguard.MessageKind) func(*broken) {
	return onTell(func(m *cacheguard.Message) bool { return m.Kind != kind })
}

var messageMutants = []mutant{
	{
		name:   "listeners aren't told that messages arrive",
		caught: []string{"listener is told that messages arrive"},
		mutate: without(cacheguard.MessageRestored),
	},
	{
		name: "messages don't name the load",
		caught: []string{
			"message of a fill", "message of a large fill", "message of an outcome",
			"message of a release",
			"message of a claim's fill",
		},
		mutate: onTell(func(m *cacheguard.Message) bool { m.Load = cacheguard.ID{}; return true }),
	},
	{
		name:   "messages don't carry the frame",
		caught: []string{"message of a fill"},
		mutate: onTell(func(m *cacheguard.Message) bool { m.Frame = nil; return true }),
	},
	{
		name:   "messages don't carry the outcome",
		caught: []string{"message of an outcome", "message of an outcome that isn't kept"},
		mutate: onTell(func(m *cacheguard.Message) bool {
			m.Outcome.Text, m.Outcome.Frame = "", nil
			return true
		}),
	},
	{
		name:   "messages carry a part of a large frame",
		caught: []string{"message of a large fill"},
		mutate: onTell(func(m *cacheguard.Message) bool {
			if m.Kind == cacheguard.MessageFilled && m.Frame == nil {
				m.Frame = make([]byte, 1<<10)
			}
			return true
		}),
	},
	{
		name: "messages don't tell of changes",
		caught: []string{
			"message of a claim", "message of an invalidation",
			"message of a change to what isn't there",
		},
		mutate: without(cacheguard.MessageChanged),
	},
	{
		name: "messages don't tell of fills",
		caught: []string{
			"message of a fill", "message of a large fill", "messages of keys of any bytes",
		},
		mutate: without(cacheguard.MessageFilled),
	},
	{
		name:   "messages don't tell of fills once the leader came again",
		caught: []string{"message of a fill after the leader came again"},
		mutate: onLease(func(
			b *broken, k cacheguard.Key, ask cacheguard.LeaseAsk, answer *cacheguard.LeaseAnswer,
		) {
			if answer.State == cacheguard.LeaseGranted && answer.Grant.Is(b.last(k)) {
				_ = b.Store.Release(ctx, k, ask.Token)
				b.revive(k, true)
			}
		}),
	},
	{
		name:   "messages don't tell of outcomes",
		caught: []string{"message of an outcome", "message of an outcome that isn't kept"},
		mutate: without(cacheguard.MessageOutcome),
	},
	{
		name:   "messages don't tell of releases",
		caught: []string{"message of a release"},
		mutate: without(cacheguard.MessageReleased),
	},
	{
		name:   "messages don't reach the other process",
		caught: []string{"message of a claim", "message of an invalidation", "message of a fill"},
		mutate: func(b *broken) {
			if b.process == 1 {
				b.listen = func(string, func(cacheguard.Message)) func() { return func() {} }
			}
		},
	},
	{
		name:   "messages don't reach their own process",
		caught: []string{"message of a claim", "message of an invalidation"},
		mutate: func(b *broken) {
			if b.process == 0 {
				b.listen = func(string, func(cacheguard.Message)) func() { return func() {} }
			}
		},
	},
	{
		name:   "messages reach all caches",
		caught: []string{"listeners of other caches"},
		mutate: func(b *broken) {
			b.listen = func(cache string, _ func(cacheguard.Message)) func() {
				return b.Store.Listen(cache, b.tellAll)
			}
		},
	},
	{
		name:   "messages reach one listener of a cache",
		caught: []string{"listeners of one cache"},
		mutate: func(b *broken) {
			taken := map[string]bool{}
			b.listen = func(cache string, tell func(cacheguard.Message)) func() {
				if taken[cache] {
					return func() {}
				}
				taken[cache] = true
				return b.Store.Listen(cache, tell)
			}
		},
	},
	{
		name:   "messages go on after stop",
		caught: []string{"listener that stopped"},
		mutate: func(b *broken) {
			b.listen = func(cache string, tell func(cacheguard.Message)) func() {
				b.Store.Listen(cache, tell)
				return func() {}
			}
		},
	},
	{
		name:   "messages stop for all when one stops",
		caught: []string{"listener that stopped"},
		mutate: func(b *broken) {
			var stops []func()
			b.listen = func(cache string, tell func(cacheguard.Message)) func() {
				stops = append(stops, b.Store.Listen(cache, tell))
				return func() {
					for _, stop := range stops {
						stop()
					}
				}
			}
		},
	},
	{
		name:   "messages overtake each other",
		caught: []string{"messages in order"},
		mutate: func(b *broken) {
			b.listen = func(cache string, tell func(cacheguard.Message)) func() {
				return b.Store.Listen(cache, func(m cacheguard.Message) {
					if m.Kind != cacheguard.MessageChanged {
						tell(m)
						return
					}
					time.AfterFunc(time.Millisecond, func() { tell(m) })
				})
			}
		},
	},
	{
		name:   "messages come at the same time",
		caught: []string{"listener is called one call at a time"},
		mutate: func(b *broken) {
			b.listen = func(cache string, tell func(cacheguard.Message)) func() {
				return b.Store.Listen(cache, func(m cacheguard.Message) {
					for range 20 {
						go tell(m)
					}
				})
			}
		},
	},
	{
		name:   "messages tell of fills that were refused",
		caught: []string{"message of a refused fill"},
		mutate: func(b *broken) {
			b.fill = func(
				k cacheguard.Key, g cacheguard.Grant, f []byte, ttl time.Duration,
			) (cacheguard.FillAnswer, error) {
				answer, err := b.Store.Fill(ctx, k, g, f, ttl)
				if answer != cacheguard.FillStored {
					b.tellAll(cacheguard.Message{
						Kind: cacheguard.MessageFilled, Key: k.Key, Load: g.Token, Frame: f,
					})
				}
				return answer, err
			}
		},
	},
	{
		name:   "messages tell of outcomes that were refused",
		caught: []string{"message of a refused outcome"},
		mutate: func(b *broken) {
			b.conclude = func(
				k cacheguard.Key, g cacheguard.Grant, o cacheguard.Outcome,
				keep, backoff time.Duration,
			) error {
				b.tellAll(cacheguard.Message{
					Kind: cacheguard.MessageOutcome, Key: k.Key, Load: g.Token, Outcome: o,
				})
				return b.Store.Conclude(ctx, k, g, o, keep, backoff)
			}
		},
	},
}

var harmMutants = []mutant{
	{
		name:   "lease that is none is waited for",
		caught: []string{"lease that is none"},
		harm: func(f *storetest.Fleet, bs []*broken) {
			f.SpoilLease = func(k cacheguard.Key) {
				_, _ = bs[0].Lease(ctx, k,
					cacheguard.LeaseAsk{Token: cacheguard.ID{1}, TTL: 1 << 62})
			}
		},
	},
	{
		name:   "lost messages are not noticed",
		caught: []string{"listener is told of lost messages"},
		harm:   func(f *storetest.Fleet, _ []*broken) { f.LoseMessages = func() {} },
	},
	{
		name:   "lost leases stay",
		caught: []string{"lease that was lost"},
		harm:   func(f *storetest.Fleet, _ []*broken) { f.LoseLease = func(cacheguard.Key) {} },
	},
}
