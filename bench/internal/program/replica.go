package program

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// order is what the parent tells a replica: ask for this key at that moment.
type order struct {
	Key string
	At  int64 // nanoseconds since 1970; all processes are on one machine
}

// report is what a replica answers.
type report struct {
	Latency []int64 // nanoseconds from At for each caller
	Loads   []int64 // when each load began, nanoseconds from At
	Errors  int
	Error   string // one of them
	Trips   int64  // round trips to Redis
}

// replica is one process of the fleet: it answers orders until there are no more.
func replica(ctx context.Context, args []string, stdin io.Reader, stdout io.Writer) error {
	flags := flag.NewFlagSet("bench replica", flag.ContinueOnError)
	addr := flags.String("redis", "", "host:port")
	name := flags.String("protection", "", "which")
	locks := flags.String("locks", "", "where those of the protection are")
	callers := flags.Int("callers", 0, "how many")
	load := flags.Duration("load", 0, "how long a load takes")
	size := flags.Int("size", 0, "bytes of the value")
	if err := flags.Parse(args); err != nil {
		return err
	}
	rdb := redis.NewClient(&redis.Options{Addr: *addr, ContextTimeoutEnabled: true})
	defer rdb.Close()
	if err := fillPool(ctx, rdb); err != nil {
		return err
	}
	trips := &tripCounter{}
	rdb.AddHook(trips)
	r := &rig{rdb: rdb, locks: *locks, delay: *load, value: string(make([]byte, *size))}
	get, stop, err := protections[*name](ctx, r)
	if err != nil {
		return err
	}
	defer stop()

	out := json.NewEncoder(stdout)
	if err := out.Encode(report{}); err != nil { // ready
		return err
	}
	in := json.NewDecoder(bufio.NewReader(stdin))
	for {
		var o order
		if err := in.Decode(&o); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		before := trips.n.Load()
		answer := r.burst(ctx, o, *callers, get)
		answer.Trips = trips.n.Load() - before
		if err := out.Encode(answer); err != nil {
			return err
		}
	}
}

// getter asks for a key and returns an error unless it got the value.
type getter func(ctx context.Context, key string) error

// rig is what a protection is built on.
type rig struct {
	rdb   *redis.Client
	locks string // where they are, if the protection has some
	delay time.Duration
	value string

	mu    sync.Mutex // guards loads
	loads []time.Time
}

// origin is the expensive load.
func (r *rig) origin(ctx context.Context) (string, error) {
	r.mu.Lock()
	r.loads = append(r.loads, time.Now())
	r.mu.Unlock()
	timer := time.NewTimer(r.delay)
	defer timer.Stop()
	select {
	case <-timer.C:
		return r.value, nil
	case <-ctx.Done():
		return "", ctx.Err()
	}
}

// burst has all callers ask at the same moment.
func (r *rig) burst(ctx context.Context, o order, callers int, get getter) report {
	r.mu.Lock()
	r.loads = nil
	r.mu.Unlock()
	runtime.GC() // not in the middle of it, for any protection

	at := time.Unix(0, o.At)
	answer := report{Latency: make([]int64, callers)}
	gate := make(chan struct{})
	var done sync.WaitGroup
	var failed atomic.Int64
	var failure atomic.Pointer[string]
	for i := range callers {
		done.Go(func() {
			ctx, cancel := context.WithCancel(ctx) // as a request of a server has
			defer cancel()
			standLikeARequest()
			<-gate
			err := get(ctx, o.Key)
			answer.Latency[i] = time.Since(at).Nanoseconds()
			if err != nil {
				failed.Add(1)
				text := err.Error()
				failure.Store(&text)
			}
		})
	}
	timer := time.NewTimer(time.Until(at))
	<-timer.C
	close(gate)
	done.Wait()

	r.mu.Lock()
	defer r.mu.Unlock()
	for _, began := range r.loads {
		answer.Loads = append(answer.Loads, began.Sub(at).Nanoseconds())
	}
	answer.Errors = int(failed.Load())
	if text := failure.Load(); text != nil {
		answer.Error = *text
	}
	return answer
}

// check makes an error of a wrong value: a protection that answers quickly and wrongly has not won.
func (r *rig) check(v string, err error) error {
	if err == nil && v != r.value {
		return fmt.Errorf("got a wrong value of %d bytes", len(v))
	}
	return err
}

// tripCounter counts round trips: a command, or a pipeline of them.
type tripCounter struct{ n atomic.Int64 }

func (t *tripCounter) DialHook(next redis.DialHook) redis.DialHook { return next }

func (t *tripCounter) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		t.n.Add(1)
		return next(ctx, cmd)
	}
}

func (t *tripCounter) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		t.n.Add(1)
		return next(ctx, cmds)
	}
}
