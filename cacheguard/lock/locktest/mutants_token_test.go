package locktest_test

import (
	"math/rand/v2"

	"github.com/cacheguard/cacheguard/cacheguard/lock/locktest"
	"github.com/cacheguard/cacheguard/internal/tenure"
)

// numbers makes locks return another token than the system's.
func numbers(token func(s *seat, was int64) int64) func(s *seat) {
	return func(s *seat) {
		s.inner.flaws.terms = func(t *tenure.Terms) { t.Token = token(s, t.Token) }
	}
}

var tokenMutants = []mutant{
	{
		name: "one token for all",
		caught: []string{
			"token: larger for each holder", "linearizable: Lock, TryLock and Unlock",
			"exclusion: under contention",
		},
		mutate: numbers(func(*seat, int64) int64 { return 1 }),
	},
	{
		name:   "no token",
		caught: []string{"token: larger for each holder"},
		mutate: numbers(func(*seat, int64) int64 { return 0 }),
	},
	{
		name:   "tokens shrink",
		caught: []string{"token: larger for each holder", "linearizable: Lock, TryLock and Unlock"},
		mutate: numbers(func(_ *seat, was int64) int64 { return 1<<40 - was }),
	},
	{
		name:   "tokens are drawn",
		caught: []string{"token: larger for each holder", "linearizable: Lock, TryLock and Unlock"},
		mutate: numbers(func(*seat, int64) int64 { return 1 + rand.Int64N(1<<40) }),
	},
	{
		name:   "each locker has its own tokens",
		caught: []string{"token: larger for each holder"},
		mutate: func(s *seat) {
			var own int64
			numbers(func(*seat, int64) int64 { own++; return own })(s)
		},
	},
	{
		name:   "tokens are forgotten with the lock",
		caught: []string{"token: larger after a theft"},
		harm: func(f *locktest.Fleet, t *table) {
			f.Steal = t.forget
		},
	},
	{
		name:   "tokens nobody speaks of",
		caught: []string{"token: none"},
		harm:   func(f *locktest.Fleet, _ *table) { f.Fenced = false },
	},
}
