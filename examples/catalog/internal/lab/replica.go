package lab

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/cacheguard/cacheguard/examples/catalog/stage"
)

// errGone is what a request of a replica that has died gets from Redis.
var errGone = errors.New("this replica has died")

// errNobody ends a wait for another request that doesn't come.
var errNobody = errors.New("nobody else has cached anything")

// errNoSpare is for a world in which Redis can't fail over.
var errNoSpare = errors.New("a failover needs a second Redis server")

// errUnreachable is what Redis says while nobody can reach it.
var errUnreachable = errors.New("redis can't be reached")

// replica is one server of a run. What the world may do to it, it does to the packets between it
// and Redis, and at the points of its requests.
type replica struct {
	run    *run
	number int // from 1; 0 is the shop's own, which renames
	rdb    *redis.Client
	own    []*redis.Client // to the masters, where the stage has some
	cache  stage.Protection

	mu     sync.Mutex // guards what follows
	dead   bool
	frozen chan struct{} // closed when it goes on; nil: it isn't
}

// openReplica opens one. The clock is how far ahead its own is.
func (r *run) openReplica(number int, clock time.Duration) (*replica, error) {
	p := &replica{run: r, number: number}
	p.rdb = redis.NewClient(&redis.Options{
		Addr: r.world.Redis, Dialer: r.link.dial, ContextTimeoutEnabled: true, MaxRetries: -1, PoolSize: MostRequests + 10,
	})
	p.rdb.AddHook(wire{p, r.isDown})
	p.openMasters()
	cache, err := stage.Open(r.settings.Stage, &stage.Replica{
		Redis: p.rdb, DB: r.world.DB, Masters: p.own, ZooKeeper: r.world.ZooKeeper,
		Load: p.load, At: p.at, Told: p.told, Now: func() time.Time { return time.Now().Add(clock) },
		LockTTL: r.settings.LockTTL, CacheTTL: r.cacheTTL(), Spin: spin,
	})
	if err != nil {
		p.closeConns()
		return nil, err
	}
	p.cache = cache
	return p, nil
}

func (p *replica) close() {
	_ = p.cache.Close()
	p.closeConns()
}

// openMasters has the replica know the masters, if its stage needs them.
func (p *replica) openMasters() {
	if !p.run.locksAtMasters() {
		return
	}
	for i, addr := range p.run.world.Masters {
		rdb := redis.NewClient(&redis.Options{Addr: addr, ContextTimeoutEnabled: true, MaxRetries: -1, PoolSize: MostRequests + 10})
		rdb.AddHook(wire{p, func() bool { return p.run.isAway(i) }})
		p.own = append(p.own, rdb)
		if !p.run.isAway(i) {
			connect(rdb, (p.run.settings.Requests+p.run.settings.Replicas-1)/p.run.settings.Replicas)
		}
	}
}

// connect has connections ready for so many requests: to dial may take longer than a master has to
// answer.
func connect(rdb *redis.Client, requests int) {
	var all sync.WaitGroup
	for range requests {
		all.Go(func() { _ = rdb.Ping(context.Background()).Err() }) // what is wrong shows when it is used
	}
	all.Wait()
}

func (p *replica) closeConns() {
	for _, rdb := range append(p.own, p.rdb) {
		_ = rdb.Close()
	}
}

// kill ends the replica: none of its requests goes further, and nothing of it reaches Redis.
func (p *replica) kill() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.dead = true
}

// freeze has the replica stand still until thaw.
func (p *replica) freeze() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.frozen = make(chan struct{})
}

func (p *replica) thaw() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.frozen != nil {
		close(p.frozen)
		p.frozen = nil
	}
}

func (p *replica) isDead() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.dead
}

// pass returns when the replica runs, or an error if it doesn't any more.
func (p *replica) pass(ctx context.Context) error {
	p.mu.Lock()
	dead, frozen := p.dead, p.frozen
	p.mu.Unlock()
	if frozen != nil {
		select {
		case <-frozen:
		case <-p.run.over:
			return stage.ErrHalted
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	if dead {
		return stage.ErrHalted
	}
	return nil
}

// wire is between a replica and a Redis, which may be away.
type wire struct {
	*replica
	away func() bool
}

func (w wire) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		if err := w.open(ctx); err != nil {
			return nil, err
		}
		return next(ctx, network, addr)
	}
}

func (w wire) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if err := w.open(ctx); err != nil {
			cmd.SetErr(err)
			return err
		}
		err := next(ctx, cmd)
		if w.pass(ctx) != nil { // the answer doesn't arrive any more
			cmd.SetErr(errGone)
			return errGone
		}
		return err
	}
}

func (w wire) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if err := w.open(ctx); err != nil {
			for _, c := range cmds {
				c.SetErr(err)
			}
			return err
		}
		return next(ctx, cmds)
	}
}

func (w wire) open(ctx context.Context) error {
	if w.pass(ctx) != nil {
		return errGone
	}
	if w.away() {
		return errUnreachable
	}
	return nil
}
