package redlock

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
)

// errTwice is the error of masters that are not so many servers.
var errTwice = errors.New("a server that is counted twice is no majority")

// twins are two masters that are one server.
type twins struct{ first, second *master }

// lookForTwin notes of a master's answer whether it is the server of another master. It is, if the
// claim's own lock is there by the other one's token. No right is needed for this beyond those that
// locks need. One server with two databases has different keys, and is not found.
func (c *claim) lookForTwin(m *master, a *answer) {
	if a.said != other {
		return
	}
	for _, first := range c.l.masters {
		if a.holder == c.at(first) {
			a.twin = first
			c.l.twins.Store(&twins{first, m})
			return
		}
	}
}

// isTwice reports whether two masters turned out to be one server, and has that be the error of an
// attempt. The votes are right without it, for a server has one. But a fleet with such masters
// outlives fewer failures than it should, which nobody would notice. While twins are known their
// answers to one lock needn't show it, if another claim has the lock: so they are asked for another
// one. If one of them is silent the doubt stays for the next call, and the votes of this one count.
func (l *Locker) isTwice(ctx context.Context, a *attempt) bool {
	a.err = l.distinct(a.t)
	if a.err == nil && l.twins.Load() != nil {
		a.err = l.probe(ctx, func(t *tally) bool { return !t.pendingThere() })
	}
	return a.err != nil
}

// probe asks all masters for a lock that nobody else wants, and returns an error if two of them are
// one server. Masters that don't answer within NodeTimeout, or until enough have, are left out.
func (l *Locker) probe(ctx context.Context, enough func(*tally) bool) error {
	c, t := l.claim(rand.Text()), l.tally()
	defer c.giveBack(ctx)
	c.collect(ctx, c.want(ctx, l.masters, wish{}), t, enough)
	return l.distinct(t)
}

// distinct returns an error that names two masters that are one server, if that is among the
// answers to a claim. Twins that were known are forgotten when both have voted for it.
func (l *Locker) distinct(t *tally) error {
	known, votes := l.twins.Load(), 0
	for _, a := range t.answers {
		m := l.masters[a.master]
		switch {
		case a.twin != nil:
			return fmt.Errorf("%v and %v are one server, or one is a replica of the other: %w", a.twin, m, errTwice)
		case known != nil && a.said == mine && (m == known.first || m == known.second):
			votes++
		}
	}
	if votes == 2 {
		l.twins.CompareAndSwap(known, nil) // another call may have found others
	}
	return nil
}

// String names a master, and its address if that is known.
func (m *master) String() string {
	if address, _ := checkMaster(m.rdb); address != "" {
		return fmt.Sprintf("master %d (%s)", m.index, address)
	}
	return fmt.Sprintf("master %d", m.index)
}
