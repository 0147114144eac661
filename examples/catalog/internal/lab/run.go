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
	spin     = 50 * time.Millisecond // how often those ask who wait for a lock that doesn't wake them
	outage   = time.Second           // how long Redis is down
	shortTTL = time.Second           // of cached values, in the run that waits for their end
	longTTL  = 10 * time.Minute
)

// World is what a run is made in.
type World struct {
	Redis     string   // host:port
	Spare     string   // host:port of the one that answers after a failover; empty: there can't be one
	DB        *sql.DB  // for stages that need it, as the next two; it has the table of stage.SQLRows
	Masters   []string // host:port of servers that know nothing of each other
	ZooKeeper *zk.Conn
}

// run is one run.
type run struct {
	settings Settings
	world    World
	link     *link
	key      string
	began    time.Time
	emit     func(Event)
	over     chan struct{} // closed when nothing more is to be done

	replicas []*replica
	shop     *replica // renames

	mu         sync.Mutex // guards what follows
	down       bool
	voteLost   bool // a master has forgotten its vote
	version    int  // of the map at the origin
	loads      int
	under      int // loads under way
	atOnce     int // that were, at most
	first      who // that came to its fault
	renamed    chan struct{}
	ended      bool
	acquired   map[who]time.Time     // those who have the lock, as far as they know
	deleting   map[who]time.Time     // when they began to delete it
	loaded     map[who]int           // the version that a request has loaded
	filling    map[who]int           // what was announced when a request began to cache its value
	announced  int                   // the version of which the caches were told
	due        int                   // the version that a request which begins now must be told, or a later one
	begun      chan struct{}         // closed when the first load begins
	another    chan struct{}         // closed when one got the lock after the first
	cached     chan struct{}         // closed when what is so after a rename was cached
	waited     map[who]bool          // those who had to wait
	looked     map[int]bool          // the requests that have looked into the cache, or ended
	allLooked  chan struct{}         // closed when all requests are in looked
	arrived    map[int]chan struct{} // by request: closed when it stands in the line, has the lock or its answer
	report     Report
	waits      []float64
	faultTasks sync.WaitGroup
}

// who is a request of a replica.
type who struct{ replica, request int }

type requestKey struct{}

// Run makes a run, and tells each event as it comes, one at a time. It ends when each request has
// its answer or none will come, or with ctx.
func Run(ctx context.Context, w World, s Settings, emit func(Event)) (Report, error) {
	if err := s.Validate(); err != nil {
		return Report{}, err
	}
	if s.Fault == Failover && w.Spare == "" {
		return Report{}, errNoSpare
	}
	r := &run{
		settings: s, world: w, link: &link{addr: w.Redis}, key: "lab:" + uuid.NewString(), emit: emit, over: make(chan struct{}), version: 1,
		renamed: make(chan struct{}), begun: make(chan struct{}), another: make(chan struct{}), cached: make(chan struct{}),
		acquired: make(map[who]time.Time), deleting: make(map[who]time.Time), loaded: make(map[who]int), filling: make(map[who]int),
		waited: make(map[who]bool), looked: make(map[int]bool), allLooked: make(chan struct{}), arrived: make(map[int]chan struct{}),
		report: Report{Stage: s.Stage, Fault: s.Fault, Requests: s.Requests},
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
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
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

// limit is how long a run may take: in it whatever has an end has ended.
func (r *run) limit() time.Duration {
	return 5*r.settings.LockTTL + 30*r.settings.Load + 3*time.Second
}

// requests sends the requests and waits for the answers. Where something is renamed, every second
// one comes after that.
func (r *run) requests(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer time.AfterFunc(r.limit(), cancel).Stop() // no deadline: a command that fails because of one would look like an error
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
				wait(ctx, r.begun) // with another's lock
			}
			r.request(ctx, p, i+1)
		})
		if r.needs() == stage.NeedsZooKeeper && !late { // each one that joins a line is news to those who watch it
			wait(ctx, arrived)
		}
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
	cancel()
	watching.Wait()
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
	return slices.Contains([]Fault{SlowLoad, SlowUnlock, Stall, Rename, SilentRename, Failover}, r.settings.Fault)
}

// isSecond reports whether a replica's requests come when another's load is under way, because of
// its clock: one that is ahead takes the lock of another, one that is behind has its own taken.
func (r *run) isSecond(p *replica) bool {
	return r.settings.Fault == Clock && len(r.replicas) > 1 && (p.number == wrongClock) == (r.settings.Clock > 0)
}

// arrival is closed when a request has come to where it waits or goes on.
func (r *run) arrival(request int) <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.arrived[request] = make(chan struct{})
	return r.arrived[request]
}

// needs is what the stage needs besides Redis.
func (r *run) needs() stage.Needs {
	all := stage.All()
	return all[slices.IndexFunc(all, func(s stage.Stage) bool { return s.Name == r.settings.Stage })].Needs
}

// request sends one request.
func (r *run) request(ctx context.Context, p *replica, number int) {
	from := time.Now()
	ctx, cancel := context.WithCancel(context.WithValue(ctx, requestKey{}, number))
	defer cancel()
	r.tell(p.number, number, KindRequest, "")
	due := r.isDue()
	value, err := p.cache.Get(ctx, r.key)
	took := ms(time.Since(from))
	r.mu.Lock()
	closeOnce(r.arrived[number])
	r.looks(number)
	delete(r.acquired, who{p.number, number}) // whoever has an answer gives nothing back any more
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

// versionOf is the version in a value; 0: there is none.
func versionOf(value string) (v int) {
	_, _ = fmt.Sscanf(value, "version %d", &v)
	return v
}

func (r *run) isDue() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.due
}

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
