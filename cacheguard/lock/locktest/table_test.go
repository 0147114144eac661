package locktest_test

import (
	"context"
	"errors"
	"math"
	"sync"
	"time"
)

// system is the server of a lock service, as small as possible. The reference locker sends its
// requests to it.
type system interface {
	// acquire gives the lock to owner for lease, if nobody has it or owner has it already.
	acquire(ctx context.Context, name, owner string, lease time.Duration) (Answer, error)
	renew(ctx context.Context, name, owner string, lease time.Duration) (held bool, err error)
	release(ctx context.Context, name, owner string) (held bool, err error)

	// take gives the lock to owner if its holder has the token from, or if from is anybody.
	take(ctx context.Context, name, owner string, from int64, lease time.Duration) (Answer, error)

	// wait waits until the lock may be free.
	wait(ctx context.Context, name string) error
}

// anybody is used in place of a token to take a lock by force.
const anybody = math.MinInt64

// Answer is the reply to acquire. Fields are exported for net/rpc.
type Answer struct {
	Granted bool
	Token   int64
}

// table is a system in memory.
type table struct {
	mu    sync.Mutex // guards the fields below
	names map[string]*entry
}

type entry struct {
	owner string
	token int64 // the token of the last holder
	until time.Time
	freed chan struct{} // closed when the lock is given back
}

func newTable() *table { return &table{names: make(map[string]*entry)} }

// The caller of at holds t.mu.
func (t *table) at(name string) *entry {
	e := t.names[name]
	if e == nil {
		e = &entry{freed: make(chan struct{})}
		t.names[name] = e
	}
	if e.owner != "" && !time.Now().Before(e.until) {
		e.free()
	}
	return e
}

func (e *entry) free() {
	e.owner = ""
	close(e.freed)
	e.freed = make(chan struct{})
}

func (t *table) acquire(
	_ context.Context, name, owner string, lease time.Duration,
) (Answer, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	e := t.at(name)
	switch e.owner {
	case "":
		e.owner, e.token = owner, e.token+1
	case owner:
	default:
		return Answer{}, nil
	}
	e.until = time.Now().Add(lease)
	return Answer{true, e.token}, nil
}

func (t *table) renew(_ context.Context, name, owner string, lease time.Duration) (bool, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	e := t.at(name)
	if e.owner != owner {
		return false, nil
	}
	e.until = time.Now().Add(lease)
	return true, nil
}

func (t *table) release(_ context.Context, name, owner string) (bool, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	e := t.at(name)
	if e.owner != owner {
		return false, nil
	}
	e.free()
	return true, nil
}

func (t *table) take(
	_ context.Context, name, owner string, from int64, lease time.Duration,
) (Answer, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	e := t.at(name)
	if from != anybody && (e.owner == "" || e.token != from) {
		return Answer{}, nil
	}
	e.owner, e.token, e.until = owner, e.token+1, time.Now().Add(lease)
	return Answer{true, e.token}, nil
}

func (t *table) wait(ctx context.Context, name string) error {
	t.mu.Lock()
	e := t.at(name)
	freed, held, left := e.freed, e.owner != "", time.Until(e.until)
	t.mu.Unlock()
	if !held {
		return nil
	}
	timer := time.NewTimer(left)
	defer timer.Stop()
	select {
	case <-freed:
	case <-timer.C:
	case <-ctx.Done():
		return ctx.Err()
	}
	return nil
}

func (t *table) isHeld(name string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.at(name).owner != ""
}

// steal frees a name, even if it is held.
func (t *table) steal(name string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if e := t.at(name); e.owner != "" {
		e.free()
	}
}

// line is the connection from a locker to the system. It can be cut, and can lose a reply.
type line struct {
	system

	mu    sync.Mutex // guards the fields below
	cut   chan struct{}
	loses bool
}

var errReplyLost = errors.New("the reply was lost")

// passes waits until the line is whole.
func (l *line) passes(ctx context.Context) error {
	l.mu.Lock()
	cut := l.cut
	l.mu.Unlock()
	if cut == nil {
		return nil
	}
	select {
	case <-cut:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Cut cuts the line until heal is called.
func (l *line) Cut() (heal func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cut = make(chan struct{})
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		close(l.cut)
		l.cut = nil
	}
}

// LoseReply loses the reply to the next acquisition.
func (l *line) LoseReply() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.loses = true
}

func (l *line) acquire(
	ctx context.Context, name, owner string, lease time.Duration,
) (Answer, error) {
	if err := l.passes(ctx); err != nil {
		return Answer{}, err
	}
	a, err := l.system.acquire(ctx, name, owner, lease)
	l.mu.Lock()
	lost := l.loses
	l.loses = false
	l.mu.Unlock()
	if lost {
		return Answer{}, errReplyLost
	}
	if err := l.passes(ctx); err != nil {
		return Answer{}, err
	}
	return a, err
}

func (l *line) renew(ctx context.Context, name, owner string, lease time.Duration) (bool, error) {
	if err := l.passes(ctx); err != nil {
		return false, err
	}
	return l.system.renew(ctx, name, owner, lease)
}

func (l *line) release(ctx context.Context, name, owner string) (bool, error) {
	if err := l.passes(ctx); err != nil {
		return false, err
	}
	return l.system.release(ctx, name, owner)
}

func (l *line) wait(ctx context.Context, name string) error {
	if err := l.passes(ctx); err != nil {
		return err
	}
	if err := l.system.wait(ctx, name); err != nil {
		return err
	}
	return l.passes(ctx)
}

// stealQuietly is like steal, but doesn't wake the waiting callers.
func (t *table) stealQuietly(name string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.at(name).owner = ""
}

// told waits for a release, without a time limit.
func (t *table) told(ctx context.Context, name string) error {
	t.mu.Lock()
	freed := t.at(name).freed
	t.mu.Unlock()
	select {
	case <-freed:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// stealAll frees all names.
func (t *table) stealAll() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for name := range t.names {
		if e := t.at(name); e.owner != "" {
			e.free()
		}
	}
}

// outlive makes every lock last for another hour, so that no lock ends during the test.
func (t *table) outlive() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for name := range t.names {
		t.at(name).until = time.Now().Add(time.Hour)
	}
}

// forget is like steal, but the table also forgets the previous holders of the lock.
func (t *table) forget(name string) {
	t.steal(name)
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.names, name)
}
