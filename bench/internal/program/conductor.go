package program

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/redis/go-redis/v9"
)

// mostPatience is how long nobody may have had the lock, or answered.
const mostPatience = time.Minute

// conductor tells contenders when to ask for a lock and when to give it back, and hears when they
// did. All that is measured they measure themselves.
type conductor struct {
	ctx    context.Context
	cancel context.CancelFunc
	rdb    *redis.Client
	fleet  fleet
	name   string // of the lock
	heard  chan heard
}

// heard is what a process says.
type heard struct {
	handoverReport
	err error
}

// handoverCount is what crossed the wire.
type handoverCount struct{ trips, messages, commands, pings int64 }

func (a handoverCount) plus(b handoverCount) handoverCount {
	return handoverCount{a.trips + b.trips, a.messages + b.messages, a.commands + b.commands, a.pings + b.pings}
}

func (a handoverCount) minus(b handoverCount) handoverCount {
	return a.plus(handoverCount{-b.trips, -b.messages, -b.commands, -b.pings})
}

// conduct starts processes, and returns when they are ready.
func conduct(ctx context.Context, s *server, locker string, processes int) (*conductor, error) {
	ctx, cancel := context.WithCancel(ctx)
	fleet, err := startFleet(ctx, processes, "handover-process", "-redis", s.addr, "-locker", locker)
	if err != nil {
		cancel()
		return nil, err
	}
	c := &conductor{
		ctx: ctx, cancel: cancel, rdb: s.rdb, fleet: fleet, heard: make(chan heard),
		name: fmt.Sprintf("handover:%s:%x", locker, rand.Uint64()),
	}
	for _, child := range fleet {
		go c.listen(child)
	}
	for range fleet {
		if _, err := c.hear(); err != nil {
			return nil, errors.Join(err, c.stop())
		}
	}
	return c, nil
}

// stop ends the processes.
func (c *conductor) stop() error {
	defer c.cancel()
	return c.fleet.stop()
}

// listen passes on what a process says until it ends.
func (c *conductor) listen(child *child) {
	for {
		var h heard
		h.err = child.read(&h.handoverReport)
		select {
		case c.heard <- h:
		case <-c.ctx.Done():
			return
		}
		if h.err != nil {
			return
		}
	}
}

// hear returns the next report.
func (c *conductor) hear() (handoverReport, error) {
	timer := time.NewTimer(mostPatience)
	defer timer.Stop()
	select {
	case h := <-c.heard:
		if h.err == nil && h.Error != "" {
			h.err = fmt.Errorf("contender %d, told to %s: %s", h.Who, h.Done, h.Error)
		}
		return h.handoverReport, h.err
	case <-timer.C:
		return handoverReport{}, fmt.Errorf("nothing was heard for %v", mostPatience)
	case <-c.ctx.Done():
		return handoverReport{}, c.ctx.Err()
	}
}

// tell has a contender do something.
func (c *conductor) tell(do move, who int) error {
	return c.fleet[who%len(c.fleet)].order(handoverOrder{Do: do, Who: who, Name: c.name})
}

// rest lets time pass.
func (c *conductor) rest(d time.Duration) {
	select {
	case <-time.After(d):
	case <-c.ctx.Done():
	}
}

// upTo is a random time.
func upTo(most time.Duration) time.Duration { return rand.N(most + 1) }

// handovers has the lock change hands n times, after a time that is not counted in which everybody
// had it once or so.
func (c *conductor) handovers(contenders, n int, hold, spread time.Duration) (took []int64, counted handoverCount, err error) {
	for who := range contenders {
		if err := c.tell(toLock, who); err != nil {
			return nil, counted, err
		}
		c.rest(upTo(2 * spread / time.Duration(contenders)))
	}
	first, err := c.hear()
	if err != nil {
		return nil, counted, err
	}
	holder := first.Who
	for i := -contenders; i < n; i++ {
		if i == 0 {
			if counted, err = c.count(); err != nil {
				return nil, counted, err
			}
		}
		c.rest(hold + upTo(spread))
		before := holder
		one, next, err := c.handover(before)
		if err != nil {
			return nil, counted, err
		}
		if i >= 0 {
			took = append(took, one)
		}
		holder = next
		c.rest(upTo(spread))
		if err := c.tell(toLock, before); err != nil {
			return nil, counted, err
		}
	}
	after, err := c.count()
	return took, after.minus(counted), err
}

// handover has the holder give the lock back, and returns who has it next and how long that took:
// from just before Unlock was called to when Lock had returned.
func (c *conductor) handover(holder int) (took int64, next int, err error) {
	if err := c.tell(toUnlock, holder); err != nil {
		return 0, 0, err
	}
	var from, to int64
	for from == 0 || to == 0 {
		r, err := c.hear()
		switch {
		case err != nil:
			return 0, 0, err
		case r.Done == toUnlock:
			from = r.At
		case to != 0:
			return 0, 0, fmt.Errorf("contenders %d and %d have the lock at the same time", next, r.Who)
		default:
			to, next = r.At, r.Who
		}
	}
	if to < from {
		return 0, 0, fmt.Errorf("contender %d had the lock %v before contender %d gave it back", next, time.Duration(from-to), holder)
	}
	return to - from, next, nil
}

// settle is how long no message may have arrived before the count is true.
const settle = 20 * time.Millisecond

// count says what was counted so far, when all messages have arrived.
func (c *conductor) count() (n handoverCount, err error) {
	for before := int64(-1); err == nil && n.messages != before; {
		before = n.messages
		c.rest(settle)
		n, err = c.countNow()
	}
	return n, err
}

func (c *conductor) countNow() (n handoverCount, err error) {
	for _, child := range c.fleet {
		if err := child.order(handoverOrder{Do: toCount}); err != nil {
			return n, err
		}
	}
	for range c.fleet {
		r, err := c.hear()
		if err != nil {
			return n, err
		}
		if r.Done != toCount {
			return n, fmt.Errorf("contender %d has the lock, which another one holds", r.Who)
		}
		n.trips, n.messages = n.trips+r.Trips, n.messages+r.Messages
	}
	n.commands, n.pings, err = countCommands(c.ctx, c.rdb)
	return n, err
}

// repeat has one contender have the lock and give it back n times.
func (c *conductor) repeat(n int) (took []int64, counted handoverCount, err error) {
	before, err := c.count()
	if err != nil {
		return nil, counted, err
	}
	if err := c.fleet[0].order(handoverOrder{Do: toRepeat, Name: c.name, Pairs: n}); err != nil {
		return nil, counted, err
	}
	r, err := c.hear()
	if err != nil {
		return nil, counted, err
	}
	after, err := c.count()
	return r.Pairs, after.minus(before), err
}
