package redlock

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
)

// errTwice is the error when two masters are one server.
var errTwice = errors.New("a server that is counted twice is no majority")

// twins are two masters that are one server.
type twins struct{ first, second *master }

// lookForTwin finds out from a master's reply whether the master is the same server as another
// master. It is the same server if it has the claim's own lock with the other master's token. This
// check needs only the rights that locks need. It doesn't find one server with two databases,
// because their keys are different.
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

// isTwice reports whether two masters turned out to be one server. If so, it sets an error that
// wraps errTwice as the error of the attempt. The votes are right without this check, because a
// server has one vote. But a fleet with these masters survives fewer failures than it should, and
// without an error nobody would notice. If another claim has the lock, known twins may give replies
// that don't show that they are one server. So isTwice also requests a different lock, which nobody
// else wants. If one of the twins is silent, the next call does the check, and the votes of this
// call are valid.
func (l *Locker) isTwice(ctx context.Context, a *attempt) bool {
	a.err = l.distinct(a.t)
	if a.err == nil && l.twins.Load() != nil {
		a.err = l.probe(ctx, func(t *tally) bool { return !t.pendingThere() })
	}
	return a.err != nil
}

// probe requests from all masters a lock that nobody else wants, and returns an error if two
// masters are one server. It ignores masters that don't reply within NodeTimeout, or before enough
// returns true.
func (l *Locker) probe(ctx context.Context, enough func(*tally) bool) error {
	c, t := l.claim(rand.Text()), l.tally()
	defer c.giveBack(ctx)
	c.collect(ctx, c.want(ctx, l.masters, wish{}), t, enough)
	return l.distinct(t)
}

// If the replies to a claim show that two masters are one server, distinct returns an error that
// names them. It forgets known twins if both have voted for the claim.
func (l *Locker) distinct(t *tally) error {
	known, votes := l.twins.Load(), 0
	for _, a := range t.answers {
		m := l.masters[a.master]
		switch {
		case a.twin != nil:
			return fmt.Errorf("%v and %v are one server, or one is a replica of the other: %w",
				a.twin, m, errTwice)
		case known != nil && a.said == mine && (m == known.first || m == known.second):
			votes++
		}
	}
	if votes == 2 {
		l.twins.CompareAndSwap(known, nil) // another call may have found other twins
	}
	return nil
}

// String returns the master's number, and its address if it is known.
func (m *master) String() string {
	if address, _ := checkMaster(m.rdb); address != "" {
		return fmt.Sprintf("master %d (%s)", m.index, address)
	}
	return fmt.Sprintf("master %d", m.index)
}
