// Package redislink uses Redis through a client that belongs to the user. It has steps that end in
// time even if the client ignores contexts, and a subscription that notices when its connection is
// dead.
package redislink

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// Link sends steps through a user's client. It is safe for concurrent use.
type Link struct {
	rdb redis.UniversalClient // the user's client
	// A client of the same server whose calls end with their context; nil if there is none.
	direct *redis.Client
	// A client of the same server for subscriptions, but see Subscription.client.
	listen  redis.UniversalClient
	timeout time.Duration
	routed  atomic.Bool // a step has succeeded, so a cluster client knows its nodes
	answers atomic.Bool // the last step got an answer
	dials   *dials

	limit atomic.Pointer[limit] // the limit of the step that began last
}

// New makes a link whose steps take at most timeout. If the link can't use the client, New returns
// an error with the reason. New never dials.
//
// Without ContextTimeoutEnabled the calls of a client ignore their context and last up to the
// client's ReadTimeout. For a client of a single server without this option, the link uses a
// [View]. A cluster client, or a client of the user's own type, is always called on another
// goroutine, which costs a goroutine for each step.
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

	// ErrReplicas is the error for a cluster client that reads from replicas.
	ErrReplicas = errors.New(
		"the cluster client reads from replicas (ReadOnly, RouteByLatency or RouteRandomly), which know late what has changed; use one that reads from masters")

	// ErrRing is the error for a Ring.
	ErrRing = errors.New(
		"a Ring gives names to other shards while one is down, so that two could each hold the same; use a cluster, Sentinel or a single server")
)

// view returns the client on which a subscription is made. The user's hooks see its dials, but not
// its commands. It doesn't retry when a connection is refused, so that the refusal is reported. If
// the server has too many clients, a client with retries reports only that the connection is
// closed.
func (l *Link) view(c *redis.Client) *redis.Client {
	view := c.WithTimeout(l.timeout)
	view.Options().ContextTimeoutEnabled = true
	view.Options().MaxRetries = 0
	view.AddHook(firstWords{l.dials})
	return view
}

// Client returns the user's client, whose calls may not end in time.
func (l *Link) Client() redis.UniversalClient { return l.rdb }

// Direct returns a client of the same server whose calls end with their context. It returns nil for
// a cluster client and for a client of the user's own type.
func (l *Link) Direct() *redis.Client { return l.direct }

// IsCluster reports whether the client is a cluster client.
func (l *Link) IsCluster() bool {
	_, ok := l.rdb.(*redis.ClusterClient)
	return ok
}

// Node returns the cluster's node that has the slot of a name, as far as the client knows. It
// returns nil if the client is not a cluster client, or if it would have to ask a node first.
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

// reroute makes a cluster client find out, in the background, which node has which slots. By itself
// the client does so when a node redirects it, and by default once a minute, if it is used. A dead
// master sends no redirects, so its replica would not be found for up to a minute. The client
// itself limits how often it asks.
func (l *Link) reroute(ctx context.Context) {
	if c, ok := l.rdb.(interface{ ReloadState(context.Context) }); ok {
		c.ReloadState(ctx)
	}
}

// Twice runs a step with the client that the step must use, and runs it once more if no answer came
// within half of the timeout. The second run must recognise what the first run has done.
func Twice[T any](
	ctx context.Context, l *Link, step func(context.Context, redis.UniversalClient) (T, error),
) (v T, err error) {
	for range 2 {
		v, err = Once(ctx, l, step)
		if err == nil && !l.routed.Load() {
			l.routed.Store(true)
		}
		if err == nil || !NoAnswer(err) || IsPanic(err) || ctx.Err() != nil {
			break
		}
		l.reroute(ctx)
	}
	return v, err
}

// Once runs a step within half of the timeout. If the client's calls end with their context, the
// step runs on this goroutine, because another goroutine would have to wait for a processor when
// thousands of callers have just woken up. Otherwise the step runs on another goroutine.
func Once[T any](
	ctx context.Context, l *Link, step func(context.Context, redis.UniversalClient) (T, error),
) (T, error) {
	ctx, cancel := l.limited(ctx)
	defer cancel()
	if l.direct == nil {
		return Aside(ctx, func(ctx context.Context) (T, error) { return step(ctx, l.rdb) })
	}
	v, err := Shielded(ctx, l.direct, step)
	err = Exhausted(l.direct, err)
	if answered := err == nil || !NoAnswer(err); l.answers.Load() != answered {
		l.answers.Store(answered)
	}
	return v, err
}

// limited returns a context that ends with ctx, and at the latest after half of the timeout. It may
// end up to a sixteenth of this time earlier.
func (l *Link) limited(ctx context.Context) (context.Context, context.CancelFunc) {
	half := l.timeout / 2
	if ctx.Done() != nil {
		return context.WithTimeout(ctx, half)
	}
	// Steps that begin at about the same time share one timer. If each step had its own timer,
	// every new timer could wake a processor that handles timers, although the timer is usually
	// stopped when the answer arrives.
	now := time.Now()
	last := l.limit.Load()
	if last == nil || last.until.Sub(now) < half-half/16 {
		until := now.Add(half)
		ends, cancel := context.WithDeadline(context.Background(), until)
		_ = cancel // not cancelled, because other steps share it; it ends by itself
		last = &limit{ends, until}
		l.limit.Store(last)
	}
	return limited{last.Context, ctx}, func() {}
}

// limit is a context that ends at a certain time.
type limit struct {
	context.Context
	until time.Time
}

// limited is a limit with the values of another context.
type limited struct {
	context.Context
	values context.Context
}

func (c limited) Value(key any) any {
	if v := c.values.Value(key); v != nil {
		return v
	}
	return c.Context.Value(key) // package context recognises its own contexts by this key
}

// Prompt reports whether a step on the caller's goroutine is likely to be answered soon. Prompt
// returns true if the previous step got an answer and ctx has enough time left. During the step the
// caller notices its deadline in time, because a step takes at most the timeout. It doesn't notice
// that ctx is cancelled before the step ends.
func (l *Link) Prompt(ctx context.Context) bool {
	if !l.answers.Load() || ctx.Err() != nil {
		return false
	}
	deadline, ends := ctx.Deadline()
	return !ends || time.Until(deadline) > l.timeout
}

// ErrGoexit is the error of a step whose goroutine was ended by runtime.Goexit.
var ErrGoexit = errors.New("a hook of the client has ended the goroutine of the step")

// Shielded runs a step on this goroutine. A panic of the step, which is that of a hook of the
// client, is its error. On many goroutines of stores and lockers the panic would end the process.
func Shielded[T any](
	ctx context.Context, rdb redis.UniversalClient,
	step func(context.Context, redis.UniversalClient) (T, error),
) (v T, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = Panicked(p)
		}
	}()
	return step(ctx, rdb)
}

// Panicked returns the error of a step that panicked. p is what recover returned.
func Panicked(p any) error {
	return &panicked{fmt.Sprintf("a hook of the client panicked: %v\n%s", p, debug.Stack())}
}

type panicked struct{ text string }

func (p *panicked) Error() string { return p.text }

// IsPanic reports whether a step panicked. Then it says nothing about the server.
func IsPanic(err error) bool {
	var p *panicked
	return errors.As(err, &p)
}

// Aside runs a step on another goroutine and stops waiting for it when ctx ends. A panic of the
// step is its error, because on that goroutine it would end the process.
func Aside[T any](ctx context.Context, step func(context.Context) (T, error)) (zero T, err error) {
	if ctx == nil { // on the other goroutine, a panic would end the process
		return zero, errors.New("the context is nil")
	}
	type result struct {
		v   T
		err error
	}
	began := time.Now()
	done := make(chan result, 1)
	go func() {
		r := result{err: ErrGoexit}
		defer func() {
			if p := recover(); p != nil {
				r.err = Panicked(p)
			}
			done <- r
		}()
		r.v, r.err = step(ctx)
	}()
	select {
	case r := <-done:
		return r.v, r.err
	case <-ctx.Done():
	}
	select {
	case r := <-done: // if both are ready, the answer is better
		return r.v, r.err
	default:
		return zero,
			fmt.Errorf("no answer within %v: %w", time.Since(began).Round(time.Millisecond),
				ctx.Err())
	}
}

// ErrExhausted means that all connections of the client were in use. The step may not have been
// sent at all.
var ErrExhausted = errors.New("all connections of the Redis client are in use")

// If a step waited for a connection until its time was over, Exhausted wraps ErrExhausted around
// the step's error. A step that got a connection ends with an error of the network, unless the
// client retries by itself.
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

// NoAnswer reports whether the server has not answered. Then it is not known whether the server has
// executed the step.
func NoAnswer(err error) bool {
	var answer redis.Error // an error that the server has answered
	return !errors.As(err, &answer)
}
