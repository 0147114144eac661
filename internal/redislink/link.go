// Package redislink is how this module speaks to Redis through a client that is its user's: steps
// that end in time whatever the client does with contexts, and a subscription that notices when it
// is dead.
package redislink

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// Link is a user's client, as steps go through it. It is safe for concurrent use.
type Link struct {
	rdb     redis.UniversalClient // the user's
	direct  *redis.Client         // the same where its calls end with their context; nil if that can't be had
	listen  redis.UniversalClient // the same for subscriptions, but see Subscription.client
	timeout time.Duration
	routed  atomic.Bool // a step has gone through, so a cluster client knows its nodes
	answers atomic.Bool // the last step was answered
	dials   *dials

	limit atomic.Pointer[limit] // of the step that began last
}

// New makes a link whose steps take at most timeout, or says what is wrong with the client. It
// never dials.
//
// A client without ContextTimeoutEnabled has calls that last up to its ReadTimeout whatever the
// context says; the link then goes through a View of a single server's client, and calls another
// one aside, which costs a goroutine for each step.
func New(rdb redis.UniversalClient, timeout time.Duration) (*Link, error) {
	switch c := rdb.(type) {
	case nil:
		return nil, errNil
	case *redis.Client:
		if c == nil {
			return nil, errNil
		}
	case *redis.ClusterClient:
		if c == nil {
			return nil, errNil
		}
		if o := c.Options(); o.ReadOnly || o.RouteByLatency || o.RouteRandomly {
			return nil, ErrReplicas
		}
	case *redis.Ring:
		return nil, ErrRing
	}
	l := &Link{rdb: rdb, listen: rdb, timeout: timeout, dials: dialsOf(rdb)}
	if c, ok := rdb.(*redis.Client); ok {
		l.direct = c
		if !c.Options().ContextTimeoutEnabled {
			l.direct = View(c, timeout)
		}
		l.listen = l.view(c)
	}
	return l, nil
}

var (
	errNil = errors.New("the client is nil")

	// ErrReplicas refuses a cluster client that reads from replicas.
	ErrReplicas = errors.New("the cluster client reads from replicas (ReadOnly, RouteByLatency or RouteRandomly), which know late what has changed; use one that reads from masters")

	// ErrRing refuses a Ring.
	ErrRing = errors.New("a Ring gives names to other shards while one is down, so that two could each hold the same; use a cluster, Sentinel or a single server")
)

// view is what a subscription is made of, which no hook of the user's sees. Its connections don't
// begin again when they are refused, so that the refusal is seen: of one for too many clients a
// client with retries tells only that the connection is closed.
func (l *Link) view(c *redis.Client) *redis.Client {
	view := c.WithTimeout(l.timeout)
	view.Options().ContextTimeoutEnabled = true
	view.Options().MaxRetries = 0
	view.AddHook(firstWords{l.dials})
	return view
}

// Client is the user's client, whose calls need not end in time.
func (l *Link) Client() redis.UniversalClient { return l.rdb }

// Direct is a client of the same server whose calls end with their context, or nil if that can't be
// had: it is a cluster's, or of a type of the user's own.
func (l *Link) Direct() *redis.Client { return l.direct }

// IsCluster reports whether the client is a cluster's.
func (l *Link) IsCluster() bool {
	_, ok := l.rdb.(*redis.ClusterClient)
	return ok
}

// Node is the node of a cluster that has a name, as far as the client knows, or nil: there is a
// server only, the client is of a type of the user's own, or it knows nothing yet and would have to
// ask.
func (l *Link) Node(name string) *redis.Client {
	c, ok := l.rdb.(*redis.ClusterClient)
	if !ok || !l.routed.Load() {
		return nil
	}
	node, err := c.MasterForKey(context.Background(), name)
	if err != nil {
		return nil
	}
	return node
}

// reroute has a cluster client ask, aside, which node has what. By itself it does so when a node
// sends it to another one, and once a minute: a master that is dead sends nobody anywhere, and its
// replica would not be found for so long. Asking too often is the client's to prevent, which it
// does.
func (l *Link) reroute(ctx context.Context) {
	if c, ok := l.rdb.(interface{ ReloadState(context.Context) }); ok {
		c.ReloadState(ctx)
	}
}

// Twice sends a step, and once more if no answer came within half of the timeout: it must recognise
// what it did before. The step gets the client to use.
func Twice[T any](ctx context.Context, l *Link, step func(context.Context, redis.UniversalClient) (T, error)) (v T, err error) {
	for range 2 {
		v, err = Once(ctx, l, step)
		if err == nil && !l.routed.Load() {
			l.routed.Store(true)
		}
		if err == nil || !NoAnswer(err) || ctx.Err() != nil {
			break
		}
		l.reroute(ctx)
	}
	return v, err
}

// Once runs a step within half of the timeout: on this goroutine where the client's calls end with
// their context, for another goroutine would have to wait for a processor just when thousands of
// callers have woken up; otherwise aside.
func Once[T any](ctx context.Context, l *Link, step func(context.Context, redis.UniversalClient) (T, error)) (T, error) {
	ctx, cancel := l.limited(ctx)
	defer cancel()
	if l.direct == nil {
		return Aside(ctx, func(ctx context.Context) (T, error) { return step(ctx, l.rdb) })
	}
	v, err := step(ctx, l.direct)
	err = Exhausted(l.direct, err)
	if answered := err == nil || !NoAnswer(err); l.answers.Load() != answered {
		l.answers.Store(answered)
	}
	return v, err
}

// limited returns a context that ends with ctx, and after half of the timeout or up to a sixteenth
// sooner.
func (l *Link) limited(ctx context.Context) (context.Context, context.CancelFunc) {
	half := l.timeout / 2
	if ctx.Done() != nil {
		return context.WithTimeout(ctx, half)
	}
	// Steps that begin at about the same time have one timer: one for each would, as the next to go
	// off, wake a processor that looks after timers, just to be stopped again when the answer is
	// there.
	now := time.Now()
	last := l.limit.Load()
	if last == nil || last.until.Sub(now) < half-half/16 {
		until := now.Add(half)
		ends, cancel := context.WithDeadline(context.Background(), until)
		_ = cancel // it ends by itself: other steps have it, too
		last = &limit{ends, until}
		l.limit.Store(last)
	}
	return limited{last.Context, ctx}, func() {}
}

// limit is a context that ends then.
type limit struct {
	context.Context
	until time.Time
}

// limited is a limit with another context's values.
type limited struct {
	context.Context
	values context.Context
}

func (c limited) Value(key any) any {
	if v := c.values.Value(key); v != nil {
		return v
	}
	return c.Context.Value(key) // by which package context knows its own
}

// Prompt reports whether a step is likely to be answered soon, on the goroutine that asks for it:
// the one before was, and ctx leaves the time for it. Then a caller that can't be called away from
// it still hears of its context's end in time.
func (l *Link) Prompt(ctx context.Context) bool {
	if !l.answers.Load() || ctx.Err() != nil {
		return false
	}
	deadline, ends := ctx.Deadline()
	return !ends || time.Until(deadline) > l.timeout
}

// Aside runs a step on another goroutine and stops waiting for it when ctx ends.
func Aside[T any](ctx context.Context, step func(context.Context) (T, error)) (T, error) {
	type result struct {
		v   T
		err error
	}
	began := time.Now()
	done := make(chan result, 1)
	go func() {
		v, err := step(ctx)
		done <- result{v, err}
	}()
	select {
	case r := <-done:
		return r.v, r.err
	case <-ctx.Done():
	}
	select {
	case r := <-done: // both at once: an answer is better than none
		return r.v, r.err
	default:
		var zero T
		return zero, fmt.Errorf("no answer within %v: %w", time.Since(began).Round(time.Millisecond), ctx.Err())
	}
}

// ErrExhausted says that a step may not have been sent at all: all connections of the client were
// in use.
var ErrExhausted = errors.New("all connections of the Redis client are in use")

// Exhausted wraps ErrExhausted around the error of a step that has waited for a connection until
// its time was over. A step that has got one ends with an error of the network, unless the client
// asks again by itself.
func Exhausted(rdb *redis.Client, err error) error {
	if err != context.DeadlineExceeded && !errors.Is(err, redis.ErrPoolTimeout) {
		return err
	}
	stats, size := rdb.PoolStats(), rdb.Options().PoolSize
	if int(stats.TotalConns)-int(stats.IdleConns) < size {
		return err
	}
	return fmt.Errorf("%w (PoolSize %d): %w", ErrExhausted, size, err)
}

// NoAnswer reports whether the server has not answered, so that it is unknown what was done.
func NoAnswer(err error) bool {
	var answer redis.Error // what the server itself said
	return !errors.As(err, &answer)
}
