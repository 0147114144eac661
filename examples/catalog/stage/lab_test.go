package stage_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/cacheguard/cacheguard/examples/catalog/stage"
	"github.com/cacheguard/cacheguard/internal/redistest"
)

const (
	lockTTL  = 300 * time.Millisecond
	cacheTTL = time.Minute
	spin     = 5 * time.Millisecond
	patience = 30 * time.Second // the time limit for events that must happen
)

func TestMain(m *testing.M) { childOrTests(m) }

// lab runs requests through a stage and holds them at its points.
type lab struct {
	t     *testing.T
	stage string
	key   string
	rdb   *redis.Client // for checks of the data in Redis

	mu      sync.Mutex // guards the fields below
	version int        // the version at the origin
	loads   int
	seen    []seen
	gates   []*gate
	changed chan struct{} // closed and replaced when a point was seen
}

// seen is a point that a request has passed.
type seen struct {
	who   string
	point stage.Point
}

// gate holds a request at a point, once.
type gate struct {
	seen
	halt    bool
	taken   bool
	arrived chan struct{}
	open    chan struct{}
}

func newLab(t *testing.T, name string) *lab {
	t.Helper()
	addr := sharedAddr(t)
	l := &lab{
		t: t, stage: name, key: fmt.Sprintf("%s:%s:%d", t.Name(), name, labs.Add(1)), version: 1,
		changed: make(chan struct{}),
	}
	l.rdb = redis.NewClient(&redis.Options{Addr: addr})
	t.Cleanup(func() { _ = l.rdb.Close() })
	return l
}

// The number of labs so far; it makes keys unique, because locks without an expiry stay in the
// server.
var labs atomic.Int64

// shared is the server of all labs. Each lab has its own keys. The server is requested only once,
// because another request would empty it while labs run.
var shared struct {
	sync.Mutex
	addr string
}

func sharedAddr(t *testing.T) string {
	t.Helper()
	shared.Lock()
	defer shared.Unlock()
	if shared.addr == "" {
		shared.addr = redistest.Shared(t).Addr()
	}
	return shared.addr
}

// replica opens the stage on a separate client.
func (l *lab) replica(change func(r *stage.Replica)) stage.Protection {
	l.t.Helper()
	rdb := redis.NewClient(&redis.Options{Addr: l.rdb.Options().Addr, ContextTimeoutEnabled: true})
	r := &stage.Replica{
		Redis: rdb, Load: l.load, At: l.at, Told: func(ctx context.Context, p stage.Point) {
			_ = l.at(ctx, p)
		}, Now: time.Now,
		LockTTL: lockTTL, CacheTTL: cacheTTL, Spin: spin,
	}
	if l.stage == "cacheguard" {
		r.LockTTL = time.Second // the shortest allowed time
	}
	if change != nil {
		change(r)
	}
	p, err := stage.Open(l.stage, r)
	if err != nil {
		l.t.Fatal(err)
	}
	l.t.Cleanup(func() { _ = p.Close(); _ = rdb.Close() })
	return p
}

// load is the origin. It returns the version at the beginning of the query.
func (l *lab) load(ctx context.Context, key string) (string, error) {
	l.mu.Lock()
	l.loads++
	v := fmt.Sprintf("version %d", l.version)
	if l.version == 0 {
		v = ""
	}
	l.mu.Unlock()
	return v, l.at(ctx, querying)
}

// querying is the point during the origin's work.
const querying stage.Point = "querying"

// change changes the version at the origin.
func (l *lab) change() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.version++
}

type whoKey struct{}

func (l *lab) at(ctx context.Context, p stage.Point) error {
	who, _ := ctx.Value(whoKey{}).(string)
	here := seen{who, p}
	l.mu.Lock()
	l.seen = append(l.seen, here)
	close(l.changed)
	l.changed = make(chan struct{})
	var g *gate
	if i := slices.IndexFunc(l.gates, func(g *gate) bool {
		return g.seen == here && (g.halt || !g.taken)
	}); i >= 0 {
		g = l.gates[i]
	}
	first := g != nil && !g.taken
	if first {
		g.taken = true
		close(g.arrived)
	}
	l.mu.Unlock()
	switch {
	case g == nil:
		return nil
	case g.halt:
		return stage.ErrHalted
	}
	select {
	case <-g.open:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// hold holds a request at a point until go is called.
func (l *lab) hold(who string, p stage.Point) *gate {
	return l.gate(&gate{seen: seen{who, p}})
}

// halt ends a request at a point, as if its process had died there.
func (l *lab) halt(who string, p stage.Point) *gate {
	return l.gate(&gate{seen: seen{who, p}, halt: true})
}

func (l *lab) gate(g *gate) *gate {
	g.arrived, g.open = make(chan struct{}), make(chan struct{})
	l.mu.Lock()
	defer l.mu.Unlock()
	l.gates = append(l.gates, g)
	return g
}

// reached waits until the request has come to the gate.
func (l *lab) reached(g *gate) {
	l.t.Helper()
	select {
	case <-g.arrived:
	case <-time.After(patience):
		l.t.Fatalf("%s does not come to %q; seen: %v", g.who, g.point, l.all())
	}
}

func (g *gate) release() { close(g.open) }

func (l *lab) all() []seen {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.seen)
}

// count returns the number of times that a request came to a point. An empty name means all
// requests.
func (l *lab) count(who string, p stage.Point) (n int) {
	for _, s := range l.all() {
		if s.point == p && (who == "" || s.who == who) {
			n++
		}
	}
	return n
}

// until waits until a request has come to a point n times.
func (l *lab) until(who string, p stage.Point, n int) {
	l.t.Helper()
	timeout := time.After(patience)
	for {
		l.mu.Lock()
		changed := l.changed
		l.mu.Unlock()
		if l.count(who, p) >= n {
			return
		}
		select {
		case <-changed:
		case <-timeout:
			l.t.Fatalf("%s does not come to %q %d times; seen: %v", who, p, n, l.all())
		}
	}
}

// answer is the answer to a request.
type answer struct {
	value string
	err   error
	done  chan struct{}
}

// request sends a request. The request ends with the test.
func (l *lab) request(who string, p stage.Protection) *answer {
	a := &answer{done: make(chan struct{})}
	ctx, cancel := context.WithCancel(context.WithValue(context.Background(), whoKey{}, who))
	l.t.Cleanup(func() { cancel(); <-a.done })
	go func() {
		defer close(a.done)
		a.value, a.err = p.Get(ctx, l.key)
	}()
	return a
}

// get returns the value that a request got. An error fails the test.
func (a *answer) get(t *testing.T) string {
	t.Helper()
	select {
	case <-a.done:
	case <-time.After(patience):
		t.Fatal("no answer")
	}
	if a.err != nil {
		t.Fatal(a.err)
	}
	return a.value
}

func (l *lab) lockKey() string { return "lock:" + l.key }

// locked reports whether there is a lock in Redis.
func (l *lab) locked() bool {
	l.t.Helper()
	n, err := l.rdb.Exists(context.Background(), l.lockKey()).Result()
	if err != nil {
		l.t.Fatal(err)
	}
	return n == 1
}

// lockLasts returns the remaining time of the lock, or -1 if it has no expiry.
func (l *lab) lockLasts() time.Duration {
	l.t.Helper()
	d, err := l.rdb.PTTL(context.Background(), l.lockKey()).Result()
	if err != nil {
		l.t.Fatal(err)
	}
	return d
}

// cached returns the value in the cache, as a further request sees it.
func (l *lab) cached(p stage.Protection) string {
	l.t.Helper()
	return l.request("later", p).get(l.t)
}
