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

// wrongClock is the replica whose clock is wrong.
const wrongClock = 2

const (
	// The pause between two polls of a waiting request, if the lock doesn't wake waiting requests.
	spin   = 50 * time.Millisecond
	outage = time.Second // the time for which Redis is down
	// How long a run waits for Redis where an error would change what it shows.
	patience = 30 * time.Second
	// The TTL of cached values, in the run that waits for their expiry. Before that, the first
	// requests must find the value, even if they are late.
	shortTTL = 3 * time.Second
	longTTL  = 10 * time.Minute
)

// World contains the systems that a run uses.
type World struct {
	Redis string // host:port
	// Host:port of the server that answers after a failover; empty: no failover is possible.
	Spare string
	// DB, Masters and ZooKeeper are for the stages that need them. DB has the table of
	// stage.SQLRows.
	DB        *sql.DB
	Masters   []string // host:port of independent servers
	ZooKeeper *zk.Conn
}

// run is the state of one run.
type run struct {
	settings Settings
	world    World
	link     *link
	key      string
	began    time.Time
	emit     func(Event)
	over     chan struct{} // closed when the run has nothing more to do
	sent     chan struct{} // closed when all requests have been sent

	replicas []*replica
	shop     *replica // the replica that renames

	mu       sync.Mutex // guards the fields below
	down     bool
	voteLost bool // a master has lost its vote
	version  int  // the version of the map at the origin
	loads    int
	under    int // the number of running loads
	atOnce   int // the most loads that ran at the same time
	first    who // the request that the fault has struck
	renamed  chan struct{}
	ended    bool
	// The requests that believe that they have the lock, with the time at which they got it.
	acquired map[who]time.Time
	deleting map[who]time.Time // the times at which requests began to delete the lock
	loaded   map[who]int       // the version that a request has loaded
	// The announced version when a request began to cache its value.
	filling   map[who]int
	announced int           // the version about which the caches were told
	due       int           // the oldest version that a request which begins now may get
	begun     chan struct{} // closed when the first load begins
	another   chan struct{} // closed when more than one request has the lock
	cached    chan struct{} // closed when the version after a rename was cached
	// Closed when the request that the fault has struck has no lock any more.
	released chan struct{}
	starts   int           // the requests that have begun
	allBegan chan struct{} // closed when all requests have begun that don't come after a rename
	waited   map[who]bool  // the requests that had to wait
	looked   map[int]bool  // the requests that have looked into the cache, or ended
	askers   map[int]bool  // the replicas in which a load has begun, or a request has ended
	overlap  chan struct{} // closed when all requests are in looked, and all replicas in askers
	// By request: closed when the request is in the line, has the lock or has its answer.
	arrived    map[int]chan struct{}
	report     Report
	waits      []float64
	faultTasks sync.WaitGroup
}

// who identifies a request of a replica.
type who struct{ replica, request int }

type requestKey struct{}

// Run carries out a run, and passes each event to emit as it comes, one at a time. It ends when
// each request has its answer, when no more answers can come, or when ctx ends.
func Run(ctx context.Context, w World, s Settings, emit func(Event)) (Report, error) {
	if err := s.Validate(); err != nil {
		return Report{}, err
	}
	if s.Fault == Failover && w.Spare == "" {
		return Report{}, errNoSpare
	}
	r := &run{
		settings: s, world: w, link: &link{addr: w.Redis}, key: "lab:" + uuid.NewString(),
		emit: emit, over: make(chan struct{}), sent: make(chan struct{}), version: 1,
		renamed: make(chan struct{}), begun: make(chan struct{}), another: make(chan struct{}),
		cached:   make(chan struct{}),
		released: make(chan struct{}), allBegan: make(chan struct{}),
		acquired: make(map[who]time.Time), deleting: make(map[who]time.Time),
		loaded: make(map[who]int), filling: make(map[who]int),
		waited: make(map[who]bool), looked: make(map[int]bool), askers: make(map[int]bool),
		overlap: make(chan struct{}),
		arrived: make(map[int]chan struct{}),
		report:  Report{Stage: s.Stage, Fault: s.Fault, Requests: s.Requests},
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
			clock = r.settings.Clock
		}
		p, err := r.openReplica(i+1, clock)
		if err != nil {
			return err
		}
		r.replicas = append(r.replicas, p)
	}
	return nil
}

// close ends the run, and removes its data from Redis.
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
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	for _, addr := range slices.Compact([]string{r.world.Redis, r.link.server()}) {
		rdb := redis.NewClient(&redis.Options{Addr: addr, MaxRetries: -1})
		_ = rdb.Del(ctx, stage.Keys(r.key)...).Err()
		_ = rdb.Close()
	}
	if r.needs() == stage.NeedsZooKeeper && r.world.ZooKeeper != nil {
		_ = r.world.ZooKeeper.Delete(stage.QueuePath(r.key), -1)
	}
	if r.world.DB != nil {
		_, _ = r.world.DB.ExecContext(ctx, `DELETE FROM shop_lock WHERE name = $1`, "lock:"+r.key)
	}
}

// limit returns the time limit of a run. Within this time every lock that expires has expired.
func (r *run) limit() time.Duration {
	return 5*r.settings.LockTTL + 30*r.settings.Load + 3*time.Second
}

// requests sends the requests and waits for the answers. If the fault renames a category, every
// second round of requests, with one request for each replica, comes after the rename.
func (r *run) requests(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	// A timer cancels ctx after the limit. ctx itself gets no deadline, because a command that
	// fails at a deadline would look like an error.
	defer time.AfterFunc(r.limit(), cancel).Stop()
	var all, watching sync.WaitGroup
	watching.Go(func() { r.endWhenDead(ctx, cancel) })
	for i := range r.settings.Requests {
		p := r.replicas[i%len(r.replicas)]
		late, arrived := r.late(i), r.arrival(i+1)
		all.Go(func() {
			switch {
			case late:
				wait(ctx, r.renamed)
			case r.isSecond(p):
				wait(ctx, r.begun) // while another request has the lock
			}
			r.request(ctx, p, i+1)
		})
		// Each request that joins a line wakes the requests that watch the line.
		if r.needs() == stage.NeedsZooKeeper && !late {
			wait(ctx, arrived)
		}
		// One after another; otherwise the first load would answer all requests.
		if r.settings.Fault == Unknown {
			all.Wait()
		}
	}
	close(r.sent)
	switch {
	case r.settings.Fault == SilentRename:
		r.renameSilently(ctx)
	case r.renames():
		r.renameAfterAll(ctx)
	}
	all.Wait()
	cancel()
	watching.Wait()
	r.report.Took = ms(time.Since(r.began))
}

// wait waits until happened is closed or ctx ends.
func wait(ctx context.Context, happened <-chan struct{}) {
	select {
	case <-happened:
	case <-ctx.Done():
	}
}

// renames reports whether the fault renames a category.
func (r *run) renames() bool {
	return slices.Contains([]Fault{SlowLoad, SlowUnlock, Stall, Rename, SilentRename, Failover},
		r.settings.Fault)
}

// isSecond reports whether a replica's requests come while a load of another replica runs. This
// depends on the clocks: a replica whose clock is ahead takes the lock of another replica, and a
// replica whose clock is behind loses its lock to another replica.
func (r *run) isSecond(p *replica) bool {
	return r.settings.Fault == Clock && len(r.replicas) > 1 &&
		(p.number == wrongClock) == (r.settings.Clock > 0)
}

// arrival returns a channel that is closed when a request has come to the point at which it waits
// or goes on.
func (r *run) arrival(request int) <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.arrived[request] = make(chan struct{})
	return r.arrived[request]
}

// needs returns the systems that the stage needs in addition to Redis.
func (r *run) needs() stage.Needs {
	all := stage.All()
	return all[slices.IndexFunc(all, func(s stage.Stage) bool {
		return s.Name == r.settings.Stage
	})].Needs
}

// request sends one request.
func (r *run) request(ctx context.Context, p *replica, number int) {
	from := time.Now()
	ctx, cancel := context.WithCancel(context.WithValue(ctx, requestKey{}, number))
	defer cancel()
	r.tell(p.number, number, KindRequest, "")
	due := r.begins()
	value, err := p.cache.Get(ctx, r.key)
	took := ms(time.Since(from))
	r.mu.Lock()
	closeOnce(r.arrived[number])
	r.looks(number)
	r.asks(p.number)
	me := who{p.number, number}
	delete(r.acquired, me) // it has ended, and gives no lock back
	r.releases(me)
	switch {
	case p.isDead():
		r.report.Died++
	case ctx.Err() != nil:
		r.report.Stuck++
	case err != nil:
		r.report.Failed++
	default:
		r.report.Answered++
		if versionOf(value) < due {
			r.report.StaleAnswers++
		}
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

// said returns a value as text for people.
func said(value string) string {
	if value == "" {
		return "there is none"
	}
	return value
}

// load is the origin. It takes some time, and returns the version at its beginning.
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
	r.asks(p.number)
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

// versionOf returns the version in a value, or 0 if there is none.
func versionOf(value string) (v int) {
	_, _ = fmt.Sscanf(value, "version %d", &v)
	return v
}

// begins records that a request begins, and returns the oldest version that it may get.
func (r *run) begins() (due int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.starts++; r.starts == r.early() {
		close(r.allBegan)
	}
	return r.due
}

func (p *replica) who(ctx context.Context) who {
	number, _ := ctx.Value(requestKey{}).(int)
	return who{p.number, number}
}

// wait waits for d. It returns an error if the run ends first.
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

// tell reports an event, unless the run is over.
func (r *run) tell(replica, request int, kind, note string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.ended {
		r.emit(Event{
			At: ms(time.Since(r.began)), Replica: replica, Request: request, Kind: kind, Note: note,
		})
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
