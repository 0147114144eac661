package locktest_test

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cacheguard/cacheguard/cacheguard/lock"
	"github.com/cacheguard/cacheguard/cacheguard/lock/locktest"
)

// processMutant is a way to break a locker that shows only when there is more than one process.
type processMutant struct {
	caught string
	child  func(l *reference) lock.Locker // in the child process
	server func(s *table) system
}

var processMutants = map[string]processMutant{
	"each process has its own locks": {caught: "process: one after another", child: func(l *reference) lock.Locker {
		l.system = newTable()
		return l
	}},
	"each process has its own tokens": {caught: "process: one after another", child: func(l *reference) lock.Locker {
		return &broken{reference: l, wrap: func(held lock.Lock) lock.Lock { return &brokenLock{Lock: held, token: func() int64 { return 1 }} }}
	}},
	"a lock outlives its holder for ever": {caught: "process: the holder is killed", server: func(s *table) system {
		return &brokenSystem{system: s, acquireAs: func(ctx context.Context, name, owner string, _ time.Duration) (Answer, error) {
			return s.acquire(ctx, name, owner, time.Hour)
		}, renewAs: func(name, owner string) (bool, error) { return s.renew(context.Background(), name, owner, time.Hour) }}
	}},
	"one who died stays in the queue": {caught: "process: one who waits is killed", server: func(s *table) system {
		q := &queue{system: s, names: map[string][]string{}}
		return &brokenSystem{system: s, acquireAs: q.acquire, releaseAs: q.release}
	}},
	"Err waits to be told": {caught: "process: the holder stands still", child: func(l *reference) lock.Locker {
		return &broken{reference: l, wrap: func(held lock.Lock) lock.Lock { return &brokenLock{Lock: held, err: func() error { return nil }} }}
	}},
	"a late holder unlocks": {caught: "process: the holder stands still", server: func(s *table) system {
		return &brokenSystem{system: s, releaseAs: func(name, _ string) (bool, error) {
			s.steal(name)
			return true, nil
		}}
	}},
}

// queue gives a name to those who ask in the order in which they came, and waits for who doesn't ask again.
type queue struct {
	system

	mu    sync.Mutex // guards names
	names map[string][]string
}

func (q *queue) acquire(ctx context.Context, name, owner string, lease time.Duration) (Answer, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !slices.Contains(q.names[name], owner) {
		q.names[name] = append(q.names[name], owner)
	}
	if q.names[name][0] != owner {
		return Answer{}, nil
	}
	return q.system.acquire(ctx, name, owner, lease)
}

func (q *queue) release(name, owner string) (bool, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.names[name] = slices.DeleteFunc(q.names[name], func(o string) bool { return o == owner })
	return q.system.release(context.Background(), name, owner)
}

// TestProcessCasesFailBrokenLockers needs real processes, and so real time.
func TestProcessCasesFailBrokenLockers(t *testing.T) {
	locktest.SetPatience(t, time.Second)
	for name, m := range processMutants {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, c := range locktest.Cases() {
				if c.Name != m.caught {
					continue
				}
				r := &recorder{}
				f := serverFleet(t, name)
				r.record(func() { c.Run(r, f) })
				switch {
				case len(r.failures) == 0:
					t.Errorf("case %q passes", c.Name)
				case !strings.Contains(r.failures[0], c.Rule):
					t.Errorf("case %q fails without naming its rule: %s", c.Name, r.failures[0])
				default:
					t.Log(r.failures[0])
				}
				return
			}
			t.Errorf("there is no case %q", m.caught)
		})
	}
}
