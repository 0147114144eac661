package redislink

import (
	"context"
	"errors"
	"net"
	"runtime"
	"sync"
	"time"
	"weak"

	"github.com/redis/go-redis/v9"
)

// dials records how a client's connections are made. go-redis dials on another goroutine, and
// repeats failed dials. A step that waits for a connection until its time is over gets only the
// error that its time is over, so the errors of dials are recorded here.
type dials struct {
	mu      sync.Mutex // guards the fields below
	made    bool       // the last dial that ended made a connection
	failed  failure    // the last failed dial, unless a later dial to the same address succeeded
	pending int
	since   time.Time // since when at least one dial has been running

	refused   error // the last answer of a server to a connection that it refused
	refusedAt time.Time
}

// failure is a dial that failed.
type failure struct {
	addr string
	err  error // nil: no dial has failed
	at   time.Time
}

const (
	// failureCounts is the time for which a failed dial is reported as the cause of a missing
	// answer.
	failureCounts = 5 * time.Second

	// longDial is how long a dial must take to be reported as the cause of a missing answer.
	longDial = 50 * time.Millisecond
)

// DialHook records each dial. A dial may panic in a hook of the user: go-redis recovers from that.
func (d *dials) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (conn net.Conn, err error) {
		d.began()
		err = errDialPanicked // unless next returns
		defer func() { d.ended(addr, err) }()
		return next(ctx, network, addr)
	}
}

var errDialPanicked = errors.New("a hook of the client panicked")

// ProcessHook returns next, because commands are not recorded.
func (d *dials) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

// ProcessPipelineHook returns next, because pipelines are not recorded.
func (d *dials) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// firstWords is a hook of a subscription that records the server's answer to the first command of a
// connection. go-redis continues to use a connection that the server has refused and closed, and
// the error of the next command says only that the connection is closed.
type firstWords struct{ *dials }

func (firstWords) DialHook(next redis.DialHook) redis.DialHook { return next }

func (w firstWords) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		if err != nil && cmd.Name() == "hello" && (TurnsAway(err) || Crowded(err)) {
			w.mu.Lock()
			w.refused, w.refusedAt = err, time.Now()
			w.mu.Unlock()
		}
		return err
	}
}

func (d *dials) began() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.pending++; d.pending == 1 {
		d.since = time.Now()
	}
}

func (d *dials) ended(addr string, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.pending--
	switch d.made = err == nil; {
	case !d.made:
		d.failed = failure{addr, err, time.Now()}
	case d.failed.addr == addr:
		d.failed = failure{}
	}
}

// last returns the last failed dial, if it failed recently. takes is true if dials have been
// running for long without a gap, and made is true if the last dial that ended made a connection.
func (d *dials) last() (failed failure, takes, made bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.failed.err != nil && time.Since(d.failed.at) < failureCounts {
		failed = d.failed
	}
	return failed, d.pending > 0 && time.Since(d.since) > longDial, d.made
}

// refusal returns the recent answer of a server to a connection that it refused, or nil.
func (d *dials) refusal() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.refused != nil && time.Since(d.refusedAt) < failureCounts {
		return d.refused
	}
	return nil
}

// dialsOf returns the dials of a client. They are recorded from the first link or locker on. The
// dials of a client of the user's own type can't be recorded.
func dialsOf(rdb redis.UniversalClient) *dials {
	switch c := rdb.(type) {
	case *redis.Client:
		return seen(c, func(d *dials) { c.AddHook(d) })
	case *redis.ClusterClient:
		return seen(c, func(d *dials) { c.OnNewNode(func(node *redis.Client) { node.AddHook(d) }) })
	}
	return new(dials)
}

// dialsSeen has the dials of each client for as long as the client lives, because one client can
// have many links.
var dialsSeen sync.Map // of *watched by weak pointer

type watched struct {
	once sync.Once
	dials
}

func seen[C any](c *C, see func(*dials)) *dials {
	key := weak.Make(c)
	found, had := dialsSeen.LoadOrStore(key, new(watched))
	if !had {
		runtime.AddCleanup(c, func(key weak.Pointer[C]) { dialsSeen.Delete(key) }, key)
	}
	w := found.(*watched)
	w.once.Do(func() { see(&w.dials) })
	return &w.dials
}
