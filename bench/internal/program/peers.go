package program

import (
	"slices"

	"github.com/cacheguard/cacheguard/bench/internal/contender"
)

// Peers are the contenders that a program has besides those of this module. Whoever has libraries
// of others to show lives in a module of its own, so that they are no dependencies of this one.
type Peers struct {
	Lockers    []Locker              // for handover
	Contenders []contender.Contender // for the scenarios
}

// contenders are the program's own and the peers'.
func (p Peers) contenders() []contender.Contender {
	return slices.Concat(contender.All(), lockContenders(), p.Contenders)
}

// known are all that a replica can be told of.
func (p Peers) known() []contender.Contender { return append(p.contenders(), contender.Special...) }

// among says whether some of the peers' contenders are chosen.
func (p Peers) among(chosen []contender.Contender) bool {
	return slices.ContainsFunc(chosen, func(c contender.Contender) bool {
		return slices.ContainsFunc(p.Contenders, func(of contender.Contender) bool { return of.Name == c.Name })
	})
}

// standardContenders are those that are compared unless others are named.
func (p Peers) standardContenders() []string {
	return slices.Concat(standardContenders, contender.Names(p.Contenders))
}

// lockers are the program's own and the peers'.
func (p Peers) lockers() []Locker { return slices.Concat(lockers, p.Lockers) }
