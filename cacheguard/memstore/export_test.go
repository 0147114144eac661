package memstore

import "github.com/cacheguard/cacheguard/cacheguard"

// LoseLease drops what stands where a key's lease stands, as an eviction in a shared store would.
func (s *Store) LoseLease(k cacheguard.Key) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.leases.remove(k)
	s.records.remove(k)
}

// Items counts the values, leases and records that take up memory, expired ones too.
func (s *Store) Items() (values, leases, records int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.values.items), len(s.leases.items), len(s.records.items)
}

// MaxQueue is how many messages wait for a slow listener.
const MaxQueue = maxQueue
