package redlock_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/cacheguard/cacheguard/cacheguard/lock"
	"github.com/cacheguard/cacheguard/cacheguard/lock/redlock"
	"github.com/cacheguard/cacheguard/internal/redistest"
	"github.com/cacheguard/cacheguard/internal/waittest"
)

// Any two masters may be away, before a lock is acquired or while it is held and renewed.
func TestTwoOfFiveAway(t *testing.T) {
	for how, away := range outages {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			s := newSite(t)
			// No other master may fail to answer, and on a busy machine one takes seconds now and
			// then.
			o := leased(15 * time.Second)
			a, b := s.wired(t, o), s.wired(t, o)
			for _, l := range []*redlock.Locker{a, b} {
				// a majority replies, so no call waits for the others.
				l.SetNodeTimeout(patience / 6)
				works(t, l) // except the first call
			}
			before := get(t, a, "before")
			back := []func(){away(t, s, 1), away(t, s, 3)}
			began := time.Now()
			during := get(t, a, "during")
			refusals := 0
			for time.Since(began) < 3*o.Lease/2 {
				for _, held := range []lock.Lock{before, during} {
					switch _, err := b.TryLock(t.Context(), held.Name()); {
					case errors.Is(err, lock.ErrHeld):
						refusals++
					case err == nil || !strings.Contains(err.Error(), "no answer within"):
						// On a busy machine a master may be slow.
						t.Fatalf("TryLock of %q by another: %v; want ErrHeld", held.Name(), err)
					}
					must(t, held.Err())
				}
				pass(o.Lease / 50)
			}
			if refusals == 0 {
				t.Error("no TryLock was answered")
			}
			must(t, before.Unlock(t.Context()))
			must(t, during.Unlock(t.Context()))
			must(t, get(t, b, "before").Unlock(t.Context()))
			must(t, get(t, b, "during").Unlock(t.Context()))
			for _, again := range back {
				again()
			}
			s.nothingLeft(t, "before")
			s.nothingLeft(t, "during")
		})
	}
}

// If three of five masters are away, calls soon return an error, and nothing stays on the other two
// masters.
func TestThreeOfFiveAway(t *testing.T) {
	for how, away := range outages {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			s := newSite(t)
			o := leased(40 * time.Second)
			l := s.wired(t, o)
			works(t, l)
			var back []func()
			for _, i := range []int{0, 2, 4} {
				back = append(back, away(t, s, i))
			}
			for name, acquire := range map[string]func(context.Context, string) (lock.Lock, error){
				"lock": l.Lock, "try": l.TryLock,
			} {
				began := time.Now()
				_, err := acquire(t.Context(), name)
				took := time.Since(began)
				switch {
				case err == nil:
					t.Fatalf("%s: two of five masters are no majority", name)
				case errors.Is(err, lock.ErrHeld),
					!strings.Contains(err.Error(), "of 5 masters answered, 3 must"):
					t.Errorf("%s: %v", name, err)
				case took > o.NodeTimeout+soon:
					t.Errorf("%s: the error took %v, with a NodeTimeout of %v", name, took,
						o.NodeTimeout)
				}
				waittest.Until(t, "the masters that answer have nothing", func() bool {
					for _, i := range []int{1, 3} {
						if n := s.direct[i].Exists(t.Context(), prefix+":"+name).Val(); n > 0 {
							return false
						}
					}
					return true
				})

			}
			for _, again := range back {
				again()
			}
			works(t, l)
			s.nothingLeft(t, "lock")
			s.nothingLeft(t, "try")
		})
	}
}

// soon is the additional time that a busy machine may need.
const soon = 3 * time.Second

// A Lock that already waits tolerates trouble for one lease.
func TestWaitsThroughTrouble(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	o := brisk()
	holder, waiter := s.open(t, o), s.wired(t, o)
	held := get(t, holder, "k")
	got, failed := make(chan lock.Lock, 1), make(chan error, 1)
	wait := func() {
		l, err := waiter.Lock(t.Context(), "k")
		if err != nil {
			failed <- err
			return
		}
		got <- l
	}
	go wait()
	waits := func() {
		t.Helper()
		for _, p := range s.proxies {
			p.ResetCounts()
		}
		waittest.Until(t, "it asks", func() bool { return s.proxies[0].Counts()["EVALSHA"] > 1 })
	}
	waits()
	cut := func(on bool) {
		for _, p := range s.proxies[:3] {
			p.Blackhole(on)
		}
	}
	cut(true)
	pass(o.Lease / 2)
	cut(false)
	must(t, held.Unlock(t.Context()))
	select {
	case l := <-got:
		must(t, l.Unlock(t.Context()))
	case err := <-failed:
		t.Fatalf("a Lock that waits doesn't outlast half a lease without masters: %v", err)
	}

	held = get(t, holder, "k")
	go wait()
	waits()
	cut(true)
	began := time.Now()
	select {
	case <-got:
		t.Fatal("locked by two of five")
	case err := <-failed:
		// The lease counts from the end of the first request without an answer. Before this request
		// the call rests for up to a second, and the last request may end a NodeTimeout late.
		most := o.Lease + 2*timeoutOf(o.Lease) + time.Second + soon
		if took := time.Since(began); took < o.Lease-o.NodeTimeout || took > most {
			t.Errorf("it gave up after %v; want the lease of %v", took, o.Lease)
		}
		if !strings.Contains(err.Error(), "2 of 5 masters answered") {
			t.Errorf("it gave up with %v", err)
		}
	}
	cut(false)
	must(t, held.Unlock(t.Context()))
	s.nothingLeft(t, "k")
}

// If the replies come after the lock's validity is over, the call doesn't get the lock, and its
// votes are given back.
func TestAnswersEatTheLease(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	// A busy machine answers in time, as long as nothing is delayed.
	const lease = 5 * time.Second
	l := s.wired(t, redlock.Options{Lease: lease, Logger: quiet})
	l.SetNodeTimeout(patience)
	works(t, l)
	var gates []chan struct{}
	for _, p := range s.proxies[:3] {
		gate := make(chan struct{})
		late := p.DelayReply(redistest.All(isAcquire, redistest.HasKey(prefix+":k")), gate)
		gates = append(gates, gate)
		go func() {
			<-late.Struck()
			pass(lease + lease/10)
			close(gate)
		}()
	}
	_, err := l.TryLock(t.Context(), "k")
	if err == nil || !strings.Contains(err.Error(), "of a lease of 5s") {
		t.Errorf("answers after the lease gave %v", err)
	}
	for _, gate := range gates {
		<-gate
	}
	s.nothingLeft(t, "k")
}

// If a call waits and its replies come after the lock's validity is over, for example because its
// process was stopped, the call asks again.
func TestAnswersEatTheLeaseOfOneWhoWaits(t *testing.T) {
	t.Parallel()
	for _, waits := range []bool{false, true} {
		t.Run(fmt.Sprint(waits), func(t *testing.T) {
			t.Parallel()
			s := newSite(t)
			const lease = 8 * time.Second // a busy machine answers in time, once nothing is delayed
			l := s.wired(t, redlock.Options{Lease: lease, Logger: quiet})
			l.SetNodeTimeout(patience)
			works(t, l)
			var held lock.Lock
			if waits {
				held = get(t, s.open(t, opts()), "k")
				s.everywhere(t, "k")
			}
			arm := func() {
				for _, p := range s.proxies[:3] {
					gate := make(chan struct{})
					late := p.DelayReply(redistest.All(isAcquire, redistest.HasKey(prefix+":k")),
						gate)
					go func() {
						defer close(gate)
						select {
						case <-late.Struck():
							pass(lease + lease/10)
						case <-t.Context().Done():
						}
					}()
				}
			}
			if !waits {
				arm()
			}
			got := make(chan lock.Lock, 1)
			go func() {
				defer close(got)
				mine, err := l.Lock(t.Context(), "k")
				if err != nil {
					t.Errorf("answers after the lease gave %v", err)
					return
				}
				got <- mine
			}()
			if waits {
				waittest.Until(t, "it waits", func() bool {
					return s.proxies[0].Counts()["EVALSHA"] > 0 && l.Waiting("k") == 1 &&
						l.Listening()
				})
				arm()
				must(t, held.Unlock(t.Context()))
			}
			if mine := <-got; mine != nil {
				must(t, mine.Err())
				must(t, mine.Unlock(t.Context()))
			}
			s.nothingLeft(t, "k")
		})
	}
}

// Masters that are slower than NodeTimeout are treated as away. They still carry out the requests
// later, and then the votes are given back.
func TestSlowMasters(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	o := opts()
	o.NodeTimeout = 2 * time.Second
	var masters []redis.UniversalClient
	for _, p := range s.proxies {
		rdb := newClient(t, p.Addr())
		// On a new connection the greeting of a slow master would take longer than NodeTimeout.
		// Then the release couldn't be sent, and the lock on this master would end by itself.
		must(t, greeted(t.Context(), rdb, 8))
		masters = append(masters, rdb)
	}
	l, err := redlock.New(masters, o)
	must(t, err)
	t.Cleanup(func() { must(t, l.Close()) })
	works(t, l)
	for _, p := range s.proxies[:3] {
		p.Slow(2 * o.NodeTimeout)
	}
	if _, err := l.Lock(t.Context(), "k"); err == nil ||
		!strings.Contains(err.Error(), "masters answered, 3 must") {
		t.Errorf("slow masters gave %v", err)
	}
	// The slow masters set the lock only now, and remove it again after that.
	waittest.Until(t, "a slow master was asked", func() bool {
		return s.proxies[0].Counts()["EVALSHA"] > 0
	})
	s.nothingLeft(t, "k")
	for _, p := range s.proxies[:3] {
		p.Slow(0)
	}
	works(t, l)
}

// greeted fills a client's pool with n connections that are ready for use.
func greeted(ctx context.Context, rdb *redis.Client, n int) (err error) {
	for range n {
		conn := rdb.Conn()
		defer func() { err = errors.Join(err, conn.Close()) }()
		err = errors.Join(err, conn.Ping(ctx).Err())
	}
	return err
}
