package lab

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"

	"github.com/cacheguard/cacheguard/examples/catalog/stage"
)

// wrongClock is the replica whose clock is ahead.
const wrongClock = 2

const (
	spin     = 50 * time.Millisecond // how often those ask who wait for a lock that doesn't wake them
	outage   = time.Second           // how long Redis is down
	ahead    = time.Hour             // what the wrong clock is
	shortTTL = time.Second           // of cached values, in the run that waits for their end
	longTTL  = 10 * time.Minute
)

// World is what a run is made in.
type World struct {
	Redis     string          // host:port
	DB        *sql.DB         // for stages that need it, as the next two; it has the table of stage.SQLRows
	Masters   []*redis.Client // that know nothing of each other
	ZooKeeper *zk.Conn
}

// run is one run.
type run struct {
	settings Settings
	world    World
	key      string
	began    time.Time
	emit     func(Event)
	over     chan struct{} // closed when nothing more is to be done

	replicas []*replica
	shop     *replica // renames

	mu         sync.Mutex // guards what follows
	down       bool
	version    int // of the map at the origin
	loads      int
	under      int // loads under way
	atOnce     int // that were, at most
	first      who // that came to its fault
	renamed    chan struct{}
	ended      bool
	acquired   map[who]time.Time // those who have the lock, as far as they know
	deleting   map[who]time.Time // when they began to delete it
	loaded     map[who]int       // the version that a request has loaded
	filling    map[who]int       // what was announced when a request began to cache its value
	announced  int               // the version of which the caches were told
	begun      chan struct{}     // closed when the first load begins
	another    chan struct{}     // closed when one got the lock after the first
	report     Report
	waits      []float64
	faultTasks sync.WaitGroup
}

// who is a request of a replica.
type who struct{ replica, request int }

type requestKey struct{}

// Run makes a run, and tells each event as it comes, one at a time. It ends when each request has its answer or none will
// come, or with ctx.
func Run(ctx context.Context, w World, s Settings, emit func(Event)) (Report, error) {
	if err := s.Validate(); err != nil {
		return Report{}, err
	}
	r := &run{
		settings: s, world: w, key: "lab:" + uuid.NewString(), emit: emit, over: make(chan struct{}), version: 1,
		renamed: make(chan struct{}), begun: make(chan struct{}), another: make(chan struct{}),
		acquired: make(map[who]time.Time), deleting: make(map[who]time.Time), loaded: make(map[who]int), filling: make(map[who]int),
		report: Report{Settings: s, Stage: s.Stage, Fault: s.Fault, Requests: s.Requests},
	}
	if s.Fault == Unknown {
		r.version = 0
	}
	if err := r.open(); err != nil {
		r.close()
		return Report{}, err
	}
	r.began = time.Now()
	r.requests(ctx)
	r.judge(context.WithoutCancel(ctx))
	r.close()
	return r.report, ctx.Err()
}

func (r *run) open() (err error) {
	if r.shop, err = r.openReplica(0, 0); err != nil {
		return err
	}
	for i := range r.settings.Replicas {
		clock := time.Duration(0)
		if r.settings.Fault == Clock && i+1 == wrongClock {
			clock = ahead
		}
		p, err := r.openReplica(i+1, clock)
		if err != nil {
			return err
		}
		r.replicas = append(r.replicas, p)
	}
	return nil
}

// close ends the run, and removes what it has left in Redis.
func (r *run) close() {
	r.mu.Lock()
	r.ended = true
	r.mu.Unlock()
	select {
	case <-r.over:
	default:
		close(r.over)
	}
	r.faultTasks.Wait()
	for _, p := range append(r.replicas, r.shop) {
		if p != nil {
			p.close()
		}
	}
	rdb := redis.NewClient(&redis.Options{Addr: r.world.Redis, MaxRetries: -1})
	defer rdb.Close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = rdb.Del(ctx, r.key, "lock:"+r.key).Err()
	if r.world.DB != nil {
		_, _ = r.world.DB.ExecContext(ctx, `DELETE FROM shop_lock WHERE name = $1`, "lock:"+r.key)
	}
}

// limit is how long a run may take: in it whatever has an end has ended.
func (r *run) limit() time.Duration {
	return 5*r.settings.LockTTL + 30*r.settings.Load + 3*time.Second
}

// requests sends the requests and waits for the answers. Where something is renamed, every second one comes after that.
func (r *run) requests(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer time.AfterFunc(r.limit(), cancel).Stop() // no deadline: a command that fails because of one would look like an error
	var all sync.WaitGroup
	for i := range r.settings.Requests {
		p := r.replicas[i%len(r.replicas)]
		late := r.late(i)
		all.Go(func() {
			switch {
			case late:
				wait(ctx, r.renamed)
			case r.settings.Fault == Clock && p.number == wrongClock && len(r.replicas) > 1:
				wait(ctx, r.begun) // with another's lock
			}
			r.request(ctx, p, i+1)
		})
		if r.settings.Fault == Unknown { // one after another, or the first load would answer them all
			all.Wait()
		}
	}
	switch {
	case r.settings.Fault == SilentRename:
		r.renameSilently(ctx)
	case r.renames():
		r.renameAfterAll(ctx)
	}
	all.Wait()
	r.report.Took = ms(time.Since(r.began))
}

// wait waits for something, but not longer than ctx.
func wait(ctx context.Context, happened <-chan struct{}) {
	select {
	case <-happened:
	case <-ctx.Done():
	}
}

// renames reports whether the fault renames something.
func (r *run) renames() bool {
	return slices.Contains([]Fault{SlowLoad, SlowUnlock, Stall, Rename, SilentRename}, r.settings.Fault)
}

// request sends one request.
func (r *run) request(ctx context.Context, p *replica, number int) {
	from := time.Now()
	ctx, cancel := context.WithCancel(context.WithValue(ctx, requestKey{}, number))
	defer cancel()
	r.tell(p.number, number, KindRequest, "")
	value, err := p.cache.Get(ctx, r.key)
	took := ms(time.Since(from))
	r.mu.Lock()
	switch {
	case p.isDead():
		r.report.Died++
	case ctx.Err() != nil:
		r.report.Stuck++
	case err != nil:
		r.report.Failed++
	default:
		r.report.Answered++
		r.waits = append(r.waits, took)
	}
	r.mu.Unlock()
	switch {
	case p.isDead() || ctx.Err() != nil:
	case err != nil:
		r.tell(p.number, number, KindFailed, err.Error())
	default:
		r.tell(p.number, number, string(stage.Answered), said(value))
	}
}

// said is a value for people.
func said(value string) string {
	if value == "" {
		return "there is none"
	}
	return value
}

// load is the origin: it takes its time, and says what was so when it began.
func (p *replica) load(ctx context.Context, _ string) (string, error) {
	r := p.run
	me := p.who(ctx)
	r.mu.Lock()
	r.loads++
	number := r.loads
	r.under++
	r.atOnce = max(r.atOnce, r.under)
	version := r.version
	r.loaded[me] = version
	r.mu.Unlock()
	defer func() {
		r.mu.Lock()
		r.under--
		r.mu.Unlock()
	}()
	if err := r.loading(ctx, p, number); err != nil {
		return "", err
	}
	if r.settings.Fault == OriginFails {
		return "", errors.New("the database fails")
	}
	if version == 0 {
		return "", nil
	}
	return versionText(version), nil
}

func versionText(v int) string { return fmt.Sprintf("version %d", v) }

func (p *replica) who(ctx context.Context) who {
	number, _ := ctx.Value(requestKey{}).(int)
	return who{p.number, number}
}

// wait waits, but not after the end.
func (r *run) wait(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-r.over:
		return stage.ErrHalted
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// tell tells an event, unless the run is over.
func (r *run) tell(replica, request int, kind, note string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.ended {
		r.emit(Event{At: ms(time.Since(r.began)), Replica: replica, Request: request, Kind: kind, Note: note})
	}
}

func (r *run) isDown() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.down
}

func (r *run) cacheTTL() time.Duration {
	if r.settings.Fault == SilentRename {
		return shortTTL
	}
	return longTTL
}
