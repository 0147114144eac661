package outbox

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/cacheguard/lock"
	"github.com/cacheguard/cacheguard/internal/report"
)

const (
	batch = 500 // rows that are read, delivered and removed together

	standbyPoll = time.Second // the least sqllock.Options.Poll of a relay that waits

	firstPause = 20 * time.Millisecond // the pause after a first failure
	mostPause  = 500 * time.Millisecond
)

var (
	undeliveredLine = report.Line{Level: slog.LevelWarn,
		Text: "outbox: invalidations can't be delivered", See: "the-outbox-cant-deliver",
		Means: "caches may serve old values until the invalidations are delivered; none is lost"}
	deliveredLine = report.Line{
		Level: slog.LevelInfo, Text: "outbox: invalidations are delivered again",
		See: "the-outbox-cant-deliver",
	}
	pollsLine = report.Line{Level: slog.LevelWarn,
		Text: "outbox: notifications don't arrive; the relay polls", See: "the-outbox-cant-deliver",
		Means: "invalidations that other processes commit are delivered within Options.Poll"}
)

// Wake makes the relay of this process read the table at once, if it is the relay that works. Call
// Wake after the commit.
func (b *Box) Wake() {
	select {
	case b.woken <- struct{}{}:
	default: // the relay is woken already
	}
}

// Committed does the same as [Box.Wake], and also returns a token for the commit. A read with this
// token gets no value that was loaded before the commit, whether or not the relay has delivered the
// invalidation. The caches and the results have the same meaning as for [cacheguard.Committed].
func (b *Box) Committed(ctx context.Context, caches ...string) (cacheguard.Token, error) {
	b.Wake()
	t, err := cacheguard.Committed(ctx, b.store, caches...)
	if err != nil {
		err = fmt.Errorf("outbox: %w", err)
	}
	return t, err
}

// Run delivers committed invalidations until ctx ends, whenever no other process delivers them. It
// returns nil when ctx has ended. If the database or the store can't be reached, Run tries again.
// If the database doesn't answer, Run may need up to one Lease to return, or 10 s if Lease is
// longer.
func (b *Box) Run(ctx context.Context) error {
	locks, err := b.newLocks(b.opts.Lease, b.opts.patience())
	if err != nil {
		return err
	}
	defer func() { _ = locks.Close() }()
	if b.opts.Listen != nil {
		done := make(chan struct{})
		defer func() { <-done }()
		go func() {
			defer close(done)
			b.listen(ctx)
		}()
	}
	state := relay{b: b, senders: make(map[string]*sender)}
	defer state.close()
	for ctx.Err() == nil {
		held, err := locks.Lock(ctx, b.lockName())
		if err != nil {
			state.failed(ctx, err)
			continue
		}
		state.work(ctx, held)
		_ = held.Unlock(context.WithoutCancel(ctx)) // if this fails, the lock expires by itself
		if state.since != (time.Time{}) {
			wait(ctx, 2*standbyPoll) // perhaps another process can reach the store
		}
	}
	return nil
}

// relay is the state of Run.
type relay struct {
	b       *Box
	senders map[string]*sender // by the name of the cache
	since   time.Time          // since when deliveries fail; zero if they work
	pause   time.Duration      // the pause after the last failure
}

// sender sends the invalidations of one cache. If a failover has lost invalidations that the store
// had acknowledged, the cache repeats those of the last half minute. So it stays open when another
// relay takes over: the failover may last for longer than this relay keeps the lock.
type sender struct {
	cache *cacheguard.Cache[[]byte]
	used  time.Time
}

// work delivers invalidations as long as it has the lock. It also ends if deliveries have failed
// for longer than a lease.
func (r *relay) work(ctx context.Context, held lock.Lock) {
	ctx, cancel := lock.Context(ctx, held)
	defer cancel()
	began := time.Now()
	for ctx.Err() == nil {
		more, err := r.round(ctx)
		if err != nil {
			r.failed(ctx, err)
			if time.Since(later(began, r.since)) > r.b.opts.Lease {
				return
			}
			continue
		}
		r.succeeded()
		if !more {
			r.b.rest(ctx)
		}
	}
}

// failed logs the first error of a series, and then pauses.
func (r *relay) failed(ctx context.Context, err error) {
	if ctx.Err() != nil {
		return
	}
	if r.since.IsZero() {
		r.since, r.pause = time.Now(), firstPause
		undeliveredLine.Log(ctx, r.b.opts.Logger, "table", r.b.opts.Table, "error", err)
	}
	wait(ctx, r.pause/2+rand.N(r.pause/2))
	r.pause = min(2*r.pause, mostPause)
}

func (r *relay) succeeded() {
	if !r.since.IsZero() {
		deliveredLine.Log(context.Background(), r.b.opts.Logger, "table", r.b.opts.Table, "after",
			time.Since(r.since).Round(time.Millisecond))
		r.since = time.Time{}
	}
}

// round delivers the oldest invalidations. more is true if there may be more of them. If a delivery
// fails, the rows that were delivered before are still removed.
func (r *relay) round(ctx context.Context) (more bool, err error) {
	rows, more, err := r.b.read(ctx)
	if err != nil {
		return false, err
	}
	done := 0
	for done < len(rows) && err == nil {
		some := rows[done:]
		some = some[:alike(some)]
		if err = r.deliver(ctx, some); err == nil {
			done += len(some)
		}
	}
	return more, errors.Join(err, r.b.remove(ctx, rows[:done]))
}

// alike returns how many of the first rows have the same kind and the same cache.
func alike(rows []row) int {
	n := 1
	for n < len(rows) && rows[n].kind == rows[0].kind && rows[n].cache == rows[0].cache {
		n++
	}
	return n
}

// deliver sends the invalidations of rows with the same kind and cache to the store.
func (r *relay) deliver(ctx context.Context, rows []row) error {
	cache, err := r.cache(rows[0].cache)
	if err != nil {
		return err
	}
	names := make([]string, len(rows))
	for i := range rows {
		names[i] = rows[i].name
	}
	switch rows[0].kind {
	case ofKey:
		err = cache.Invalidate(ctx, names...)
	case ofStaleKey:
		err = cache.MarkStale(ctx, names...)
	case ofTag:
		err = cache.InvalidateTags(ctx, names...)
	case ofStaleTag:
		err = cache.MarkStaleTags(ctx, names...)
	default: // ofAll
		err = cache.InvalidateAll(ctx)
	}
	if err != nil {
		return fmt.Errorf("%d invalidations of cache %q: %w", len(rows), rows[0].cache, err)
	}
	return nil
}

// mostCaches is the largest number of senders, so that made-up names can't fill the memory. A
// further one takes the place of the one that was not used for the longest time.
const mostCaches = 1000

func (r *relay) cache(name string) (*cacheguard.Cache[[]byte], error) {
	s := r.senders[name]
	if s == nil {
		cache, err := r.b.newCache(name)
		if err != nil {
			return nil, err
		}
		if len(r.senders) >= mostCaches {
			r.closeOldest()
		}
		s = &sender{cache: cache}
		r.senders[name] = s
	}
	s.used = time.Now()
	return s.cache, nil
}

func (r *relay) closeOldest() {
	var name string
	var oldest *sender
	for n, s := range r.senders {
		if oldest == nil || s.used.Before(oldest.used) {
			name, oldest = n, s
		}
	}
	delete(r.senders, name)
	_ = oldest.cache.Close()
}

func (r *relay) close() {
	for _, s := range r.senders {
		_ = s.cache.Close()
	}
}

// rest waits until there may be rows to deliver.
func (b *Box) rest(ctx context.Context) {
	timer := time.NewTimer(b.opts.Poll)
	defer timer.Stop()
	select {
	case <-b.woken:
	case <-timer.C:
	case <-ctx.Done():
	}
}

// wait pauses for d, or until ctx ends.
func wait(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// listen wakes the relay when other processes commit invalidations. While notifications don't
// arrive, the relay polls.
func (b *Box) listen(ctx context.Context) {
	pause := firstPause
	for ctx.Err() == nil {
		err := b.opts.Listen(ctx, b.opts.Table, func() {
			pause = firstPause
			b.Wake()
		}, func(string) { b.Wake() })
		if ctx.Err() != nil {
			return
		}
		if pause == firstPause { // log once for each break
			pollsLine.Log(ctx, b.opts.Logger, "channel", b.opts.Table, "error", err)
		}
		wait(ctx, pause/2+rand.N(pause/2))
		pause = min(2*pause, 4*mostPause)
	}
}
