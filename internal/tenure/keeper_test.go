package tenure

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

func TestEnterEndsWithItsContext(t *testing.T) {
	mine := errors.New("mine")
	bubble(t, func(t *testing.T, k *Keeper, _ *system) {
		cancelled, cancel := context.WithCancel(t.Context())
		caused, cancelCause := context.WithCancelCause(t.Context())
		late, stop := context.WithTimeout(t.Context(), time.Second)
		defer stop()
		for _, c := range []struct {
			what  string
			ctx   context.Context
			end   func()
			wants []error
			not   error
		}{
			{"cancelled", cancelled, cancel, []error{context.Canceled}, ErrClosed},
			{
				"with a cause", caused, func() {
					cancelCause(mine)
				}, []error{context.Canceled, mine}, ErrClosed,
			},
			{
				"late", late, func() {
					pass(time.Second)
				}, []error{context.DeadlineExceeded}, context.Canceled,
			},
		} {
			within, leave, err := k.Enter(c.ctx)
			wantErr(t, "Enter", err, nil)
			wantErr(t, "Why before the end", Why(within), nil)
			c.end()
			synctest.Wait()
			why := Why(within)
			for _, want := range c.wants {
				wantErr(t, "Why of one that is "+c.what, why, want)
			}
			if errors.Is(why, c.not) {
				t.Errorf("Why of one that is %s: %v", c.what, why)
			}
			leave()
		}
	})
}

func TestCloseEndsAcquisitionsAndWaitsForThem(t *testing.T) {
	bubble(t, func(t *testing.T, k *Keeper, _ *system) {
		within, leave, err := k.Enter(t.Context())
		wantErr(t, "Enter", err, nil)
		closed := make(chan struct{})
		for range 2 { // another Close waits, too
			go func() {
				k.Close()
				closed <- struct{}{}
			}()
		}
		synctest.Wait()
		wantErr(t, "Why", Why(within), ErrClosed)
		select {
		case <-k.Closed():
		default:
			t.Error("Closed is not closed")
		}
		select {
		case <-closed:
			t.Error("Close doesn't wait for an acquisition")
		default:
		}
		_, _, err = k.Enter(t.Context())
		wantErr(t, "Enter after Close", err, ErrClosed)
		leave()
		<-closed
		<-closed
	})
}

// TestWhyEndedFirst: what came first counts, if both the context and the keeper have ended.
func TestWhyEndedFirst(t *testing.T) {
	bubble(t, func(t *testing.T, k *Keeper, _ *system) {
		ctx, cancel := context.WithCancel(t.Context())
		first, leaveFirst, _ := k.Enter(ctx)
		cancel()
		second, leaveSecond, _ := k.Enter(t.Context())
		go k.Close()
		synctest.Wait()
		wantErr(t, "Why of one that was cancelled before Close", Why(first), context.Canceled)
		wantErr(t, "Why of one that was not", Why(second), ErrClosed)
		leaveFirst()
		leaveSecond()
	})
}

func TestCloseLosesWhatIsHeld(t *testing.T) {
	bubble(t, func(t *testing.T, k *Keeper, s *system) {
		h, unlocked := k.Begin(s.terms()), k.Begin(s.terms())
		wantErr(t, "Unlock", unlocked.Unlock(t.Context()), nil)
		k.Close()
		if !isLost(h) || isLost(unlocked) {
			t.Errorf("Lost of what was held is closed: %v, of what was not: %v", isLost(h),
				isLost(unlocked))
		}
		wantErr(t, "Err of what was held", h.Err(), ErrLost)
		wantErr(t, "Err of what was not", unlocked.Err(), ErrNotHeld)
		if s.released() != 1 {
			t.Error("Close gives back what its holder may still be at work under")
		}
		wantErr(t, "Unlock after Close", h.Unlock(t.Context()), ErrLost)
		if s.released() != 2 {
			t.Error("not given back by Unlock after Close")
		}
		n := len(s.renewed())
		pass(lease)
		if len(s.renewed()) != n {
			t.Error("renewed after Close")
		}
	})
}

func TestCloseWaitsForWhatIsGivenBack(t *testing.T) {
	bubble(t, func(t *testing.T, k *Keeper, s *system) {
		s.release = func(context.Context) error { <-time.After(time.Second); return nil }
		h := k.Begin(s.terms())
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		wantErr(t, "Unlock", h.Unlock(ended), context.Canceled)
		closesAfter(t, k, time.Second)
		wantErr(t, "Unlock once more", h.Unlock(ended), nil)
	})
}

func TestCloseWaitsForWork(t *testing.T) {
	bubble(t, func(t *testing.T, k *Keeper, _ *system) {
		k.Go(func() {
			<-time.After(time.Second)
			k.Go(func() { <-time.After(time.Second) })
		})
		closesAfter(t, k, 2*time.Second)
	})
}

func closesAfter(t *testing.T, k *Keeper, want time.Duration) {
	t.Helper()
	began := time.Now()
	k.Close()
	if took := time.Since(began); took != want {
		t.Errorf("Close took %v; want it to wait for what takes %v", took, want)
	}
}

// TestBeginWhileClosing: an acquisition that succeeds although the keeper is being closed.
func TestBeginWhileClosing(t *testing.T) {
	bubble(t, func(t *testing.T, k *Keeper, s *system) {
		_, leave, err := k.Enter(t.Context())
		wantErr(t, "Enter", err, nil)
		closed := make(chan struct{})
		go func() {
			defer close(closed)
			k.Close()
		}()
		synctest.Wait()
		h := k.Begin(s.terms())
		wantErr(t, "Err", h.Err(), ErrLost)
		if !isLost(h) {
			t.Error("Lost is not closed")
		}
		leave()
		<-closed
		pass(lease)
		if len(s.renewed()) > 0 {
			t.Error("renewed after Close")
		}
		wantErr(t, "Unlock", h.Unlock(t.Context()), ErrLost)
	})
}

// TestBeginTooLate: the answer took longer than the lease.
func TestBeginTooLate(t *testing.T) {
	bubble(t, func(t *testing.T, k *Keeper, s *system) {
		terms := s.terms()
		pass(lease)
		h := k.Begin(terms)
		wantErr(t, "Err", h.Err(), ErrLost)
		if !isLost(h) {
			t.Error("Lost is not closed")
		}
		wantErr(t, "Unlock", h.Unlock(t.Context()), ErrLost)
		if s.released() != 1 {
			t.Error("not given back")
		}
	})
}
