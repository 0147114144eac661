package contender

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/cacheguard/cacheguard/internal/flight"
)

// Special are the contenders that only some commands use.
var Special = []Contender{
	{Name: "noop", Open: openNoop(false)},
	{Name: "ping", Open: openNoop(true)},
	{Name: "get", Open: func(ctx context.Context, r Rig) (Protection, error) {
		// Values hardly expire: one GET is the floor for each contender that asks Redis.
		r.TTL = 24 * time.Hour
		return &ReadThrough{r}, r.Redis.Ping(ctx).Err()
	}},
	{Name: "flight", Open: openFlight},
	{Name: "xfetch", Open: openXFetch},
	{Name: "cacheguard-early+swr", Open: openGuarded(func(o *options) {
		o.EarlyRefresh, o.StaleWhileRevalidate = 1, window
	})},
	{Name: "cacheguard-stale", Open: openGuarded(func(o *options) {
		o.StaleIfError, o.StaleWhileRevalidate = window, window
	})},
	{Name: "cacheguard-stale-if-error", Open: openGuarded(func(o *options) {
		o.StaleIfError = window
	})},
}

// noop asks neither Redis nor the origin after it has a value, whatever the key. So it measures the
// cost of the callers themselves.
type noop struct {
	ReadThrough
	asks bool // ask Redis for a PONG each time, to measure the cost of a burst of commands
	once sync.Once
	outcome
	err error
}

func openNoop(asks bool) func(context.Context, Rig) (Protection, error) {
	return func(ctx context.Context, r Rig) (Protection, error) {
		return &noop{ReadThrough: ReadThrough{r}, asks: asks}, r.Redis.Ping(ctx).Err()
	}
}

func (n *noop) Get(ctx context.Context, key string) (string, bool, error) {
	n.once.Do(func() { n.value, n.found, n.err = n.Load(ctx, key) })
	if n.asks {
		return n.value, n.found, errors.Join(n.err, n.Redis.Ping(ctx).Err())
	}
	return n.value, n.found, n.err
}

// flightOnly is ReadThrough (GET, load, SET) inside a flight of package cacheguard, without the
// lease. As in package cacheguard, the read is on the caller's goroutine, and the load on another
// goroutine.
type flightOnly struct {
	ReadThrough
	group flight.Group[flown]
}

type flown struct {
	outcome
	err error
}

func openFlight(ctx context.Context, r Rig) (Protection, error) {
	return &flightOnly{ReadThrough: ReadThrough{r}}, r.Redis.Ping(ctx).Err()
}

var errLeft = errors.New("all callers have left")

func (p *flightOnly) Get(ctx context.Context, key string) (string, bool, error) {
	f, leads := p.group.Join(key, 0)
	if leads {
		v, found, err := p.Look(ctx, key)
		if !errors.Is(err, redis.Nil) {
			f.Land(flown{outcome{v, found}, err})
			return v, found, err
		}
		work, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
		f.DetachTo(func() { cancel(errLeft) }, func() {})
		go func() {
			defer cancel(nil)
			v, found, err := p.fill(work, key)
			f.Land(flown{outcome{v, found}, err})
		}()
	}
	res, err := f.Wait(ctx)
	return res.value, res.found, errors.Join(err, res.err)
}
