package memstore_test

import (
	"testing"
	"testing/synctest"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/cacheguard/memstore"
	"github.com/cacheguard/cacheguard/cacheguard/storetest"
)

// open is one store that two processes of a fleet share.
func open(t *testing.T) storetest.Fleet {
	s := memstore.New(memstore.Options{})
	t.Cleanup(func() { s.Close() })
	return storetest.Fleet{
		Stores:    []cacheguard.Store{s, s},
		LoseLease: s.LoseLease,
	}
}

func TestConformance(t *testing.T) { storetest.Run(t, open) }

func TestConformanceInBubble(t *testing.T) {
	for _, c := range storetest.Cases() {
		t.Run(c.Name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { c.Run(t, open(t)) })
		})
	}
}
