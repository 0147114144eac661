package program

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// move is what a process is told to do, and what it says that was done.
type move string

const (
	toLock   move = "lock"   // have a contender ask for the lock
	toUnlock move = "unlock" // have it give it back
	toCount  move = "count"  // say what was counted so far
	toRepeat move = "repeat" // lock and unlock, one after the other
)

// handoverOrder is one of them.
type handoverOrder struct {
	Do    move
	Who   int    // of all contenders
	Name  string // of the lock
	Pairs int    // to repeat
}

// handoverReport is the answer to an order.
type handoverReport struct {
	Done move
	Who  int

	// At is when Lock had returned, or just before Unlock was called: nanoseconds since 1970 by the
	// wall clock, the one clock whose readings a program may compare with those of another process
	// everywhere.
	At int64

	Trips, Messages int64
	Pairs           []int64 // how long each took
	Error           string
}

// handoverProcess is one process with contenders: it follows orders until there are no more.
func handoverProcess(ctx context.Context, peers Peers, args []string, stdin io.Reader, stdout io.Writer) error {
	flags := flag.NewFlagSet("bench handover-process", flag.ContinueOnError)
	addr := flags.String("redis", "", "host:port")
	name := flags.String("locker", "", "which")
	if err := flags.Parse(args); err != nil {
		return err
	}
	of := append(peers.lockers(), floor)
	i := slices.IndexFunc(of, func(l Locker) bool { return l.Name == *name })
	if i < 0 {
		return fmt.Errorf("there is no locker %q", *name)
	}
	rdb := redis.NewClient(&redis.Options{
		Addr: *addr, ContextTimeoutEnabled: true, PoolSize: 10000, // a locker may have a connection for each that waits
	})
	defer rdb.Close()
	metered := &meter{}
	rdb.AddHook(metered)
	lock, stop, err := of[i].Open(ctx, rdb)
	if err != nil {
		return err
	}
	defer stop()

	ctx, cancel := context.WithCancel(ctx)
	c := &contenders{lock: lock, metered: metered, out: json.NewEncoder(stdout), held: make(map[int]func(context.Context) error)}
	defer c.busy.Wait()
	defer cancel()
	c.report(handoverReport{}) // ready
	in := json.NewDecoder(bufio.NewReader(stdin))
	for {
		var o handoverOrder
		if err := in.Decode(&o); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		c.busy.Go(func() {
			r, err := c.follow(ctx, o)
			if err != nil {
				r.Error = err.Error()
			}
			if ctx.Err() == nil { // at the end nobody reads any more
				c.report(r)
			}
		})
	}
}

// contenders are those of one process.
type contenders struct {
	lock    LockFunc
	metered *meter
	busy    sync.WaitGroup

	mu   sync.Mutex // guards what follows
	out  *json.Encoder
	held map[int]func(context.Context) error // how to give it back, by who has it
}

func (c *contenders) follow(ctx context.Context, o handoverOrder) (r handoverReport, err error) {
	r = handoverReport{Done: o.Do, Who: o.Who}
	switch o.Do {
	case toLock:
		var unlock func(context.Context) error
		unlock, err = c.lock(ctx, o.Name)
		r.At = time.Now().UnixNano()
		c.mu.Lock()
		c.held[o.Who] = unlock
		c.mu.Unlock()
	case toUnlock:
		c.mu.Lock()
		unlock := c.held[o.Who]
		c.mu.Unlock()
		r.At = time.Now().UnixNano()
		err = unlock(ctx)
	case toCount:
		r.Trips, r.Messages = c.metered.n.Load(), c.metered.messages.Load()
	case toRepeat:
		r.Pairs, err = c.repeat(ctx, o)
	}
	return r, err
}

// repeat locks and unlocks.
func (c *contenders) repeat(ctx context.Context, o handoverOrder) (took []int64, err error) {
	for range o.Pairs {
		began := time.Now()
		unlock, err := c.lock(ctx, o.Name)
		if err != nil {
			return took, err
		}
		if err := unlock(ctx); err != nil {
			return took, err
		}
		took = append(took, time.Since(began).Nanoseconds())
	}
	return took, nil
}

func (c *contenders) report(r handoverReport) {
	c.mu.Lock()
	defer c.mu.Unlock()
	_ = c.out.Encode(r) // the parent is gone if that fails, and then the orders end
}
