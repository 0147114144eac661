package systemtest_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/internal/redistest"
)

// The registers of linear_test.go, changed by writers who tell the caches late or never, as one
// whose invalidation waits in an outbox, and read by callers who have the writers' tokens.

// sessions is what readers know: the token of the last change of each key.
type sessions struct {
	mu     sync.Mutex // guards tokens
	tokens map[string]cacheguard.Token
	stores func() []cacheguard.Store // once there are members
}

// committing is a way whose writer has a token for its readers. One that could not tell the caches
// what it should tells them again.
func (s *sessions) committing(w way) way {
	return way{name: w.name + " and a token", alone: w.alone, make: func(
		ctx context.Context, c *cacheguard.Cache[fact], l *ledger, key string,
	) (fact, error) {
		f, err := w.make(ctx, c, l, key)
		if f.Version == 0 { // an Update that hasn't written
			return f, err
		}
		for began := time.Now(); ; {
			if err != nil {
				err = c.Invalidate(ctx, key)
			}
			// Any of them will do.
			for n, stores := 0, s.stores(); err == nil && n < len(stores); n++ {
				var token cacheguard.Token
				if token, err = cacheguard.Committed(ctx, stores[n], "facts"); err == nil {
					s.give(key, token)
					return f, nil
				}
				err = nil
			}
			if time.Since(began) > replicaPatience {
				return f, fmt.Errorf("no token for %v: %w", f, err)
			}
		}
	}}
}

// give has later readers of the key bring the token, or one that is later.
func (s *sessions) give(key string, token cacheguard.Token) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if had := s.tokens[key]; len(had.String()) < len(token.String()) ||
		had.String() < token.String() {
		s.tokens[key] = token
	}
}

func (s *sessions) of(ctx context.Context, key string) context.Context {
	s.mu.Lock()
	defer s.mu.Unlock()
	return cacheguard.NotOlderThan(ctx, s.tokens[key])
}

// untold is a change of which no cache is told.
var untold = changedBy("Commit", func(context.Context, *cacheguard.Cache[fact], string) error {
	return nil
})

func TestLinearByTokens(t *testing.T) {
	options := map[string]func(*cacheguard.Options[fact]){
		"local tier": func(o *cacheguard.Options[fact]) { o.Local.Entries = 100 },
	}
	for name, change := range registerOptions {
		options[name] = change
	}
	for _, kind := range []string{"one by one", "many"} {
		for name, change := range options {
			t.Run(kind+"/"+name, func(t *testing.T) {
				if !redistest.Full() && name != "plain" && name != "local tier" {
					t.Skip("this takes long: set CACHEGUARD_TEST=full for it")
				}
				t.Parallel()
				s := &sessions{tokens: make(map[string]cacheguard.Token)}
				k := byKey
				if kind == "many" {
					k = registerKinds["many"]
				}
				k.ways = nil
				for _, w := range []way{untold, untold, untold, ways[0], ways[1], ways[2]} {
					k.ways = append(k.ways, s.committing(w))
				}
				read := k.read
				k.read = func(
					ctx context.Context, r *registers, m int, key string,
				) (cacheguard.Result[fact], error) {
					return read(s.of(ctx, key), r, m, key)
				}
				k.scripts = append(k.scripts[:len(k.scripts):len(k.scripts)], "generations")
				k.strong, k.together = true, true // no change waits for its message
				r := newRegisters(t, 3, k, change)
				s.stores = func() (all []cacheguard.Store) {
					for _, m := range r.members {
						all = append(all, m.store)
					}
					return all
				}
				r.run(t)
				r.check(t, r.duringNoChange())
			})
		}
	}
}
