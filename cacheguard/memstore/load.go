package memstore

import (
	"context"
	"time"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/internal/frame"
	"github.com/cacheguard/cacheguard/internal/protocol"
)

// Lease asks for the right to load a key. See [cacheguard.Store].
func (s *Store) Lease(
	ctx context.Context, k cacheguard.Key, ask cacheguard.LeaseAsk,
) (answer cacheguard.LeaseAnswer, err error) {
	err = s.step(ctx, func(t *turn) { answer = t.lease(k, ask) })
	return answer, err
}

func (t *turn) lease(k cacheguard.Key, ask cacheguard.LeaseAsk) (answer cacheguard.LeaseAnswer) {
	slot, next := t.slot(k), t.nextStamp(t.now)
	was := slot
	r := slot.Ask(t.now, protocol.Question{
		Token: protocol.ID(ask.Token), Number: next, TTL: ask.TTL,
		Seen: string(ask.Seen), Awaited: protocol.ID(ask.Awaited), Inbox: inbox(ask.Wait),
	})
	t.keep(k, &was, &slot)
	switch r.Kind {
	case protocol.Granted:
		answer.Grant, answer.Failures = t.granted(ask.Token, r.Number), r.Ending.Failures
		if answer.Stands = r.Stands; r.Stands {
			answer.Of = t.of(k.Cache, ask.Tags)
		}
	case protocol.Held:
		answer.State, answer.Holder, answer.Remaining = cacheguard.LeaseHeld, cacheguard.ID(r.Load),
			r.Left
	case protocol.Value:
		answer.State, answer.Frame, answer.Of = cacheguard.LeaseValue, []byte(r.Frame),
			t.of(k.Cache, ask.Tags)
	case protocol.Outcome:
		answer.State, answer.Holder, answer.Remaining = cacheguard.LeaseOutcome,
			cacheguard.ID(r.Load), r.Left
		answer.Outcome = outcome(r.Ending)
	}
	return answer
}

// inbox returns the same inbox for all waiting processes, because all caches are in one process.
func inbox(waits bool) uint64 {
	if waits {
		return 1
	}
	return 0
}

// granted returns a grant whose number is also its stamp. The grant may be a repeated one, so its
// stamp may be from a moment ago.
func (t *turn) granted(token cacheguard.ID, number int64) cacheguard.Grant {
	t.stamped = max(t.stamped, number)
	return cacheguard.Grant{Token: token, Number: number, Stamp: number}
}

// Fill stores a load's frame and ends its lease. See [cacheguard.Store].
func (s *Store) Fill(
	ctx context.Context, k cacheguard.Key, g cacheguard.Grant, f []byte, ttl time.Duration,
) (answer cacheguard.FillAnswer, err error) {
	// Copied before the mutex is locked, so that a large frame doesn't delay other steps.
	text := string(f)
	err = s.step(ctx, func(t *turn) { answer = t.fill(k, g, text, ttl) })
	return answer, err
}

func (t *turn) fill(
	k cacheguard.Key, g cacheguard.Grant, f string, ttl time.Duration,
) cacheguard.FillAnswer {
	slot := t.slot(k)
	was := slot
	kind, tells := slot.Fill(t.now, protocol.ID(g.Token), g.Number, f, ttl)
	t.keep(k, &was, &slot)
	// The values of the key's other versions may be from before the change.
	if kind == protocol.Stored && g.Claimed && t.dropOthers(k) {
		t.changed(k, cacheguard.ID{})
	}
	if tells != protocol.TellsNothing {
		m := cacheguard.Message{Kind: cacheguard.MessageFilled, Load: g.Token}
		if len(f) <= frame.MaxCarried {
			m.Frame = []byte(f)
		}
		t.tell(k, m)
	}
	switch kind {
	case protocol.Stored:
		return cacheguard.FillStored
	case protocol.Taken:
		return cacheguard.FillOther
	}
	return cacheguard.FillGone
}

// Conclude ends a lease without a value. See [cacheguard.Store].
func (s *Store) Conclude(
	ctx context.Context, k cacheguard.Key, g cacheguard.Grant, o cacheguard.Outcome,
	keep, backoff time.Duration,
) error {
	ending := protocol.Ending{
		Kind: uint8(o.Kind), Text: o.Text, Frame: string(o.Frame), Note: string(o.Note),
		Failures: o.Failures,
	}
	return s.step(ctx, func(t *turn) {
		slot := t.slot(k)
		was := slot
		tells := slot.Conclude(t.now, protocol.ID(g.Token), g.Number, ending, o.Drop, keep, backoff)
		t.keep(k, &was, &slot)
		if tells != protocol.TellsNothing {
			t.tell(k, cacheguard.Message{
				Kind: cacheguard.MessageOutcome, Load: g.Token, Outcome: outcome(ending),
			})
		}
	})
}

// outcome returns the outcome of a load that other callers get.
func outcome(e protocol.Ending) cacheguard.Outcome {
	o := cacheguard.Outcome{Kind: cacheguard.OutcomeKind(e.Kind), Text: e.Text}
	if e.Frame != "" {
		o.Frame = []byte(e.Frame)
	}
	if e.Note != "" {
		o.Note = []byte(e.Note)
	}
	return o
}

// Renew sets a lease's remaining time. See [cacheguard.Store].
func (s *Store) Renew(
	ctx context.Context, k cacheguard.Key, g cacheguard.Grant, ttl time.Duration,
) (cacheguard.Holding, error) {
	answer := cacheguard.HoldingGone
	err := s.step(ctx, func(t *turn) {
		slot := t.slot(k)
		was := slot
		switch slot.Renew(t.now, protocol.ID(g.Token), g.Number, ttl) {
		case protocol.Renewed:
			answer = cacheguard.HoldingMine
		case protocol.Taken:
			answer = cacheguard.HoldingOther
		}
		t.keep(k, &was, &slot)
	})
	return answer, err
}

// Release removes the lease of a token. See [cacheguard.Store].
func (s *Store) Release(ctx context.Context, k cacheguard.Key, token cacheguard.ID) error {
	return s.step(ctx, func(t *turn) {
		slot := t.slot(k)
		was := slot
		tells := slot.Release(t.now, protocol.ID(token))
		t.keep(k, &was, &slot)
		if tells != protocol.TellsNothing {
			t.tell(k, cacheguard.Message{Kind: cacheguard.MessageReleased, Load: token})
		}
	})
}
