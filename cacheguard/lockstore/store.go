package lockstore

import (
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"sync/atomic"
	"time"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/cacheguard/lock"
	"github.com/cacheguard/cacheguard/internal/report"
)

// Options configures a Store. The zero value of a field means its default.
type Options struct {
	// Patience is how long a step waits for a lock whose key is free in the store: a lock that has
	// just been given back, or whose holder has lost its lease and doesn't know it yet. After that
	// the key counts as held, and is asked for again. It also bounds the wait for a locker that
	// doesn't answer. Whatever it is, no step waits for longer than a third of the cache's
	// LeaseTTL, and no batch: what has not been asked for by then is loaded with its lease alone.
	// Default 200 ms; at least 1 ms.
	Patience time.Duration

	// Logger gets a line when the locker can't be used, so that the store's leases go alone, and
	// when it can be again. Default slog.Default().
	Logger *slog.Logger
}

const (
	defaultPatience = 200 * time.Millisecond
	leastPatience   = time.Millisecond

	// truce is how long a locker that could not be used is not asked again.
	truce = time.Second
)

// Store is a store whose loads need a lock besides their lease. It is safe for concurrent use.
type Store struct {
	cacheguard.Store
	locker lock.Locker
	opts   Options
	locks  locks

	spell   report.Spell // the locker can't be used
	resumes atomic.Int64 // when it is asked again, in nanoseconds since began
	began   time.Time
}

var (
	_ cacheguard.Store    = (*Store)(nil)
	_ cacheguard.Breakers = (*Store)(nil)
)

// Wrap is New with the default options. If an argument is nil it returns nil, which cacheguard.New
// refuses.
func Wrap(store cacheguard.Store, locker lock.Locker) *Store {
	s, err := New(store, locker, Options{})
	if err != nil {
		return nil
	}
	return s
}

// New makes a store whose loads need a lock of the locker besides their lease of the store, or says
// everything that is wrong. Both stay the caller's: Close ends what the Store itself does, and
// closes neither. Close the caches first.
func New(store cacheguard.Store, locker lock.Locker, opts Options) (*Store, error) {
	var errs []error
	if isNil(store) {
		errs = append(errs, errors.New("lockstore: the store is nil"))
	}
	if isNil(locker) {
		errs = append(errs, errors.New("lockstore: the locker is nil"))
	}
	switch {
	case opts.Patience == 0:
		opts.Patience = defaultPatience
	case opts.Patience < leastPatience:
		errs = append(errs, fmt.Errorf("lockstore: Options.Patience is %v, below the least of %v", opts.Patience, leastPatience))
	}
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

// Close gives back the locks of loads that are under way, and waits until that is done. A second
// Close does nothing.
func (s *Store) Close() error {
	if s != nil {
		s.locks.close()
	}
	return nil
}

// Breakers returns those of the wrapped store, if it has any.
func (s *Store) Breakers() (open, all int) {
	if b, ok := s.Store.(cacheguard.Breakers); ok {
		return b.Breakers()
	}
	return 0, 0
}

// isNil reports whether v is nil, or an interface around a nil pointer, as a constructor's that has
// failed.
func isNil(v any) bool {
	return v == nil || reflect.ValueOf(v).Kind() == reflect.Pointer && reflect.ValueOf(v).IsNil()
}
