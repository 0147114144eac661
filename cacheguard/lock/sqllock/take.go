package sqllock

import (
	"context"
	"database/sql"
	"math"
	"time"

	"github.com/cacheguard/cacheguard/cacheguard/lock"
	"github.com/cacheguard/cacheguard/internal/tenure"
)

var (
	_ lock.Continuer = (*Locker)(nil)
	_ lock.Seizer    = (*Locker)(nil)
)

// Continue takes over the lock of the holder with this fencing token. See [lock.Continuer].
func (l *Locker) Continue(ctx context.Context, name string, token int64) (lock.Lock, error) {
	return l.take(ctx, name, func(ctx context.Context, c *claim) (answer, error) {
		a, err := c.take(ctx, token)
		if err == nil && !a.mine {
			err = tenure.ErrLost
		}
		return a, err
	})
}

// SeizeUnsafely takes the lock of a name even if another holder has it, and breaks the promise that
// at most one holder has the lock. See [lock.Seizer].
func (l *Locker) SeizeUnsafely(ctx context.Context, name string) (lock.Lock, error) {
	return l.take(ctx, name, func(ctx context.Context, c *claim) (answer, error) {
		for {
			// Unlike ask, askFor accepts a holder whose lease ends very late.
			a, err := c.askFor(ctx, l.opts.Lease)
			if err == nil && !a.mine {
				// The lock may have changed its holder in the meantime.
				a, err = c.take(ctx, a.token)
			}
			if err != nil || a.mine {
				return a, err
			}
		}
	})
}

func (l *Locker) take(
	ctx context.Context, name string, take func(context.Context, *claim) (answer, error),
) (lock.Lock, error) {
	held, err := l.keeper.Take(ctx, "sqllock", name, func(
		ctx context.Context,
	) (*tenure.Hold, error) {
		c := l.claim(name)
		a, err := take(ctx, c)
		// A lock that was taken isn't given back: its previous holder has to learn of the loss
		// before another call may have it.
		if err != nil {
			return nil, err
		}
		return c.held(a), nil
	})
	if err != nil {
		return nil, err
	}
	return held, nil
}

// take takes the lock from the holder with this token, if this holder still has the lock.
func (c *claim) take(ctx context.Context, token int64) (answer, error) {
	l := c.l
	if token == math.MaxInt64 {
		return answer{}, l.spoilt(errNoToken)
	}
	a, err := call(ctx, l, &c.asking, func(ctx context.Context, doubt error) (a answer, err error) {
		if doubt != nil {
			c.unsure.Store(true)
		}
		began := time.Now()
		n, err := l.query(ctx, func(rows *sql.Rows) error {
			return rows.Scan(&a.token)
		}, l.sql.take,
			c.row, c.owner, l.sql.lasting(l.opts.Lease), token)
		a.mine, a.until = n > 0, began.Add(l.opts.Lease)
		return a, err
	})
	return c.heard(ctx, a, err)
}
