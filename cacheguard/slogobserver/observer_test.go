package slogobserver_test

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/cacheguard/memstore"
	"github.com/cacheguard/cacheguard/cacheguard/slogobserver"
	"github.com/cacheguard/cacheguard/internal/logtest"
)

// log is a log of JSON.
type log struct {
	logtest.Lines
	read int // the length of what records has returned
}

func (l *log) logger() *slog.Logger {
	return slog.New(slog.NewJSONHandler(l, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

// records returns what was written since the last call.
func (l *log) records(t *testing.T) (all []map[string]any) {
	t.Helper()
	text := l.String()[l.read:]
	l.read += len(text)
	for in := json.NewDecoder(strings.NewReader(text)); in.More(); {
		var r map[string]any
		if err := in.Decode(&r); err != nil {
			t.Fatal(err)
		}
		all = append(all, r)
	}
	return all
}

// leftOut is what each record says that was left out before it.
func leftOut(all []map[string]any) (counts []int) {
	for _, r := range all {
		n, _ := r["left_out"].(float64)
		counts = append(counts, int(n))
	}
	return counts
}

func TestSampling(t *testing.T) {
	for name, c := range map[string]struct {
		every  int
		first  []int // of the first interval: 10 events
		second []int // of the second one: 4 events
	}{
		"burst":            {0, []int{0, 0, 0}, []int{7, 0, 0}},
		"then every third": {3, []int{0, 0, 0, 2, 2}, []int{1, 0, 0}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var l log
				o := slogobserver.New(slogobserver.Options{
					Logger: l.logger(), Interval: time.Minute, Burst: 3, Every: c.every,
				})
				observe := func(n int, cache string, kind cacheguard.EventKind) {
					for range n {
						o.Observe(t.Context(), cacheguard.Event{Kind: kind, Cache: cache})
					}
				}
				observe(5, "a", cacheguard.EventStoreError)
				time.Sleep(time.Minute - 1) // in the bubble
				observe(5, "a", cacheguard.EventStoreError)
				if got := leftOut(l.records(t)); !slices.Equal(got, c.first) {
					t.Errorf("records of 10 events in an interval leave out %v, want %v", got,
						c.first)
				}
				observe(1, "b", cacheguard.EventStoreError)
				observe(1, "a", cacheguard.EventCorrupt)
				if got := leftOut(l.records(t)); !slices.Equal(got, []int{0, 0}) {
					t.Errorf("another cache and another kind are counted together: %v", got)
				}
				time.Sleep(time.Nanosecond)
				observe(4, "a", cacheguard.EventStoreError)
				if got := leftOut(l.records(t)); !slices.Equal(got, c.second) {
					t.Errorf("records of 4 events in the next interval leave out %v, want %v", got,
						c.second)
				}
			})
		})
	}
}

// Loads that succeed, which Trace shows, don't use up the records of loads that fail.
func TestLevelsHaveTheirOwnLimit(t *testing.T) {
	l := &log{}
	o := slogobserver.New(slogobserver.Options{
		Logger: l.logger(), Burst: 2, Trace: slog.LevelDebug,
	})
	for range 10 {
		o.Observe(t.Context(), cacheguard.Event{Kind: cacheguard.EventLoad, Cache: "a"})
	}
	o.Observe(t.Context(),
		cacheguard.Event{Kind: cacheguard.EventLoad, Cache: "a", Err: errors.New("no such table")})
	all := l.records(t)
	if len(all) != 3 || all[2]["level"] != "WARN" {
		t.Errorf("want two loads and the one that failed, got %v", all)
	}
}

// This test lists the level of every kind of event. A new kind must be added.
func TestLevels(t *testing.T) {
	failed := errors.New("no such table")
	const none, trace = "", "DEBUG"
	want := map[cacheguard.EventKind][2]string{ // without an error, and with one
		cacheguard.EventHit:          {none, none},
		cacheguard.EventMiss:         {trace, trace},
		cacheguard.EventCoalesced:    {trace, trace},
		cacheguard.EventLeaseAsked:   {trace, trace},
		cacheguard.EventLeaseGranted: {trace, trace},
		cacheguard.EventWaited:       {trace, trace},
		cacheguard.EventLoad:         {trace, "WARN"},
		cacheguard.EventLoadLate:     {"WARN", "WARN"},
		cacheguard.EventFilled:       {trace, trace},
		cacheguard.EventFillRefused:  {"INFO", "INFO"},
		cacheguard.EventFillUnknown:  {"ERROR", "ERROR"},
		cacheguard.EventNotStored:    {trace, "WARN"},
		cacheguard.EventRenewed:      {trace, trace},
		cacheguard.EventLeaseLost:    {"WARN", "WARN"},
		cacheguard.EventCorrupt:      {"WARN", "WARN"},
		cacheguard.EventStoreError:   {"ERROR", "ERROR"},
		cacheguard.EventOverloaded:   {"WARN", "WARN"},
		cacheguard.EventStale:        {trace, "WARN"},
		cacheguard.EventLoaded:       {trace, trace},
		cacheguard.EventUnstored:     {trace, trace},
		cacheguard.EventCompared:     {trace, trace},
		cacheguard.EventSampled:      {none, none},
	}
	for kind := cacheguard.EventKind(1); !strings.HasPrefix(kind.String(), "EventKind("); kind++ {
		levels, known := want[kind]
		if !known {
			t.Errorf("%v has no level", kind)
		}
		for i, err := range []error{nil, failed} {
			for _, opts := range []slogobserver.Options{{}, {Trace: slog.LevelDebug}} {
				var l log
				opts.Logger = l.logger()
				slogobserver.New(opts).Observe(t.Context(),
					cacheguard.Event{Kind: kind, Cache: "a", Key: "secret", Err: err})
				level := levels[i]
				if opts.Trace == nil && level == trace {
					level = none
				}
				all := l.records(t)
				switch {
				case level == none && len(all) != 0, level != none &&
					(len(all) != 1 || all[0]["level"] != level):
					t.Errorf("%v with the error %v, trace %v: wrote %v, want level %q", kind, err,
						opts.Trace, all, level)
				case level != none &&
					(all[0]["msg"] != "cacheguard: "+kind.String() || all[0]["cache"] != "a" ||
						all[0]["key"] != nil):
					t.Errorf("%v was written as %v", kind, all[0])
				}
			}
		}
	}
}

// A load that stops because the cache has cancelled it is no reason for a warning.
func TestCancelledLoads(t *testing.T) {
	for _, ending := range []string{"close", "leave"} {
		t.Run(ending, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := memstore.New(memstore.Options{})
				defer store.Close()
				var l log
				c, err := cacheguard.New(store, cacheguard.Options[string]{
					Name:     "a",
					Observer: slogobserver.New(slogobserver.Options{Logger: l.logger()}),
				})
				if err != nil {
					t.Fatal(err)
				}
				ctx, leave := context.WithCancel(t.Context())
				defer leave()
				go func() {
					_, _ = c.Get(ctx, "k", func(ctx context.Context) (string, error) {
						<-ctx.Done()
						return "", ctx.Err()
					})
				}()
				synctest.Wait() // until it loads
				if ending == "leave" {
					leave()
					synctest.Wait()
				}
				_ = c.Close()
				if all := l.records(t); len(all) > 0 {
					t.Errorf("wrote %v", all)
				}
			})
		})
	}
}

// Without Options.Keys, no error of the cache itself has a key: neither if a caller is turned away,
// nor if a load failed in another process.
func TestErrorsHaveNoKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New(memstore.Options{})
		defer store.Close()
		var l log
		o := slogobserver.New(slogobserver.Options{Logger: l.logger(), Trace: slog.LevelDebug})
		open := func(o cacheguard.Observer) *cacheguard.Cache[string] {
			c, err := cacheguard.New(store, cacheguard.Options[string]{
				Name: "a", MaxWaiters: 1, TTL: time.Second, Jitter: -1, StaleIfError: time.Hour,
				Observer: o,
			})
			if err != nil {
				t.Fatal(err)
			}
			return c
		}
		here, there := open(o), open(nil)
		defer here.Close()
		defer there.Close()
		_ = here.Set(t.Context(), "secret-stale", "old")
		time.Sleep(2 * time.Second)
		gate := make(chan struct{})
		fails := func(context.Context) (string, error) {
			<-gate
			return "", errors.New("no such table")
		}
		for _, key := range []string{"secret-stale", "secret"} {
			go func() { _, _ = there.Get(t.Context(), key, fails) }()
			synctest.Wait()
			for range 3 {
				go func() { _, _ = here.Get(t.Context(), key, fails) }()
				synctest.Wait()
			}
		}
		close(gate)
		synctest.Wait()
		for _, want := range []string{
			`"cacheguard: overloaded"`, `"cacheguard: stale"`, `"cacheguard: coalesced"`,
			"failed in another process",
		} {
			if !strings.Contains(l.String(), want) {
				t.Errorf("the log lacks %s", want)
			}
		}
		if strings.Contains(l.String(), "secret") {
			t.Errorf("the log has a key:\n%s", l.String())
		}
	})
}

func TestKeysAreQuotedAndCut(t *testing.T) {
	var l log
	o := slogobserver.New(slogobserver.Options{Logger: l.logger(), Keys: true})
	for key, want := range map[string]string{
		"a\nb\xff":               `"a\nb\xff"`,
		strings.Repeat("x", 100): `"` + strings.Repeat("x", 64) + `"... (100 bytes)`,
	} {
		o.Observe(context.Background(), cacheguard.Event{Kind: cacheguard.EventCorrupt, Key: key})
		if all := l.records(t); len(all) != 1 || all[0]["key"] != want {
			t.Errorf("key %q was written as %v, want %q", key, all, want)
		}
	}
}

// A wrong answer is a warning with all known facts and with a hash that identifies its key. Other
// comparisons don't use up the limit of wrong answers.
func TestWrongAnswers(t *testing.T) {
	l := &log{}
	o := slogobserver.New(slogobserver.Options{
		Logger: slog.New(slog.NewJSONHandler(l, nil)), Burst: 1,
	})
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for d := range cacheguard.Differences {
		e := cacheguard.Event{
			Kind: cacheguard.EventCompared, Cache: "a", Key: "abc", Differs: d, Took: time.Minute,
		}
		if d != cacheguard.NoDifference {
			e.Story = &cacheguard.Story{
				Load: "0123", Began: at, Age: time.Minute, Asked: at.Add(time.Hour),
				Stands: "the same", Changed: at.Add(time.Second),
			}
		}
		for range 5 {
			o.Observe(t.Context(), e)
		}
		all := l.records(t)
		if !d.Wrong() {
			if len(all) != 0 {
				t.Errorf("%v: wrote %v", d, all)
			}
			continue
		}
		want := map[string]any{
			"load": "0123", "began": "2026-01-02T03:04:05Z", "age": float64(time.Minute),
			"asked":  "2026-01-02T04:04:05Z",
			"stands": "the same", "changed": "2026-01-02T03:04:06Z",
		}
		if len(all) != 1 || all[0]["level"] != "WARN" ||
			all[0]["msg"] != "cacheguard: wrong answer" || all[0]["took"] != nil ||
			all[0]["differs"] != d.String() || all[0]["key_hash"] != "ba7816bf8f01cfea" ||
			!reflect.DeepEqual(all[0]["story"], want) {
			t.Errorf("%v: wrote %v", d, all)
		}
		if len(all) == 1 &&
			(all[0]["means"] == nil || all[0]["see"] != "docs/operations.md#old-values") {
			t.Errorf("it doesn't say what it means, and where to read on: %v", all)
		}
	}
}

// A slow load is told each time, however many there are of its kind, and its key can be recognised.
func TestSlowLoads(t *testing.T) {
	for _, keys := range []bool{false, true} {
		l := &log{}
		o := slogobserver.New(slogobserver.Options{
			Logger: slog.New(slog.NewJSONHandler(l, nil)), SlowLoad: time.Second, Burst: 1,
			Keys: keys,
		})
		for n := range 20 {
			for _, took := range []time.Duration{time.Second - 1, time.Second, time.Minute} {
				o.Observe(t.Context(), cacheguard.Event{
					Kind: cacheguard.EventLoad, Cache: "a", Key: "abc", More: n % 2, Took: took,
				})
				o.Observe(t.Context(), cacheguard.Event{
					Kind: cacheguard.EventCoalesced, Cache: "a", Key: "abc", Took: took,
				})
			}
		}
		records := l.records(t)
		if len(records) != 40 {
			t.Errorf("%d records of 40 slow loads", len(records))
		}
		for i, r := range records {
			if more := r["more_keys"]; (more == 1.) != (i/2%2 == 1) {
				t.Errorf("record %d: %v further keys", i, more)
			}
			hash, hashed := r["key_hash"]
			key, named := r["key"]
			if r["msg"] != "cacheguard: slow load" || r["level"] != "WARN" || hashed == keys ||
				named != keys ||
				hashed && hash != "ba7816bf8f01cfea" || named && key != `"abc"` {
				t.Errorf("%v", r)
			}
		}
	}
}

// A slow load says what it means, where to read on, and whether anybody waits for it.
func TestSlowLoadsMean(t *testing.T) {
	for _, audit := range []bool{false, true} {
		l := &log{}
		o := slogobserver.New(slogobserver.Options{
			Logger: slog.New(slog.NewJSONHandler(l, nil)), SlowLoad: time.Second,
		})
		o.Observe(t.Context(), cacheguard.Event{
			Kind: cacheguard.EventLoad, Cache: "a", Key: "abc", Took: time.Minute, Audit: audit,
		})
		for _, r := range l.records(t) {
			means, _ := r["means"].(string)
			if r["see"] != "docs/operations.md#slow-loads" || (r["audit"] == true) != audit ||
				strings.HasPrefix(means, "nobody waits") != audit {
				t.Errorf("%v", r)
			}
		}
	}
}
