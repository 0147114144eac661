package locktest_test

import (
	"slices"

	"github.com/cacheguard/cacheguard/cacheguard/lock/locktest"
)

// mutant is a way to break a locker, and the cases that must notice.
type mutant struct {
	name   string
	caught []string
	mutate func(s *seat)                     // each locker of a fleet
	harm   func(f *locktest.Fleet, t *table) // what the fleet says of itself
}

func mutants() []mutant {
	return slices.Concat(exclusionMutants, waitMutants, unlockMutants, stateMutants, nameMutants, tokenMutants, takeMutants, reentrantMutants, troubleMutants)
}
