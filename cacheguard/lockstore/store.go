package lockstore

import (
	"errors"
	"log/slog"
	"reflect"
	"sync/atomic"
	"time"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/cacheguard/lock"
	"github.com/cacheguard/cacheguard/internal/option"
	"github.com/cacheguard/cacheguard/internal/report"
)

// Options configures a [Store]. The zero value of a field means its default.
type Options struct {
	// Patience is how long a request for a lease waits for a lock that is held although its key is
	// free in the store. In this case the lock is just being given back, or its holder has lost the
	// lease and doesn't know it yet. After Patience the key counts as held, and the request is sent
	// again later. Patience also limits the wait for a locker that doesn't reply. No request and no
	// batch waits longer than a third of the cache's LeaseTTL, whatever Patience is. If the locks
	// of some keys of a batch have not been requested by then, these keys are loaded with their
	// lease alone. Default 200 ms; at least 1 ms.
	Patience time.Duration

	// Logger gets a line when the locker can't be used, so that loads need only the store's leases,
	// and when it can be used again. Default slog.Default().
	Logger *slog.Logger
}

const (
	defaultPatience = 200 * time.Millisecond
	leastPatience   = time.Millisecond

	// truce is how long a locker is left alone after it could not be used.
	truce = time.Second
)

// Store is a store whose loads need a lock in addition to their lease. It is safe for concurrent
// use.
type Store struct {
	cacheguard.Store
	locker lock.Locker
	opts   Options
	locks  locks

	spell   report.Spell // the time in which the locker can't be used
	resumes atomic.Int64 // when the locker is used again, in nanoseconds since began
	began   time.Time
}

var (
	_ cacheguard.Store    = (*Store)(nil)
	_ cacheguard.Breakers = (*Store)(nil)
	_ cacheguard.Deafness = (*Store)(nil)

	_ cacheguard.StepTimer = (*Store)(nil)
)

// Wrap is [New] with the default options. If an argument is nil, Wrap returns nil, which
// cacheguard.New refuses.
func Wrap(store cacheguard.Store, locker lock.Locker) *Store {
	s, err := New(store, locker, Options{})
	if err != nil {
		return nil
	}
	return s
}

// New makes a store whose loads need a lock of the locker in addition to their lease of the store.
// If arguments are invalid, New returns all errors, joined. [Store.Close] closes neither the store
// nor the locker that were passed to New. Close the caches before the Store.
func New(store cacheguard.Store, locker lock.Locker, opts Options) (*Store, error) {
	var errs []error
	if isNil(store) {
		errs = append(errs, errors.New("lockstore: the store is nil"))
	}
	if isNil(locker) {
		errs = append(errs, errors.New("lockstore: the locker is nil"))
	}
	errs = append(errs,
		option.Duration("lockstore: Options.Patience", &opts.Patience, defaultPatience,
			leastPatience))
	if opts.Logger == nil {
		opts.Logger = slog.Default()
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	s := &Store{Store: store, locker: locker, opts: opts, began: time.Now()}
	s.locks.init(store)
	return s, nil
}

// Close gives back the locks of running loads, and waits until that is done. A second Close does
// nothing.
func (s *Store) Close() error {
	if s != nil {
		s.locks.close()
	}
	return nil
}

// Breakers returns the counts of circuit breakers of the wrapped store, or zeros if that store has
// none.
func (s *Store) Breakers() (open, all int) {
	if b, ok := s.Store.(cacheguard.Breakers); ok {
		return b.Breakers()
	}
	return 0, 0
}

// StepTimeout returns how long a step of the wrapped store takes at most, or 0 if that store
// doesn't know it. The wait for a lock needs no addition, because it ends with a third of LeaseTTL.
func (s *Store) StepTimeout() time.Duration {
	if t, ok := s.Store.(cacheguard.StepTimer); ok {
		return t.StepTimeout()
	}
	return 0
}

// Deafness returns why messages of the wrapped store don't arrive, if that store knows it.
func (s *Store) Deafness() (since, last time.Time, err error) {
	if d, ok := s.Store.(cacheguard.Deafness); ok {
		return d.Deafness()
	}
	return since, last, nil
}

// isNil reports whether v is nil, or an interface that contains a nil pointer, as after a
// constructor that failed.
func isNil(v any) bool {
	return v == nil || reflect.ValueOf(v).Kind() == reflect.Pointer && reflect.ValueOf(v).IsNil()
}
