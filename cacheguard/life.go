package cacheguard

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/cacheguard/cacheguard/internal/lifetime"
	"github.com/cacheguard/cacheguard/internal/report"
)

// closeGrace is how long Close waits for loads that were told to stop. Nearly all stop at once; one
// that ignores its context can't be stopped by anybody.
const closeGrace = 250 * time.Millisecond

var stillRunsLine = report.Line{Level: slog.LevelWarn, See: "the-end-of-a-process",
	Text:  "cacheguard: closed while a load that ignores its context still runs",
	Means: "its callers have ErrClosed, and its result is not stored",
}

// life is that of a cache and of its goroutines, but for those that run the user's loads.
type life struct {
	*lifetime.Life
	ends *lifetime.Life // of goroutines that end leases behind the callers' backs, for which Shutdown doesn't wait
	over atomic.Bool    // newcomers get ErrClosed
}

// enter checks what every call checks first.
func (c *Cache[V]) enter(ctx context.Context) error {
	if !c.mayChange(ctx) {
		return ErrClosed // but Shutdown lets running loads finish, and what they ask for is part of them
	}
	return ctx.Err()
}

// mayChange reports whether this call may still change something.
func (c *Cache[V]) mayChange(ctx context.Context) bool {
	return !c.life.over.Load() || (c.life.Closing.Err() == nil && c.insideAny(ctx))
}

// Shutdown closes the cache in an orderly way. New calls get ErrClosed. Running loads may finish and
// store, and changes may reach the store (see Flush), until ctx ends. If something is left then,
// Shutdown returns ctx's error and says how many changes the store was not told of. While the store
// is unavailable and changes are left, Shutdown takes until ctx ends.
func (c *Cache[V]) Shutdown(ctx context.Context) error {
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

// Close cancels running loads, releases their leases, gives waiting callers ErrClosed, and returns
// when that is done. Close does not wait for a load that ignores its context, and logs it. A second
// Close does nothing. The store stays open. The error is always nil.
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
		stillRunsLine.Log(context.Background(), c.opts.Logger, "cache", c.opts.Name)
	}
	return nil
}
