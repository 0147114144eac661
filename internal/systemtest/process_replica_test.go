package systemtest_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/cacheguard/redisstore"
)

// errReplicaOrigin is how a load fails. Only in the process where it failed can it be recognised.
var errReplicaOrigin = errors.New("the origin is down")

// replicaErrors are the errors that an answer is compared with.
var replicaErrors = map[string]error{
	"origin":      errReplicaOrigin,
	"not found":   cacheguard.ErrNotFound,
	"lease lost":  cacheguard.ErrLeaseLost,
	"closed":      cacheguard.ErrClosed,
	"unavailable": cacheguard.ErrUnavailable,
	"canceled":    context.Canceled,
	"deadline":    context.DeadlineExceeded,
}

// replicaMain is the main function of a replica. It carries out orders until its input ends, and
// returns the exit code.
func replicaMain(config string, stdin io.Reader, stdout io.Writer) int {
	var rc replicaConfig
	if err := json.Unmarshal([]byte(config), &rc); err != nil {
		fmt.Fprintln(os.Stderr, "replica: configuration:", err)
		return 2
	}
	r := &replicaSelf{out: json.NewEncoder(stdout), gates: make(map[string]chan struct{})}
	if err := r.run(rc, json.NewDecoder(stdin)); err != nil {
		fmt.Fprintln(os.Stderr, "replica:", err)
		return 1
	}
	return 0
}

// replicaSelf is the state of a replica in its own process.
type replicaSelf struct {
	cache  *cacheguard.Cache[replicaValue]
	origin *redis.Client
	loads  atomic.Int64
	orders sync.WaitGroup // under way

	// Guards the fields below; held while a report is written, so that reports are in order.
	mu    sync.Mutex
	out   *json.Encoder
	gates map[string]chan struct{}
}

func (r *replicaSelf) run(rc replicaConfig, in *json.Decoder) error {
	// The client's hooks see a round trip only if it looks at contexts.
	rdb := redis.NewClient(&redis.Options{Addr: rc.Redis, ContextTimeoutEnabled: true})
	defer rdb.Close()
	rdb.AddHook(replicaTrips{r})
	r.origin = redis.NewClient(&redis.Options{Addr: rc.Redis})
	defer r.origin.Close()

	logger := slog.New(slog.NewTextHandler(os.Stderr, nil))
	// What a busy machine makes slow must not count as a store that can't be used.
	store, err := redisstore.New(rdb,
		redisstore.Options{Prefix: processPrefix, OpTimeout: 20 * time.Second, Logger: logger})
	if err != nil {
		return err
	}
	defer store.Close()
	r.cache, err = cacheguard.New(store, cacheguard.Options[replicaValue]{
		Name: processCache, TTL: rc.TTL, NegativeTTL: rc.NegativeTTL, ErrorTTL: rc.ErrorTTL,
		Jitter:   -1,
		LeaseTTL: rc.LeaseTTL, LoadTimeout: rc.LoadTimeout,
		StaleWhileRevalidate: rc.StaleWhileRevalidate, StaleIfError: rc.StaleIfError,
		Backoff: rc.Backoff, Observer: replicaEvents{r}, Logger: logger,
	})
	if err != nil {
		return err
	}
	defer r.orders.Wait() // a closed cache has no callers
	defer r.cache.Close()
	// The store tells its listeners one after another, so what is told here the cache has been told
	// before.
	defer store.Listen(processCache, func(m cacheguard.Message) {
		r.report(replicaReport{Kind: reportHeard, Key: m.Key, What: replicaMessages[m.Kind]})
	})()
	ctx, cancel := context.WithTimeout(context.Background(), replicaPatience)
	defer cancel()
	if err := store.Warm(ctx); err != nil {
		return err
	}
	defer watchMachine(func(still time.Duration) {
		r.report(replicaReport{Kind: reportStoodStill, Took: still})
	})()
	r.report(replicaReport{Kind: reportReady})

	for {
		var o replicaOrder
		if err := in.Decode(&o); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		switch o.Do {
		case orderGet, orderGetMany, orderKeepOn, orderPeek, orderInvalidate:
			// These take their time, and others are to come in between.
			r.orders.Go(func() { r.obey(o) })
		case orderOpen:
			close(r.gate(o.Gate))
			r.report(replicaReport{Kind: reportDone, Order: o.ID})
		case orderNothing:
			r.report(replicaReport{Kind: reportDone, Order: o.ID})
		default:
			return fmt.Errorf("order %d to do %q", o.ID, o.Do)
		}
	}
}

func (r *replicaSelf) obey(o replicaOrder) {
	ctx := context.Background()
	switch o.Do {
	case orderInvalidate:
		if err := r.cache.Invalidate(ctx, o.Key); err != nil {
			r.report(replicaReport{Kind: reportDone, Order: o.ID, Key: o.Key, Err: err.Error()})
			return
		}
		if o.Callers == 0 {
			r.report(replicaReport{Kind: reportDone, Order: o.ID, Key: o.Key})
			return
		}
		r.get(ctx, o)
	case orderGet:
		r.get(ctx, o)
	case orderGetMany:
		r.getMany(ctx, o)
	case orderKeepOn:
		r.keepOn(ctx, o)
	case orderPeek:
		began := time.Now()
		res, err := r.cache.Peek(ctx, o.Key)
		r.report(replicaReport{
			Kind: reportAnswered, Order: o.ID, Key: o.Key,
			Answers: []replicaAnswer{replicaAnswerOf(began, res, err)},
		})
	}
}

// get has all callers call at once.
func (r *replicaSelf) get(ctx context.Context, o replicaOrder) {
	answers := make([]replicaAnswer, o.Callers)
	start := make(chan struct{})
	var calling atomic.Int64
	var callers sync.WaitGroup
	for i := range answers {
		callers.Go(func() {
			<-start
			if int(calling.Add(1)) == o.Callers {
				r.report(replicaReport{Kind: reportEntered, Order: o.ID, Key: o.Key})
			}
			began := time.Now()
			res, err := r.cache.GetResult(ctx, o.Key, r.load(o))
			answers[i] = replicaAnswerOf(began, res, err)
		})
	}
	close(start)
	callers.Wait()
	r.report(replicaReport{Kind: reportAnswered, Order: o.ID, Key: o.Key, Answers: answers})
}

// getMany reports the load of each key by itself.
func (r *replicaSelf) getMany(ctx context.Context, o replicaOrder) {
	began := time.Now()
	got, err := r.cache.GetMany(ctx, o.Keys, func(
		ctx context.Context, missing []string,
	) (map[string]replicaValue, error) {
		v := replicaValue{Replica: os.Getpid(), Load: r.loads.Add(1)}
		values := make(map[string]replicaValue)
		for _, key := range missing {
			r.report(replicaReport{Kind: reportLoadBegan, Key: key, Value: v})
			values[key] = v
		}
		return values, r.follow(ctx, o.Load)
	})
	answers := make([]replicaAnswer, len(o.Keys))
	for i, key := range o.Keys {
		v, ok := got[key]
		if !ok && err == nil {
			err = fmt.Errorf("%s is absent", key)
		}
		answers[i] = replicaAnswerOf(began, cacheguard.Result[replicaValue]{Value: v}, err)
	}
	r.report(replicaReport{Kind: reportAnswered, Order: o.ID, Answers: answers})
}

// keepOn has each caller call every few milliseconds until the order's gate opens.
func (r *replicaSelf) keepOn(ctx context.Context, o replicaOrder) {
	const each = 20 * time.Millisecond
	sums := make([]replicaSum, o.Callers)
	var callers sync.WaitGroup
	for i := range sums {
		callers.Go(func() {
			s := &sums[i]
			s.Errors, s.Statuses = make(map[string]int), make(map[string]int)
			tick := time.NewTicker(each)
			defer tick.Stop()
			for {
				select {
				case <-tick.C:
				case <-r.gate(o.Gate):
					return
				}
				began := time.Now()
				res, err := r.cache.GetResult(ctx, o.Key, r.load(o))
				s.add(replicaAnswerOf(began, res, err))
			}
		})
	}
	r.report(replicaReport{Kind: reportEntered, Order: o.ID, Key: o.Key})
	callers.Wait()
	total := replicaSum{Errors: make(map[string]int), Statuses: make(map[string]int)}
	for _, s := range sums {
		total.merge(s)
	}
	r.report(replicaReport{Kind: reportSummedUp, Order: o.ID, Key: o.Key, Sum: total})
}

func (s *replicaSum) add(a replicaAnswer) {
	s.Calls++
	s.Longest = max(s.Longest, a.Ended.Sub(a.Began))
	switch {
	case a.Err == "":
		s.Statuses[a.Status]++
	case a.Text != "":
		s.Errors["remote"]++
	case len(a.Is) > 0:
		s.Errors[a.Is[0]]++
	default:
		s.Errors["other"]++
	}
}

func (s *replicaSum) merge(other replicaSum) {
	s.Calls += other.Calls
	s.Longest = max(s.Longest, other.Longest)
	for name, n := range other.Errors {
		s.Errors[name] += n
	}
	for name, n := range other.Statuses {
		s.Statuses[name] += n
	}
}

func replicaAnswerOf(
	began time.Time, res cacheguard.Result[replicaValue], err error,
) replicaAnswer {
	a := replicaAnswer{
		Value: res.Value, Status: res.Status.String(), Began: began, Ended: time.Now(),
	}
	if err == nil {
		return a
	}
	a.Err = err.Error()
	for name, is := range replicaErrors {
		if errors.Is(err, is) {
			a.Is = append(a.Is, name)
		}
	}
	slices.Sort(a.Is)
	if remote := (*cacheguard.LoadError)(nil); errors.As(err, &remote) {
		a.Text = remote.Text
	}
	return a
}

// load follows the order's plan.
func (r *replicaSelf) load(o replicaOrder) cacheguard.LoadFunc[replicaValue] {
	return func(ctx context.Context) (v replicaValue, err error) {
		began := time.Now()
		v = replicaValue{Replica: os.Getpid(), Load: r.loads.Add(1)}
		if o.Load.Origin != "" {
			if v.Version, err = r.origin.Get(ctx, o.Load.Origin).Int64(); err != nil {
				return v, err
			}
		}
		r.report(replicaReport{Kind: reportLoadBegan, At: began, Key: o.Key, Value: v})
		err = r.follow(ctx, o.Load)
		switch {
		case err != nil:
		case o.Load.Fail, v.Version < 0:
			err = fmt.Errorf("load %d: %w", v.Load, errReplicaOrigin)
		case o.Load.NotFound:
			err = fmt.Errorf("load %d: %w", v.Load, cacheguard.ErrNotFound)
		}
		ended := replicaReport{Kind: reportLoadEnded, Key: o.Key, Value: v}
		if err != nil {
			ended.Err = err.Error()
		}
		r.report(ended)
		return v, err
	}
}

// follow does the plan's waiting.
func (r *replicaSelf) follow(ctx context.Context, plan replicaLoad) error {
	over := ctx.Done()
	if plan.Deaf {
		over = nil
	}
	if plan.Gate != "" {
		select {
		case <-r.gate(plan.Gate):
		case <-over:
			return context.Cause(ctx)
		}
	}
	timer := time.NewTimer(plan.Took)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-over:
		return context.Cause(ctx)
	}
}

func (r *replicaSelf) gate(name string) chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.gates[name] == nil {
		r.gates[name] = make(chan struct{})
	}
	return r.gates[name]
}

// report tells the test. One that doesn't listen any more is no reason to stop: the end of the
// input is.
func (r *replicaSelf) report(rep replicaReport) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if rep.At.IsZero() {
		rep.At = time.Now()
	}
	_ = r.out.Encode(rep)
}

var replicaMessages = map[cacheguard.MessageKind]string{
	cacheguard.MessageChanged: "changed", cacheguard.MessageFilled: "filled",
	cacheguard.MessageOutcome:  "outcome",
	cacheguard.MessageReleased: "released", cacheguard.MessageRestored: "restored",
}

// replicaEvents reports what happens once for a flight, not what happens to each caller.
type replicaEvents struct{ r *replicaSelf }

func (e replicaEvents) Observe(_ context.Context, event cacheguard.Event) {
	switch event.Kind {
	case cacheguard.EventHit, cacheguard.EventMiss, cacheguard.EventCoalesced:
		return
	}
	rep := replicaReport{Kind: reportObserved, Key: event.Key, What: event.Kind.String()}
	if event.Err != nil {
		rep.Err = event.Err.Error()
	}
	e.r.report(rep)
}

// replicaTrips reports each round trip of the store's client.
type replicaTrips struct{ r *replicaSelf }

func (t replicaTrips) DialHook(next redis.DialHook) redis.DialHook { return next }

func (t replicaTrips) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		began := time.Now()
		err := next(ctx, cmd)
		t.r.report(replicaReport{
			Kind: reportTripped, Key: replicaKeyOf(cmd), What: cmd.Name(), Took: time.Since(began),
		})
		return err
	}
}

func (t replicaTrips) ProcessPipelineHook(
	next redis.ProcessPipelineHook,
) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		began := time.Now()
		err := next(ctx, cmds)
		t.r.report(replicaReport{
			Kind: reportTripped, Key: replicaKeyOf(cmds[0]), What: "pipeline",
			Took: time.Since(began),
		})
		return err
	}
}

// replicaKeyOf is the key in the first name of a value or a lease that a command has.
func replicaKeyOf(cmd redis.Cmder) string {
	for _, arg := range cmd.Args() {
		if name, ok := arg.(string); ok &&
			strings.HasPrefix(name, processPrefix+":"+processCache+":{") {
			_, rest, _ := strings.Cut(name, "{")
			key, _, _ := strings.Cut(rest, "}")
			return key
		}
	}
	return ""
}
