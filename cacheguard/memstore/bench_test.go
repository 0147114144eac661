package memstore_test

import (
	"testing"
	"time"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/cacheguard/memstore"
)

// BenchmarkSteps is a load from lease to fill, what waits for one, and the same for one that fails.
func BenchmarkSteps(b *testing.B) {
	k, f := key("k"), make([]byte, 256)
	for name, end := range map[string]func(s *memstore.Store, g cacheguard.Grant) error{
		"fill": func(s *memstore.Store, g cacheguard.Grant) error {
			_, err := s.Fill(b.Context(), k, g, f, time.Hour)
			return err
		},
		"conclude": func(s *memstore.Store, g cacheguard.Grant) error {
			return s.Conclude(b.Context(), k, g,
				cacheguard.Outcome{Kind: cacheguard.OutcomeFailed, Text: "failed"}, time.Hour, 0)
		},
		"release": func(s *memstore.Store, g cacheguard.Grant) error {
			return s.Release(b.Context(), k, g.Token)
		},
		"mark": func(s *memstore.Store, g cacheguard.Grant) error {
			return s.MarkStale(b.Context(), []cacheguard.Key{k}, 20, []byte("12345678"))
		},
	} {
		b.Run(name, func(b *testing.B) {
			s := memstore.New(memstore.Options{})
			stop := s.Listen("test", func(cacheguard.Message) {})
			defer stop()
			b.ReportAllocs()
			for b.Loop() {
				seen, _, _ := s.Get(b.Context(), k, nil)
				ask := cacheguard.LeaseAsk{Token: token(1), TTL: time.Hour, Wait: true}
				if len(seen) > 18 {
					ask.Seen = seen[2:18]
				}
				lead, err := s.Lease(b.Context(), k, ask)
				if err != nil || lead.State != cacheguard.LeaseGranted {
					b.Fatalf("%+v, %v", lead, err)
				}
				ask.Token = token(2)
				_, _ = s.Lease(b.Context(), k, ask)
				_, _ = s.Renew(b.Context(), k, lead.Grant, time.Hour)
				if err := end(s, lead.Grant); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
