package locktest_test

import (
	"slices"

	"github.com/cacheguard/cacheguard/cacheguard/lock/locktest"
)

// mutant is a way to break a locker, with the cases that must notice it.
type mutant struct {
	name   string
	caught []string
	mutate func(s *seat)                     // changes each locker of a fleet
	harm   func(f *locktest.Fleet, t *table) // changes the fleet's description of itself
}

func mutants() []mutant {
	return slices.Concat(exclusionMutants, waitMutants, unlockMutants, stateMutants, nameMutants,
		tokenMutants, takeMutants, reentrantMutants, troubleMutants)
}
