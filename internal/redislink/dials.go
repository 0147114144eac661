package redislink

import (
	"context"
	"net"
	"runtime"
	"sync"
	"time"
	"weak"

	"github.com/redis/go-redis/v9"
)

// dials is what is known of how a client's connections are made. go-redis dials on another
// goroutine, and again and again, and a step that waits for that until its time is over hears of
// its own time only.
type dials struct {
	mu      sync.Mutex // guards what follows
	made    bool       // the last dial that ended has made a connection
	failed  failure    // the last that has not, unless another one to its address has since
	pending int
	since   time.Time // since when there has been one

	refused   error // what a server has said last to a connection that it doesn't take
	refusedAt time.Time
}

// failure is a dial that has made no connection.
type failure struct {
	addr string
	err  error // nil: there is none
	at   time.Time
}

const (
	// failureCounts is for how long a failed dial explains why there is no answer.
	failureCounts = 5 * time.Second

	// longDial is how long a dial may take until it explains that.
	longDial = 50 * time.Millisecond
)

// DialHook sees each dial.
func (d *dials) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		d.began()
		conn, err := next(ctx, network, addr)
		d.ended(addr, err)
		return conn, err
	}
}

// ProcessHook is next: commands are none of its business.
func (d *dials) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

// ProcessPipelineHook is next: pipelines are none of its business.
func (d *dials) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// firstWords is a hook of a subscription that sees what a server says to the first command of a connection. go-redis
// goes on with one that the server has refused and closed, and says of the next command only that
// the connection is closed.
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

// last returns the dial that failed last, if it did so not long ago; whether one takes long now;
// and whether the last one has made a connection.
func (d *dials) last() (failed failure, takes, made bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.failed.err != nil && time.Since(d.failed.at) < failureCounts {
		failed = d.failed
	}
	return failed, d.pending > 0 && time.Since(d.since) > longDial, d.made
}

// refusal is what a server has said not long ago to a connection that it doesn't take, or nil.
func (d *dials) refusal() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.refused != nil && time.Since(d.refusedAt) < failureCounts {
		return d.refused
	}
	return nil
}

// dialsOf are the dials of a client, seen from the first link or locker on it on. Of a client of
// the user's own type nothing is seen.
func dialsOf(rdb redis.UniversalClient) *dials {
	switch c := rdb.(type) {
	case *redis.Client:
		return seen(c, func(d *dials) { c.AddHook(d) })
	case *redis.ClusterClient:
		return seen(c, func(d *dials) { c.OnNewNode(func(node *redis.Client) { node.AddHook(d) }) })
	}
	return new(dials)
}

// dialsSeen are those of clients, as long as they live: there may be many links on one.
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
