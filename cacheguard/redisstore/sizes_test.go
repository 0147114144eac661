package redisstore_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/internal/frame"
	"github.com/cacheguard/cacheguard/internal/redistest"
	"github.com/cacheguard/cacheguard/internal/waittest"
)

// Values of all sizes are shared: values that a message carries, values that are too large for a
// message, and values that are too large for the answer to a request for a lease.
func TestValueSizes(t *testing.T) {
	server := redistest.Shared(t)
	for what, size := range map[string]int{
		"0 bytes": 0, "1 byte": 1, "4 KiB": 4 << 10, "60 KiB": 60 << 10, "64 KiB": 64 << 10,
		"1 MiB": 1 << 20, "10 MiB": 10 << 20,
	} {
		t.Run(what, func(t *testing.T) {
			prefix := newPrefix()
			roomy := func(s *site) { s.cache.MaxValueSize = 16 << 20 }
			f := &wired{
				first:  newReplica(t, server.Addr(), prefix, roomy),
				second: newReplica(t, server.Addr(), prefix, roomy),
			}
			f.third = newReplica(t, server.Addr(), prefix, roomy)
			for _, r := range []*replica{f.first, f.second, f.third} {
				r.listens(t)
			}
			value := strings.Repeat("v", size)
			o := newOrigin(value)
			letGo := o.hold()
			mine := f.first.ask(t, 2, "k", o.load)
			waittest.Next(t, "the first replica loads", o.began)
			others := f.othersAsk(t, "k", o.load)
			letGo()
			for _, a := range append(mine.wait(t), others.wait(t)...) {
				if a.err != nil || a.res.Value != value {
					t.Errorf("a caller got %d bytes, %v; want %d", len(a.res.Value), a.err, size)
				}
			}
			o.loaded(t, 1)
			res, err := f.third.cache.GetResult(t.Context(), "k", mustNotLoad(t))
			if err != nil || res.Value != value || res.Status != cacheguard.StatusHit {
				t.Errorf("the next caller got %d bytes, %v, %v; want a hit", len(res.Value),
					res.Status, err)
			}
		})
	}
}

// If a large value was stored meanwhile, a request for its lease still gets the value.
func TestLeaseFindsLargeValue(t *testing.T) {
	r := newReplica(t, redistest.Shared(t).Addr(), newPrefix())
	k := cacheguard.Key{Cache: "test", Key: "k"}
	for _, size := range []int{100, 65_536, 65_537, 1 << 20} {
		f := frame.New(frame.Header{ID: [16]byte{1}, Created: r.store.Now(), Soft: time.Hour},
			make([]byte, size))
		put(t, r.store, k, f)
		ans, err := r.store.Lease(t.Context(), k,
			cacheguard.LeaseAsk{Token: cacheguard.ID{2}, TTL: longLease})
		if err != nil || ans.State != cacheguard.LeaseValue || !bytes.Equal(ans.Frame, f) {
			t.Errorf("the answer has state %d and %d bytes, %v; want the value of %d", ans.State,
				len(ans.Frame), err, len(f))
		}
	}
}

// A value above the maximum size is given to all callers of its load, and isn't stored. Replicas
// that wait load for themselves, once each.
func TestValueOverCap(t *testing.T) {
	server := redistest.Shared(t)
	prefix := newPrefix()
	f := &wired{
		first: newReplica(t, server.Addr(), prefix), second: newReplica(t, server.Addr(), prefix),
	}
	f.third = newReplica(t, server.Addr(), prefix)
	for _, r := range []*replica{f.first, f.second, f.third} {
		// Otherwise the start of the subscription would separate callers from their flight.
		r.listens(t)
	}
	value := strings.Repeat("v", 10<<20)
	o := newOrigin(value)
	letGo := o.hold()
	mine := f.first.ask(t, 3, "k", o.load)
	waittest.Next(t, "the first replica loads", o.began)
	others := f.othersAsk(t, "k", o.load)
	mine.arrived.Wait()
	letGo()
	for _, a := range append(mine.wait(t), others.wait(t)...) {
		if a.err != nil || len(a.res.Value) != len(value) {
			t.Errorf("a caller got %d bytes, %v; want %d", len(a.res.Value), a.err, len(value))
		}
	}
	o.loaded(t, 3)
	figures(t, "value over the cap", o.loads.Load(), 0, append(mine.answers, others.wait(t)...)...)
	if n := f.first.events.of(cacheguard.EventNotStored); n != 1 {
		t.Errorf("%d values that weren't stored were counted; want 1", n)
	}
	if res, err := f.second.cache.Peek(t.Context(), "k"); err != nil ||
		res.Status != cacheguard.StatusMiss {
		t.Errorf("Peek gave a %v, %v; want a miss", res.Status, err)
	}
	must(t, f.first.cache.Set(t.Context(), "k", "small"))
	if err := f.first.cache.Set(t.Context(), "k", value); !errors.Is(err, cacheguard.ErrTooLarge) {
		t.Errorf("Set of a value over the cap gave %v; want %v", err, cacheguard.ErrTooLarge)
	}
	if res, err := f.second.cache.Peek(t.Context(), "k"); err != nil ||
		res.Status != cacheguard.StatusMiss {
		t.Errorf("after a Set that failed there is a %v, %v; want a miss, for the old value is out of date",
			res.Status, err)
	}
}
