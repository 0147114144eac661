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

// errGone is the error of Redis commands of a replica that has died.
var errGone = errors.New("this replica has died")

// errNobody is the error of a wait for another request that doesn't come.
var errNobody = errors.New("nobody else has cached anything")

// errNoSpare is the error if a World has no second Redis for a failover.
var errNoSpare = errors.New("a failover needs a second Redis server")

// errUnreachable is the error of commands while Redis can't be reached.
var errUnreachable = errors.New("redis can't be reached")

// replica is one server of a run. Faults affect a replica through the packets between it and Redis,
// and at the points of its requests.
type replica struct {
	run    *run
	number int // from 1; 0 is the shop's own replica, which renames
	rdb    *redis.Client
	own    []*redis.Client // the clients of the masters, if the stage has masters
	cache  stage.Protection

	mu     sync.Mutex // guards the fields below
	dead   bool
	frozen chan struct{} // closed when the replica goes on; nil: it isn't frozen
}

// openReplica opens a replica. clock is the time by which its clock is ahead.
func (r *run) openReplica(number int, clock time.Duration) (*replica, error) {
	p := &replica{run: r, number: number}
	p.rdb = redis.NewClient(&redis.Options{
		Addr: r.world.Redis, Dialer: r.link.dial, ContextTimeoutEnabled: true, MaxRetries: -1,
		PoolSize: MostRequests + 10,
	})
	p.rdb.AddHook(wire{p, r.isDown})
	p.openMasters()
	cache, err := stage.Open(r.settings.Stage, &stage.Replica{
		Redis: p.rdb, DB: r.world.DB, Masters: p.own, ZooKeeper: r.world.ZooKeeper,
		Load: p.load, At: p.at, Told: p.told, Now: func() time.Time {
			return time.Now().Add(clock)
		},
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

// openMasters opens clients of the masters, if the stage needs them.
func (p *replica) openMasters() {
	if !p.run.locksAtMasters() {
		return
	}
	for i, addr := range p.run.world.Masters {
		rdb := redis.NewClient(&redis.Options{
			Addr: addr, ContextTimeoutEnabled: true, MaxRetries: -1, PoolSize: MostRequests + 10,
		})
		connect(rdb, (p.run.settings.Requests+p.run.settings.Replicas-1)/p.run.settings.Replicas)
		rdb.AddHook(wire{p, func() bool { return p.run.isAway(i) }})
		p.own = append(p.own, rdb)
	}
}

// connect opens connections for the given number of requests in advance, because dialling may take
// longer than the time limit for a master's answer.
func connect(rdb *redis.Client, requests int) {
	var all sync.WaitGroup
	for range requests {
		// An error will appear again when the connection is used.
		all.Go(func() { _ = rdb.Ping(context.Background()).Err() })
	}
	all.Wait()
}

func (p *replica) closeConns() {
	for _, rdb := range append(p.own, p.rdb) {
		_ = rdb.Close()
	}
}

// kill ends the replica. Its requests don't go on, and none of its commands reaches Redis.
func (p *replica) kill() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.dead = true
}

// freeze stops the replica until thaw is called.
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

// pass waits while the replica is frozen. It returns an error if the replica has died, or if the
// run or ctx ends while pass waits.
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

// wire is a connection between a replica and a Redis that may be away.
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
		if w.pass(ctx) != nil { // the answer doesn't arrive
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
