package lock_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cacheguard/cacheguard/cacheguard/lock"
)

func TestDo(t *testing.T) {
	errWork := errors.New("of the work")
	for _, c := range []struct {
		what          string
		lock, release error
		work          func(context.Context, lock.Lock) error
		wants         []error // all of them; none: nil
		released      int64
	}{
		{"all goes well", nil, nil, func(context.Context, lock.Lock) error { return nil }, nil, 1},
		{
			"no lock", errSystem, nil, func(context.Context, lock.Lock) error {
				panic("it works")
			}, []error{errSystem}, 0,
		},
		{
			"the work fails", nil, nil, func(context.Context, lock.Lock) error {
				return errWork
			}, []error{errWork}, 1,
		},
		{
			"the release fails", nil, errSystem, func(context.Context, lock.Lock) error {
				return nil
			}, []error{errSystem}, 1,
		},
		{
			"both fail", nil, errSystem, func(context.Context, lock.Lock) error {
				return errWork
			}, []error{errWork, errSystem}, 1,
		},
		{"lost in the system", nil, lock.ErrLost, func(context.Context, lock.Lock) error {
			return nil
		}, []error{lock.ErrLost}, 1},
		{
			"lost", nil, nil, func(_ context.Context, held lock.Lock) error {
				lose(held)
				return nil
			}, []error{lock.ErrLost}, 1,
		},
		{"lost, and the work fails", nil, nil, func(_ context.Context, held lock.Lock) error {
			lose(held)
			return errWork
		},
			[]error{lock.ErrLost, errWork}, 1},
		{"unlocked by the work", nil, nil, func(ctx context.Context, held lock.Lock) error {
			return held.Unlock(ctx)
		}, nil, 1},
	} {
		t.Run(c.what, func(t *testing.T) {
			f := newFake()
			f.fails = c.lock
			f.release = func() error { return c.release }
			err := lock.Do(t.Context(), f, "n", c.work)
			if len(c.wants) == 0 {
				wantErr(t, "Do", err, nil)
			}
			for _, want := range c.wants {
				wantErr(t, "Do", err, want)
			}
			if n := f.released.Load(); n != c.released {
				t.Errorf("released %d times; want %d", n, c.released)
			}
		})
	}
}

func TestDoSaysOnceThatItWasLost(t *testing.T) {
	err := lock.Do(t.Context(), newFake(), "n", func(_ context.Context, held lock.Lock) error {
		lose(held)
		return fmt.Errorf("the work was interrupted: %w", lock.ErrLost)
	})
	wantErr(t, "Do", err, lock.ErrLost)
	if n := strings.Count(err.Error(), lock.ErrLost.Error()); n != 1 {
		t.Errorf("it says %d times that it was lost: %v", n, err)
	}
}

func TestDoUnlocksHoweverTheWorkEnds(t *testing.T) {
	for what, exit := range map[string]func(){
		"panic": func() { panic("of the work") }, "Goexit": runtime.Goexit,
	} {
		f := newFake()
		var under context.Context
		recovered := make(chan any)
		go func() {
			defer func() { recovered <- recover() }()
			_ = lock.Do(t.Context(), f, "n", func(ctx context.Context, _ lock.Lock) error {
				under = ctx
				exit()
				return nil
			})
		}()
		if r := <-recovered; what == "panic" && r != "of the work" {
			t.Errorf("the panic was %v", r)
		}
		if n := f.released.Load(); n != 1 {
			t.Errorf("%s: released %d times", what, n)
		}
		if under.Err() == nil {
			t.Errorf("%s: the context of the work goes on", what)
		}
	}
}

// TestDoWithAContextThatEnds: only the system's reply shows whether the work ran without another
// holder.
func TestDoWithAContextThatEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		f.release = func() error {
			<-time.After(time.Second)
			return lock.ErrLost
		}
		ctx, cancel := context.WithCancel(t.Context())
		err := lock.Do(ctx, f, "n", func(ctx context.Context, _ lock.Lock) error {
			cancel()
			<-ctx.Done()
			return ctx.Err()
		})
		wantErr(t, "Do", err, lock.ErrLost)
		wantErr(t, "Do", err, context.Canceled)
	})
}

func TestDoInsideItself(t *testing.T) {
	f := newFake()
	err := lock.Do(t.Context(), f, "n", func(ctx context.Context, _ lock.Lock) error {
		err := lock.Do(ctx, f, "n", func(context.Context, lock.Lock) error { return nil })
		if n := f.released.Load(); n != 0 {
			t.Error("the inner Do gave the lock of the outer one back")
		}
		return err
	})
	wantErr(t, "Do", err, nil)
	if n := f.released.Load(); n != 1 {
		t.Errorf("released %d times", n)
	}
}
