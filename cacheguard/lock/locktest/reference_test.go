package locktest_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/cacheguard/cacheguard/cacheguard/lock"
	"github.com/cacheguard/cacheguard/internal/tenure"
)

// reference is a locker that keeps all rules, on any system.
type reference struct {
	system system
	keeper *tenure.Keeper
	lease  time.Duration

	opTimeout time.Duration // of each question
	flaws     flaws
}

// flaws are ways to break the reference from within. The zero value has none.
type flaws struct {
	// The name that is sent to the system.
	name  func(name string) string
	terms func(t *tenure.Terms) // of each lock
	// Instead of giving back the lock of a call that gave up.
	left func(name, owner string)
	// Instead of the acquisition's context.
	context func(ctx context.Context) context.Context
	again   func(ctx context.Context, name string) (*tenure.Hold, error) // reentrancy
	begun   func(h *tenure.Hold)
	weak    bool // a waiting call doesn't tolerate trouble
}

func newReference(s system, lease time.Duration) *reference {
	return &reference{system: s, keeper: tenure.NewKeeper(), lease: lease, opTimeout: 2 * lease}
}

func (l *reference) Close() error {
	l.keeper.Close()
	return nil
}

func (l *reference) Lock(ctx context.Context, name string) (lock.Lock, error) {
	return l.acquire(ctx, name, true)
}

func (l *reference) TryLock(ctx context.Context, name string) (lock.Lock, error) {
	return l.acquire(ctx, name, false)
}

func (l *reference) acquire(ctx context.Context, name string, wait bool) (lock.Lock, error) {
	if err := tenure.CheckName(name); err != nil {
		return nil, err
	}
	again := l.keeper.Again
	if l.flaws.again != nil {
		again = l.flaws.again
	}
	if hold, err := again(ctx, name); err != nil {
		return nil, wrap(name, err)
	} else if hold != nil {
		return hold, nil
	}
	if l.flaws.context != nil {
		ctx = l.flaws.context(ctx)
	}
	within, leave, err := l.keeper.Enter(ctx)
	if err != nil {
		return nil, wrap(name, err)
	}
	defer leave()
	if within.Err() != nil {
		return nil, wrap(name, tenure.Why(within))
	}
	hold, err := l.ask(within, name, rand.Text(), wait)
	if err != nil {
		return nil, wrap(name, err)
	}
	return hold, nil
}

func (l *reference) Continue(ctx context.Context, name string, token int64) (lock.Lock, error) {
	return l.take(ctx, name, token)
}

func (l *reference) SeizeUnsafely(ctx context.Context, name string) (lock.Lock, error) {
	return l.take(ctx, name, anybody)
}

func (l *reference) take(ctx context.Context, name string, from int64) (lock.Lock, error) {
	held, err := l.keeper.Take(ctx, "reference", name, func(
		ctx context.Context,
	) (*tenure.Hold, error) {
		owner, sent := rand.Text(), time.Now()
		a, err := l.system.take(ctx, name, owner, from, l.lease)
		switch {
		case err != nil:
			return nil, err
		case !a.Granted:
			return nil, lock.ErrLost
		}
		return l.begin(name, name, owner, sent.Add(l.lease), a.Token), nil
	})
	if err != nil {
		return nil, err
	}
	return held, nil
}

// ask sends requests until it has the lock or gives up.
func (l *reference) ask(
	within context.Context, name, owner string, wait bool,
) (*tenure.Hold, error) {
	at := name
	if l.flaws.name != nil {
		at = l.flaws.name(name)
	}
	var trouble time.Time // the time since which there has been trouble
	for asked := false; ; asked = true {
		sent := time.Now()
		ctx, cancel := context.WithTimeout(within, l.opTimeout)
		a, err := l.system.acquire(ctx, at, owner, l.lease)
		cancel()
		if err == nil && a.Granted {
			return l.begin(name, at, owner, sent.Add(l.lease), a.Token), nil
		}
		if err == nil && !wait {
			return nil, lock.ErrHeld
		}
		if err == nil {
			trouble = time.Time{}
			err = l.system.wait(within, at)
		}
		if err == nil {
			continue
		}
		if within.Err() == nil && asked && !l.flaws.weak &&
			(trouble.IsZero() || time.Since(trouble) < l.lease) {
			if trouble.IsZero() {
				trouble = sent
			}
			timer := time.NewTimer(l.lease / 20)
			select {
			case <-timer.C:
			case <-within.Done():
			}
			continue
		}
		if l.flaws.left != nil {
			l.flaws.left(at, owner)
		} else {
			l.keeper.Go(func() { _, _ = l.release(at, owner) })
		}
		if within.Err() != nil {
			err = tenure.Why(within)
		}
		return nil, err
	}
}

func (l *reference) begin(name, at, owner string, until time.Time, token int64) *tenure.Hold {
	terms := tenure.Terms{
		Name: name, Token: token, Until: until, Every: l.lease / 3,
		Renew: func(ctx context.Context) (time.Time, bool, error) {
			until := time.Now().Add(l.lease)
			ctx, cancel := context.WithTimeout(ctx, l.opTimeout)
			defer cancel()
			held, err := l.system.renew(ctx, at, owner, l.lease)
			return until, held, err
		},
		Release: func(context.Context) error {
			held, err := l.release(at, owner)
			if err == nil && !held {
				err = lock.ErrLost
			}
			if err != nil {
				err = wrap(name, err)
			}
			return err
		},
	}
	if l.flaws.terms != nil {
		l.flaws.terms(&terms)
	}
	h := l.keeper.Begin(terms)
	if l.flaws.begun != nil {
		l.flaws.begun(h)
	}
	return h
}

func (l *reference) release(at, owner string) (held bool, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), l.opTimeout)
	defer cancel()
	return l.system.release(ctx, at, owner)
}

// wrap names the lock in an error.
func wrap(name string, err error) error {
	if errors.Is(err, lock.ErrClosed) {
		return fmt.Errorf("reference: %w", err)
	}
	return fmt.Errorf("reference: %q: %w", name, err)
}
