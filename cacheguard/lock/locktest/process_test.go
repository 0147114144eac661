package locktest_test

import (
	"context"
	"net/rpc"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cacheguard/cacheguard/cacheguard/lock"
	"github.com/cacheguard/cacheguard/cacheguard/lock/locktest"
	"github.com/cacheguard/cacheguard/internal/suitetest"
	"github.com/cacheguard/cacheguard/internal/tenure"
)

// processMutant is a way to break a locker that only a test with several processes can notice.
type processMutant struct {
	caught string
	child  func(l *reference) lock.Locker // in the child process
	server func(s *table) system
}

var processMutants = map[string]processMutant{
	"each process has its own locks": {caught: "process: one after another", child: func(
		l *reference,
	) lock.Locker {
		l.system = newTable()
		return l
	}},
	"each process has its own tokens": {caught: "process: one after another", child: func(
		l *reference,
	) lock.Locker {
		return &broken{reference: l, wrap: func(held lock.Lock) lock.Lock {
			return &brokenLock{Lock: held, token: func() int64 { return 1 }}
		}}
	}},
	"a lock outlives its holder for ever": {caught: "process: the holder is killed",
		server: func(s *table) system {
			return &brokenSystem{system: s, acquireAs: func(
				ctx context.Context, name, owner string, _ time.Duration,
			) (Answer, error) {
				return s.acquire(ctx, name, owner, time.Hour)
			}, renewAs: func(name, owner string) (bool, error) {
				return s.renew(context.Background(), name, owner, time.Hour)
			}}
		}},
	"one who died stays in the queue": {caught: "process: one who waits is killed",
		server: func(s *table) system {
			q := &queue{system: s, names: map[string][]string{}}
			return &brokenSystem{system: s, acquireAs: q.acquire, releaseAs: q.release}
		}},
	"Err waits to be told": {caught: "process: the holder stands still", child: func(
		l *reference,
	) lock.Locker {
		return &broken{reference: l, wrap: func(held lock.Lock) lock.Lock {
			return &brokenLock{Lock: held, err: func() error { return nil }}
		}}
	}},
	"a late holder unlocks": {caught: "process: the holder stands still",
		server: func(s *table) system {
			return &brokenSystem{system: s, releaseAs: func(name, _ string) (bool, error) {
				s.steal(name)
				return true, nil
			}}
		}},
	"an old hand-over is believed, with the lease counted from a new question": {
		caught: "process: those who wait stand still as the lock is given back",
		server: func(s *table) system {
			h := &handing{table: s, lines: map[string][]*place{}, given: map[string]chan struct{}{}}
			return &brokenSystem{
				system: s, acquireAs: h.acquire, releaseAs: h.release, waitFor: h.wait,
			}
		},
		child: func(l *reference) lock.Locker {
			l.system = &hearing{
				remote: l.system.(*remote), poll: l.lease / 3, words: map[string]*rpc.Call{},
				owners: map[string]string{},
			}
			return l
		},
	},
	"who waits counts the lease from the answer": {
		caught: "process: those who acquire stand still",
		child: func(l *reference) lock.Locker {
			l.system = slowToHear(l, func(time.Duration) {})
			l.flaws.terms = func(t *tenure.Terms) { t.Until = time.Now().Add(l.lease) }
			return l
		},
	},
	"an answer that comes too late is a panic": {
		caught: "process: those who acquire stand still",
		child: func(l *reference) lock.Locker {
			l.system = slowToHear(l, func(took time.Duration) {
				if took > l.lease {
					panic("index out of range")
				}
			})
			return l
		},
	},
	"a holder counts on more than its lease, and its renewals take anything for theirs": {
		caught: "process: those who hold stand still, for however long",
		child: func(l *reference) lock.Locker {
			l.flaws.terms = func(t *tenure.Terms) {
				t.Until = t.Until.Add(4 * l.lease)
				t.Renew = func(context.Context) (time.Time, bool, error) {
					return time.Now().Add(5 * l.lease), true, nil
				}
			}
			return l
		},
	},
	"who continues counts the lease from the answer": {
		caught: "process: those who continue locks stand still", child: slowToTake,
	},
	"who seizes counts the lease from the answer": {
		caught: "process: those who seize locks stand still", child: slowToTake,
	},
	"those who lock several names count on more than a lease": {
		caught: "process: those who lock several names stand still",
		child: func(l *reference) lock.Locker {
			l.system = slowToHear(l, func(time.Duration) {})
			l.flaws.terms = func(t *tenure.Terms) {
				t.Until = t.Until.Add(time.Minute)
				t.Renew = func(context.Context) (time.Time, bool, error) {
					return time.Now().Add(time.Minute), true, nil
				}
			}
			return l
		},
	},
	"what unlocks late gives back another's": {
		caught: "process: those who unlock stand still",
		child: func(l *reference) lock.Locker {
			inner := l.system
			l.system = &brokenSystem{system: inner, releaseAs: func(
				name, owner string,
			) (bool, error) {
				<-time.After(30 * time.Millisecond)
				return inner.release(context.Background(), name, owner)
			}}
			return l
		},
		server: func(s *table) system {
			return &brokenSystem{system: s, releaseAs: func(name, _ string) (bool, error) {
				s.steal(name)
				return true, nil
			}}
		},
	},
}

// slowToHear is a system whose replies reach the locker late.
func slowToHear(l *reference, heard func(took time.Duration)) system {
	inner := l.system
	return &brokenSystem{system: inner, acquireAs: func(
		ctx context.Context, name, owner string, d time.Duration,
	) (Answer, error) {
		sent := time.Now()
		a, err := inner.acquire(ctx, name, owner, d)
		<-time.After(30 * time.Millisecond)
		heard(time.Since(sent))
		return a, err
	}}
}

// slowToTake is a locker that receives the reply to Continue or SeizeUnsafely late, and counts the
// lease from then on.
func slowToTake(l *reference) lock.Locker {
	inner := l.system
	l.system = &brokenSystem{system: inner, takeAs: func(
		ctx context.Context, name, owner string, from int64, lease time.Duration,
	) (Answer, error) {
		a, err := inner.take(ctx, name, owner, from, lease)
		<-time.After(30 * time.Millisecond)
		return a, err
	}}
	l.flaws.terms = func(t *tenure.Terms) { t.Until = time.Now().Add(l.lease) }
	return l
}

// handing is a table on which a holder that gives a lock back gives it to the next waiting caller,
// for a lease from the time when that caller asked.
type handing struct {
	*table

	mu    sync.Mutex // guards the fields below
	lines map[string][]*place
	given map[string]chan struct{} // by owner
}

type place struct {
	owner string
	until time.Time
}

func (h *handing) acquire(
	ctx context.Context, name, owner string, lease time.Duration,
) (Answer, error) {
	a, err := h.table.acquire(ctx, name, owner, lease)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.lines[name] = slices.DeleteFunc(h.lines[name], func(p *place) bool {
		return p.owner == owner
	})
	if err == nil && !a.Granted {
		h.lines[name] = append(h.lines[name], &place{owner, time.Now().Add(lease)})
		h.hears(owner)
	}
	return a, err
}

// The caller of hears holds h.mu.
func (h *handing) hears(owner string) chan struct{} {
	if h.given[owner] == nil {
		h.given[owner] = make(chan struct{})
	}
	return h.given[owner]
}

func (h *handing) release(name, owner string) (bool, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for len(h.lines[name]) > 0 {
		next := h.lines[name][0]
		h.lines[name] = h.lines[name][1:]
		if time.Now().Before(next.until) && next.owner != owner && h.give(name, owner, next) {
			close(h.given[next.owner])
			delete(h.given, next.owner)
			return true, nil
		}
	}
	return h.table.release(context.Background(), name, owner)
}

// give gives a lock from its owner to the next waiting caller.
func (h *handing) give(name, owner string, next *place) bool {
	h.table.mu.Lock()
	defer h.table.mu.Unlock()
	e := h.at(name)
	if e.owner != owner {
		return false
	}
	e.free() // callers that don't know of the line look again
	e.owner, e.token, e.until = next.owner, e.token+1, next.until
	return true
}

// wait waits like the table's wait. But if a zero byte and an owner follow the name, it waits until
// this owner was given the lock.
func (h *handing) wait(ctx context.Context, name string) error {
	_, owner, hears := strings.Cut(name, "\x00")
	if !hears {
		return h.table.wait(ctx, name)
	}
	h.mu.Lock()
	given := h.hears(owner)
	h.mu.Unlock()
	select {
	case <-given:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// hearing is a remote system that believes the message that the lock was given to an owner, however
// late the message comes.
type hearing struct {
	*remote
	poll time.Duration

	mu     sync.Mutex // guards the fields below
	words  map[string]*rpc.Call
	owners map[string]string // by name
}

func (h *hearing) acquire(
	ctx context.Context, name, owner string, lease time.Duration,
) (Answer, error) {
	a, err := h.remote.acquire(ctx, name, owner, lease)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.owners[name] = owner
	if h.words[owner] == nil {
		h.words[owner] = h.client.Go("Table.Wait", Ask{Name: name + "\x00" + owner}, new(bool),
			make(chan *rpc.Call, 1))
	}
	if word := h.words[owner]; err == nil && !a.Granted && len(word.Done) > 0 {
		a.Granted = true
	}
	return a, err
}

func (h *hearing) wait(ctx context.Context, name string) error {
	h.mu.Lock()
	word := h.words[h.owners[name]]
	h.mu.Unlock()
	timer := time.NewTimer(h.poll)
	defer timer.Stop()
	select {
	case said := <-word.Done:
		word.Done <- said
	case <-timer.C:
	case <-ctx.Done():
		return ctx.Err()
	}
	return nil
}

// queue gives a name to the callers in the order in which they came, and waits for a caller even if
// it doesn't ask again.
type queue struct {
	system

	mu    sync.Mutex // guards names
	names map[string][]string
}

func (q *queue) acquire(
	ctx context.Context, name, owner string, lease time.Duration,
) (Answer, error) {
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
	locktest.SetPatience(t, 5*time.Second)
	for name, m := range processMutants {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			// The time at which a signal arrives can't be controlled.
			suite().Fails(t, m.caught, 5, func(
				c suitetest.Case[locktest.Fleet],
			) *suitetest.Recorder {
				f := serverFleet(t, name, lease)
				return suitetest.Record(func(r *suitetest.Recorder) { c.Run(r, f) })
			})
		})
	}
}
