package redlock

import (
	"context"
	"crypto/rand"
	"fmt"
	"sync"
	"time"

	"github.com/cacheguard/cacheguard/cacheguard/lock"
)

// claim is one try to get a lock, with a token of its own: while it is asked for, while it is held,
// and until nothing of it is left on any master. A token is not used again after it was released,
// also not by a Lock that goes on trying: a copy of that release which arrives late would take away
// what is counted on.
//
// Each master is given a token of its own, so that a server with two names has one vote: it gave it
// to the name that asked first, and says to the other name that the lock is another's. This holds
// for renewals and releases, too, and while one of the names doesn't answer, or changes the server
// that it leads to. To look later whether two names lead to one server would be too late in both
// cases.
type claim struct {
	l                *Locker
	name, key, token string // the token is what those of all masters begin with

	mu    sync.Mutex      // guards what follows
	last  []chan struct{} // by master: closed when the latest request has come back; nil: there was none
	there []bool          // by master: it may have the lock
	over  bool            // it was given back: no more is asked for
}

func (l *Locker) claim(name string) *claim {
	return &claim{
		l: l, name: name, key: l.opts.Prefix + ":" + name, token: rand.Text()[:claimSize],
		last: make([]chan struct{}, len(l.masters)), there: make([]bool, len(l.masters)),
	}
}

// at is the claim's token for a master.
func (c *claim) at(m *master) string { return c.token + m.suffix }

// ask has step be done with each of these masters, all at once, and returns where the answers will
// come. With each master the claim does one step after another, so that a release doesn't overtake
// what it is to undo. No context ends a step, because it may be carried out all the same; each ends
// by its master's timeout. c.mu is held.
func (c *claim) ask(masters []*master, step func(*master) answer) <-chan answer {
	answers := make(chan answer, len(masters))
	for _, m := range masters {
		before, done := c.last[m.index], make(chan struct{})
		c.last[m.index] = done
		c.l.keeper.Go(func() {
			defer close(done)
			if before != nil {
				<-before
			}
			answers <- step(m)
		})
	}
	return answers
}

// collect counts answers until enough has been said, the time for a request is over, or ctx ends.
func (c *claim) collect(ctx context.Context, answers <-chan answer, t *tally, enough func(*tally) bool) {
	timer := time.NewTimer(c.l.opts.NodeTimeout)
	defer timer.Stop()
	for t.pending() > 0 && !enough(t) {
		select {
		case a := <-answers:
			t.add(a)
		case <-timer.C:
			t.close(func(i int) error { return c.l.masters[i].late() })
		case <-ctx.Done():
			t.close(func(i int) error { return fmt.Errorf("master %d: %w", i, ctx.Err()) })
		}
	}
}

// wish is how a lock is wanted.
type wish struct {
	waiter string // who gets messages if another has it; "": nobody
	force  bool   // whoever has it
}

// acquire asks all masters for the lock.
func (c *claim) acquire(ctx context.Context, w wish) *tally {
	t := c.l.tally()
	enough := (*tally).settled
	if !c.l.asked.Swap(true) { // all are waited for, to see whether two of them are one server
		enough = all
	}
	c.collect(ctx, c.want(ctx, c.l.masters, w), t, enough)
	return t
}

// all doesn't let a claim be content with fewer answers than there can be.
func all(*tally) bool { return false }

// tally is of answers that haven't come, of all masters.
func (l *Locker) tally() *tally {
	t := &tally{masters: len(l.masters), away: make([]bool, len(l.masters))}
	for i, m := range l.masters {
		t.away[i] = m.silent.Load()
	}
	return t
}

// want asks these masters for the lock, unless the claim is over.
func (c *claim) want(ctx context.Context, masters []*master, w wish) <-chan answer {
	ctx = context.WithoutCancel(ctx)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.over {
		return nil
	}
	return c.ask(masters, func(m *master) answer {
		a := m.acquire(ctx, c.key, c.at(m), c.l.opts.Lease, w)
		c.lookForTwin(m, &a)
		c.note(m, a.said == mine || a.said == nothing && !a.unsent)
		return a
	})
}

// note notes whether a master may have the lock.
func (c *claim) note(m *master, there bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.there[m.index] = there
}

// renew gives the lock more time. Only masters that have had it until now count: if those counted
// on which it is set anew, a lock that was lost, and that another has had meanwhile, would seem to
// have been held all the time.
func (c *claim) renew(ctx context.Context) (until time.Time, held bool, err error) {
	turn := c.l.turn(ctx)
	defer turn.done()
	began := time.Now()
	t := c.l.tally()
	c.mu.Lock()
	answers := c.ask(c.l.masters, func(m *master) answer {
		a := m.renew(context.WithoutCancel(ctx), c.key, c.at(m), c.l.opts.Lease)
		if a.said == other || a.said == free {
			c.note(m, false)
		}
		return a
	})
	c.mu.Unlock()
	c.collect(ctx, answers, t, decidedIn(turn))
	if t.refused() { // then it isn't set anew where it is free either: another may be about to have it
		return time.Time{}, false, nil
	}
	if !t.won() {
		err = t.trouble()
	}
	c.l.keeper.Go(func() { c.mend(answers, t) })
	return began.Add(c.l.opts.validity()), true, err
}

// decidedIn is tally.decided, and steps aside when all have answered that did so the last time. The
// others are waited for beside the next turns: if a majority is silent, thousands of locks would
// otherwise wait for it a few at a time. As soon as one of them answers it counts as there again,
// so no more than mostAside requests too many go to it at once.
func decidedIn(turn *turn) func(*tally) bool {
	return func(t *tally) bool {
		if !t.pendingThere() {
			turn.stepAside()
		}
		return t.decided()
	}
}

// mend asks those masters for the lock where nobody has it: they were restarted, or not reached
// when it was acquired. From the next renewal on they count, so that a lock that is held for long
// outlives a restart of each master, and that each of them is away for a while, one after another.
// While it is valid and no majority says that it isn't ours, nobody else can have had one.
func (c *claim) mend(answers <-chan answer, t *tally) {
	c.collect(context.Background(), answers, t, all)
	var without []*master
	for _, a := range t.answers {
		if a.said == free {
			without = append(without, c.l.masters[a.master])
		}
	}
	c.want(context.Background(), without, wish{})
}

// release gives the lock back on all masters, and says whether it was there. What a master doesn't
// answer to is tried again in the background.
func (c *claim) release(ctx context.Context) error {
	turn := c.l.turn(ctx)
	defer turn.done()
	t := c.l.tally()
	c.collect(ctx, c.giveBack(ctx), t, decidedIn(turn))
	switch {
	case t.won():
		return nil
	case t.refused():
		return lock.ErrLost
	default:
		return fmt.Errorf("redlock: %q: giving it back: %w", c.name, t.trouble())
	}
}

// giveBack ends the claim, and gives back what any master may have of it.
func (c *claim) giveBack(ctx context.Context) <-chan answer {
	ctx = context.WithoutCancel(ctx)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.over = true
	return c.ask(c.l.masters, func(m *master) answer {
		c.mu.Lock()
		there := c.there[m.index]
		c.mu.Unlock()
		if !there {
			return answer{master: m.index, said: free}
		}
		return c.releaseAt(ctx, m)
	})
}

// releaseAt gives the lock back on one master. If that doesn't answer, it is tried again until the
// lock has ended by itself.
func (c *claim) releaseAt(ctx context.Context, m *master) answer {
	release := func(ctx context.Context) answer { return m.release(ctx, c.key, c.at(m), c.l.channel(), c.name) }
	began := time.Now()
	a := release(ctx)
	switch {
	case a.said == nothing:
		m.debts.Owe(began.Add(c.l.opts.Lease), func() bool { return release(context.Background()).said != nothing })
	case a.place > 0:
		c.l.lines.yield(c.name, a.place, min(time.Since(began), m.timeout)) // it may be this process that took long
	}
	return a
}
