package redislock

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cacheguard/cacheguard/cacheguard/lock"
	"github.com/cacheguard/cacheguard/internal/redislink"
	"github.com/cacheguard/cacheguard/internal/report"
	"github.com/cacheguard/cacheguard/internal/tenure"
)

var (
	deafLine = report.Line{Level: slog.LevelWarn,
		Text:  "redislock: messages don't arrive; calls that wait ask from time to time",
		Means: "a lock is handed over later than it could be", See: "locks-cant-be-had"}
	heardLine = report.Line{
		Level: slog.LevelInfo, Text: "redislock: messages arrive again", See: "locks-cant-be-had",
	}
)

// calls are the waiting calls of this process, and the one subscription that wakes them. The
// subscription begins when the first call waits, or with Warm.
type calls struct {
	link    *redislink.Link
	channel string
	logger  *slog.Logger

	refused chan struct{} // closed when the subscription has failed for the first time

	mu       sync.Mutex // guards the fields below
	sub      *redislink.Subscription
	arriving bool // messages arrive
	closed   bool
	ears     map[string]*ear // by owner

	spell report.Spell // the period in which messages don't arrive
}

// ear receives the messages for one waiting call.
type ear struct {
	word  chan struct{} // wakes the call
	token atomic.Int64  // the token of the lock that the call was handed, or 0
}

// add makes an ear that receives the messages for the owner.
func (c *calls) add(owner string) *ear {
	e := &ear{word: make(chan struct{}, 1)}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ears[owner] = e
	return e
}

func (c *calls) remove(owner string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.ears, owner)
}

// arrive reports whether messages arrive.
func (c *calls) arrive() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.arriving
}

// settle begins the subscription, if it hasn't begun yet. Then it waits until Redis has confirmed
// or refused the subscription, but no longer than most. While no messages arrive, waiting calls
// poll.
func (c *calls) settle(ctx context.Context, most time.Duration) {
	sub := c.subscribe()
	if sub == nil {
		return
	}
	timer := time.NewTimer(most)
	defer timer.Stop()
	select {
	case <-sub.Confirmed():
	case <-c.refused:
	case <-timer.C:
	case <-ctx.Done():
	}
}

// ready begins the subscription and waits until it is confirmed. ctx is a context of the keeper.
func (c *calls) ready(ctx context.Context) error {
	sub := c.subscribe()
	if sub == nil {
		return lock.ErrClosed
	}
	select {
	case <-sub.Confirmed():
		return nil
	case <-sub.Ended():
		return lock.ErrClosed
	case <-ctx.Done():
		return fmt.Errorf("subscribing to %s: %w", c.channel,
			errors.Join(tenure.Why(ctx), sub.Last()))
	}
}

func (c *calls) subscribe() *redislink.Subscription {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.sub == nil && !c.closed {
		c.sub = c.link.Subscribe(redislink.Ear{Restored: c.restored, Heard: c.heard, Lost: c.lost},
			"", c.channel)
	}
	return c.sub
}

// close ends the subscription.
func (c *calls) close() {
	c.mu.Lock()
	c.closed = true
	sub := c.sub
	c.mu.Unlock()
	if sub != nil {
		sub.Stop()
	}
}

// heard receives a message. A message contains an owner, and a token if the owner was handed the
// lock. If the owner's call no longer waits, heard ignores the message, because the call gives the
// lock back when it stops waiting.
func (c *calls) heard(message string) {
	owner, text, given := strings.Cut(message, " ")
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.ears[owner]
	if e == nil {
		return
	}
	if token, err := strconv.ParseInt(text, 10, 64); given && err == nil {
		e.token.Store(token)
	}
	e.wake()
}

func (c *calls) restored(context.Context) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.spell.End(context.Background(), heardLine, c.logger, "channel", c.channel)
	c.arriving = true
	c.wakeAll() // messages may have been lost
}

func (c *calls) lost(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	select {
	case <-c.refused:
	default:
		close(c.refused)
	}
	// If err is Canceled, Close was called, which is not a failure.
	if !errors.Is(err, context.Canceled) {
		c.spell.Begin(context.Background(), deafLine, c.logger, "channel", c.channel, "error",
			c.link.Told(err))
	}
	if c.arriving {
		c.arriving = false
		c.wakeAll() // the calls poll from now on
	}
}

func (c *calls) wakeAll() {
	for _, e := range c.ears {
		e.wake()
	}
}

// wake wakes the call, unless it is about to be woken already.
func (e *ear) wake() {
	select {
	case e.word <- struct{}{}:
	default:
	}
}
