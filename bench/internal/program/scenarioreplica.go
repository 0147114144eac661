package program

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"runtime"
	"strconv"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"

	"github.com/cacheguard/cacheguard/bench/internal/contender"
	"github.com/cacheguard/cacheguard/bench/internal/slowdb"
)

// contestSetup is what a replica of a scenario is told first.
type contestSetup struct {
	Redis, Origin, Contender string
	Locks                    string
	Replica, Size            int
	TTL, LockTTL, Poll       time.Duration
}

// contestOrder is one thing that it is to do. Several may be under way.
type contestOrder struct {
	ID       int
	Do       string // "burst", "invalidate" or "hits"
	Key      string
	Keys     int // if more than 0: so many keys, whose names have a number behind Key's
	Callers  int
	At       int64         // nanoseconds since 1970, when the callers of a burst ask
	Patience time.Duration // after which a caller counts as stuck
	Time     time.Duration // for which hits are asked for
	Many     bool          // each of these asks for all keys at once
}

// contestAnswer is what came of it.
type contestAnswer struct {
	ID      int
	Callers []callerAnswer
	Error   string // one of those of the callers, or of the change
	Trips   int64  // round trips to Redis meanwhile
	Hits    hitAnswer
}

// keyOf is what the i-th caller asks for.
func (o contestOrder) keyOf(i int) string {
	if o.Keys == 0 {
		return o.Key
	}
	return numbered(o.Key, i%o.Keys)
}

func numbered(key string, n int) string { return key + ":" + strconv.Itoa(n) }

// callerAnswer is what one caller got, and when.
type callerAnswer struct {
	Took    int64 // nanoseconds from the order's moment
	Version int64 // 0: told that there is nothing; or one of the next two
}

const (
	gotError = -1
	gotStuck = -2
)

// scenarioReplica is one process of a scenario's fleet. It answers orders until there are no more.
func scenarioReplica(ctx context.Context, peers Peers, stdin io.Reader, stdout io.Writer) error {
	logging.Disable() // what a contender does when Redis is away is counted, not told
	in := json.NewDecoder(bufio.NewReader(stdin))
	var s contestSetup
	if err := in.Decode(&s); err != nil {
		return err
	}
	r, err := openContestant(ctx, peers, s)
	if err != nil {
		return err
	}
	defer r.close()
	var writing sync.Mutex // guards out
	out := json.NewEncoder(stdout)
	answer := func(a contestAnswer) {
		writing.Lock()
		defer writing.Unlock()
		_ = out.Encode(a) // an error means that whoever asked is gone: then there are no more orders
	}
	answer(contestAnswer{}) // ready
	for {
		var o contestOrder
		if err := in.Decode(&o); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		go func() { answer(r.obey(ctx, o)) }() // what is stuck ends with the process
	}
}

// contestant is a contender in one replica.
type contestant struct {
	rdb    *redis.Client
	origin *slowdb.Client
	trips  *tripCounter
	contender.Protection
	size int
}

func openContestant(ctx context.Context, peers Peers, s contestSetup) (*contestant, error) {
	chosen, err := contender.Named(peers.contenders(), s.Contender)
	if err != nil {
		return nil, err
	}
	r := &contestant{trips: &tripCounter{}, size: s.Size}
	if r.origin, err = slowdb.Dial(ctx, s.Origin, s.Replica); err != nil {
		return nil, err
	}
	r.rdb = redis.NewClient(&redis.Options{Addr: s.Redis, ContextTimeoutEnabled: true})
	if err := fillPool(ctx, r.rdb); err != nil {
		return nil, errors.Join(err, r.rdb.Close(), r.origin.Close())
	}
	r.rdb.AddHook(r.trips)
	r.Protection, err = chosen[0].Open(ctx, contender.Rig{Redis: r.rdb, Load: r.load, Locks: s.Locks, TTL: s.TTL, LockTTL: s.LockTTL, PollTime: s.Poll})
	if err != nil {
		return nil, errors.Join(err, r.rdb.Close(), r.origin.Close())
	}
	return r, nil
}

func (r *contestant) close() {
	_ = r.Protection.Close()
	_ = r.rdb.Close()
	_ = r.origin.Close()
}

// load asks the origin, and makes a value of the version that it says.
func (r *contestant) load(ctx context.Context, key string) (string, bool, error) {
	v, err := r.origin.Load(ctx, key)
	if err != nil || v == 0 {
		return "", false, err
	}
	return version(v).value(r.size), true, nil
}

func (r *contestant) obey(ctx context.Context, o contestOrder) contestAnswer {
	before := r.trips.n.Load()
	var err error
	a := contestAnswer{ID: o.ID}
	switch o.Do {
	case "burst":
		a.Callers, a.Error = r.burst(ctx, o)
	case "hits":
		if a.Hits, err = r.hits(ctx, o); err != nil {
			a.Error = err.Error()
		}
	case "invalidate":
		if err := r.Invalidate(ctx, o.Key); err != nil {
			a.Error = err.Error()
		}
	default:
		a.Error = fmt.Sprintf("there is no order %q", o.Do)
	}
	a.Trips = r.trips.n.Load() - before
	return a
}

// burst has all callers ask at the same moment. Those who have no answer when the patience ends are
// stuck, and left behind: not every contender looks at a caller's context.
func (r *contestant) burst(ctx context.Context, o contestOrder) (answers []callerAnswer, problem string) {
	runtime.GC() // not in the middle of it, for any contender
	at := time.Unix(0, o.At)
	var mu sync.Mutex // guards what follows
	answers = make([]callerAnswer, o.Callers)
	left := o.Callers
	done := make(chan struct{})
	gate := make(chan struct{})
	for i := range answers {
		answers[i].Version = gotStuck
		go func() {
			ctx, cancel := context.WithCancel(ctx) // as a request of a server has
			defer cancel()
			standLikeARequest()
			<-gate
			value, found, err := r.Get(ctx, o.keyOf(i))
			took := time.Since(at).Nanoseconds()
			var seen version
			if err == nil && found {
				seen, err = versionOf(value, r.size)
			}
			mu.Lock()
			defer mu.Unlock()
			if answers == nil {
				return
			}
			answers[i] = callerAnswer{took, int64(seen)}
			if err != nil {
				answers[i].Version, problem = gotError, err.Error()
			}
			if left--; left == 0 {
				close(done)
			}
		}()
	}
	time.Sleep(time.Until(at))
	close(gate)
	timer := time.NewTimer(o.Patience)
	defer timer.Stop()
	select {
	case <-done:
	case <-timer.C:
	case <-ctx.Done():
	}
	mu.Lock()
	defer mu.Unlock()
	told := answers
	answers = nil
	return told, problem
}
