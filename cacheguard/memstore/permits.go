package memstore

import (
	"context"
	"time"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/internal/protocol"
)

var _ cacheguard.Permits = (*Store)(nil)

// budget has the tokens with a permit, each with the end of its permit.
type budget struct {
	held   map[cacheguard.ID]time.Duration
	wanted bool
}

// TakePermit gives the token a permit of the budget, if one is free. If the token already has a
// permit, TakePermit renews it. See [cacheguard.Permits].
func (s *Store) TakePermit(
	ctx context.Context, name string, token cacheguard.ID, max int, ttl time.Duration,
) (taken bool, wait time.Duration, err error) {
	err = s.step(ctx, func(t *turn) {
		b := s.budgets[name]
		if b == nil {
			b = &budget{held: make(map[cacheguard.ID]time.Duration)}
			s.budgets[name] = b
		}
		for other, until := range b.held {
			if until <= t.now {
				delete(b.held, other)
			} else if wait == 0 || until-t.now < wait {
				wait = until - t.now
			}
		}
		if _, mine := b.held[token]; !mine && len(b.held) >= max {
			b.wanted = true
			return
		}
		b.held[token] = protocol.After(t.now, ttl)
		taken, wait = true, 0
	})
	return taken, wait, err
}

// ReturnPermit returns a permit. See [cacheguard.Permits].
func (s *Store) ReturnPermit(ctx context.Context, name string, token cacheguard.ID) error {
	return s.step(ctx, func(t *turn) {
		b := s.budgets[name]
		if b == nil {
			return
		}
		if _, mine := b.held[token]; !mine {
			return
		}
		delete(b.held, token)
		if b.wanted {
			b.wanted = false
			t.tell(cacheguard.Key{Cache: cacheguard.PermitsCache, Key: name},
				cacheguard.Message{Kind: cacheguard.MessageReleased, Load: token})
		}
		if len(b.held) == 0 {
			delete(s.budgets, name)
		}
	})
}
