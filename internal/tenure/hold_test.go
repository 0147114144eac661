package tenure

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func TestUnlockReleasesOnce(t *testing.T) {
	bubble(t, func(t *testing.T, k *Keeper, s *system) {
		h := k.Begin(s.terms())
		var all sync.WaitGroup
		for range 20 {
			all.Go(func() { wantErr(t, "one of many Unlocks", h.Unlock(t.Context()), nil) })
		}
		all.Wait()
		wantErr(t, "Unlock once more", h.Unlock(t.Context()), nil)
		if n := s.released(); n != 1 {
			t.Errorf("given back %d times", n)
		}
		wantErr(t, "Err", h.Err(), ErrNotHeld)
		if isLost(h) {
			t.Error("Lost is closed by Unlock")
		}
		pass(2 * lease)
		wantErr(t, "Err two leases later", h.Err(), ErrNotHeld)
		if isLost(h) {
			t.Error("Lost is closed after Unlock")
		}
	})
}

func TestUnlockSaysWhatReleaseSays(t *testing.T) {
	for _, want := range []error{errSystem, ErrLost, nil} {
		bubble(t, func(t *testing.T, k *Keeper, s *system) {
			s.release = func(context.Context) error { return want }
			h := k.Begin(s.terms())
			for range 2 {
				wantErr(t, "Unlock", h.Unlock(t.Context()), want)
			}
			wantErr(t, "Err", h.Err(), ErrNotHeld)
		})
	}
}

func TestUnlockOfWhatWasLost(t *testing.T) {
	bubble(t, func(t *testing.T, k *Keeper, s *system) {
		gate := make(chan struct{})
		s.release = func(context.Context) error { <-gate; return errSystem }
		h := k.Begin(s.terms())
		h.Lose()
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		wantErr(t, "Unlock of a lost lock with a context that has ended", h.Unlock(ended), ErrLost)
		close(gate)
		wantErr(t, "Unlock of a lost lock", h.Unlock(t.Context()), ErrLost)
		wantErr(t, "Err", h.Err(), ErrLost)
		if s.released() != 1 { // who has lost a lock may still stand in the system
			t.Error("not given back")
		}
	})
}

// TestUnlockDoesNotHangOnItsContext: ctx bounds the wait, not the attempt.
func TestUnlockDoesNotHangOnItsContext(t *testing.T) {
	bubble(t, func(t *testing.T, k *Keeper, s *system) {
		gate := make(chan struct{})
		s.release = func(ctx context.Context) error {
			if ctx.Done() != nil {
				t.Error("a release hangs on some context")
			}
			<-gate
			return nil
		}
		h := k.Begin(s.terms())
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began := time.Now()
		wantErr(t, "Unlock", h.Unlock(ctx), context.DeadlineExceeded)
		if took := time.Since(began); took != time.Second {
			t.Errorf("Unlock returned after %v; want it to with its context, after 1s", took)
		}
		wantErr(t, "Err while it is given back", h.Err(), ErrNotHeld)
		wantErr(t, "another Unlock with that context", h.Unlock(ctx), context.DeadlineExceeded)
		close(gate)
		wantErr(t, "Unlock with time", h.Unlock(t.Context()), nil)
		synctest.Wait()
		wantErr(t, "Unlock without time, when the answer is there", h.Unlock(ctx), nil)
		if s.released() != 1 {
			t.Errorf("given back %d times", s.released())
		}
	})
}

func TestReleaseThatDoesNotReturn(t *testing.T) {
	bubble(t, func(t *testing.T, k *Keeper, s *system) {
		s.release = func(context.Context) error { runtime.Goexit(); return nil }
		if err := k.Begin(s.terms()).Unlock(t.Context()); err == nil {
			t.Error("Unlock returns nil for a release that has not returned")
		}
	})
}

func TestAgain(t *testing.T) {
	bubble(t, func(t *testing.T, k *Keeper, s *system) {
		first := k.Begin(s.terms())
		ctx := first.Carry(t.Context())
		second, err := k.Again(ctx, "n")
		wantErr(t, "Again", err, nil)
		third, err := k.Again(second.Carry(t.Context()), "n")
		wantErr(t, "Again of the second hold", err, nil)
		for _, h := range []*Hold{first, second, third} {
			if h.Name() != "n" || h.Token() != 7 {
				t.Errorf("a hold of n and 7 has %q and %d", h.Name(), h.Token())
			}
		}
		for _, h := range []*Hold{first, third} { // in any order, and each counts once
			for range 3 {
				wantErr(t, "Unlock of one of three", h.Unlock(t.Context()), nil)
			}
			wantErr(t, "its Err", h.Err(), ErrNotHeld)
			wantErr(t, "Err of another", second.Err(), nil)
		}
		pass(2 * lease)
		wantErr(t, "Err of the last two leases later", second.Err(), nil)
		if s.released() != 0 {
			t.Error("given back before the last hold")
		}
		wantErr(t, "Unlock of the last", second.Unlock(t.Context()), nil)
		if s.released() != 1 {
			t.Error("not given back with the last hold")
		}
		if h, err := k.Again(ctx, "n"); h != nil || err != nil {
			t.Errorf("Again when it was given back: %v, %v; want nothing", h, err)
		}
	})
}

func TestAgainIsForItsKeeperAndName(t *testing.T) {
	bubble(t, func(t *testing.T, k *Keeper, s *system) {
		other := NewKeeper()
		defer other.Close()
		terms := s.terms()
		n := k.Begin(terms)
		terms.Name = "m"
		m := k.Begin(terms)
		both := m.Carry(n.Carry(t.Context()))
		for _, name := range []string{"n", "m"} {
			if h, err := k.Again(both, name); h == nil || err != nil || h.Name() != name {
				t.Errorf("Again of %q with both: %v, %v", name, h, err)
			}
			if h, _ := other.Again(both, name); h != nil {
				t.Errorf("another keeper has %q again", name)
			}
		}
		if h, err := k.Again(n.Carry(t.Context()), "m"); h != nil || err != nil {
			t.Errorf("Again of another name: %v, %v; want nothing", h, err)
		}
		if h, err := k.Again(t.Context(), "n"); h != nil || err != nil {
			t.Errorf("Again without anything carried: %v, %v; want nothing", h, err)
		}
	})
}

func TestAgainAfterALoss(t *testing.T) {
	bubble(t, func(t *testing.T, k *Keeper, s *system) {
		first := k.Begin(s.terms())
		second, _ := k.Again(first.Carry(t.Context()), "n")
		third, _ := k.Again(first.Carry(t.Context()), "n")
		wantErr(t, "Unlock before the loss", second.Unlock(t.Context()), nil)
		first.Lose()
		_, err := k.Again(first.Carry(t.Context()), "n")
		wantErr(t, "Again", err, ErrLost)
		wantErr(t, "Err of a hold that was unlocked before", second.Err(), ErrNotHeld)
		wantErr(t, "Unlock of it", second.Unlock(t.Context()), nil)
		for _, h := range []*Hold{third, first} {
			wantErr(t, "Err", h.Err(), ErrLost)
			wantErr(t, "Unlock", h.Unlock(t.Context()), ErrLost)
			wantErr(t, "Err after Unlock", h.Err(), ErrLost)
		}
		if s.released() != 1 {
			t.Errorf("given back %d times", s.released())
		}
		again, err := k.Again(first.Carry(t.Context()), "n")
		if again != nil || err != nil {
			t.Errorf("Again when all have unlocked what was lost: %v, %v; want that the context carries nothing",
				again, err)
		}
	})
}

// TestEverythingAtOnce is for the race detector, and counts.
func TestEverythingAtOnce(t *testing.T) {
	for round := range 20 {
		s := newSystem()
		k := NewKeeper()
		terms := s.terms()
		terms.Every, terms.Until = time.Microsecond, time.Now().Add(time.Minute)
		h := k.Begin(terms)
		ctx := h.Carry(t.Context())
		var all sync.WaitGroup
		for i := range 8 {
			all.Go(func() {
				for n := range 50 {
					again, err := k.Again(ctx, "n")
					if err != nil || again == nil {
						return
					}
					_ = again.Err()
					if i == 0 && n == 40 {
						again.Lose()
					}
					_ = again.Unlock(ctx)
				}
			})
		}
		all.Go(func() { _ = h.Unlock(ctx) })
		if round%2 == 0 {
			all.Go(k.Close)
		}
		all.Wait()
		k.Close()
		if n := s.released(); n != 1 {
			t.Errorf("given back %d times", n)
		}
	}
}

// A release on the goroutine of Unlock holds up that one Unlock and no other, and none whose
// context has ended.
func TestPromptRelease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := make(chan struct{})
		errRelease := errors.New("no answer")
		_, held := begun(t, time.Minute, 0, func(terms *Terms) {
			terms.Prompt = func(ctx context.Context) bool { return ctx.Err() == nil }
			terms.Release = func(context.Context) error { <-gate; return errRelease }
		})
		ctx, cancel := context.WithCancel(t.Context())
		first := make(chan error)
		go func() { first <- held.Unlock(ctx) }()
		synctest.Wait()
		short, end := context.WithTimeout(t.Context(), time.Second)
		defer end()
		if err := held.Unlock(short); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("another Unlock meanwhile: %v; want its context's error", err)
		}
		cancel()
		close(gate)
		if err := <-first; !errors.Is(err, context.Canceled) || !errors.Is(err, errRelease) {
			t.Errorf("the Unlock whose context ended during the release: %v; want its context's error, and that of the release",
				err)
		}
		if err := held.Unlock(t.Context()); !errors.Is(err, errRelease) ||
			errors.Is(err, context.Canceled) {
			t.Errorf("an Unlock after that: %v; want the answer of the release", err)
		}
	})
}
