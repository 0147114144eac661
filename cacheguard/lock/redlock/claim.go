package redlock

import (
	"context"
	"crypto/rand"
	"fmt"
	"sync"
	"time"

	"github.com/cacheguard/cacheguard/cacheguard/lock"
)

// claim is one try to get a lock. Each claim has its own token. A claim exists from its request
// until nothing of it is left on any master. A token is not used again after its release, not even
// by the same Lock call: a late copy of the release would remove a vote that the next try needs.
//
// Each master gets a different token, so that a server with two names has one vote. The server
// votes for the token that arrives first. It answers the request under its other name as if another
// holder had the lock. This also works for renewals and releases, while one of the names doesn't
// respond, and when a name moves to another server. In these cases a check whether two names lead
// to one server would come too late.
type claim struct {
	l                *Locker
	name, key, token string // token is the common start of the tokens for all masters

	mu sync.Mutex // guards the fields below
	// By master: closed when the latest request is done; nil: there was no request.
	last  []chan struct{}
	there []bool // by master: whether the claim may have the lock there
	over  bool   // the claim was given back: it sends no more requests for the lock
}

func (l *Locker) claim(name string) *claim {
	return &claim{
		l: l, name: name, key: l.opts.Prefix + ":" + name, token: rand.Text()[:claimSize],
		last: make([]chan struct{}, len(l.masters)), there: make([]bool, len(l.masters)),
	}
}

// at returns the claim's token for a master.
func (c *claim) at(m *master) string { return c.token + m.suffix }

// ask calls step for each of these masters, all at once, and returns a channel for the replies. The
// steps of a claim on one master run one after another, so that a release doesn't overtake the
// request that it undoes. No context cancels a step, because the master may carry it out anyway.
// Each step ends within its master's timeout. The caller holds c.mu.
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

// collect counts replies until enough returns true, NodeTimeout is over, or ctx ends.
func (c *claim) collect(
	ctx context.Context, answers <-chan answer, t *tally, enough func(*tally) bool,
) {
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

// wish is the way in which a lock is requested.
type wish struct {
	waiter string // the id that waits if another holder has the lock; "": this request doesn't wait
	force  bool   // take the lock even if another holder has it
}

// acquire requests the lock from all masters.
func (c *claim) acquire(ctx context.Context, w wish) *tally {
	t := c.l.tally()
	enough := (*tally).settled
	if !c.l.asked.Swap(true) { // wait for all masters, to see whether two of them are one server
		enough = all
	}
	c.collect(ctx, c.want(ctx, c.l.masters, w), t, enough)
	return t
}

// all is a condition for collect: collect waits for all replies.
func all(*tally) bool { return false }

// tally returns a tally for one request to all masters, without replies yet.
func (l *Locker) tally() *tally {
	t := &tally{masters: len(l.masters), away: make([]bool, len(l.masters))}
	for i, m := range l.masters {
		t.away[i] = m.silent.Load()
	}
	return t
}

// want requests the lock from these masters, unless the claim is over.
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

// note records whether the claim may have the lock on a master.
func (c *claim) note(m *master, there bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.there[m.index] = there
}

// renew extends the lock. It counts a master only if the lock is still there. If it also counted
// masters on which the lock has just been set again, a lost lock would seem to have been held all
// the time, even if another holder had it in the meantime.
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
	// Don't set the lock again where it is free, because another caller may be about to get it.
	if t.refused() {
		return time.Time{}, false, nil
	}
	if !t.won() {
		err = t.trouble()
	}
	c.l.keeper.Go(func() { c.mend(answers, t) })
	return began.Add(c.l.opts.validity()), true, err
}

// decidedIn returns a function like tally.decided. When only masters that were silent before
// haven't replied yet, this function also steps aside: the request gives up its place in turns and
// goes on waiting. Otherwise, if a majority were silent, thousands of locks would wait for it a few
// at a time. As soon as a silent master replies, requests keep their places in turns until it has
// replied. So at most mostAside additional requests reach it at once.
func decidedIn(turn *turn) func(*tally) bool {
	return func(t *tally) bool {
		if !t.pendingThere() {
			turn.stepAside()
		}
		return t.decided()
	}
}

// mend requests the lock from the masters on which nobody has it, because they were restarted, or
// could not be reached when the lock was acquired. Renewals count these masters from the next
// renewal on. So a lock that is held for long survives if each master in turn is restarted or away
// for a while. This is safe: while the lock is valid and no majority says that the lock isn't ours,
// no other claim can have had a majority.
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

// release gives the lock back on all masters, and reports whether the lock was still there. If a
// master doesn't reply, the release is repeated in the background.
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

// giveBack ends the claim, and gives back the lock on each master that may have it.
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

// releaseAt gives the lock back on one master. If the master doesn't reply, releaseAt returns, and
// the release is repeated in the background until the master replies, the lock has expired, or the
// locker is closed.
func (c *claim) releaseAt(ctx context.Context, m *master) answer {
	release := func(ctx context.Context) answer {
		return m.release(ctx, c.key, c.at(m), c.l.channel(), c.name)
	}
	began := time.Now()
	a := release(ctx)
	switch {
	case a.said == nothing:
		m.debts.Owe(began.Add(c.l.opts.Lease), func() bool {
			return release(context.Background()).said != nothing
		})
	case a.place > 0:
		// Limited, because a longer delay may have been in this process.
		c.l.lines.yield(c.name, a.place, min(time.Since(began), m.timeout))
	}
	return a
}
