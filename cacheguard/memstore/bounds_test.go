package memstore_test

import (
	"fmt"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/cacheguard/memstore"
)

func key(name any) cacheguard.Key { return cacheguard.Key{Cache: "test", Key: fmt.Sprint(name)} }

func token(n int) (id cacheguard.ID) {
	copy(id[:], fmt.Sprintf("%016d", n))
	return id
}

func lead(
	t *testing.T, s *memstore.Store, k cacheguard.Key, n int, ttl time.Duration,
) cacheguard.Grant {
	t.Helper()
	answer, err := s.Lease(t.Context(), k, cacheguard.LeaseAsk{Token: token(n), TTL: ttl})
	if err != nil || answer.State != cacheguard.LeaseGranted {
		t.Fatalf("Lease: %+v, %v; want it granted", answer, err)
	}
	return answer.Grant
}

// set has a value stand there, whatever stood there before.
func set(t *testing.T, s *memstore.Store, k cacheguard.Key, size int, ttl time.Duration) {
	t.Helper()
	g, err := s.Claim(t.Context(), k, token(0), time.Hour)
	if err != nil {
		t.Fatalf("Claim: %v", err)
	}
	fill(t, s, k, g, size, ttl)
}

func fill(
	t *testing.T, s *memstore.Store, k cacheguard.Key, g cacheguard.Grant, size int,
	ttl time.Duration,
) {
	t.Helper()
	if answer, err := s.Fill(t.Context(), k, g, make([]byte, size), ttl); err != nil ||
		answer != cacheguard.FillStored {
		t.Fatalf("Fill: %v, %v; want it stored", answer, err)
	}
}

func has(t *testing.T, s *memstore.Store, k cacheguard.Key) bool {
	t.Helper()
	f, _, err := s.Get(t.Context(), k, nil)
	if err != nil {
		t.Fatalf("Get: %v", err)
	}
	return f != nil
}

func TestFullStoreDropsWhatExpiresNext(t *testing.T) {
	s := memstore.New(memstore.Options{MaxBytes: 16 << 10})
	for i := range 1000 {
		set(t, s, key(i), 1000, time.Hour-time.Duration(i)*time.Second)
		if !has(t, s, key(i)) {
			t.Fatalf("value %d was dropped for older ones", i)
		}
	}
	values, _, _ := s.Items()
	if values < 5 || values > 16 {
		t.Errorf("a store for 16 KiB keeps %d values of 1000 bytes", values)
	}
	if !has(t, s, key(0)) {
		t.Error("the value that expires last was dropped")
	}
}

func TestValueLargerThanTheStoreIsNotKept(t *testing.T) {
	s := memstore.New(memstore.Options{MaxBytes: 16 << 10})
	set(t, s, key("small"), 1000, time.Hour)
	set(t, s, key("large"), 100, time.Hour)
	refresh, err := s.Lease(t.Context(), key("large"),
		cacheguard.LeaseAsk{Token: token(1), TTL: time.Hour, Seen: make([]byte, 16)})
	if err != nil {
		t.Fatalf("Lease: %v", err)
	}
	fill(t, s, key("large"), refresh.Grant, 16<<10, time.Hour)
	if has(t, s, key("large")) {
		t.Error("it is kept, or what it replaces is")
	}
	if !has(t, s, key("small")) {
		t.Error("another value was dropped for it")
	}
}

func TestUnboundedStore(t *testing.T) {
	s := memstore.New(memstore.Options{MaxBytes: -1})
	set(t, s, key("k"), 1<<20, time.Hour)
	if !has(t, s, key("k")) {
		t.Error("the value is gone")
	}
}

func TestLeasesAreNotDropped(t *testing.T) {
	s := memstore.New(memstore.Options{MaxBytes: 1})
	const leases = 1000
	var grants []cacheguard.Grant
	for i := range leases {
		grants = append(grants, lead(t, s, key(i), i, time.Hour))
		set(t, s, key("value"), 1000, time.Hour)
	}
	for i, g := range grants {
		if h, err := s.Renew(t.Context(), key(i), g, time.Hour); err != nil ||
			h != cacheguard.HoldingMine {
			t.Fatalf("Renew of lease %d: %v, %v; want it alive", i, h, err)
		}
	}
}

func TestRecordsAreBoundedApartFromValues(t *testing.T) {
	s := memstore.New(memstore.Options{MaxBytes: 64 << 10})
	// It expires before the records do, so it would be dropped first.
	set(t, s, key("value"), 40<<10, time.Minute)
	for i := range 1000 {
		o := cacheguard.Outcome{Kind: cacheguard.OutcomeFailed, Text: fmt.Sprintf("%100d", i)}
		if err := s.Conclude(t.Context(), key(i), lead(t, s, key(i), i, time.Hour), o, time.Hour,
			time.Hour); err != nil {
			t.Fatalf("Conclude: %v", err)
		}
	}
	_, leases, records := s.Items()
	if leases != 0 || records < 5 || records > 20 {
		t.Errorf("%d leases and %d records of 100 bytes are kept; want none, and what fits into 4 KiB",
			leases, records)
	}
	if !has(t, s, key("value")) {
		t.Error("failed loads pushed out a value")
	}
}

// TestExpiredItemsAreFreed: expired items are freed without another request for them.
func TestExpiredItemsAreFreed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New(memstore.Options{})
		const n = 1000
		for i := range n {
			set(t, s, key(i), 10, time.Second)
			g := lead(t, s, key(fmt.Sprint("failed ", i)), i, time.Second)
			if err := s.Conclude(t.Context(), key(fmt.Sprint("failed ", i)), g,
				cacheguard.Outcome{}, time.Second, 0); err != nil {
				t.Fatalf("Conclude: %v", err)
			}
			lead(t, s, key(fmt.Sprint("leased ", i)), i, time.Second)
		}
		<-time.After(2 * time.Second)
		for range n / 50 {
			has(t, s, key("another"))
		}
		if values, leases, records := s.Items(); values+leases+records > 0 {
			t.Errorf("%d values, %d leases, %d records are still there", values, leases, records)
		}
	})
}

func TestVeryLongTTL(t *testing.T) {
	s := memstore.New(memstore.Options{})
	set(t, s, key("k"), 1, math.MaxInt64)
	if !has(t, s, key("k")) {
		t.Error("the value is gone")
	}
	set(t, s, key("k"), 1, 0)
	if has(t, s, key("k")) {
		t.Error("a value without a lifetime is there")
	}
}
