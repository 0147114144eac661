package memstore

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/internal/protocol"
)

var errClosed = errors.New("cacheguard: memstore is closed")

// Store is a [cacheguard.Store] for the caches of one process. It is safe for concurrent use.
type Store struct {
	// All times are durations since this time, so that the wall clock doesn't matter.
	began time.Time

	mu        sync.Mutex // guards the fields below
	values    table[string]
	leases    table[protocol.Lease]
	records   table[protocol.Record]
	waiters   table[protocol.Waiters]
	budgets   map[string]*budget
	listeners map[string][]*listener
	closed    bool

	invalidated map[string]*generations // by cache
	stamped     int64                   // the last stamp that was given out
}

var _ cacheguard.Store = (*Store)(nil)

// New makes an empty store.
func New(opts Options) *Store {
	values, records := opts.limits()
	return &Store{
		began:     time.Now(),
		values:    newTable[string](values),
		leases:    newTable[protocol.Lease](noLimit),
		records:   newTable[protocol.Record](records),
		waiters:   newTable[protocol.Waiters](noLimit),
		budgets:   make(map[string]*budget),
		listeners: make(map[string][]*listener),

		invalidated: make(map[string]*generations),
	}
}

// Close drops all data. After Close all steps return an error and no messages are delivered. Close
// returns nil.
func (s *Store) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, of := range s.listeners {
		for _, l := range of {
			l.stop()
		}
	}
	s.closed, s.listeners = true, nil
	s.invalidated = nil
	s.values, s.leases, s.records = table[string]{}, table[protocol.Lease]{},
		table[protocol.Record]{}
	s.waiters = table[protocol.Waiters]{}
	return nil
}

// Now returns the time at which the store was made, plus the time on the monotonic clock since
// then.
func (s *Store) Now() time.Time { return s.began.Add(s.age()) }

func (s *Store) age() time.Duration { return time.Since(s.began) }

// Warm does nothing. It returns an error if the store is closed or ctx has ended.
func (s *Store) Warm(ctx context.Context) error { return s.step(ctx, func(*turn) {}) }

// Listen registers tell. The step that causes a message calls tell, or leaves this to another step
// that is calling tell. After stop has returned, one call of tell may still be running or about to
// begin. See [cacheguard.Store].
func (s *Store) Listen(cache string, tell func(cacheguard.Message)) (stop func()) {
	l := &listener{tell: tell}
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return func() {}
	}
	s.listeners[cache] = append(s.listeners[cache], l)
	l.push(cacheguard.Message{Kind: cacheguard.MessageRestored, Generation: s.stamp(s.age())})
	s.mu.Unlock()
	l.deliver()
	return func() {
		l.stop()
		s.mu.Lock()
		defer s.mu.Unlock()
		left := slices.DeleteFunc(s.listeners[cache], func(other *listener) bool {
			return other == l
		})
		if len(left) > 0 {
			s.listeners[cache] = left
		} else {
			delete(s.listeners, cache)
		}
	}
}

// Listening reports whether the store is open.
func (s *Store) Listening() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.closed
}

// turn is one running atomic step.
type turn struct {
	*Store
	now  time.Duration
	told []*listener
}

// step runs one atomic step and then delivers its messages.
func (s *Store) step(ctx context.Context, do func(*turn)) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	told, err := s.locked(do)
	for _, l := range told {
		l.deliver()
	}
	return err
}

func (s *Store) locked(do func(*turn)) ([]*listener, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, errClosed
	}
	t := &turn{Store: s, now: s.age()}
	s.values.sweep(t.now)
	s.leases.sweep(t.now)
	s.records.sweep(t.now)
	s.waiters.sweep(t.now)
	do(t)
	return t.told, nil
}

// slot returns the stored state of a key.
func (t *turn) slot(k cacheguard.Key) (s protocol.Slot) {
	if it := t.values.get(k, t.now); it != nil {
		s.Frame, s.Until = it.what, it.until
	}
	if it := t.leases.get(k, t.now); it != nil {
		s.Lease = it.what
	}
	if it := t.records.get(k, t.now); it != nil {
		s.Record = it.what
	}
	if it := t.waiters.get(k, t.now); it != nil {
		s.Waiters = it.what
	}
	return s
}

// keep writes back the changes that a step has made to a slot.
func (t *turn) keep(k cacheguard.Key, was, is *protocol.Slot) {
	if is.Until != was.Until || is.Frame != was.Frame {
		t.values.set(k, is.Frame, len(is.Frame), is.Until)
	}
	if is.Lease != was.Lease {
		t.leases.set(k, is.Lease, 0, is.Lease.Until)
	}
	if is.Waiters != was.Waiters {
		t.waiters.set(k, is.Waiters, 0, is.Waiters.Until)
	}
	if is.Record != was.Record {
		t.records.set(k, is.Record, len(is.Record.Text)+len(is.Record.Frame)+len(is.Record.Note),
			is.Record.Until)
	}
}

// tell queues a message about the key for all listeners.
func (t *turn) tell(k cacheguard.Key, m cacheguard.Message) {
	m.Key = k.Key
	for _, l := range t.listeners[k.Cache] {
		if !l.push(ownCopy(m)) {
			l.push(cacheguard.Message{Kind: cacheguard.MessageRestored, Generation: t.stamp(t.now)})
		}
		t.told = append(t.told, l)
	}
}

// ownCopy returns a copy of the message in its own memory, as if the message had come from another
// process.
func ownCopy(m cacheguard.Message) cacheguard.Message {
	m.Frame, m.Tags = bytes.Clone(m.Frame), slices.Clone(m.Tags)
	m.Outcome.Frame, m.Outcome.Note = bytes.Clone(m.Outcome.Frame), bytes.Clone(m.Outcome.Note)
	return m
}
