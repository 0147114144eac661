package systemtest_test

import (
	"context"
	"sync"
	"time"

	"github.com/cacheguard/cacheguard/cacheguard"
)

// fence watches the leases of a whole fleet: a fill that was begun when another process already
// knew of a later grant must not be stored, whatever went wrong.
type fence struct {
	broken func(key string, late, newer int64)

	mu     sync.Mutex // guards what follows
	newest map[string]int64
	stored int
	refuse int
}

// fenced is a member's store.
type fenced struct {
	cacheguard.Store
	f *fence
}

func (s fenced) Lease(
	ctx context.Context, k cacheguard.Key, ask cacheguard.LeaseAsk,
) (cacheguard.LeaseAnswer, error) {
	ans, err := s.Store.Lease(ctx, k, ask)
	if err == nil && ans.State == cacheguard.LeaseGranted {
		s.f.granted(k.Key, ans.Grant)
	}
	return ans, err
}

func (s fenced) Claim(
	ctx context.Context, k cacheguard.Key, token cacheguard.ID, ttl time.Duration,
) (cacheguard.Grant, error) {
	g, err := s.Store.Claim(ctx, k, token, ttl)
	if err == nil {
		s.f.granted(k.Key, g)
	}
	return g, err
}

func (s fenced) Fill(
	ctx context.Context, k cacheguard.Key, g cacheguard.Grant, frame []byte, ttl time.Duration,
) (cacheguard.FillAnswer, error) {
	newer := s.f.known(k.Key)
	ans, err := s.Store.Fill(ctx, k, g, frame, ttl)
	if err != nil {
		return ans, err
	}
	if ans == cacheguard.FillStored && newer > g.Number {
		s.f.broken(k.Key, g.Number, newer)
	}
	s.f.mu.Lock()
	defer s.f.mu.Unlock()
	if ans == cacheguard.FillStored {
		s.f.stored++
	} else {
		s.f.refuse++
	}
	return ans, err
}

func (f *fence) granted(key string, g cacheguard.Grant) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.newest[key] = max(f.newest[key], g.Number)
}

func (f *fence) known(key string) int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.newest[key]
}
