package storetest_test

import (
	"strings"
	"time"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/internal/frame"
)

var outcomeMutants = []mutant{
	{
		name: "outcome is for everybody for as long as it is kept",
		caught: []string{
			"outcome answers those who name it after its back-off", "outcome without a back-off",
			"outcome ends the lease",
		},
		mutate: func(b *broken) {
			b.conclude = func(
				k cacheguard.Key, g cacheguard.Grant, o cacheguard.Outcome, keep, _ time.Duration,
			) error {
				return b.Store.Conclude(ctx, k, g, o, keep, keep)
			}
		},
	},
	{
		name: "outcome is for nobody after its back-off",
		caught: []string{
			"outcome answers those who name it after its back-off", "outcome without a back-off",
		},
		mutate: func(b *broken) {
			b.lease = func(
				k cacheguard.Key, ask cacheguard.LeaseAsk,
			) (cacheguard.LeaseAnswer, error) {
				ask.Awaited = cacheguard.ID{}
				return b.Store.Lease(ctx, k, ask)
			}
		},
	},
	{
		name: "outcome is for those who waited for any load",
		caught: []string{
			"outcome without a back-off", "outcome answers those who name it after its back-off",
		},
		mutate: func(b *broken) {
			b.lease = func(
				k cacheguard.Key, ask cacheguard.LeaseAsk,
			) (cacheguard.LeaseAnswer, error) {
				if !ask.Awaited.IsZero() {
					b.locked(func() { ask.Awaited = b.ended[k].load })
				}
				return b.Store.Lease(ctx, k, ask)
			}
		},
	},
	{
		name: "outcome isn't kept",
		caught: []string{
			"outcome of each kind", "outcome answers everybody during its back-off",
			"outcome is not over before its back-off",
		},
		mutate: func(b *broken) {
			b.conclude = func(
				k cacheguard.Key, g cacheguard.Grant, o cacheguard.Outcome, _, _ time.Duration,
			) error {
				return b.Store.Conclude(ctx, k, g, o, 0, 0)
			}
		},
	},
	{
		name:   "outcome is kept for too long",
		caught: []string{"outcome expires", "outcome that isn't kept"},
		mutate: func(b *broken) {
			b.conclude = func(
				k cacheguard.Key, g cacheguard.Grant, o cacheguard.Outcome,
				_, backoff time.Duration,
			) error {
				return b.Store.Conclude(ctx, k, g, o, time.Hour, backoff)
			}
		},
	},
	{
		name: "lease and outcome come before a value that wasn't seen",
		caught: []string{
			"value that wasn't seen comes before a refresh",
			"value that wasn't seen comes before a failed refresh",
		},
		mutate: func(b *broken) {
			b.lease = func(
				k cacheguard.Key, ask cacheguard.LeaseAsk,
			) (cacheguard.LeaseAnswer, error) {
				v, _, _ := b.Store.Get(ctx, k, nil)
				blind := ask
				blind.Token, blind.Seen, blind.TTL = cacheguard.ID{0xee}, frame.ID(v),
					time.Nanosecond
				answer, err := b.Store.Lease(ctx, k, blind)
				if err == nil && answer.State != cacheguard.LeaseGranted {
					return answer, nil
				}
				_ = b.Store.Release(ctx, k, blind.Token)
				return b.Store.Lease(ctx, k, ask)
			}
		},
	},
	{
		name:   "outcome never supersedes the value",
		caught: []string{"outcome that supersedes the value"},
		mutate: func(b *broken) {
			b.conclude = func(
				k cacheguard.Key, g cacheguard.Grant, o cacheguard.Outcome,
				keep, backoff time.Duration,
			) error {
				o.Drop = false
				return b.Store.Conclude(ctx, k, g, o, keep, backoff)
			}
		},
	},
	{
		name:   "outcome supersedes any value",
		caught: []string{"outcome that comes too late supersedes nothing"},
		mutate: func(b *broken) {
			b.conclude = func(
				k cacheguard.Key, g cacheguard.Grant, o cacheguard.Outcome,
				keep, backoff time.Duration,
			) error {
				if o.Drop {
					_ = b.Store.Invalidate(ctx, []cacheguard.Key{k})
				}
				return b.Store.Conclude(ctx, k, g, o, keep, backoff)
			}
		},
	},
	{
		name:   "outcome forgets failures",
		caught: []string{"outcome counts failures in a row"},
		mutate: func(b *broken) {
			b.conclude = func(
				k cacheguard.Key, g cacheguard.Grant, o cacheguard.Outcome,
				keep, backoff time.Duration,
			) error {
				o.Failures = 0
				return b.Store.Conclude(ctx, k, g, o, keep, backoff)
			}
		},
	},
	{
		name:   "outcome's record loses the note",
		caught: []string{"outcome with a note"},
		mutate: func(b *broken) {
			b.lease = func(
				k cacheguard.Key, ask cacheguard.LeaseAsk,
			) (cacheguard.LeaseAnswer, error) {
				answer, err := b.Store.Lease(ctx, k, ask)
				answer.Outcome.Note = nil
				return answer, err
			}
		},
	},
	{
		name:   "outcome's message loses the note",
		caught: []string{"outcome with a note"},
		mutate: onTell(func(m *cacheguard.Message) bool { m.Outcome.Note = nil; return true }),
	},
	{
		name:   "outcome's note is cut",
		caught: []string{"outcome with a note"},
		mutate: func(b *broken) {
			b.conclude = func(
				k cacheguard.Key, g cacheguard.Grant, o cacheguard.Outcome,
				keep, backoff time.Duration,
			) error {
				o.Note = o.Note[:min(len(o.Note), 128)]
				return b.Store.Conclude(ctx, k, g, o, keep, backoff)
			}
		},
	},
	{
		name:   "outcome is cut at NUL",
		caught: []string{"outcome of each kind", "message of an outcome"},
		mutate: func(b *broken) {
			b.conclude = func(
				k cacheguard.Key, g cacheguard.Grant, o cacheguard.Outcome,
				keep, backoff time.Duration,
			) error {
				o.Text, _, _ = strings.Cut(o.Text, "\x00")
				return b.Store.Conclude(ctx, k, g, o, keep, backoff)
			}
		},
	},
	{
		name: "outcome needs no lease",
		caught: []string{
			"outcome after an invalidation", "outcome after the lease expired",
			"outcome after the fill",
		},
		mutate: func(b *broken) {
			b.conclude = func(
				k cacheguard.Key, g cacheguard.Grant, o cacheguard.Outcome,
				keep, backoff time.Duration,
			) error {
				v, _, _ := b.Store.Get(ctx, k, nil)
				answer, err := b.Store.Lease(ctx, k,
					cacheguard.LeaseAsk{Token: g.Token, TTL: keep, Seen: frame.ID(v)})
				if err == nil && answer.State == cacheguard.LeaseGranted {
					g = answer.Grant
				}
				return b.Store.Conclude(ctx, k, g, o, keep, backoff)
			}
		},
	},
	{
		name: "outcome replaces any lease",
		caught: []string{
			"outcome with the wrong number", "outcome after another took over",
			"outcome that is repeated",
		},
		mutate: func(b *broken) {
			b.conclude = func(
				k cacheguard.Key, _ cacheguard.Grant, o cacheguard.Outcome,
				keep, backoff time.Duration,
			) error {
				return b.Store.Conclude(ctx, k, b.last(k), o, keep, backoff)
			}
		},
	},
	{
		name:   "outcome leaves the lease",
		caught: []string{"outcome ends the lease", "fill after an outcome"},
		mutate: func(b *broken) {
			b.conclude = func(
				cacheguard.Key, cacheguard.Grant, cacheguard.Outcome, time.Duration, time.Duration,
			) error {
				return nil
			}
		},
	},
	{
		name:   "outcome survives the next load",
		caught: []string{"outcome is replaced by the next load"},
		mutate: func(b *broken) {
			b.lease = func(
				k cacheguard.Key, ask cacheguard.LeaseAsk,
			) (answer cacheguard.LeaseAnswer, err error) {
				var last ending
				b.locked(func() { last = b.ended[k] })
				if !ask.Awaited.IsZero() && ask.Awaited == last.load {
					return cacheguard.LeaseAnswer{
						State: cacheguard.LeaseOutcome, Holder: last.load, Outcome: last.outcome,
					}, nil
				}
				return b.Store.Lease(ctx, k, ask)
			}
		},
	},
}
