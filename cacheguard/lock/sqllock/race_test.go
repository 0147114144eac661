package sqllock_test

import (
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/cacheguard/cacheguard/cacheguard/lock"
	"github.com/cacheguard/cacheguard/cacheguard/lock/sqllock"
	"github.com/cacheguard/cacheguard/internal/pgtest"
	"github.com/cacheguard/cacheguard/internal/waittest"
)

const racers = 20

// race lets many processes try to take one lock at once. Some of the processes have their own
// connections. race returns the locks that they got.
func race(t *testing.T, lockers []*sqllock.Locker, name string) (got []lock.Lock) {
	t.Helper()
	var mu sync.Mutex
	var racing sync.WaitGroup
	start := make(chan struct{})
	for i := range racers {
		racing.Go(func() {
			<-start
			held, err := lockers[i%len(lockers)].TryLock(soon(t), name)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err == nil:
				got = append(got, held)
			case !errors.Is(err, lock.ErrHeld):
				t.Error(err)
			}
		})
	}
	close(start)
	racing.Wait()
	return got
}

// raceRounds takes one lock again and again: when there is no row yet, after the lock was given
// back, and after its holder has died.
func raceRounds(t *testing.T, s system, rounds int) {
	t.Helper()
	var lockers []*sqllock.Locker
	for range 5 {
		// With these options no holder renews a lock that the test makes expire, and a busy machine
		// has enough time.
		lockers = append(lockers,
			s.process(t, seldom, func(o *sqllock.Options) { o.OpTimeout = 20 * time.Second }))
	}
	var tokens []int64
	for i := range rounds {
		got := race(t, lockers, "n")
		if len(got) != 1 {
			t.Fatalf("round %d: %d have the lock", i, len(got))
		}
		if tokens = append(tokens, got[0].Token()); !slices.IsSorted(tokens) ||
			len(slices.Compact(slices.Clone(tokens))) != len(tokens) {
			t.Fatalf("tokens: %v", tokens)
		}
		if i%2 == 0 {
			mustUnlock(t, got[0])
		} else {
			s.expire(t, "n")
		}
	}
}

func TestOneOfManyTakesTheLock(t *testing.T) {
	onEach(t, func(t *testing.T, s system) { raceRounds(t, s, 10) })
}

// The server's default isolation level may be a higher one. If two statements then write one row,
// one of them gets an error and is sent again.
func TestOneOfManyTakesTheLockWhateverTheIsolation(t *testing.T) {
	for _, level := range []string{"repeatable read", "serializable"} {
		t.Run(level, func(t *testing.T) {
			s := at(t, pgtest.Shared(t).Addr())
			s.Source += "&default_transaction_isolation=" + map[string]string{
				"repeatable read": "repeatable%20read", "serializable": "serializable"}[level]
			var is string
			if err := s.db(t).QueryRow("SHOW transaction_isolation").Scan(&is); err != nil ||
				is != level {
				t.Fatalf("isolation is %q, %v", is, err)
			}
			raceRounds(t, s, 10)
		})
	}
}

// Behind some poolers statements can't be prepared, so the driver puts the parameters into the
// statements.
func TestSimpleProtocol(t *testing.T) {
	s := onPostgreSQL(t)
	s.Source += "&default_query_exec_mode=simple_protocol"
	raceRounds(t, s, 4)
	l := s.hears(t)
	held := mustLock(t, s.process(t, seldom), "\x00'\\\xff")
	got := waiter(t, l, held.Name())
	mustUnlock(t, held)
	mustUnlock(t, waittest.Next(t, "the waiter", got))
}

// Each holder is alone, and its token is larger than the previous token.
func TestNoTwoHoldAtOnce(t *testing.T) {
	onEach(t, func(t *testing.T, s system) {
		var (
			mu     sync.Mutex // guards the fields below
			inside int
			last   int64
			work   sync.WaitGroup
		)
		enter := func(held lock.Lock) {
			mu.Lock()
			defer mu.Unlock()
			if inside++; inside > 1 {
				t.Errorf("%d at once", inside)
			}
			if held.Token() <= last {
				t.Errorf("token %d after %d", held.Token(), last)
			}
			last = held.Token()
		}
		for range 4 {
			l := s.process(t)
			for range 3 {
				work.Go(func() {
					for range 5 {
						held, err := l.Lock(soon(t), "n")
						if err != nil {
							t.Error(err)
							return
						}
						enter(held)
						mu.Lock()
						inside--
						mu.Unlock()
						if err := held.Unlock(soon(t)); err != nil {
							t.Error(err)
						}
					}
				})
			}
		}
		work.Wait()
	})
}
