package lab

import (
	"context"
	"net/url"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9/logging"

	"github.com/cacheguard/cacheguard/examples/catalog/stage"
	"github.com/cacheguard/cacheguard/internal/redistest"
	"github.com/cacheguard/cacheguard/internal/zktest"
)

func TestMain(m *testing.M) {
	zktest.SuppressRace()
	logging.Disable() // as in the command, because dead replicas can't dial
	os.Exit(redistest.Main(zktest.Wrap(m)))
}

// settings returns the settings of a run in which a lock lasts long enough for a busy machine.
func settings(name string, f Fault) Settings {
	s := Defaults()
	s.Stage, s.Fault, s.LockTTL = name, f, 4*time.Second
	own := name == "cacheguard" || name == "redlock" // steps have a part of the lock's time
	switch {
	case f == SlowOrigin: // its loads take 6 s, which is longer than a lock of 1 s
		s.LockTTL, s.Load = time.Second, 600*time.Millisecond
	case own && f == Crash: // the others wait for the lock's end
		s.LockTTL = 12 * time.Second
	case own && slices.Contains([]Fault{
		NoFault, SlowUnlock, Rename, SilentRename, Unknown, OriginFails,
	}, f), name == "redlock", f == Clock:
		s.LockTTL = 30 * time.Second
	}
	if f == Clock || f == OriginFails && own { // the others ask while the first one loads
		s.Load = 2 * time.Second
	}
	return s
}

// TestRuns checks that each fault shows its flaw in the stage that has the flaw, and doesn't show
// it in the next stage.
func TestRuns(t *testing.T) {
	w := openWorld(t)
	deadLock := func(r Report) bool {
		return r.Stuck == 8 && r.Died == 4 && r.LockLeft == -1 && r.Loads == 0
	}
	recovers := func(r Report) bool {
		return r.Stuck == 0 && r.Died == 4 && r.Answered == 8 && r.Loads == 1
	}
	wrongDelete := func(r Report) bool { return r.WrongDeletes > 0 && r.Holders > 1 }
	noWrongDelete := func(r Report) bool { return r.WrongDeletes == 0 }
	stale := func(r Report) bool {
		return r.StaleWrites > 0 && r.Cached == "version 1" && r.Origin == "version 2"
	}
	fresh := func(r Report) bool {
		return r.StaleWrites == 0 && r.Cached == "version 2" && r.Stuck == 0
	}
	// And not only after the lock's 30 s.
	endsSoon := func(r Report) bool { return deadLock(r) && r.Took < 100_000 }
	lateWrite := func(r Report) bool { return stale(r) && r.Holders == 2 && r.LockLeft == 0 }
	// A load that began after the failover and before the rename is refused like the first one. If
	// the failover has cut off a process' request for a lease, its load has none, and caches
	// nothing.
	refused := func(r Report) bool {
		return fresh(r) && r.Refused >= 1 && r.Refused < r.Loads && r.Failed == 0
	}
	// There is one load in each replica, or two if messages begin to arrive in the meantime: a
	// request after that doesn't join a load from before.
	coalesced := func(r Report) bool { return r.Failed == 0 && r.Loads <= 2*3 }
	oneLoad := func(r Report) bool { return r.Loads == 1 && r.Answered == r.Requests }
	atOnce := func(r Report) bool { return r.Holders > 1 }
	long := func(s *Settings) { s.LockTTL = 30 * time.Second }
	// All requests wait, even on a busy machine.
	slow := func(s *Settings) { s.Load = 2 * time.Second }
	// The load still takes longer than the lock lasts, but a busy machine has the time to renew it.
	slower := func(s *Settings) { s.LockTTL, s.Load = 12*time.Second, 1500*time.Millisecond }
	renews := func(s *Settings) { s.LockTTL = 10 * time.Second }
	clock := func(d time.Duration) func(*Settings) {
		return func(s *Settings) { s.LockTTL, s.Clock = 30*time.Second, d }
	}
	loads := func(n int) func(Report) bool { return func(r Report) bool { return r.Loads == n } }
	said := &verdicts{of: map[string]string{}}
	t.Cleanup(func() { said.checkReadme(t) }) // after all runs
	for _, c := range []struct {
		stage string
		fault Fault
		want  func(Report) bool
		words string // words in the verdict
		with  func(*Settings)
	}{
		{"none", NoFault, loads(12), "12 loads", nil},
		{"local", NoFault, loads(3), "3 loads", nil},
		{"setnx", NoFault, oneLoad, "1 load;", nil},
		{"compare", NoFault, oneLoad, "1 load;", nil},
		{"cacheguard", NoFault, oneLoad, "1 load;", nil},

		{"setnx", Crash, deadLock, "dead lock: 8 requests", nil},
		{"expire", Crash, recovers, "1 load", nil},
		{"expire", CrashBetween, deadLock, "dead lock", nil},
		{"setnxex", CrashBetween, recovers, "died with their replica", nil},
		{"cacheguard", Crash, recovers, "1 load", nil},

		{"setnxex", SlowUnlock, wrongDelete, "the lock of another request was deleted", nil},
		{"luasetnx", SlowUnlock, wrongDelete, "the lock of another request was deleted", nil},
		{"owner", SlowUnlock, wrongDelete, "the lock of another request was deleted", nil},
		{"compare", SlowUnlock, noWrongDelete, "at once", nil},
		{"cacheguard", SlowUnlock, fresh, "2 loads; all requests got", nil},

		{"compare", SlowLoad, stale, "a stale value is served: version 1", nil},
		{"watchdog", SlowLoad, func(r Report) bool { return r.LoadsAtOnce == 1 }, "load", renews},
		{"watchdog", Stall, stale, "2 requests had the lock at once; a stale value", nil},
		{"cacheguard", SlowLoad, fresh, "load", nil},
		{"cacheguard", Stall, fresh, "loads;", nil},

		{"watchdog", Rename, stale, "stale", nil},
		{"cacheguard", Rename, fresh, "2 loads;", nil}, // as the README says
		{"forever", SilentRename, func(r Report) bool {
			return r.Cached == "version 1" && r.Loads == 1
		}, "stale", nil},
		{"compare", SilentRename, func(r Report) bool {
			return r.Cached == "version 2" && r.Loads == 2
		}, "2 loads; all", nil},
		{"cacheguard", SilentRename, func(r Report) bool {
			return r.Cached == "version 2" && r.Loads == 2
		}, "2 loads; all", nil},

		{"getset", Clock, atOnce, "at once", nil},
		{"force", Clock, atOnce, "at once", nil},
		{"compare", Clock, oneLoad, "1 load", nil},
		{"cacheguard", Clock, oneLoad, "1 load", nil},
		// Less than the rest of the lock's time.
		{"getset", Clock, oneLoad, "1 load;", clock(20 * time.Second)},
		{"getset", Clock, atOnce, "at once", clock(31 * time.Second)},
		// To others the lock's time looks over.
		{"getset", Clock, atOnce, "at once", clock(-time.Minute)},
		{"compare", Clock, oneLoad, "1 load;", clock(-time.Minute)},

		{
			"setnx", Failover, lateWrite,
			"2 requests had the lock at once; a stale value is served: version 1", nil,
		},
		{"compare", Failover, lateWrite, "2 requests had the lock at once; a stale value", nil},
		{"watchdog", Failover, lateWrite, "2 requests had the lock at once; a stale value", nil},
		{"cacheguard", Failover, refused, " refused.", long},
		// The renewal may have noticed the loss before that.
		{"cacheguard", Failover, fresh, "loads;", nil},
		{"redlock", Failover, lateWrite, "2 requests had the lock at once; a stale value", nil},
		{"redlock", NoFault, oneLoad, "1 load;", nil},
		{"redlock", Crash, recovers, "1 load", nil},
		// Its lock isn't in Redis.
		{
			"sqlrow", Failover, func(r Report) bool {
				return r.Holders == 1 && r.Stuck == 0
			}, "", nil,
		},
		// A slow holder isn't dead.
		{"setnx", NoFault, oneLoad, "1 load;", slow},

		{"sqlrow", NoFault, oneLoad, "1 load;", nil},
		{"sqlrow", Crash, deadLock, "dead lock: 8 requests", nil},
		{"setnx", Crash, endsSoon, "dead lock: 8 requests", long},
		{"sqlrow", Crash, endsSoon, "dead lock: 8 requests", long},
		{"expire", CrashBetween, endsSoon, "dead lock: 8 requests", long},
		// Its lock has no expiry in Redis, but its value contains its end.
		{"getset", Crash, recovers, "1 load", nil},

		{
			"herd", NoFault, func(r Report) bool {
				return r.Wakeups > 2*r.Waited
			}, "they grow with the square", slow,
		},
		{"predecessor", NoFault, func(r Report) bool {
			return r.Wakeups <= r.Waited && r.Waited > 5
		}, "1 load; all requests got", slow},

		{"leaky", Unknown, loads(12), "12 loads", nil},
		{"compare", Unknown, loads(1), "1 load", nil},
		{"cacheguard", Unknown, loads(1), "1 load", nil},

		{
			"compare", RedisDown, func(r Report) bool {
				return r.Failed > 0
			}, "requests got an error", nil, // as the README says
		},
		{"cacheguard", RedisDown, coalesced, "all requests got", nil},
		{
			"compare", OriginFails, func(r Report) bool {
				return r.Loads == 12 && r.Failed == 12
			}, "12 loads; 12 requests got an error", nil,
		},
		{
			"cacheguard", OriginFails, func(r Report) bool {
				return r.Loads == 1 && r.Failed == 12
			}, "1 load; 12 requests got an error", nil,
		},
		{"compare", SlowOrigin, func(r Report) bool { return r.Loads > 1 }, "at once", nil},
		{"cacheguard", SlowOrigin, oneLoad, "1 load", slower},
	} {
		t.Run(c.stage+"/"+string(c.fault), func(t *testing.T) {
			t.Parallel()
			s := settings(c.stage, c.fault)
			if c.with != nil {
				c.with(&s)
			}
			var r Report
			for try, shown := 1, false; !shown && try <= tries; try++ {
				var events []Event
				var err error
				r, err = Run(t.Context(), w, s, func(e Event) { events = append(events, e) })
				if err != nil {
					t.Fatal(err)
				}
				shown = c.want(r) && strings.Contains(r.Verdict, c.words)
				if !shown && try == tries || c.stage == "cacheguard" && keptStale(r, events) {
					t.Errorf("%+v", r)
				}
				if !shown {
					t.Logf("try %d: %s", try, r.Verdict)
					for _, e := range events {
						t.Logf("%7.1f %d/%d %s %s", e.At, e.Replica, e.Request, e.Kind, e.Note)
					}
				}
				checkEvents(t, r, events)
			}
			if c.with == nil {
				said.note(s, r.Verdict)
			}
		})
	}
}

// tries is how often a run may take another course than its fault mostly leads to, because the
// machine is busy.
const tries = 3

// keptStale reports whether the cache was told of a rename, and has the value from before it at the
// end. No standstill allows that to cacheguard.
func keptStale(r Report, events []Event) bool {
	told := slices.ContainsFunc(events, func(e Event) bool {
		return e.Kind == KindRename && e.Note == r.Origin // without a remark that it wasn't told
	})
	return told && r.Cached != "" && r.Cached != r.Origin
}

// checkEvents checks that the events are in their order, and that each request is among them.
func checkEvents(t *testing.T, r Report, events []Event) {
	t.Helper()
	for i, e := range events {
		if i > 0 && e.At < events[i-1].At {
			t.Errorf("event %d comes before the one before it", i)
		}
	}
	for n := 1; n <= r.Requests; n++ {
		if !slices.ContainsFunc(events, func(e Event) bool {
			return e.Kind == KindRequest && e.Request == n
		}) {
			t.Errorf("request %d is not in the picture", n)
		}
	}
}

// If a request after a rename gets the old value, it is counted, even if the cache has the new
// value at the end.
func TestStaleAnswers(t *testing.T) {
	w := openWorld(t)
	for name, want := range map[string]int{"watchdog": 6, "cacheguard": 0} {
		s := settings(name, Rename)
		// The later requests come before the first ones are answered, and the lock is kept.
		s.Load, s.LockTTL = 2*time.Second, 30*time.Second
		for try := 1; ; try++ {
			r, err := Run(t.Context(), w, s, func(Event) {})
			if err != nil {
				t.Fatal(err)
			}
			if r.StaleAnswers == want {
				break
			}
			// On a busy machine later requests may come before the message of the rename, and
			// requests may get errors because Redis is late.
			if try == tries {
				t.Errorf("%s: %+v; want %d", name, r, want)
				break
			}
			t.Logf("%s, once more: %+v", name, r)
		}
	}
	r := Report{
		Loads: 13, Requests: 200, Answered: 200, StaleAnswers: 37, Cached: "version 2",
		Origin: "version 2",
	}
	if got := r.verdict(); got !=
		"13 loads; 37 later requests got the value from before the rename." {
		t.Errorf("verdict %q", got)
	}
}

// The embedded Redis is enough.
func TestEmbedded(t *testing.T) {
	server := miniredis.RunT(t)
	server.ClockTTL(true)
	for _, name := range []string{
		"local", "setnx", "expire", "setnxex", "owner", "compare", "watchdog", "cacheguard",
		"getset", "force", "watch", "luasetnx",
	} {
		r, err := Run(t.Context(), World{Redis: server.Addr()}, settings(name, NoFault),
			func(Event) {})
		if err != nil || r.Answered != r.Requests {
			t.Errorf("%s: %+v, %v", name, r, err)
		}
	}
	spare := miniredis.RunT(t)
	spare.ClockTTL(true)
	for _, name := range []string{"compare", "cacheguard"} {
		r, err := Run(t.Context(), World{Redis: server.Addr(), Spare: spare.Addr()},
			settings(name, Failover), func(Event) {})
		if wrong := r.Cached != r.Origin; err != nil || wrong != (name == "compare") {
			t.Errorf("%s: %+v, %v", name, r, err)
		}
	}
	r, err := Run(t.Context(), World{Redis: server.Addr()}, settings("compare", Crash),
		func(Event) {})
	if err != nil || r.Stuck > 0 {
		t.Errorf("the lock of the dead doesn't end: %+v, %v", r, err)
	}
	if keys := append(server.Keys(), spare.Keys()...); slices.ContainsFunc(keys,
		func(k string) bool { return strings.Contains(k, "lab:") }) {
		t.Errorf("left behind: %q", keys)
	}
}

// A run removes its queue from ZooKeeper.
func TestQueueIsRemoved(t *testing.T) {
	w := openWorld(t)
	if r, err := Run(t.Context(), w, settings("predecessor", NoFault),
		func(Event) {}); err != nil || r.Loads != 1 {
		t.Errorf("%+v, %v", r, err)
	}
	left, _, err := w.ZooKeeper.Children("/")
	if err != nil ||
		slices.ContainsFunc(left, func(node string) bool { return strings.Contains(node, "lab") }) {
		t.Errorf("left behind: %q, %v", left, err)
	}
}

// A failover needs another server, and is refused without one.
func TestFailoverNeedsASpare(t *testing.T) {
	if _, err := Run(t.Context(), World{Redis: redistest.Shared(t).Addr()},
		settings("compare", Failover), func(Event) {}); err != errNoSpare {
		t.Errorf("error %v", err)
	}
}

// If its context ends, a run ends at once.
func TestRunEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	w := World{Redis: redistest.Shared(t).Addr()}
	_, err := Run(ctx, w, settings("setnx", Crash), func(e Event) {
		if e.Kind == KindCrash {
			cancel()
		}
	})
	if err != context.Canceled {
		t.Errorf("error %v", err)
	}
}

func TestSettings(t *testing.T) {
	s := Settings{
		Stage: "owner", Replicas: 2, Requests: 7, Fault: Stall, LockTTL: 3 * time.Second,
		Load: 50 * time.Millisecond, Clock: -90 * time.Minute,
	}
	back, err := Parse(s.Query())
	if err != nil || !reflect.DeepEqual(back, s) {
		t.Errorf("%+v becomes %+v, %v", s, back, err)
	}
	if s, err := Parse(url.Values{}); err != nil || s != Defaults() {
		t.Errorf("nothing becomes %+v, %v", s, err)
	}
	for query, want := range map[string]string{
		"stage=magic": `no stage "magic"`, "fault=fire": `no fault "fire"`, "replicas=0": "1 to 8",
		"replicas=9": "1 to 8",
		"replicas=x": `replicas="x"`, "requests=1": "at least one for each",
		"requests=201": "200 at most", "ttl=1ms": "1s to 30s",
		"ttl=x": `ttl="x"`, "load=3s": "0 to 2s", "load=-1s": "0 to 2s",
		"clock=x": `clock="x"`, "clock=24h1s": "-24h to 24h", "clock=-25h": "-24h to 24h",
	} {
		q, _ := url.ParseQuery(query)
		if _, err := Parse(q); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want %q in it", query, err, want)
		}
	}
	for _, st := range stage.All() {
		if err := settings(st.Name, NoFault).Validate(); err != nil {
			t.Errorf("%s: %v", st.Name, err)
		}
	}
	for _, f := range Faults() {
		if err := settings("none", f.Name).Validate(); err != nil || f.Text == "" {
			t.Errorf("%s: %v, %q", f.Name, err, f.Text)
		}
	}
}
