package systemtest_test

import (
	"context"
	"sync"
	"time"

	"github.com/cacheguard/cacheguard/cacheguard"
)

// fact is the origin's version of a key. Each change makes a new version.
type fact struct {
	Key     string
	Version int64
}

// ledger is an origin that remembers when the cache has acknowledged its changes, so that what a
// read may no longer return can be looked up. It is safe for concurrent use.
type ledger struct {
	mu       sync.Mutex // guards accounts and what is in them
	accounts map[string]*account
}

type account struct {
	version int64
	acks    []ack // of ever newer versions
}

type ack struct {
	version int64
	at      time.Time
}

func newLedger() *ledger { return &ledger{accounts: make(map[string]*account)} }

// of needs mu.
func (l *ledger) of(key string) *account {
	a := l.accounts[key]
	if a == nil {
		a = &account{}
		l.accounts[key] = a
	}
	return a
}

// read is a load's way to the origin.
func (l *ledger) read(key string) fact {
	l.mu.Lock()
	defer l.mu.Unlock()
	return fact{key, l.of(key).version}
}

// change is a writer's.
func (l *ledger) change(key string) fact {
	l.mu.Lock()
	defer l.mu.Unlock()
	a := l.of(key)
	a.version++
	return fact{key, a.version}
}

// acknowledge notes the time from which no caller may get a version older than f.
func (l *ledger) acknowledge(f fact, at time.Time) {
	const most = 4096
	l.mu.Lock()
	defer l.mu.Unlock()
	a := l.of(f.Key)
	if n := len(a.acks); n > 0 && a.acks[n-1].version >= f.Version {
		return
	}
	if len(a.acks) == most {
		a.acks = append(a.acks[:0], a.acks[most/2:]...)
	}
	a.acks = append(a.acks, ack{f.Version, at})
}

// owed is the newest version that was acknowledged by then.
func (l *ledger) owed(key string, by time.Time) int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	acks := l.of(key).acks
	for i := len(acks) - 1; i >= 0; i-- {
		if !acks[i].at.After(by) {
			return acks[i].version
		}
	}
	return 0
}

// load loads a key at once.
func (l *ledger) load(key string) cacheguard.LoadFunc[fact] {
	return func(context.Context) (fact, error) { return l.read(key), nil }
}

type way struct {
	name  string
	make  func(context.Context, *cacheguard.Cache[fact], *ledger, string) (fact, error)
	alone bool // nothing else may change the key meanwhile
}

// ways are the ways to change a key: each changes the origin and tells the cache.
var ways = []way{
	{name: "Invalidate", make: func(
		ctx context.Context, c *cacheguard.Cache[fact], l *ledger, key string,
	) (fact, error) {
		f := l.change(key)
		return f, c.Invalidate(ctx, key)
	}},
	{name: "Update", make: func(
		ctx context.Context, c *cacheguard.Cache[fact], l *ledger, key string,
	) (fact, error) {
		return c.Update(ctx, key, func(context.Context) (fact, error) { return l.change(key), nil })
	}},
	{name: "Set", alone: true, make: func(
		ctx context.Context, c *cacheguard.Cache[fact], l *ledger, key string,
	) (fact, error) {
		f := l.change(key)
		return f, c.Set(ctx, key, f)
	}},
}
