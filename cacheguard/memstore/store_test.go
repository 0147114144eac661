package memstore_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/cacheguard/memstore"
)

// steps calls each step once.
func steps(ctx context.Context, s *memstore.Store) map[string]error {
	k, g := key("k"), cacheguard.Grant{Token: token(1), Number: 1}
	_, _, get := s.Get(ctx, k, nil)
	_, lease := s.Lease(ctx, k, cacheguard.LeaseAsk{Token: g.Token, TTL: time.Hour})
	_, fill := s.Fill(ctx, k, g, nil, time.Hour)
	_, renew := s.Renew(ctx, k, g, time.Hour)
	_, claim := s.Claim(ctx, k, g.Token, time.Hour)
	return map[string]error{
		"Get": get, "Lease": lease, "Fill": fill, "Renew": renew, "Claim": claim,
		"Conclude":   s.Conclude(ctx, k, g, cacheguard.Outcome{}, time.Hour, 0),
		"Release":    s.Release(ctx, k, g.Token),
		"Invalidate": s.Invalidate(ctx, []cacheguard.Key{k, k}),
		"Warm":       s.Warm(ctx),
	}
}

func TestClosedStore(t *testing.T) {
	s := memstore.New(memstore.Options{})
	for name, err := range steps(t.Context(), s) {
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	told := 0
	stop := s.Listen("test", func(cacheguard.Message) { told++ })
	if told != 1 {
		t.Errorf("a new listener was told %d messages; want one, that they arrive", told)
	}
	told = 0
	if !s.Listening() {
		t.Error("an open store is not listening")
	}
	for range 2 {
		if err := s.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	}
	for name, err := range steps(t.Context(), s) {
		if err == nil {
			t.Errorf("%s: no error from a closed store", name)
		}
	}
	if s.Listening() {
		t.Error("a closed store is listening")
	}
	stop()
	s.Listen("test", func(cacheguard.Message) { told++ })()
	if told > 0 {
		t.Errorf("a closed store told %d messages", told)
	}
	if s.Now().IsZero() {
		t.Error("a closed store has no clock")
	}
}

func TestDoneContext(t *testing.T) {
	s := memstore.New(memstore.Options{})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for name, err := range steps(ctx, s) {
		if !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v; want %v", name, err, context.Canceled)
		}
	}
	if values, leases, records := s.Items(); values+leases+records > 0 {
		t.Errorf("there are %d values, %d leases and %d records after steps with errors", values,
			leases, records)
	}
	var keys cacheguard.KeyErrors
	if err := s.Invalidate(ctx, []cacheguard.Key{key("a"), key("b")}); !errors.As(err, &keys) ||
		len(keys) != 2 {
		t.Errorf("Invalidate: %v; want the two keys", err)
	}
}

func TestClockOfTheBubble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New(memstore.Options{})
		if !s.Now().Equal(time.Now()) {
			t.Errorf("the clock is %v; want %v", s.Now(), time.Now())
		}
		began := s.Now()
		<-time.After(time.Hour)
		if went := s.Now().Sub(began); went != time.Hour {
			t.Errorf("in an hour the clock went on by %v", went)
		}
	})
}

// TestExactExpiry shows to the nanosecond what the conformance suite can only show roughly.
func TestExactExpiry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New(memstore.Options{})
		set(t, s, key("k"), 1, time.Second)
		g := lead(t, s, key("leased"), 1, time.Second)
		<-time.After(time.Second - 1)
		if !has(t, s, key("k")) {
			t.Error("the value is gone a nanosecond too early")
		}
		if h, err := s.Renew(t.Context(), key("leased"), g, 1); err != nil ||
			h != cacheguard.HoldingMine {
			t.Errorf("Renew: %v, %v; want the lease a nanosecond before its end", h, err)
		}
		<-time.After(1)
		if has(t, s, key("k")) {
			t.Error("the value is there after its time")
		}
		lead(t, s, key("leased"), 2, time.Second)
	})
}
