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

// contest is one scenario for one contender: a fleet of processes that was started for it, and the
// origin they load from.
type contest struct {
	ctx    context.Context
	arena  *arena
	origin *slowdb.Server
	fleet  fleet
	prefix string // of the keys
	keys   int    // made so far
	result contestResult
}

// arena is what all contests of a run have in common.
type arena struct {
	server *server
	setting
	Backoff time.Duration // after failed loads; 0: as each contender has it
	WarmUp  int           // rounds of a cold key before those that count
}

// setting is what a contest can be told.
type setting struct {
	Processes int           `json:"processes,omitempty"`
	Callers   int           `json:"callers,omitempty"`
	Load      time.Duration `json:"loadNanos"`
	Size      int           `json:"size"`
	TTL       time.Duration `json:"ttlNanos"`
	LockTTL   time.Duration `json:"lockTTLNanos"`
	Poll      time.Duration `json:"pollNanos"`
	Patience  time.Duration `json:"patienceNanos"`    // for an answer; then a caller is stuck
	Rounds    int           `json:"rounds,omitempty"` // of cold keys
	Keys      int           `json:"keys,omitempty"`   // of an avalanche
}

// contestResult is what one contest has shown.
type contestResult struct {
	Requests int     `json:"requests"`
	Errors   int     `json:"errors"`          // that callers got
	Error    string  `json:"error,omitempty"` // one of them
	Stuck    int     `json:"stuck"`           // callers without an answer when the patience was over
	Lost     int     `json:"lost"`            // callers whose process was killed
	Loads    []int   `json:"loads"`           // in each round
	Need     int     `json:"need"`            // loads that a round can't do without: more are too many
	AtOnce   int     `json:"atOnce"`          // loads under way at the same time, at most
	Stale    int     `json:"stale"`           // answers to callers who asked after a change was acknowledged, with what was before it
	Left     int     `json:"left"`            // answers with what was before the change, when all was over
	Took     []int64 `json:"-"`               // of each answer, from the moment of its burst
	First    []int64 `json:"-"`               // in each round of a cold key: from the burst to the beginning of the first load
	Woken    []int64 `json:"-"`               // of each answer for a cold key: from the end of the load that brought it
	Tails    []int64 `json:"-"`               // in each round of a cold key: from the first load's end to the p99 of callers
	Pings    []int64 `json:"-"`               // in each round; they are none of the commands
	Trips    int64   `json:"trips"`           // most of one process in one round; notCounted
	Commands []int64 `json:"commands"`        // of all processes in each round, those in scripts too; empty: not counted
	P50      int64   `json:"p50Nanos"`
	P99      int64   `json:"p99Nanos"`
	Max      int64   `json:"maxNanos"`
}

// notCounted is the number of trips of who has a client of its own.
const notCounted = -1

// turns has each of some have its turn in each repetition, which another one begins each time.
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

// rotated begins with another one each time.
func rotated[T any](of []T, by int) []T {
	by %= len(of)
	return slices.Concat(of[by:], of[:by])
}

// hold has one contender go through a scenario.
func (a *arena) hold(ctx context.Context, s scenario, c contender.Contender) (_ contestResult, err error) {
	rounds := time.Duration(a.WarmUp + a.Rounds)
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute+rounds*a.Patience) // processes that hang are killed
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

// key is a name that nobody has asked for yet.
func (t *contest) key(p slowdb.Plan) string {
	t.keys++
	key := t.prefix + strconv.Itoa(t.keys)
	t.origin.Put(key, p)
	return key
}

// keyed makes so many keys whose names have a number behind a common one, and returns that and all
// of them.
func (t *contest) keyed(n int, p slowdb.Plan) (common string, keys []string) {
	t.keys++
	common = t.prefix + strconv.Itoa(t.keys)
	for i := range n {
		keys = append(keys, keyOf(common, n, i))
		t.origin.Put(keys[i], p)
	}
	return common, keys
}

// crowd is a burst under way in all processes. The slices have one for each.
type crowd struct {
	callers int
	at      time.Time
	all     sync.WaitGroup // until there are these
	answers []burstAnswer
	errs    []error
}

// burst has so many callers of each process ask for a key at the same moment.
func (t *contest) burst(key string, callers int) *crowd {
	return t.burstAt(key, 0, callers, t.soon(callers))
}

// soon leaves time for every process to hear of a burst and to have its callers stand at the gate.
func (t *contest) soon(callers int) time.Time {
	return time.Now().Add(20*time.Millisecond + time.Duration(len(t.fleet)*callers)*5*time.Microsecond)
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

// wait waits for the answers, and counts them. least is the version that an answer must have, or it
// is stale; those are counted in stale.
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

// awoken tells the time before a cold key's loads from that after them. Callers were woken by their
// own process' load, or by the first one, where that has none.
func (t *contest) awoken(b *crowd, key string) {
	loads := t.origin.Loads(key)
	if len(loads) == 0 {
		return
	}
	first := loads[0].Begin.Sub(b.at)
	t.result.First = append(t.result.First, first.Nanoseconds())
	var took []int64
	for replica, answer := range b.answers {
		own := max(0, slices.IndexFunc(loads, func(l slowdb.Load) bool { return l.Replica == replica }))
		for _, c := range answer.Callers {
			took = append(took, c.Took)
			if c.Version > 0 {
				t.result.Woken = append(t.result.Woken, b.at.UnixNano()+c.Took-loads[own].End.UnixNano())
			}
		}
	}
	t.result.Tails = append(t.result.Tails, quantile(took, 0.99)-(first+t.arena.Load).Nanoseconds())
}

// change gives a key a new version and has a process tell the caches. It returns when that is
// acknowledged.
func (t *contest) change(key string, replica int) (version int64, err error) {
	version = t.origin.Change(key)
	_, err = ask(t.ctx, t.fleet[replica], job[nothing](invalidate(key)))
	return version, err
}

// round counts what a burst on cold keys costs: loads, of which so many are needed, and commands at
// Redis.
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

// midway waits until the first load of a key has begun, and half of its time.
func (t *contest) midway(key string) error {
	timer := time.NewTimer(t.arena.Patience)
	defer timer.Stop()
	select {
	case <-t.origin.Begun(key):
		await(t.ctx, t.arena.Load/2)
	case <-timer.C:
		return fmt.Errorf("no load within %v", t.arena.Patience)
	case <-t.ctx.Done():
	}
	return t.ctx.Err()
}

// loader is the replica that made the first load of a key.
func (t *contest) loader(key string) int { return t.origin.Loads(key)[0].Replica }

// thisRun tells the keys of this process from those of others that have used the same Redis.
var thisRun = rand.Text()[:8]

var prefixes atomic.Int64

// freshPrefix begins the names of keys that nobody has used yet, in this Redis or in this process.
func freshPrefix() string { return fmt.Sprintf("bench:%s:%d:", thisRun, prefixes.Add(1)) }
