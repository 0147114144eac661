package cacheguard

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/cacheguard/cacheguard/internal/lifetime"
	"github.com/cacheguard/cacheguard/internal/report"
)

// closeGrace is how long Close waits for loads whose context it has cancelled. Nearly all loads
// stop at once. A load that ignores its context can't be stopped, so Close doesn't wait for it any
// longer.
const closeGrace = 250 * time.Millisecond

var stillRunsLine = report.Line{Level: slog.LevelWarn, See: "the-end-of-a-process",
	Text:  "cacheguard: closed while a load that ignores its context still runs",
	Means: "the load's callers got ErrClosed, and its result is not stored",
}

// life tracks the goroutines of a cache, except those that run the user's loads, which may never
// return.
type life struct {
	*lifetime.Life
	// The life of goroutines that end leases or compare answers in the background. Shutdown doesn't
	// wait for them before it calls Close.
	ends *lifetime.Life
	over atomic.Bool // new calls get ErrClosed
}

var errNoContext = errors.New("cacheguard: the context is nil")

// enter checks what every read checks first: whether the cache is closed and whether ctx has ended.
func (c *Cache[V]) enter(ctx context.Context) error {
	if err := c.mayChange(ctx); err != nil {
		return err
	}
	return ctx.Err()
}

// mayChange returns an error if this call may no longer change something. It doesn't look at
// ctx.Err(): a change must reach the store even if its caller's context has ended.
func (c *Cache[V]) mayChange(ctx context.Context) error {
	switch {
	case ctx == nil:
		return errNoContext
	case c.life.over.Load() && (c.life.Closing.Err() != nil || !c.insideAny(ctx)):
		// During Shutdown, calls inside a running load don't get it, because the load could not
		// finish without them.
		return ErrClosed
	}
	return nil
}

// Shutdown closes the cache in an orderly way. New calls get ErrClosed, except calls inside a
// running load. Until ctx ends, running loads may finish and store their results, and changes may
// still reach the store (see [Cache.Flush]). If changes are left, Shutdown waits until the store
// has them or ctx ends. If loads still run when ctx ends, Shutdown returns ctx's error. If changes
// are still left at the end, the error says how many have not reached the store, and why.
func (c *Cache[V]) Shutdown(ctx context.Context) error {
	if ctx == nil {
		return errNoContext
	}
	c.life.over.Store(true)
	c.sampler.end()
	var err error
	quiet := c.life.Quiet()
	select {
	case <-quiet:
	case <-ctx.Done():
		select {
		case <-quiet: // there was nothing to wait for
		default:
			err = ctx.Err()
		}
	}
	_ = c.Close()
	if left := c.undelivered(err); left != nil {
		return left
	}
	return err
}

// Close cancels running loads, releases their leases, gives waiting callers ErrClosed, and then
// returns. If a load ignores its context, Close waits 250 ms for it, logs this and returns. A
// second Close does nothing. The store stays open. The error is always nil.
func (c *Cache[V]) Close() error {
	c.life.over.Store(true)
	if !c.life.Close() {
		return nil
	}
	c.sampler.end()
	c.life.ends.Close()
	c.stopListening()
	c.sharesNoMore()
	c.leaveSwitch()
	c.tier.values.Close()
	c.detachObserver()
	c.detachWatcher()

	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		c.loads.all.Wait()
	}()
	timer := time.NewTimer(closeGrace)
	defer timer.Stop()
	select {
	case <-stopped:
	case <-timer.C:
		if c.loads.running.Load() == 0 {
			break // the loads have returned, and only their goroutines are late
		}
		stillRunsLine.Log(context.Background(), c.opts.Logger, "cache", c.opts.Name)
	}
	return nil
}
