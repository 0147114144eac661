package program

import (
	"context"
	"encoding/gob"
	"errors"
	"fmt"
	"io"
	"reflect"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"

	"github.com/cacheguard/cacheguard/bench/internal/contender"
	"github.com/cacheguard/cacheguard/bench/internal/slowdb"
	"github.com/cacheguard/cacheguard/bench/internal/wire"
)

// replicaCommand is the command with which a fleet's processes are started.
const replicaCommand = "replica"

// worker is a replica from its own view. Its first job opens a contender or a locker, and the other
// jobs use it.
type worker struct {
	peers Peers
	ends  []func() // in the order of opening

	origin *slowdb.Client
	meter  *meter
	size   int
	contender.Protection

	hands   *hands
	holders *holders
}

// work does jobs until its input ends.
func work(ctx context.Context, peers Peers, stdin io.Reader, stdout io.Writer) error {
	logging.Disable() // events while Redis is away are counted, not logged
	w := &worker{peers: peers}
	defer w.close()
	return wire.Serve(ctx, stdin, stdout, func(ctx context.Context, j any) (any, error) {
		do := jobs[reflect.TypeOf(j)]
		if do == nil {
			return nil, fmt.Errorf("there is no job %T", j)
		}
		return do(ctx, w, j)
	})
}

// atEnd registers a function that is called when the worker ends. Functions that were registered
// later are called first.
func (w *worker) atEnd(end func()) { w.ends = append(w.ends, end) }

func (w *worker) close() {
	for i := range w.ends {
		w.ends[len(w.ends)-1-i]()
	}
}

// dial returns the client with which the contender or locker uses Redis.
func (w *worker) dial(o redis.Options) *redis.Client {
	o.ContextTimeoutEnabled = true
	rdb := redis.NewClient(&o)
	w.atEnd(func() { _ = rdb.Close() })
	return rdb
}

// fillPool makes a client dial all connections that its pool may have, as in a program that has run
// for a while. Otherwise the times of contenders that need a connection for each caller would
// include dialling, and the times of other contenders would not.
func fillPool(ctx context.Context, rdb *redis.Client) error {
	var errs []error
	var all []*redis.Conn
	for range rdb.Options().PoolSize {
		c := rdb.Conn()
		all = append(all, c)
		errs = append(errs, c.Ping(ctx).Err())
	}
	for _, c := range all {
		errs = append(errs, c.Close())
	}
	return errors.Join(errs...)
}

// job is a task for a replica. A is the type of its answer.
type job[A any] interface {
	do(ctx context.Context, w *worker) (A, error)
}

// nothing is the answer of a job without a result.
type nothing struct{}

// jobs are the functions that do each kind of job, by its type.
var jobs = map[reflect.Type]func(ctx context.Context, w *worker, j any) (any, error){}

// known registers a kind of job at both ends. It has a result only so that the declaration of a
// variable can call it.
func known[A any](j job[A]) struct{} {
	gob.Register(j)
	var answer A
	if _, none := any(answer).(nothing); !none {
		gob.Register(answer)
	}
	jobs[reflect.TypeOf(j)] = func(ctx context.Context, w *worker, j any) (any, error) {
		answer, err := j.(job[A]).do(ctx, w)
		if _, none := any(answer).(nothing); none {
			return nil, err
		}
		return answer, err
	}
	return struct{}{}
}

// ask gives a replica a job, and waits for its answer.
func ask[A any](ctx context.Context, r *replica, j job[A]) (answer A, err error) {
	got, err := r.Ask(ctx, j)
	if errors.Is(err, wire.ErrEnded) {
		err = fmt.Errorf("a replica ended: %w", err)
	}
	answer, _ = got.(A)
	return answer, err
}
