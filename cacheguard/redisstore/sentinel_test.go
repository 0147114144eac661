package redisstore_test

import (
	"testing"

	"github.com/cacheguard/cacheguard/cacheguard/storetest"
	"github.com/cacheguard/cacheguard/internal/redistest"
)

// TestConformanceSentinel finds the server through a Sentinel, as a client that follows failovers
// does.
func TestConformanceSentinel(t *testing.T) {
	sentinel := redistest.StartSentinel(t, 0, 1)
	other := newClient(t, sentinel.Servers()[0])
	storetest.Run(t, func(t *testing.T) storetest.Fleet {
		must(t, other.FlushDB(t.Context()).Err())
		return openFleet(t, failoverClient(t, sentinel), failoverClient(t, sentinel), other)
	})
}
