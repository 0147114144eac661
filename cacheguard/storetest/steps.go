package storetest

import (
	"bytes"
	"errors"
	"fmt"
	"time"

	"github.com/cacheguard/cacheguard/cacheguard"
)

// The steps of a store. An error of a step ends the case.

// ask asks for the lease. If the request has no TTL, it gets a long one.
func (e *env) ask(
	s cacheguard.Store, k cacheguard.Key, ask cacheguard.LeaseAsk,
) cacheguard.LeaseAnswer {
	e.Helper()
	if ask.TTL == 0 {
		ask.TTL = long
	}
	answer, err := s.Lease(e.ctx, k, ask)
	if err != nil {
		e.Fatalf("Lease(%s): %v", name(k), err)
	}
	return answer
}

// lead asks for the lease, which must be granted, and returns the grant.
func (e *env) lead(s cacheguard.Store, k cacheguard.Key, ask cacheguard.LeaseAsk) cacheguard.Grant {
	e.Helper()
	answer := e.ask(s, k, ask)
	if answer.State != cacheguard.LeaseGranted {
		e.Fatalf("lease of %s: %s; want it granted", name(k), describe(answer))
	}
	if answer.Grant.Token != ask.Token {
		e.Fatalf("lease of %s was granted to %v; want the asker %v", name(k), answer.Grant.Token,
			ask.Token)
	}
	return answer.Grant
}

// leader asks for the lease with a new token. The lease must be granted.
func (e *env) leader(s cacheguard.Store, k cacheguard.Key) cacheguard.Grant {
	e.Helper()
	return e.lead(s, k, cacheguard.LeaseAsk{Token: e.token()})
}

// waiter asks for the lease as a process that waits. The store must name the holder.
func (e *env) waiter(s cacheguard.Store, k cacheguard.Key, holder cacheguard.Grant) {
	e.Helper()
	answer := e.ask(s, k, cacheguard.LeaseAsk{Token: e.token(), Wait: true})
	if answer.State != cacheguard.LeaseHeld || answer.Holder != holder.Token {
		e.Fatalf("lease of %s: %s; want it held by %v", name(k), describe(answer), holder.Token)
	}
}

// holds checks that the grant still has the lease.
func (e *env) holds(k cacheguard.Key, g cacheguard.Grant) {
	e.Helper()
	if h := e.renew(e.b, k, g, long); h != cacheguard.HoldingMine {
		e.Errorf("%s: its holder was told %s; want that it still has the lease", name(k),
			holding(h))
	}
}

// free checks that nobody has the lease, by taking it and giving it up.
func (e *env) free(k cacheguard.Key) {
	e.Helper()
	token := e.token()
	seen := id(e.get(e.b, k))
	if answer := e.ask(e.b, k,
		cacheguard.LeaseAsk{Token: token, Seen: seen}); answer.State != cacheguard.LeaseGranted {
		e.Errorf("lease of %s: %s; want that it is free", name(k), describe(answer))
	}
	e.release(e.b, k, token)
}

func (e *env) fill(
	s cacheguard.Store, k cacheguard.Key, g cacheguard.Grant, f []byte,
) cacheguard.FillAnswer {
	e.Helper()
	answer, err := s.Fill(e.ctx, k, g, f, long)
	if err != nil {
		e.Fatalf("Fill(%s): %v", name(k), err)
	}
	return answer
}

// stored fills the key. The store must answer that the frame was stored.
func (e *env) stored(s cacheguard.Store, k cacheguard.Key, g cacheguard.Grant, f []byte) {
	e.Helper()
	if answer := e.fill(s, k, g, f); answer != cacheguard.FillStored {
		e.Fatalf("fill of %s was %s; want it stored", name(k), filling(answer))
	}
}

// refused fills the key. The store must refuse with this answer.
func (e *env) refused(
	s cacheguard.Store, k cacheguard.Key, g cacheguard.Grant, want cacheguard.FillAnswer,
) {
	e.Helper()
	if answer := e.fill(s, k, g, e.frame(g.Token, "late")); answer != want {
		e.Errorf("fill of %s was %s; want %s", name(k), filling(answer), filling(want))
	}
}

func (e *env) conclude(
	s cacheguard.Store, k cacheguard.Key, g cacheguard.Grant, o cacheguard.Outcome,
	keep, backoff time.Duration,
) {
	e.Helper()
	if err := s.Conclude(e.ctx, k, g, o, keep, backoff); err != nil {
		e.Fatalf("Conclude(%s): %v", name(k), err)
	}
}

func (e *env) renew(
	s cacheguard.Store, k cacheguard.Key, g cacheguard.Grant, ttl time.Duration,
) cacheguard.Holding {
	e.Helper()
	h, err := s.Renew(e.ctx, k, g, ttl)
	if err != nil {
		e.Fatalf("Renew(%s): %v", name(k), err)
	}
	return h
}

func (e *env) release(s cacheguard.Store, k cacheguard.Key, token cacheguard.ID) {
	e.Helper()
	if err := s.Release(e.ctx, k, token); err != nil {
		e.Fatalf("Release(%s): %v", name(k), err)
	}
}

func (e *env) claim(s cacheguard.Store, k cacheguard.Key, token cacheguard.ID) cacheguard.Grant {
	e.Helper()
	g, err := s.Claim(e.ctx, k, token, long)
	if err != nil {
		e.Fatalf("Claim(%s): %v", name(k), err)
	}
	if g.Token != token {
		e.Fatalf("claim of %s was granted to %v; want %v", name(k), g.Token, token)
	}
	return g
}

// set stores a value with a claim and its fill, whatever was stored before.
func (e *env) set(s cacheguard.Store, k cacheguard.Key, f []byte) {
	e.Helper()
	if err := e.setFor(s, k, f, long); err != nil {
		e.Fatalf("%v", err)
	}
}

func (e *env) setFor(s cacheguard.Store, k cacheguard.Key, f []byte, ttl time.Duration) error {
	g, err := s.Claim(e.ctx, k, e.token(), long)
	if err != nil {
		return fmt.Errorf("Claim(%s): %w", name(k), err)
	}
	answer, err := s.Fill(e.ctx, k, g, f, ttl)
	if err == nil && answer != cacheguard.FillStored {
		err = errors.New(filling(answer))
	}
	if err != nil {
		return fmt.Errorf("Fill(%s) after its claim: %w", name(k), err)
	}
	return nil
}

func (e *env) invalidate(s cacheguard.Store, keys ...cacheguard.Key) {
	e.Helper()
	if err := s.Invalidate(e.ctx, keys); err != nil {
		e.Fatalf("Invalidate: %v", err)
	}
}

func (e *env) get(s cacheguard.Store, k cacheguard.Key) []byte {
	e.Helper()
	f, _, err := s.Get(e.ctx, k, nil)
	if err != nil {
		e.Fatalf("Get(%s): %v", name(k), err)
	}
	return f
}

// value checks that both processes read this value.
func (e *env) value(k cacheguard.Key, want []byte) {
	e.Helper()
	for i, s := range []cacheguard.Store{e.a, e.b} {
		if got := e.get(s, k); got == nil {
			e.Errorf("%s has no value in process %d; want %s", name(k), i, brief(want))
		} else if !bytes.Equal(got, want) {
			e.Errorf("%s has the value %s in process %d; want %s", name(k), brief(got), i,
				brief(want))
		}
	}
}

// noValue checks that both processes read no value.
func (e *env) noValue(k cacheguard.Key) {
	e.Helper()
	for i, s := range []cacheguard.Store{e.a, e.b} {
		if got := e.get(s, k); got != nil {
			e.Errorf("%s has the value %s in process %d; want none", name(k), brief(got), i)
		}
	}
}

func name(k cacheguard.Key) string { return brief([]byte(k.Key)) }

func brief(b []byte) string {
	const most = 80
	if len(b) > most {
		return fmt.Sprintf("%q... (%d bytes)", b[:most], len(b))
	}
	return fmt.Sprintf("%q", b)
}

func describe(a cacheguard.LeaseAnswer) string {
	switch a.State {
	case cacheguard.LeaseGranted:
		return fmt.Sprintf("granted to %v, number %d", a.Grant.Token, a.Grant.Number)
	case cacheguard.LeaseHeld:
		return fmt.Sprintf("held by %v for %v", a.Holder, a.Remaining)
	case cacheguard.LeaseValue:
		return "not granted, for there is the value " + brief(a.Frame)
	case cacheguard.LeaseOutcome:
		return fmt.Sprintf("not granted, for load %v ended with outcome %d %q", a.Holder,
			a.Outcome.Kind, a.Outcome.Text)
	}
	return fmt.Sprintf("LeaseState(%d)", a.State)
}

func filling(a cacheguard.FillAnswer) string {
	switch a {
	case cacheguard.FillStored:
		return "stored"
	case cacheguard.FillGone:
		return "refused because the lease is gone"
	case cacheguard.FillOther:
		return "refused because another load has the lease"
	}
	return fmt.Sprintf("FillAnswer(%d)", a)
}

func holding(h cacheguard.Holding) string {
	switch h {
	case cacheguard.HoldingMine:
		return "that it has the lease"
	case cacheguard.HoldingGone:
		return "that nobody has the lease"
	case cacheguard.HoldingOther:
		return "that another load has the lease"
	}
	return fmt.Sprintf("Holding(%d)", h)
}
