package systemtest_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"runtime"
	"runtime/pprof"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/cacheguard/redisstore"
	"github.com/cacheguard/cacheguard/internal/redistest"
)

// TestSoak has a fleet read and change keys in all ways while faults of all kinds come, by a plan
// that its seed stands for: CACHEGUARD_SEED=<seed> repeats one. What must hold all the time is
// checked all the time:
//
//   - A value is that of its key. What the origin has is never "not found", what it hasn't always
//     is.
//   - No answer is older than a change that its own process has made, nor, unless it says that it
//     is stale, than one that another process has made, and the time it takes to notice that
//     messages are lost. In calm weather that is the time of a message. Left out is a key with a
//     Set that went wrong or was sent twice: until the TTL of what it may have stored late is over.
//   - What is stale is so within its windows.
//   - A fill is refused when a later lease was granted.
//   - MaxLoads holds.
//   - Calls end in time, with an error that they may have.
//   - In calm weather, when nothing has gone wrong for a while, a key that nobody changes has one
//     load in the fleet at a time, and no answer is degraded. In a storm each process may load for
//     itself, and twice: for Get and for Refresh.
//   - When all is over everything is as before: one load for the whole fleet, answers of the local
//     tier, no lease without an end, and no goroutine.
func TestSoak(t *testing.T) {
	lasts := 3 * time.Second
	switch {
	case redistest.Soak():
		lasts = 10 * time.Minute
	case redistest.Full():
		lasts = 30 * time.Second
	}
	seed := rand.Uint64()
	if given := os.Getenv("CACHEGUARD_SEED"); given != "" {
		var err error
		if seed, err = strconv.ParseUint(given, 10, 64); err != nil {
			t.Fatal("CACHEGUARD_SEED:", err)
		}
	}
	t.Logf("CACHEGUARD_SEED=%d", seed)
	s := &soak{
		server: redistest.Start(t), prefix: memberPrefix(), origin: newLedger(),
		weather: &weather{began: time.Now()},
	}
	defer watchMachine(s.weather.stood)()
	goroutines := runtime.NumGoroutine()
	s.open(t)
	s.run(t.Context(), forecast(seed, len(s.members), lasts), lasts)
	if len(s.wrong) == 0 {
		s.recovers(t)
		s.leavesNoLease(t)
	}
	s.close(t)
	s.leavesNoGoroutine(t, goroutines)
	s.judge()
	s.tell(t)
	if len(s.wrong) > 0 {
		t.Errorf("CACHEGUARD_SEED=%d: %d things went wrong:\n%s\nThe last of what happened:\n%s",
			seed, len(s.wrong), strings.Join(s.wrong[:min(len(s.wrong), 20)], "\n"),
			s.weather.last(80))
	}
}

// soak is a fleet under faults.
type soak struct {
	server  *redistest.Server
	rdb     *redis.Client // past the proxies
	prefix  string
	members []*soaked
	origin  *ledger // acknowledges what the fleet owes
	weather *weather
	fence   *fence
	stop    context.CancelFunc

	mu      sync.Mutex // guards what follows
	wrong   []string
	doubts  []doubt
	counts  map[string]int
	loads   map[string][]*soakLoad // under way, of keys that nobody changes
	writing map[string]bool        // by a Set
	suspect map[string]time.Time   // keys whose last Set may have been stored late, until then
}

// soaked is one member of the fleet.
type soaked struct {
	*member
	name   string
	opts   cacheguard.Options[fact]
	proxy  *redistest.Proxy
	own    *ledger // acknowledges what it has changed itself
	loads  atomic.Int64
	number int
}

// soakLoad is a load under way.
type soakLoad struct {
	ctx   context.Context
	began time.Time
	by    string
}

// doubt is a possible failure. It is not a failure if the machine stood still at the time, or if it
// requires calm weather and there was another fault.
type doubt struct {
	from, to time.Time
	calm     bool
	what     string
}

const (
	soakTTL     = 300 * time.Millisecond
	soakWindow  = 500 * time.Millisecond // the longest stale window
	soakLease   = 500 * time.Millisecond
	soakTimeout = 1500 * time.Millisecond // LoadTimeout
	soakOp      = 250 * time.Millisecond  // OpTimeout
	soakLoads   = 16                      // MaxLoads
	// For a message to arrive, less than the time to live of a value. While the machine stands
	// still, a message may take longer.
	soakMessage = 250 * time.Millisecond
	soakKeys    = 40
	soakSlack   = time.Second // of a busy machine, for calls that have to end
)

// Keys are of these kinds.
const (
	keyCalm = "calm" // nobody changes it, and no load of it fails
	keySet  = "set"  // one member changes it, by Set
	// All members change it, in all other ways, and loads of it fail in all ways.
	keyMoving = "moving"
	keyAbsent = "absent" // the origin doesn't have it
)

func soakKey(n uint64) string {
	return fmt.Sprintf("%s-%d", [...]string{keyMoving, keyCalm, keySet, keyMoving, keyAbsent}[n%5],
		n)
}

func is(key, kind string) bool { return strings.HasPrefix(key, kind) }

func (s *soak) open(t *testing.T) {
	s.rdb = redis.NewClient(&redis.Options{Addr: s.server.Addr()})
	s.counts, s.loads = make(map[string]int), make(map[string][]*soakLoad)
	s.writing, s.suspect = make(map[string]bool), make(map[string]time.Time)
	s.fence = &fence{newest: make(map[string]int64), broken: func(key string, late, newer int64) {
		s.fail("a fill of %s with grant %d was stored, although %d had been granted", key, late,
			newer)
	}}
	for n, o := range []struct {
		name string
		opts cacheguard.Options[fact]
	}{
		{
			"shared", cacheguard.Options[fact]{
				StaleWhileRevalidate: soakTTL, StaleIfError: soakWindow, EarlyRefresh: 1,
			},
		},
		{
			"local", cacheguard.Options[fact]{
				Local: cacheguard.Local[fact]{Entries: 20, TTL: 200 * time.Millisecond},
			},
		},
		{
			"closed", cacheguard.Options[fact]{
				StaleWhileRevalidate: soakTTL, OnStoreDown: cacheguard.FailClosed,
				Local: cacheguard.Local[fact]{Entries: 1000},
			},
		},
		{"soft", cacheguard.Options[fact]{
			StaleWhileRevalidate: soakTTL, StaleIfError: soakWindow, EarlyRefresh: 2,
			SoftTimeout: 5 * time.Millisecond,
			Local:       cacheguard.Local[fact]{Entries: 1000},
		}},
	} {
		p, err := redistest.NewProxy(s.server.Addr())
		if err != nil {
			t.Fatal(err)
		}
		o.opts.TTL, o.opts.NegativeTTL, o.opts.ErrorTTL, o.opts.Backoff = soakTTL, soakTTL/2,
			50*time.Millisecond, 100*time.Millisecond
		o.opts.LeaseTTL, o.opts.LoadTimeout, o.opts.MaxLoads = soakLease, soakTimeout, soakLoads
		m := &soaked{name: o.name, opts: o.opts, proxy: p, own: newLedger(), number: n}
		m.member = newMember(t, seat{
			redis: p.Addr(), store: redisstore.Options{Prefix: s.prefix, OpTimeout: soakOp},
			cache: o.opts,
			through: func(store *redisstore.Store) cacheguard.Store {
				return fenced{store, s.fence}
			},
		})
		s.members = append(s.members, m)
	}
}

// run has callers call and faults come, until the time is over or something went wrong.
func (s *soak) run(ctx context.Context, plan []fault, lasts time.Duration) {
	ctx, s.stop = context.WithTimeout(ctx, lasts)
	defer s.stop()
	var working sync.WaitGroup
	for _, m := range s.members {
		for range 3 {
			working.Go(func() {
				keys := rand.NewZipf(rand.New(rand.NewPCG(rand.Uint64(), 0)), 1.2, 4, soakKeys-1)
				for pause(ctx, rand.N(8*time.Millisecond)) {
					s.call(m, soakKey(keys.Uint64()))
				}
			})
		}
	}
	working.Go(func() {
		for _, f := range plan {
			if !pause(ctx, f.after) {
				return
			}
			s.count("fault: "+string(f.kind), 1)
			s.weather.during(f, func() error { return s.strike(ctx, f) })
		}
	})
	working.Wait()
}

// strike does what a fault does. When it returns, the fault is over.
func (s *soak) strike(ctx context.Context, f fault) error {
	over := context.WithoutCancel(ctx) // what was broken is mended
	p, name := s.members[f.who].proxy, s.prefix+":facts:{"+soakKey(uint64(f.pick)%soakKeys)+"}"
	switch f.kind {
	case faultCut:
		p.Cut()
	case faultRefuse:
		err := p.Refuse(true)
		p.Cut()
		pause(ctx, f.lasts)
		return errors.Join(err, p.Refuse(false))
	case faultBlackhole:
		p.Blackhole(true)
		pause(ctx, f.lasts)
		p.Blackhole(false)
	case faultDropReply:
		steps := []string{"lease", "fill", "conclude", "renew", "release", "claim", "invalidate"}
		step := steps[f.pick%len(steps)]
		script, err := redisScript(step)
		if err != nil {
			return err
		}
		lost := p.DropReply(redistest.IsEval(script))
		select {
		case <-lost.Struck():
			s.weather.note("the reply to a %s is lost", step)
		case <-time.After(f.lasts):
		case <-ctx.Done():
		}
		lost.Disarm()
	case faultScripts:
		return s.rdb.ScriptFlush(over).Err()
	case faultLease:
		return s.rdb.Del(over, name+":lease").Err()
	case faultValue:
		return s.rdb.Del(over, name).Err()
	case faultGarbage:
		garbage := make([]byte, f.pick%200)
		for i := range garbage {
			garbage[i] = byte(f.pick >> (i % 13))
		}
		return s.rdb.Set(over, name, garbage, 0).Err()
	case faultPause:
		if err := s.server.Pause(); err != nil {
			return err // there are no such signals here
		}
		pause(ctx, f.lasts)
		return s.server.Resume()
	case faultFlush:
		return s.rdb.FlushAll(over).Err()
	case faultPubSub:
		return s.rdb.Do(over, "CLIENT", "KILL", "TYPE", "pubsub").Err()
	case faultMemory:
		err := s.rdb.ConfigSet(over, "maxmemory", "1").Err()
		pause(ctx, f.lasts)
		return errors.Join(err, s.rdb.ConfigSet(over, "maxmemory", "0").Err())
	}
	return nil
}

// caller is somebody's patience: a context, when it ends, and for how long a read may last with it.
func caller() (ctx context.Context, cancel context.CancelFunc, most time.Duration) {
	switch n := rand.IntN(20); {
	case n < 10:
		most = 20*time.Millisecond + rand.N(400*time.Millisecond)
		ctx, cancel = context.WithTimeout(context.Background(), most)
	case n < 14:
		most = rand.N(50 * time.Millisecond)
		ctx, cancel = context.WithCancel(context.Background())
		time.AfterFunc(most, cancel)
	default: // the longest wait for others, and then a load of one's own
		most = 3*soakTimeout + soakLease + 4*soakOp
		ctx, cancel = context.WithCancel(context.Background())
	}
	return ctx, cancel, most
}

// call is one call of any kind.
func (s *soak) call(m *soaked, key string) {
	ctx, cancel, most := caller()
	defer cancel()
	switch n := rand.IntN(100); {
	case n < 25 && is(key, keySet):
		s.set(ctx, m, key)
	case n < 12 && is(key, keyMoving):
		s.change(ctx, m, key, "Invalidate", soakOp, func() (fact, error) {
			f := s.origin.change(key)
			return f, m.cache.Invalidate(ctx, key)
		})
	case n < 24 && is(key, keyMoving):
		s.change(ctx, m, key, "Update", most+3*soakOp, func() (fact, error) {
			return m.cache.Update(ctx, key, s.update(key))
		})
	case n < 35:
		s.look(ctx, m, key, "Peek", most, func() (cacheguard.Result[fact], error) {
			return m.cache.Peek(ctx, key)
		})
	case n < 42:
		s.look(ctx, m, key, "Refresh", most, func() (cacheguard.Result[fact], error) {
			v, err := m.cache.Refresh(ctx, key, s.load(m, key))
			return cacheguard.Result[fact]{Value: v, Status: cacheguard.StatusLoaded}, err
		})
	case n < 46: // it doesn't say whether its value is stale
		s.look(ctx, m, key, "Get", most, func() (cacheguard.Result[fact], error) {
			v, err := m.cache.Get(ctx, key, s.load(m, key))
			return cacheguard.Result[fact]{Value: v, Status: cacheguard.StatusStale}, err
		})
	default:
		s.look(ctx, m, key, "GetResult", most, func() (cacheguard.Result[fact], error) {
			return m.cache.GetResult(ctx, key, s.load(m, key))
		})
	}
}

var errSoak = errors.New("the origin fails")

// load is a load that may do anything that loads do.
func (s *soak) load(m *soaked, key string) cacheguard.LoadFunc[fact] {
	return func(ctx context.Context) (fact, error) {
		defer s.loading(ctx, m, key)()
		f := s.origin.read(key)
		n := rand.IntN(100)
		switch {
		case n < 15 && !pause(ctx, rand.N(60*time.Millisecond)):
			return f, context.Cause(ctx)
		case is(key, keyAbsent):
			return fact{}, fmt.Errorf("%s: %w", key, cacheguard.ErrNotFound)
		case !is(key, keyMoving) || n < 88:
			return f, nil
		case n < 91:
			return f, errSoak
		case n < 93:
			panic("a load panics")
		case n < 95:
			runtime.Goexit()
		case n < 97: // it ignores its context
			<-time.After(rand.N(100 * time.Millisecond))
			return f, nil
		case n < 99: // longer than a lease
			if !pause(ctx, soakLease+rand.N(soakLease)) {
				return f, context.Cause(ctx)
			}
			return f, nil
		}
		<-ctx.Done() // it hangs
		return f, context.Cause(ctx)
	}
}

// update is a write that may do anything that writes do.
func (s *soak) update(key string) cacheguard.LoadFunc[fact] {
	return func(ctx context.Context) (fact, error) {
		switch n := rand.IntN(100); {
		case n < 15 && !pause(ctx, rand.N(20*time.Millisecond)):
			return fact{}, ctx.Err()
		case n == 99:
			panic("a write panics")
		case n == 98:
			return fact{}, errSoak
		}
		return s.origin.change(key), nil
	}
}

// loading notes a load, and returns what to do when it returns.
func (s *soak) loading(ctx context.Context, m *soaked, key string) (returned func()) {
	if n := m.loads.Add(1); n > soakLoads {
		s.fail("%s: %d loads at a time, MaxLoads is %d", m.name, n, soakLoads)
	}
	l := &soakLoad{ctx: ctx, began: time.Now(), by: m.name}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.counts["loads"]++
	if is(key, keyCalm) {
		for _, other := range s.loads[key] {
			if other.ctx.Err() == nil { // one that was told to stop gave its lease back after that
				s.doubt(other.began.Add(-recovery), time.Now(), true, "%s loads %s while %s does",
					m.name, key, other.by)
			}
		}
		s.loads[key] = append(s.loads[key], l)
	}
	return func() {
		m.loads.Add(-1)
		s.mu.Lock()
		defer s.mu.Unlock()
		s.loads[key] = slices.DeleteFunc(s.loads[key], func(other *soakLoad) bool {
			return other == l
		})
	}
}

// set changes a key that one member alone changes, one change after another.
func (s *soak) set(ctx context.Context, m *soaked, key string) {
	s.mu.Lock()
	busy := s.writing[key] || int(key[len(key)-1])%len(s.members) != m.number
	if !busy {
		s.writing[key] = true
	}
	s.mu.Unlock()
	if busy {
		return
	}
	began := time.Now()
	failed := s.change(ctx, m, key, "Set", soakOp, func() (fact, error) {
		f := s.origin.change(key)
		return f, m.cache.Set(ctx, key, f)
	})
	s.mu.Lock()
	defer s.mu.Unlock()
	s.writing[key] = false
	// A copy of it may be under way for as long as a blackhole lasts.
	if failed || time.Since(began) > soakOp/2 {
		s.suspect[key] = time.Now().Add(time.Second + soakTTL + soakWindow + soakSlack)
	}
}

// change is a call that changes a key.
func (s *soak) change(
	ctx context.Context, m *soaked, key, call string, most time.Duration, do func() (fact, error),
) (failed bool) {
	began := time.Now()
	f, err := do()
	ended := time.Now()
	s.ended(m, call, key, began, ended, most+soakOp)
	if err == nil {
		m.own.acknowledge(f, ended)
		s.origin.acknowledge(f, ended)
		s.count(call, 1)
		return false
	}
	s.count(call+": error", 1)
	own := errors.Is(err, errSoak) || strings.Contains(err.Error(), "panicked") || ctx.Err() != nil
	if errors.Is(err, cacheguard.ErrLeaseLost) || errors.Is(err, cacheguard.ErrClosed) ||
		errors.Is(err, cacheguard.ErrUnavailable) && m.opts.OnStoreDown == cacheguard.FailOpen {
		s.fail("%s: %s of %s: %v", m.name, call, key, err)
	}
	if !own {
		s.maybe(began.Add(-recovery), ended, true, "%s: %s of %s in calm weather: %v", m.name, call,
			key, err)
		s.weather.note("%s: %s of %s version %d: %v", m.name, call, key, f.Version, err)
	}
	return true
}

// look is a call that reads.
func (s *soak) look(
	ctx context.Context, m *soaked, key, call string, most time.Duration,
	do func() (cacheguard.Result[fact], error),
) {
	began := time.Now()
	res, err := do()
	ended := time.Now()
	gone := ctx.Err() != nil
	s.ended(m, call, key, began, ended, most+soakOp)
	if err != nil {
		s.count(call+": error", 1)
		s.judgeError(m, call, key, err, gone, began, ended)
		return
	}
	if call == "GetResult" {
		s.count(call+": "+res.Status.String(), 1)
		if res.Local {
			s.count(call+": of the local tier", 1)
		}
	} else {
		s.count(call, 1)
	}
	if res.Degraded {
		s.count("degraded", 1)
		s.maybe(began.Add(-recovery), ended, true, "%s: %s of %s in calm weather: %+v", m.name,
			call, key, res)
	}
	if call == "Peek" && (res.Status == cacheguard.StatusMiss || res.NotFound) {
		if res.NotFound != is(key, keyAbsent) && res.Status != cacheguard.StatusMiss {
			s.fail("%s: Peek of %s: %+v", m.name, key, res)
		}
		return
	}
	if res.Value.Key != key || is(key, keyAbsent) ||
		res.Value.Version > s.origin.read(key).Version {
		s.fail("%s: %s of %s got %+v", m.name, call, key, res)
	}
	s.mu.Lock()
	unsure := began.Before(s.suspect[key])
	s.mu.Unlock()
	if call == "Peek" && res.Status == cacheguard.StatusStale || unsure {
		return // what Peek returns may be past all windows
	}
	if owed := m.own.owed(key, began); res.Value.Version < owed {
		s.fail("%s: %s of %s, which took %v, got %+v; the same process had changed it to version %d before",
			m.name, call, key, ended.Sub(began), res, owed)
	}
	if res.Status == cacheguard.StatusStale {
		if res.Age > soakTTL+soakWindow+soakOp+soakSlack/4 {
			s.maybe(began.Add(-recovery), ended, false, "%s: %s of %s: stale for too long: %+v",
				m.name, call, key, res)
		}
		return
	}
	long, short := noticeTime+soakSlack/2, soakMessage
	if owed := s.origin.owed(key, began.Add(-long)); res.Value.Version < owed {
		s.maybe(began.Add(-long), ended, false,
			"%s: %s of %s got %+v; %v before it was version %d already", m.name, call, key, res,
			long, owed)
	}
	if owed := s.origin.owed(key, began.Add(-short)); res.Value.Version < owed {
		s.count("older than a message takes", 1)
		s.maybe(began.Add(-recovery), ended, true,
			"%s: %s of %s in calm weather got %+v; %v before it was version %d already", m.name,
			call, key, res, short, owed)
	}
}

// judgeError checks that a read may have had an error.
func (s *soak) judgeError(
	m *soaked, call, key string, err error, gone bool, began, ended time.Time,
) {
	var remote *cacheguard.LoadError
	var panicked *cacheguard.PanicError
	failing := is(key, keyMoving)
	fine := false
	switch {
	case errors.Is(err, cacheguard.ErrLeaseLost), errors.Is(err, cacheguard.ErrClosed),
		errors.Is(err, cacheguard.ErrRecursion):
	case errors.Is(err, cacheguard.ErrNotFound):
		s.count("not found", 1)
		fine = is(key, keyAbsent)
	case errors.Is(err, cacheguard.ErrUnavailable):
		s.count("unavailable", 1)
		fine = call == "Peek" || m.opts.OnStoreDown == cacheguard.FailClosed
		s.maybe(began.Add(-recovery), ended, true, "%s: %s of %s in calm weather: %v", m.name, call,
			key, err)
	case errors.Is(err, cacheguard.ErrOverloaded):
		s.count("overloaded", 1)
		fine = true
		s.maybe(began.Add(-recovery), ended, true, "%s: %s of %s in calm weather: %v", m.name, call,
			key, err)
	case errors.Is(err, context.Canceled):
		fine = gone
	case errors.Is(err, context.DeadlineExceeded): // the caller's own, or LoadTimeout
		fine = gone || failing
		if !fine {
			fine = true
			s.maybe(began.Add(-recovery), ended, true, "%s: %s of %s in calm weather: %v", m.name,
				call, key, err)
		}
	case errors.Is(err, errSoak), errors.As(err, &panicked),
		strings.Contains(err.Error(), "Goexit"):
		fine = failing
	case errors.As(err, &remote):
		s.count("failed in another process", 1)
		fine = failing
	}
	if !fine {
		s.fail("%s: %s of %s: %v", m.name, call, key, err)
	}
}

// ended checks that a call ended in time.
func (s *soak) ended(m *soaked, call, key string, began, ended time.Time, most time.Duration) {
	if took := ended.Sub(began); took > most+soakSlack {
		s.maybe(began, ended, false, "%s: %s of %s took %v, want %v at most", m.name, call, key,
			took, most)
	}
}

func (s *soak) count(what string, n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.counts[what] += n
}

// fail notes what went wrong, and ends the run.
func (s *soak) fail(format string, args ...any) {
	what := fmt.Sprintf(format, args...)
	s.weather.note("WRONG: %s", what)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.wrong = append(s.wrong, what)
	s.stop()
}

func (s *soak) maybe(from, to time.Time, calm bool, format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.doubt(from, to, calm, format, args...)
}

// doubt needs mu.
func (s *soak) doubt(from, to time.Time, calm bool, format string, args ...any) {
	const most = 10_000
	if len(s.doubts) < most && (!calm || s.weather.calm(from, to)) {
		s.doubts = append(s.doubts, doubt{
			from, to, calm,
			fmt.Sprintf("%.3f: ", to.Sub(s.weather.began).Seconds()) + fmt.Sprintf(format, args...),
		})
	}
}

// judge examines the doubts when all standstills of the machine are known.
func (s *soak) judge() {
	for _, d := range s.doubts {
		if s.weather.ran(d.from, d.to.Add(standstill)) &&
			(!d.calm || s.weather.calm(d.from, d.to)) {
			s.wrong = append(s.wrong, d.what)
		} else {
			s.weather.note("not counted, because the machine stood still: %s", d.what)
		}
	}
}

// recovers checks that everything is as before, soon after the last fault.
func (s *soak) recovers(t *testing.T) {
	began := time.Now()
	normal := func() bool {
		for _, m := range s.members {
			if _, err := m.cache.Peek(t.Context(), "normal"); err != nil || !m.store.Listening() {
				return false
			}
		}
		return true
	}
	for tick := time.NewTicker(5 * time.Millisecond); !normal(); <-tick.C {
		if time.Since(began) > replicaPatience {
			s.wrong = append(s.wrong,
				fmt.Sprintf("not back to normal %v after the last fault", time.Since(began)))
			return
		}
	}
	took := time.Since(began)
	if took > recovery+soakSlack {
		s.doubts = append(s.doubts, doubt{
			began, time.Now(), false, fmt.Sprintf("it took %v until all stores worked again", took),
		})
	}
	s.weather.note("all stores work again, %v after the last fault", took)
	defer watchRedis(s.server.Addr(), s.weather.stood)()
	for n := 0; ; n++ {
		began, wrong := time.Now(), s.stampede(t, fmt.Sprint("fresh-", n))
		if wrong == "" {
			return
		}
		if s.weather.ran(began, time.Now().Add(standstill)) || n == 5 {
			s.wrong = append(s.wrong, wrong)
			return
		}
	}
}

// stampede has callers of the whole fleet ask for a key at once, and then those with a local tier
// once more.
func (s *soak) stampede(t *testing.T, key string) string {
	const callers = 3
	f := s.origin.change(key)
	var loads atomic.Int64
	load := func(ctx context.Context) (fact, error) {
		loads.Add(1)
		pause(ctx, 20*time.Millisecond)
		return f, nil
	}
	var mu sync.Mutex // guards wrong
	var wrong []string
	var all sync.WaitGroup
	for _, m := range s.members {
		for range callers {
			all.Go(func() {
				if res, err := m.cache.GetResult(t.Context(), key, load); err != nil ||
					res.Value != f || res.Degraded {
					mu.Lock()
					defer mu.Unlock()
					wrong = append(wrong, fmt.Sprintf("%s got %+v, %v", m.name, res, err))
				}
			})
		}
	}
	all.Wait()
	for _, m := range s.members {
		for n := 0; m.opts.Local.Entries > 0; n++ {
			res, err := m.cache.GetResult(t.Context(), key, load)
			if err == nil && res.Local && res.Value == f {
				break
			}
			if n > 0 {
				wrong = append(wrong,
					fmt.Sprintf("%s: once more: got %+v, %v; want an answer of the local tier",
						m.name, res, err))
				break
			}
		}
	}
	if n := loads.Load(); n != 1 {
		wrong = append(wrong, fmt.Sprintf("%d loads, want 1", n))
	}
	if len(wrong) > 0 {
		return "after the last fault: " + strings.Join(wrong, "; ")
	}
	return ""
}

// leavesNoLease checks that no lease stays for ever.
func (s *soak) leavesNoLease(t *testing.T) {
	names, err := s.rdb.Keys(t.Context(), s.prefix+":*:lease").Result()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		left, err := s.rdb.PTTL(t.Context(), name).Result()
		if err != nil {
			t.Fatal(err)
		}
		if left == -1 {
			s.wrong = append(s.wrong, name+" has no TTL")
		}
	}
}

func (s *soak) close(t *testing.T) {
	for _, m := range s.members {
		began := time.Now()
		m.close()
		if took := time.Since(began); took > soakTimeout+4*soakOp+soakSlack {
			s.doubts = append(s.doubts,
				doubt{began, time.Now(), false, fmt.Sprintf("%s: Close took %v", m.name, took)})
		}
		if err := m.proxy.Close(); err != nil {
			t.Error(err)
		}
	}
	if err := s.rdb.Close(); err != nil {
		t.Error(err)
	}
}

// leavesNoGoroutine checks that as many run as before.
func (s *soak) leavesNoGoroutine(t *testing.T, before int) {
	timeout := time.After(replicaPatience / 4)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for runtime.NumGoroutine() > before {
		select {
		case <-tick.C:
		case <-timeout:
			var all strings.Builder
			_ = pprof.Lookup("goroutine").WriteTo(&all, 1)
			t.Errorf("%d goroutines, there were %d:\n%s", runtime.NumGoroutine(), before,
				all.String())
			return
		}
	}
}

// tell logs what has happened, in numbers.
func (s *soak) tell(t *testing.T) {
	for _, what := range slices.Sorted(maps.Keys(s.counts)) {
		t.Logf("%8d %s", s.counts[what], what)
	}
	t.Logf("%8d fills stored, %d refused; %d doubts", s.fence.stored, s.fence.refuse, len(s.doubts))
	if len(s.doubts) > 0 {
		t.Log(s.weather.last(3))
	}
}
