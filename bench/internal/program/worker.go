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

// replicaCommand is what a fleet's processes are started with.
const replicaCommand = "replica"

// worker is a replica as it sees itself. Its first job opens what the others are done with: a
// contender, or a locker.
type worker struct {
	peers Peers
	ends  []func() // in which order it was opened

	origin *slowdb.Client
	meter  *meter
	size   int
	contender.Protection

	hands   *hands
	holders *holders
}

// work does jobs until there are no more.
func work(ctx context.Context, peers Peers, stdin io.Reader, stdout io.Writer) error {
	logging.Disable() // what a contender does when Redis is away is counted, not told
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

// atEnd has something closed when the worker ends, before what was opened earlier.
func (w *worker) atEnd(end func()) { w.ends = append(w.ends, end) }

func (w *worker) close() {
	for i := range w.ends {
		w.ends[len(w.ends)-1-i]()
	}
}

// dial is the client that what is compared asks Redis with.
func (w *worker) dial(o redis.Options) *redis.Client {
	o.ContextTimeoutEnabled = true
	rdb := redis.NewClient(&o)
	w.atEnd(func() { _ = rdb.Close() })
	return rdb
}

// fillPool has a client dial all the connections that its pool may have, as that of a program has
// which has run for a while: or whoever needs one for each caller would be measured with dialling,
// and whoever needs few would not.
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

// job is what a replica does when it is told to, and A what it answers.
type job[A any] interface {
	do(ctx context.Context, w *worker) (A, error)
}

// nothing is the answer of a job that is just done.
type nothing struct{}

// jobs are how each kind of job is done, by its type.
var jobs = map[reflect.Type]func(ctx context.Context, w *worker, j any) (any, error){}

// known makes a kind of job known to both ends. What it returns is for a variable.
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

// ask has a replica do a job, and waits for its answer.
func ask[A any](ctx context.Context, r *replica, j job[A]) (answer A, err error) {
	got, err := r.Ask(ctx, j)
	if errors.Is(err, wire.ErrEnded) {
		err = fmt.Errorf("a replica ended: %w", err)
	}
	answer, _ = got.(A)
	return answer, err
}
