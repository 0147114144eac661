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

	"github.com/cacheguard/cacheguard/examples/catalog/stage"
	"github.com/cacheguard/cacheguard/internal/redistest"
)

func TestMain(m *testing.M) { os.Exit(redistest.Main(m)) }

// settings are those of a run in which a lock lasts long enough for a busy machine.
func settings(name string, f Fault) Settings {
	s := Defaults()
	s.Stage, s.Fault = name, f
	return s
}

// TestRuns has each fault show the flaw that it is there for, and not show it one stage later.
func TestRuns(t *testing.T) {
	w := World{Redis: redistest.Shared(t).Addr()}
	deadLock := func(r Report) bool { return r.Stuck == 8 && r.Died == 4 && r.LockLeft == -1 && r.Loads == 0 }
	recovers := func(r Report) bool { return r.Stuck == 0 && r.Died == 4 && r.Answered == 8 && r.Loads == 1 }
	wrongDelete := func(r Report) bool { return r.WrongDeletes > 0 && r.Holders > 1 }
	noWrongDelete := func(r Report) bool { return r.WrongDeletes == 0 }
	stale := func(r Report) bool { return r.StaleWrites > 0 && r.Cached == "version 1" && r.Origin == "version 2" }
	fresh := func(r Report) bool { return r.StaleWrites == 0 && r.Cached == "version 2" && r.Stuck == 0 }
	oneLoad := func(r Report) bool { return r.Loads == 1 && r.Answered == r.Requests }
	loads := func(n int) func(Report) bool { return func(r Report) bool { return r.Loads == n } }
	for _, c := range []struct {
		stage string
		fault Fault
		want  func(Report) bool
		words string // in the verdict
	}{
		{"none", NoFault, func(r Report) bool { return r.Loads > 3 }, "loads"},
		{"local", NoFault, loads(3), "3 loads"},
		{"setnx", NoFault, oneLoad, "1 load;"},
		{"compare", NoFault, oneLoad, "1 load;"},
		{"cacheguard", NoFault, oneLoad, "1 load;"},

		{"setnx", Crash, deadLock, "dead lock: 8 requests"},
		{"expire", Crash, recovers, "1 load"},
		{"expire", CrashBetween, deadLock, "dead lock"},
		{"setnxex", CrashBetween, recovers, "died with their replica"},
		{"cacheguard", Crash, recovers, "1 load"},

		{"setnxex", SlowUnlock, wrongDelete, "the lock of another was deleted"},
		{"luasetnx", SlowUnlock, wrongDelete, "the lock of another was deleted"},
		{"owner", SlowUnlock, wrongDelete, "the lock of another was deleted"},
		{"compare", SlowUnlock, noWrongDelete, "at once"},
		{"cacheguard", SlowUnlock, fresh, "2 loads; all were answered"},

		{"compare", SlowLoad, stale, "a stale value is served: version 1"},
		{"watchdog", SlowLoad, func(r Report) bool { return r.LoadsAtOnce == 1 }, "load"},
		{"watchdog", Stall, stale, "2 had the lock at once; a stale value"},
		{"cacheguard", SlowLoad, fresh, "load"},
		{"cacheguard", Stall, fresh, "loads;"},

		{"watchdog", Rename, stale, "stale"},
		{"cacheguard", Rename, fresh, "load"},
		{"forever", SilentRename, func(r Report) bool { return r.Cached == "version 1" && r.Loads == 1 }, "stale"},
		{"compare", SilentRename, func(r Report) bool { return r.Cached == "version 2" && r.Loads == 2 }, "2 loads; all"},
		{"cacheguard", SilentRename, func(r Report) bool { return r.Cached == "version 2" && r.Loads == 2 }, "2 loads; all"},

		{"getset", Clock, func(r Report) bool { return r.Holders > 1 }, "at once"},
		{"force", Clock, func(r Report) bool { return r.Holders > 1 }, "at once"},
		{"compare", Clock, oneLoad, "1 load"},
		{"cacheguard", Clock, oneLoad, "1 load"},

		{"leaky", Unknown, loads(12), "12 loads"},
		{"compare", Unknown, loads(1), "1 load"},
		{"cacheguard", Unknown, loads(1), "1 load"},

		{"compare", RedisDown, func(r Report) bool { return r.Failed > 0 }, "got an error"},
		{"cacheguard", RedisDown, func(r Report) bool { return r.Failed == 0 && r.Loads <= 3 }, "all were answered"},
		{"compare", OriginFails, func(r Report) bool { return r.Loads == 12 && r.Failed == 12 }, "12 loads; 12 requests got an error"},
		{"cacheguard", OriginFails, func(r Report) bool { return r.Loads == 1 && r.Failed == 12 }, "1 load; 12 requests got an error"},
		{"compare", SlowOrigin, func(r Report) bool { return r.Loads > 1 }, "at once"},
		{"cacheguard", SlowOrigin, oneLoad, "1 load"},
	} {
		t.Run(c.stage+"/"+string(c.fault), func(t *testing.T) {
			t.Parallel()
			var events []Event
			r, err := Run(t.Context(), w, settings(c.stage, c.fault), func(e Event) { events = append(events, e) })
			if err != nil {
				t.Fatal(err)
			}
			if !c.want(r) || !strings.Contains(r.Verdict, c.words) {
				t.Errorf("%+v", r)
				for _, e := range events {
					t.Logf("%7.1f %d/%d %s %s", e.At, e.Replica, e.Request, e.Kind, e.Note)
				}
			}
			for i, e := range events {
				if i > 0 && e.At < events[i-1].At {
					t.Errorf("event %d comes before the one before it", i)
				}
			}
			for n := 1; n <= r.Requests; n++ {
				if !slices.ContainsFunc(events, func(e Event) bool { return e.Kind == KindRequest && e.Request == n }) {
					t.Errorf("request %d is not in the picture", n)
				}
			}
		})
	}
}

// The embedded Redis is enough.
func TestEmbedded(t *testing.T) {
	server := miniredis.RunT(t)
	server.ClockTTL(true)
	for _, name := range []string{"local", "setnx", "expire", "setnxex", "owner", "compare", "watchdog", "cacheguard", "getset", "force", "watch", "luasetnx"} {
		r, err := Run(t.Context(), World{Redis: server.Addr()}, settings(name, NoFault), func(Event) {})
		if err != nil || r.Answered != r.Requests {
			t.Errorf("%s: %+v, %v", name, r, err)
		}
	}
	r, err := Run(t.Context(), World{Redis: server.Addr()}, settings("compare", Crash), func(Event) {})
	if err != nil || r.Stuck > 0 {
		t.Errorf("the lock of the dead doesn't end: %+v, %v", r, err)
	}
	if keys := server.Keys(); slices.ContainsFunc(keys, func(k string) bool { return strings.HasPrefix(k, "lab:") || strings.HasPrefix(k, "lock:") }) {
		t.Errorf("left behind: %q", keys)
	}
}

// A run ends with its context, at once.
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
	s := Settings{Stage: "owner", Replicas: 2, Requests: 7, Fault: Stall, LockTTL: 3 * time.Second, Load: 50 * time.Millisecond}
	back, err := Parse(s.Query())
	if err != nil || !reflect.DeepEqual(back, s) {
		t.Errorf("%+v becomes %+v, %v", s, back, err)
	}
	if s, err := Parse(url.Values{}); err != nil || s != Defaults() {
		t.Errorf("nothing becomes %+v, %v", s, err)
	}
	for query, want := range map[string]string{
		"stage=magic": `no stage "magic"`, "fault=fire": `no fault "fire"`, "replicas=0": "1 to 8", "replicas=9": "1 to 8",
		"replicas=x": `replicas="x"`, "requests=1": "at least one for each", "requests=201": "200 at most", "ttl=1ms": "1s to 30s",
		"ttl=x": `ttl="x"`, "load=3s": "0 to 2s", "load=-1s": "0 to 2s",
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
