package memstore

import (
	"bytes"
	"context"
	"time"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/internal/frame"
)

// maxTold is the largest frame that travels in a message. The others are read from the store by those who want them.
const maxTold = 4 << 10

// Lease asks for the right to load a key. See cacheguard.Store.
func (s *Store) Lease(ctx context.Context, k cacheguard.Key, ask cacheguard.LeaseAsk) (cacheguard.LeaseAnswer, error) {
	answer := cacheguard.LeaseAnswer{State: cacheguard.LeaseHeld}
	err := s.step(ctx, func(t *turn) { answer = t.lease(k, ask) })
	answer.Frame, answer.Outcome.Frame = bytes.Clone(answer.Frame), bytes.Clone(answer.Outcome.Frame)
	answer.Outcome.Note = bytes.Clone(answer.Outcome.Note)
	return answer, err
}

// lease looks at the value first, then at the lease, then at how the last load ended: beside a value that the asker
// hasn't seen somebody may refresh it, or have failed to.
func (t *turn) lease(k cacheguard.Key, ask cacheguard.LeaseAsk) cacheguard.LeaseAnswer {
	held := t.leases.get(k, t.now)
	mine := held != nil && held.what.grant.Token == ask.Token
	if v := t.values.get(k, t.now); v != nil && !mine && !bytes.Equal(frame.ID(v.what), ask.Seen) {
		return cacheguard.LeaseAnswer{State: cacheguard.LeaseValue, Frame: v.what}
	}
	if held != nil {
		return answerHeld(held, ask, t.now)
	}
	if r := t.records.get(k, t.now); r != nil && (t.now < r.what.backoff || r.what.load == ask.Awaited) {
		return cacheguard.LeaseAnswer{
			State:     cacheguard.LeaseOutcome,
			Holder:    r.what.load,
			Remaining: max(r.what.backoff-t.now, 0),
			Outcome:   told(r.what.outcome),
		}
	}
	answer := cacheguard.LeaseAnswer{State: cacheguard.LeaseGranted}
	if r := t.records.get(k, t.now); r != nil {
		answer.Failures = r.what.outcome.Failures
	}
	answer.Grant = t.grant(k, ask.Token, ask.TTL)
	return answer
}

func answerHeld(held *item[lease], ask cacheguard.LeaseAsk, now time.Duration) cacheguard.LeaseAnswer {
	if held.what.grant.Token == ask.Token {
		return cacheguard.LeaseAnswer{State: cacheguard.LeaseGranted, Grant: held.what.grant}
	}
	held.what.waited = held.what.waited || ask.Wait
	return cacheguard.LeaseAnswer{
		State:     cacheguard.LeaseHeld,
		Holder:    held.what.grant.Token,
		Remaining: held.until - now,
	}
}

// grant puts a lease in the place of whatever lease or record is there.
func (t *turn) grant(k cacheguard.Key, token cacheguard.ID, ttl time.Duration) cacheguard.Grant {
	t.grants++
	g := cacheguard.Grant{Token: token, Number: t.grants, Stamp: t.stamp(t.now)}
	t.records.remove(k)
	t.leases.put(k, lease{grant: g}, 0, t.after(ttl))
	return g
}

// holding returns the key's lease if it carries the grant. If not, somebody else may have it.
func (t *turn) holding(k cacheguard.Key, g cacheguard.Grant) (mine *item[lease], others bool) {
	held := t.leases.get(k, t.now)
	if held == nil || held.what.grant.Is(g) {
		return held, false
	}
	return nil, true
}

// Fill stores a load's frame and ends its lease. See cacheguard.Store.
func (s *Store) Fill(ctx context.Context, k cacheguard.Key, g cacheguard.Grant, f []byte, ttl time.Duration) (cacheguard.FillAnswer, error) {
	answer := cacheguard.FillGone
	f = clone(f)
	err := s.step(ctx, func(t *turn) { answer = t.fill(k, g, f, ttl) })
	return answer, err
}

func (t *turn) fill(k cacheguard.Key, g cacheguard.Grant, f []byte, ttl time.Duration) cacheguard.FillAnswer {
	mine, others := t.holding(k, g)
	if mine == nil {
		return t.refuse(k, g, others)
	}
	t.values.put(k, f, len(f), t.after(ttl))
	t.leases.remove(k)
	if mine.what.waited {
		m := cacheguard.Message{Kind: cacheguard.MessageFilled, Load: g.Token}
		if len(f) <= maxTold {
			m.Frame = f
		}
		t.tell(k, m)
	}
	return cacheguard.FillStored
}

// refuse answers a fill without a lease, which may be the copy of one that was stored.
func (t *turn) refuse(k cacheguard.Key, g cacheguard.Grant, others bool) cacheguard.FillAnswer {
	if v := t.values.get(k, t.now); v != nil && bytes.Equal(frame.ID(v.what), g.Token[:]) {
		return cacheguard.FillStored
	}
	if others {
		return cacheguard.FillOther
	}
	return cacheguard.FillGone
}

// Conclude ends a lease without a value. See cacheguard.Store.
func (s *Store) Conclude(ctx context.Context, k cacheguard.Key, g cacheguard.Grant, o cacheguard.Outcome, keep, backoff time.Duration) error {
	o.Frame, o.Note = bytes.Clone(o.Frame), bytes.Clone(o.Note)
	return s.step(ctx, func(t *turn) {
		mine, _ := t.holding(k, g)
		if mine == nil {
			return
		}
		t.leases.remove(k)
		if o.Drop {
			t.values.remove(k)
		}
		if keep > 0 {
			r := record{load: g.Token, outcome: o, backoff: t.after(backoff)}
			t.records.put(k, r, len(o.Text)+len(o.Frame)+len(o.Note), t.after(keep))
		}
		if mine.what.waited {
			t.tell(k, cacheguard.Message{Kind: cacheguard.MessageOutcome, Load: g.Token, Outcome: told(o)})
		}
	})
}

// told is what others get to know of an outcome.
func told(o cacheguard.Outcome) cacheguard.Outcome {
	return cacheguard.Outcome{Kind: o.Kind, Text: o.Text, Frame: o.Frame, Note: o.Note}
}

// Renew sets a lease's remaining time. See cacheguard.Store.
func (s *Store) Renew(ctx context.Context, k cacheguard.Key, g cacheguard.Grant, ttl time.Duration) (cacheguard.Holding, error) {
	answer := cacheguard.HoldingGone
	err := s.step(ctx, func(t *turn) {
		mine, others := t.holding(k, g)
		switch {
		case mine != nil:
			t.leases.extend(mine, t.after(ttl))
			answer = cacheguard.HoldingMine
		case others:
			answer = cacheguard.HoldingOther
		}
	})
	return answer, err
}

// Release removes the lease of a token. See cacheguard.Store.
func (s *Store) Release(ctx context.Context, k cacheguard.Key, token cacheguard.ID) error {
	return s.step(ctx, func(t *turn) {
		held := t.leases.get(k, t.now)
		if held == nil || held.what.grant.Token != token {
			return
		}
		t.leases.remove(k)
		if held.what.waited {
			t.tell(k, cacheguard.Message{Kind: cacheguard.MessageReleased, Load: token})
		}
	})
}
