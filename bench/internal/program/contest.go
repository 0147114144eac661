package program

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cacheguard/cacheguard/bench/internal/contender"
	"github.com/cacheguard/cacheguard/bench/internal/slowdb"
)

// contest is one scenario for one contender. It has a fleet of processes that was started for it,
// and the origin of their loads.
type contest struct {
	ctx    context.Context
	arena  *arena
	origin *slowdb.Server
	fleet  fleet
	prefix string // the prefix of the keys
	keys   int    // the number of keys made so far
	result contestResult
}

// arena contains the parts that all contests of a run share.
type arena struct {
	server *server
	setting
	Backoff time.Duration // after failed loads; 0: each contender's default
	WarmUp  int           // rounds of a cold key that aren't counted, before the counted rounds
}

// setting contains the settings of a contest.
type setting struct {
	Processes int           `json:"processes,omitempty"`
	Callers   int           `json:"callers,omitempty"`
	Load      time.Duration `json:"loadNanos"`
	Size      int           `json:"size"`
	TTL       time.Duration `json:"ttlNanos"`
	LockTTL   time.Duration `json:"lockTTLNanos"`
	Poll      time.Duration `json:"pollNanos"`
	// The longest wait for an answer; after it a caller is stuck.
	Patience time.Duration `json:"patienceNanos"`
	Rounds   int           `json:"rounds,omitempty"` // of cold keys
	Keys     int           `json:"keys,omitempty"`   // of an avalanche
}

// contestResult is the result of one contest.
type contestResult struct {
	Requests int    `json:"requests"`
	Errors   int    `json:"errors"`          // that callers got
	Error    string `json:"error,omitempty"` // one of the errors
	// Callers without an answer when the patience was over.
	Stuck  int   `json:"stuck"`
	Lost   int   `json:"lost"`   // callers whose process was killed
	Loads  []int `json:"loads"`  // in each round
	Need   int   `json:"need"`   // the loads that a round needs: more are too many
	AtOnce int   `json:"atOnce"` // loads under way at the same time, at most
	// Answers with the old value to callers who asked after a change was acknowledged.
	Stale int `json:"stale"`
	// Answers with the value from before the change, to questions after the end of the round.
	Left int `json:"left"`
	// The time of each answer, from the moment of its burst.
	Took []int64 `json:"-"`
	// In each round of a cold key: the time from the burst to the beginning of the first load.
	First []int64 `json:"-"`
	// Of each answer for a cold key: the time from the end of the load that brought it.
	Woken []int64 `json:"-"`
	// In each round of a cold key: the time from the first load's end to the p99 of callers.
	Tails []int64 `json:"-"`
	Pings []int64 `json:"-"` // in each round; not part of the commands
	// The most trips of one process in one round, or notCounted.
	Trips int64 `json:"trips"`
	// Of all processes in each round, those in scripts too; empty: not counted.
	Commands []int64 `json:"commands"`
	P50      int64   `json:"p50Nanos"`
	P99      int64   `json:"p99Nanos"`
	Max      int64   `json:"maxNanos"`
}

// notCounted is used as the number of trips of a contender with its own client.
const notCounted = -1

// turns yields each element once in each repetition. Each repetition begins with a different
// element.
func turns[T any](repeat int, of []T) iter.Seq2[int, T] {
	return func(yield func(int, T) bool) {
		for n := range repeat {
			for _, one := range rotated(of, n) {
				if !yield(n, one) {
					return
				}
			}
		}
	}
}

// rotated returns the elements, beginning with the one at index by.
func rotated[T any](of []T, by int) []T {
	by %= len(of)
	return slices.Concat(of[by:], of[:by])
}

// hold runs a scenario for one contender.
func (a *arena) hold(
	ctx context.Context, s scenario, c contender.Contender,
) (_ contestResult, err error) {
	rounds := time.Duration(a.WarmUp + a.Rounds)
	// Processes that hang are killed.
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute+rounds*a.Patience)
	defer cancel()
	t := &contest{ctx: ctx, arena: a, prefix: freshPrefix()}
	locks, stopLocks, err := startLocksOf(c, a.server.addr)
	if err != nil {
		return t.result, err
	}
	defer stopLocks()
	if t.origin, err = slowdb.Listen(); err != nil {
		return t.result, err
	}
	defer func() { err = errors.Join(err, t.origin.Close()) }()
	t.fleet, err = startFleet(ctx, a.Processes, func(i int) job[nothing] {
		return openContender{
			Redis: a.server.addr, Origin: t.origin.Addr(), Contender: c.Name, Locks: locks,
			Replica: i, Setting: a.setting, Backoff: a.Backoff,
		}
	})
	if err != nil {
		return t.result, err
	}
	defer t.fleet.kill()
	if err := s.run(t); err != nil {
		return t.result, err
	}
	r := &t.result
	if c.OwnClient {
		r.Trips = notCounted
	}
	r.P50, r.P99, r.Max = quantile(r.Took, 0.5), quantile(r.Took, 0.99), quantile(r.Took, 1)
	return *r, nil
}

// key returns a new key, for which no caller has asked yet.
func (t *contest) key(p slowdb.Plan) string {
	t.keys++
	key := t.prefix + strconv.Itoa(t.keys)
	t.origin.Put(key, p)
	return key
}

// keyed makes n keys. Their names consist of a common part and a number. It returns the common part
// and all keys.
func (t *contest) keyed(n int, p slowdb.Plan) (common string, keys []string) {
	t.keys++
	common = t.prefix + strconv.Itoa(t.keys)
	for i := range n {
		keys = append(keys, keyOf(common, n, i))
		t.origin.Put(keys[i], p)
	}
	return common, keys
}

// crowd is a running burst in all processes. The slices have one element for each process.
type crowd struct {
	callers int
	at      time.Time
	all     sync.WaitGroup // done when the answers below are there
	answers []burstAnswer
	errs    []error
}

// burst makes the given number of callers in each process ask for a key at the same moment.
func (t *contest) burst(key string, callers int) *crowd {
	return t.burstAt(key, 0, callers, t.soon(callers))
}

// soon returns the moment of the next burst. Until then every process has time to receive the job
// and to prepare its callers.
func (t *contest) soon(callers int) time.Time {
	return time.Now().Add(20*time.Millisecond +
		time.Duration(len(t.fleet)*callers)*5*time.Microsecond)
}

func (t *contest) burstAt(key string, keys, callers int, at time.Time) *crowd {
	b := &crowd{callers: callers, at: at}
	b.answers, b.errs = make([]burstAnswer, len(t.fleet)), make([]error, len(t.fleet))
	o := burst{key, keys, callers, at.UnixNano(), t.arena.Patience}
	for i, r := range t.fleet {
		b.all.Go(func() { b.answers[i], b.errs[i] = ask(t.ctx, r, job[burstAnswer](o)) })
	}
	return b
}

// wait waits for the answers, and counts them. An answer with a version less than least is stale,
// and is counted in stale.
func (t *contest) wait(b *crowd, least int64, stale *int) error {
	b.all.Wait()
	for i, a := range b.answers {
		t.result.Requests += b.callers
		if err := b.errs[i]; err != nil && t.fleet[i].killed.Load() {
			t.result.Lost += b.callers
		} else if err != nil {
			return fmt.Errorf("replica %d: %w", i, err)
		}
		t.result.Trips = max(t.result.Trips, a.Trips)
		if a.Error != "" {
			t.result.Error = a.Error
		}
		for _, c := range a.Callers {
			switch {
			case c.Version == gotStuck:
				t.result.Stuck++
				continue
			case c.Version == gotError:
				t.result.Errors++
			case c.Version < least:
				*stale++
			}
			t.result.Took = append(t.result.Took, c.Took)
		}
	}
	return nil
}

// awoken separates the time before a cold key's loads from the time after them. It assumes that
// callers are woken by a load of their own process, or by the first load if their process has none.
func (t *contest) awoken(b *crowd, key string) {
	loads := t.origin.Loads(key)
	if len(loads) == 0 {
		return
	}
	first := loads[0].Begin.Sub(b.at)
	t.result.First = append(t.result.First, first.Nanoseconds())
	var took []int64
	for replica, answer := range b.answers {
		own := max(0,
			slices.IndexFunc(loads, func(l slowdb.Load) bool { return l.Replica == replica }))
		for _, c := range answer.Callers {
			took = append(took, c.Took)
			if c.Version > 0 {
				t.result.Woken = append(t.result.Woken,
					b.at.UnixNano()+c.Took-loads[own].End.UnixNano())
			}
		}
	}
	t.result.Tails = append(t.result.Tails, quantile(took, 0.99)-(first+t.arena.Load).Nanoseconds())
}

// change gives a key a new version and makes a process tell the caches. It returns when the change
// is acknowledged.
func (t *contest) change(key string, replica int) (version int64, err error) {
	version = t.origin.Change(key)
	_, err = ask(t.ctx, t.fleet[replica], job[nothing](invalidate(key)))
	return version, err
}

// round counts the cost of a burst on cold keys: the loads and the commands of Redis. need is the
// number of loads that are necessary.
func (t *contest) round(need int, during func() error, keys ...string) error {
	counted, err := t.arena.server.resetStats(t.ctx)
	if err != nil {
		return err
	}
	if err := during(); err != nil {
		return err
	}
	var loads []slowdb.Load
	for _, key := range keys {
		loads = append(loads, t.origin.Loads(key)...)
	}
	t.result.Need = need
	t.result.Loads = append(t.result.Loads, len(loads))
	t.result.AtOnce = max(t.result.AtOnce, slowdb.MostAtOnce(loads))
	if counted {
		commands, pings, err := countCommands(t.ctx, t.arena.server.rdb)
		if err != nil {
			return err
		}
		t.result.Commands = append(t.result.Commands, commands-pings)
		t.result.Pings = append(t.result.Pings, pings)
	}
	return nil
}

// midway waits until the first load of a key has begun and half of its time is over.
func (t *contest) midway(key string) error {
	patience := max(t.arena.Patience, mostPatience) // it only ends runs that hang
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-t.origin.Begun(key):
		await(t.ctx, t.arena.Load/2)
	case <-timer.C:
		return fmt.Errorf("no load within %v", patience)
	case <-t.ctx.Done():
	}
	return t.ctx.Err()
}

// loader returns the replica that made the first load of a key.
func (t *contest) loader(key string) int { return t.origin.Loads(key)[0].Replica }

// thisRun is a part of all keys of this process. It makes them differ from the keys of other
// processes that have used the same Redis.
var thisRun = rand.Text()[:8]

var prefixes atomic.Int64

// freshPrefix returns a new prefix for keys. Neither this process nor another one has used it in
// this Redis.
func freshPrefix() string { return fmt.Sprintf("bench:%s:%d:", thisRun, prefixes.Add(1)) }
