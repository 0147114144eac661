package program

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cacheguard/cacheguard/cacheguard/lock"
	"github.com/cacheguard/cacheguard/internal/redistest"
)

// wrongLocks are wrong lockers that the stress must detect, by name.
var wrongLocks = map[string]func(ctx context.Context, l lock.Locker,
	name string) (lock.Lock, error){
	"everybody": func(ctx context.Context, _ lock.Locker, name string) (lock.Lock, error) {
		return &yes{name: name}, nil
	},
	"believer": func(ctx context.Context, l lock.Locker, name string) (lock.Lock, error) {
		held, err := l.Lock(ctx, name)
		return &yes{Lock: held, name: name}, err
	},
	"panicking": func(ctx context.Context, l lock.Locker, name string) (lock.Lock, error) {
		if calls.Add(1) > 10 {
			panic("ten are enough")
		}
		return l.Lock(ctx, name)
	},
	"late": func(ctx context.Context, l lock.Locker, name string) (lock.Lock, error) {
		if calls.Add(1) <= 50 {
			return nil, errors.New("the machine is busy")
		}
		return l.Lock(ctx, name)
	},
	"troubled": func(context.Context, lock.Locker, string) (lock.Lock, error) {
		return nil, errors.New("it is Monday")
	},
}

var calls atomic.Int64

func init() {
	for name, acquire := range wrongLocks {
		lockSystems[name] = lockSystem{thatRedis, func(
			ctx context.Context, where string, lease time.Duration,
		) (lock.Locker, func(), error) {
			l, stop, err := openRedislock(ctx, where, lease)
			return &wrongLocker{l, acquire}, stop, err
		}}
	}
}

type wrongLocker struct {
	lock.Locker
	acquire func(ctx context.Context, l lock.Locker, name string) (lock.Lock, error)
}

func (l *wrongLocker) Lock(ctx context.Context, name string) (lock.Lock, error) {
	if strings.HasPrefix(name, "warm") {
		return l.Locker.Lock(ctx, name)
	}
	return l.acquire(ctx, l.Locker, name)
}

func (l *wrongLocker) TryLock(ctx context.Context, name string) (lock.Lock, error) {
	return l.Lock(ctx, name)
}

// yes is a lock that is always held.
type yes struct {
	lock.Lock
	name string
}

func (y *yes) Name() string { return y.name }

func (y *yes) Token() int64 {
	if y.Lock == nil {
		return 0
	}
	return y.Lock.Token()
}

func (*yes) Lost() <-chan struct{} { return nil }

func (*yes) Err() error { return nil }

func (y *yes) Unlock(ctx context.Context) error {
	if y.Lock == nil {
		return nil
	}
	return y.Lock.Unlock(ctx)
}

// The stress detects wrong behaviour of a locker, and reports it.
func TestLocksCatchesWrongLockers(t *testing.T) {
	addr := redistest.Start(t).Addr()
	for name, want := range map[string]string{
		"everybody": "two believed to have one lock; the first time process",
		"believer":  "two believed to have one lock; the first time process",
		"panicking": "processes died; the first one: exit status 2: panic: ten are enough",
		"troubled":  "nobody had a lock: it is Monday",
	} {
		t.Run(name, func(t *testing.T) {
			p := locksPlan{
				Processes: 2, Goroutines: 10, Names: 2, Lease: 200 * time.Millisecond,
				Time: 2 * time.Second, Seed: 1,
			}
			if name == "panicking" || name == "troubled" {
				p.Time = 200 * time.Millisecond
			}
			var tally lockTally
			var wrong error
			for tries := 0; wrong == nil && tries < 5; tries++ { // processes are stopped at random
				var err error
				if tally, err = p.stress(t.Context(), name, addr); err != nil {
					t.Fatal(err)
				}
				wrong = verdict([]lockTally{tally})
			}
			if wrong == nil || !strings.Contains(wrong.Error(), want) {
				t.Errorf("%v, want %q: %+v", wrong, want, tally)
			}
		})
	}
}

// Where a locker needs longer than the time of a run until it hands locks over, the run waits.
func TestLocksWaitForAHandover(t *testing.T) {
	p := locksPlan{
		Processes: 2, Goroutines: 10, Names: 2, Lease: 2 * time.Second, Time: time.Millisecond,
		Wait: handoverWait, Seed: 1,
	}
	tally, err := p.stress(t.Context(), "late", redistest.Start(t).Addr())
	if err == nil {
		err = verdict([]lockTally{tally})
	}
	if err != nil || tally.Handovers == 0 || tally.Troubles < 50 {
		t.Errorf("%v: %+v", err, tally)
	}
}

// The orders to one process run side by side. If the end of the run cuts off the order to work,
// toGiveBack may overtake it.
func TestWorkAfterLockIsGivenBack(t *testing.T) {
	w := &worker{holders: &holders{patience: time.Minute, held: map[int64]lock.Lock{1: &yes{}}}}
	if _, err := toGiveBack(1).do(t.Context(), w); err != nil {
		t.Fatal(err)
	}
	cutOff, cancel := context.WithCancel(t.Context())
	cancel()
	if acts, err := (toWork{Hold: 1, For: time.Hour, Careless: true}).do(cutOff, w); acts ||
		err != nil {
		t.Errorf("it acts: %v, %v; want nothing done", acts, err)
	}
}

// TestLocksUnderStress checks that no two holders believe to have one lock, and that no process
// dies, whatever is stopped. With CACHEGUARD_TEST=soak each locker runs for a minute.
func TestLocksUnderStress(t *testing.T) {
	addr := redistest.Start(t).Addr()
	lasts := "3s"
	if redistest.Soak() {
		lasts = "60s"
	}
	for _, name := range lockSystemNames {
		t.Run(name, func(t *testing.T) {
			if !redistest.Full() && name != "redislock" && name != "redlock" {
				t.Skip("this takes long: set CACHEGUARD_TEST=full for it")
			}
			code, stdout, stderr := bench(t, "locks", "-redis", addr, "-lockers", name, "-lease",
				"200ms", "-time", lasts, "-json")
			if (strings.Contains(stderr, "doesn't begin") ||
				strings.Contains(stderr, "nobody had a lock")) &&
				!strings.Contains(stderr, "died") && !strings.Contains(stderr, "believed") {
				// Steps may have taken longer than the part of the lease that they have.
				t.Logf("once more with a longer lease: %s", stderr)
				code, stdout, stderr = bench(t, "locks", "-redis", addr, "-lockers", name, "-lease",
					"10s", "-time", "25s", "-json")
			}
			if strings.Contains(stderr, "can't be had here") && !redistest.Full() {
				t.Skip(stderr)
			}
			var printed struct{ Results []lockTally }
			if err := json.Unmarshal([]byte(stdout), &printed); code != 0 || err != nil ||
				len(printed.Results) != 1 {
				t.Fatalf("exit code %d, %v, stderr %q, stdout:\n%s", code, err, stderr, stdout)
			}
			one := printed.Results[0]
			t.Logf("%+v", one)
			if one.Locker != name || one.Acquisitions == 0 || one.Stops == 0 ||
				(one.Masters > 0) != (name == "redlock") {
				t.Errorf("%+v", one)
			}
		})
	}
}

func TestLocksTable(t *testing.T) {
	addr := redistest.Start(t).Addr()
	code, stdout, stderr := bench(t, "locks", "-redis", addr, "-lockers", "sqlite", "-processes",
		"2", "-goroutines", "2", "-time", "1s", "-seed", "7")
	if row := rowOf(stdout, "sqlite"); code != 0 || len(row) != 14 || row[7] != "0" ||
		!strings.Contains(stdout, fmt.Sprint("-seed ", 7)) {
		t.Errorf("exit code %d, stderr %q, stdout:\n%s", code, stderr, stdout)
	}
}
