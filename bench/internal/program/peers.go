package program

import (
	"slices"

	"github.com/cacheguard/cacheguard/bench/internal/contender"
)

// Peers are the contenders that a program has besides those of this module. Whoever has libraries of others to show
// lives in a module of its own, so that they are no dependencies of this one.
type Peers struct {
	Lockers    []Locker              // for handover
	Contenders []contender.Contender // for the scenarios
}

// contenders are the program's own and the peers'.
func (p Peers) contenders() []contender.Contender {
	return slices.Concat(contender.All(), lockContenders(), p.Contenders)
}

// lockers are the program's own and the peers'.
func (p Peers) lockers() []Locker { return slices.Concat(lockers, p.Lockers) }
