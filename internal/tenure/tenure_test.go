package tenure

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	lease = 9 * time.Second
	every = lease / 3
)

var errSystem = errors.New("the system is in trouble")

// system is the lock system that terms ask.
type system struct {
	began time.Time

	mu       sync.Mutex // guards the rest
	renewals []time.Duration
	releases []time.Duration // since it began, as renewals
	renew    func(ctx context.Context) (time.Time, bool, error)
	release  func(ctx context.Context) error
}

func newSystem() *system { return &system{began: time.Now()} }

// terms are those of a lock that is held from now on, and renewed.
func (s *system) terms() Terms {
	return Terms{
		Name: "n", Token: 7, Until: time.Now().Add(lease), Every: every,
		Renew: func(ctx context.Context) (time.Time, bool, error) {
			s.mu.Lock()
			s.renewals = append(s.renewals, time.Since(s.began))
			renew := s.renew
			s.mu.Unlock()
			if renew != nil {
				return renew(ctx)
			}
			return time.Now().Add(lease), true, nil
		},
		Release: func(ctx context.Context) error {
			s.mu.Lock()
			s.releases = append(s.releases, time.Since(s.began))
			release := s.release
			s.mu.Unlock()
			if release != nil {
				return release(ctx)
			}
			return nil
		},
	}
}

func (s *system) renewed() []time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.renewals)
}

func (s *system) released() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.releases)
}

// bubble runs a test with a keeper, which is closed at the end, on a clock of its own.
func bubble(t *testing.T, test func(t *testing.T, k *Keeper, s *system)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		k := NewKeeper()
		defer k.Close()
		test(t, k, newSystem())
	})
}

// pass lets the time d pass, with all events in this time.
func pass(d time.Duration) {
	if d > 0 {
		<-time.After(d)
	}
	synctest.Wait()
}

func wantErr(t *testing.T, what string, got, want error) {
	t.Helper()
	if !errors.Is(got, want) || want == nil && got != nil {
		t.Errorf("%s: %v; want %v", what, got, want)
	}
}

func isLost(h *Hold) bool {
	select {
	case <-h.Lost():
		return true
	default:
		return false
	}
}

func TestRenewedInTime(t *testing.T) {
	bubble(t, func(t *testing.T, k *Keeper, s *system) {
		h := k.Begin(s.terms())
		pass(4 * lease)
		wantErr(t, "Err after four leases", h.Err(), nil)
		want := []time.Duration{}
		for at := every; at <= 4*lease; at += every {
			want = append(want, at)
		}
		if got := s.renewed(); !slices.Equal(got, want) {
			t.Errorf("renewed at %v; want %v", got, want)
		}
		wantErr(t, "Unlock", h.Unlock(t.Context()), nil)
		pass(2 * lease)
		if got := len(s.renewed()); got != len(want) {
			t.Errorf("renewed %d times after Unlock", got-len(want))
		}
	})
}

func TestRenewedSoonerAfterAnError(t *testing.T) {
	bubble(t, func(t *testing.T, k *Keeper, s *system) {
		s.renew = func(context.Context) (time.Time, bool, error) {
			if len(s.renewed()) <= 3 {
				return time.Time{}, false, errSystem // held says nothing then
			}
			return time.Now().Add(lease), true, nil
		}
		h := k.Begin(s.terms())
		pass(every * 5 / 2)
		wantErr(t, "Err", h.Err(), nil)
		want := []time.Duration{
			every, every + every/8, every + 2*every/8, every + 3*every/8, 2*every + 3*every/8,
		}
		if got := s.renewed(); !slices.Equal(got, want) {
			t.Errorf("renewed at %v; want %v", got, want)
		}
	})
}

func TestLostWhenItCannotBeRenewed(t *testing.T) {
	bubble(t, func(t *testing.T, k *Keeper, s *system) {
		s.renew = func(context.Context) (time.Time, bool, error) {
			return time.Time{}, false, errSystem
		}
		h := k.Begin(s.terms())
		pass(lease - 1)
		wantErr(t, "Err before the lease is over", h.Err(), nil)
		if isLost(h) {
			t.Error("Lost is closed before the lease is over")
		}
		pass(1)
		if !isLost(h) {
			t.Error("Lost is not closed when the lease is over")
		}
		wantErr(t, "Err when the lease is over", h.Err(), ErrLost)
		n := len(s.renewed())
		pass(lease)
		if len(s.renewed()) != n {
			t.Error("a lost lock is renewed")
		}
	})
}

func TestLostWhenTheSystemSaysSo(t *testing.T) {
	bubble(t, func(t *testing.T, k *Keeper, s *system) {
		s.renew = func(context.Context) (time.Time, bool, error) {
			return time.Now().Add(lease), false, nil
		}
		h := k.Begin(s.terms())
		pass(every)
		if !isLost(h) {
			t.Error("Lost is not closed")
		}
		wantErr(t, "Err", h.Err(), ErrLost)
	})
}

func TestRenewalHasTheTimeThatIsLeft(t *testing.T) {
	bubble(t, func(t *testing.T, k *Keeper, s *system) {
		terms := s.terms()
		s.renew = func(ctx context.Context) (time.Time, bool, error) {
			if deadline, ok := ctx.Deadline(); !ok || !deadline.Equal(terms.Until) {
				t.Errorf("a renewal has until %v; want %v", deadline, terms.Until)
			}
			<-ctx.Done()
			return time.Now().Add(lease), true, nil // the answer comes, too late
		}
		h := k.Begin(terms)
		pass(lease)
		wantErr(t, "Err when a renewal came late", h.Err(), ErrLost)
		pass(every)
		wantErr(t, "Err a while later", h.Err(), ErrLost)
	})
}

func TestRenewalEndsWithTheLock(t *testing.T) {
	bubble(t, func(t *testing.T, k *Keeper, s *system) {
		s.renew = func(ctx context.Context) (time.Time, bool, error) {
			<-ctx.Done()
			return time.Time{}, false, ctx.Err()
		}
		h := k.Begin(s.terms())
		pass(every)
		wantErr(t, "Unlock", h.Unlock(t.Context()), nil)
		began := time.Now()
		k.Close() // waits for the renewal
		if took := time.Since(began); took != 0 {
			t.Errorf("a renewal went on for %v after Unlock", took)
		}
	})
}

func TestWithoutAnEnd(t *testing.T) {
	bubble(t, func(t *testing.T, k *Keeper, s *system) {
		terms := s.terms()
		terms.Until = time.Time{}
		h := k.Begin(terms)
		pass(100 * lease)
		wantErr(t, "Err", h.Err(), nil)
		if n := len(s.renewed()); n > 0 {
			t.Errorf("renewed %d times although it has no end", n)
		}
		h.Lose()
		wantErr(t, "Err after Lose", h.Err(), ErrLost)
	})
}

func TestWithoutRenewal(t *testing.T) {
	bubble(t, func(t *testing.T, k *Keeper, s *system) {
		terms := s.terms()
		terms.Renew = nil
		h := k.Begin(terms)
		pass(lease - 1)
		wantErr(t, "Err before the lease is over", h.Err(), nil)
		pass(1)
		wantErr(t, "Err when the lease is over", h.Err(), ErrLost)
	})
}

// TestHeldForTooLong: renewals don't go beyond the cap, and Err knows it, however late the timer.
func TestHeldForTooLong(t *testing.T) {
	for what, until := range map[string]bool{"with a lease": true, "without an end": false} {
		t.Run(what, func(t *testing.T) {
			bubble(t, func(t *testing.T, k *Keeper, s *system) {
				terms := s.terms()
				terms.Most = 3*lease + every/2
				if !until {
					terms.Until = time.Time{}
				}
				late, h := k.Begin(terms), k.Begin(terms)
				pass(terms.Most - 1)
				late.tenure.expiry.Stop()
				wantErr(t, "Err before the cap", h.Err(), nil)
				pass(1)
				if !isLost(h) {
					t.Error("Lost is not closed at the cap")
				}
				if isLost(late) {
					t.Error("the timer was not stopped")
				}
				wantErr(t, "Err at the cap, with a timer that is late", late.Err(), ErrLost)
				n := len(s.renewed())
				pass(lease)
				if len(s.renewed()) != n {
					t.Error("renewed after the cap")
				}
				wantErr(t, "Unlock", h.Unlock(t.Context()), ErrLost)
				if s.released() != 1 {
					t.Error("not given back")
				}
			})
		})
	}
}

func TestCapBeforeTheLeaseIsOver(t *testing.T) {
	bubble(t, func(t *testing.T, k *Keeper, s *system) {
		terms := s.terms()
		terms.Most = every / 2
		h := k.Begin(terms)
		pass(terms.Most - 1)
		wantErr(t, "Err before the cap", h.Err(), nil)
		pass(1)
		wantErr(t, "Err at the cap", h.Err(), ErrLost)
	})
}

// TestErrLooksAtTheClock is for a process that stood still: it goes on, and its timers have not run
// yet.
func TestErrLooksAtTheClock(t *testing.T) {
	bubble(t, func(t *testing.T, k *Keeper, s *system) {
		terms := s.terms()
		terms.Renew = nil
		asked, had, unlocked, renewed := k.Begin(terms), k.Begin(terms), k.Begin(terms),
			k.Begin(terms)
		for _, h := range []*Hold{asked, had, unlocked, renewed} {
			h.tenure.expiry.Stop()
		}
		pass(lease)
		if isLost(asked) {
			t.Fatal("the timer was not stopped")
		}
		wantErr(t, "Err", asked.Err(), ErrLost)
		if !isLost(asked) {
			t.Error("Err says that it was lost, and Lost is not closed")
		}
		_, err := k.Again(had.Carry(t.Context()), "n")
		wantErr(t, "Again", err, ErrLost)
		wantErr(t, "Unlock", unlocked.Unlock(t.Context()), ErrLost)
		if _, over := renewed.tenure.beginRenewal(); over != nil {
			t.Error("it is renewed after its end")
		}
		wantErr(t, "Err after a renewal that came too late", renewed.Err(), ErrLost)
	})
}

// TestRenewalAnsweredTooLate: the lock may have been another's in between.
func TestRenewalAnsweredTooLate(t *testing.T) {
	bubble(t, func(t *testing.T, k *Keeper, s *system) {
		gate := make(chan struct{})
		terms := s.terms()
		terms.Renew = func(context.Context) (time.Time, bool, error) {
			<-gate
			return time.Now().Add(lease), true, nil
		}
		h := k.Begin(terms)
		pass(terms.Every)
		h.tenure.expiry.Stop() // as if this process had stood still
		pass(lease)
		close(gate)
		synctest.Wait()
		wantErr(t, "Err", h.Err(), ErrLost)
	})
}

func extend(h *Hold) {
	h.tenure.mu.Lock()
	defer h.tenure.mu.Unlock()
	h.tenure.extend(time.Now().Add(lease))
}

// TestExtendedWhileItEnds: the timer of an end that was put off does nothing.
func TestExtendedWhileItEnds(t *testing.T) {
	bubble(t, func(t *testing.T, k *Keeper, s *system) {
		terms := s.terms()
		terms.Renew = nil
		h := k.Begin(terms)
		pass(lease - 1)
		extend(h)
		pass(lease - 1)
		wantErr(t, "Err before its new end", h.Err(), nil)
		extend(h)
		pass(lease)
		wantErr(t, "Err at its last end", h.Err(), ErrLost)
	})
}

func TestCheckName(t *testing.T) {
	for _, c := range []struct {
		name string
		ok   bool
	}{
		{"", false}, {"a", true}, {"\x00", true}, {"\xff{}/% ", true},
		{strings.Repeat("n", MaxName), true}, {strings.Repeat("n", MaxName+1), false},
	} {
		if err := CheckName(c.name); (err == nil) != c.ok {
			t.Errorf("a name of %d bytes: %v; want it fine: %v", len(c.name), err, c.ok)
		}
	}
}

// What Redis says of a key without an end, and of one that isn't there, is negative.
func TestEndless(t *testing.T) {
	const lease = 10 * time.Second
	for left, want := range map[time.Duration]bool{
		-1: true, -time.Millisecond: true, -2 * time.Millisecond: true, 0: false, lease: false,
		time.Hour:    false,
		1000 * lease: false, 1001 * lease: true, 1 << 62: true,
	} {
		if got := Endless(left, lease); got != want {
			t.Errorf("%v of a lease of %v: %v; want %v", left, lease, got, want)
		}
	}
	if Endless(time.Hour, time.Millisecond) {
		t.Error("an hour is endless; a process may have a longer lease than another")
	}
}
