package sqllock

import (
	"cmp"
	"context"
	"crypto/rand"
	"database/sql"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cacheguard/cacheguard/internal/tenure"
)

// claim is one acquisition, under way or successful.
type claim struct {
	l     *Locker
	name  string
	row   []byte // the name in the table
	owner []byte // nobody else's

	asking sync.WaitGroup // requests for it under way
	unsure atomic.Bool    // one of them may have had an effect that was not heard of
}

func (l *Locker) claim(name string) *claim {
	c := &claim{l: l, name: name, row: []byte(l.opts.Prefix + name), owner: make([]byte, 16)}
	_, _ = rand.Read(c.owner) // it never fails
	return c
}

// answer is what the database says about a lock.
type answer struct {
	mine   bool
	token  int64
	until  time.Time     // if it is mine
	left   time.Duration // if it is another's, what is left of its lease; 0 if that is not known
	wanted bool          // and there will be a notification
}

// try asks once.
func (c *claim) try(ctx context.Context) (*tenure.Hold, error) {
	a, err := c.ask(ctx)
	switch {
	case err != nil:
		return nil, c.giveUp(err)
	case a.mine:
		return c.held(a), nil
	default:
		return nil, c.giveUp(tenure.ErrHeld)
	}
}

// lock asks until it has the lock. When others of this process wait for the same already, it stands
// in their line.
func (c *claim) lock(ctx context.Context) (*tenure.Hold, error) {
	place := c.l.waiting.joinLine(c)
	var a answer
	if place == nil {
		var err error
		if a, err = c.ask(ctx); err != nil {
			return nil, c.giveUp(err)
		}
		if a.mine {
			return c.held(a), nil
		}
		place = c.l.waiting.join(c)
		if !place.first() {
			a = answer{} // it will be old
		}
	}
	defer place.leave()
	held, err := c.wait(ctx, place, a)
	if err != nil {
		return nil, c.giveUp(err)
	}
	return held, nil
}

// wait asks again and again while the claim is the first in its line. last is the answer it has, if
// any.
func (c *claim) wait(ctx context.Context, place *place, last answer) (*tenure.Hold, error) {
	c.l.ear.open()
	select {
	case <-place.turn:
		if place.err != nil {
			return nil, place.err
		}
	case <-ctx.Done():
		return nil, tenure.Why(ctx)
	}
	sleep := newSleep(c.l.opts.Poll, c.l.drowsy)
	for a := last; ; {
		if again, notified := c.want(ctx, a); !again {
			if err := place.sleep(ctx, sleep, sleep.next(a, notified)); err != nil {
				return nil, err
			}
		}
		var err error
		switch a, err = c.ask(ctx); {
		case err == nil:
			place.fine()
		case ctx.Err() != nil || place.troubled(c.l.opts.Lease, err):
			return nil, err
		}
		if a.mine {
			return c.held(a), nil
		}
	}
}

// ask tries to acquire the lock. It is an error that another's has an end that no lease has: to
// wait is no use.
func (c *claim) ask(ctx context.Context) (answer, error) {
	a, err := c.askFor(ctx, c.l.opts.Lease)
	if err == nil && !a.mine && tenure.Endless(max(a.left, 0), c.l.opts.Lease) {
		err = fmt.Errorf("%w: its row in the table %s ends in %v, which no locker writes; delete the row to free the lock, or take the lock by SeizeUnsafely",
			tenure.ErrHeld, c.l.opts.Table, a.left)
	}
	return a, err
}

func (c *claim) askFor(ctx context.Context, lease time.Duration) (answer, error) {
	l := c.l
	a, err := call(ctx, l, &c.asking, func(ctx context.Context, doubt error) (a answer, err error) {
		if doubt != nil {
			c.unsure.Store(true)
		}
		scan := func(rows *sql.Rows) error {
			var left int64
			if err := rows.Scan(&a.mine, &a.token, &left, &a.wanted); err != nil {
				return l.spoilt(err)
			}
			a.left = time.Duration(min(left, int64(math.MaxInt64/l.sql.unit))) * l.sql.unit
			if !a.mine && left <= 0 && (a.token == math.MaxInt64 || l.sql.look != "") {
				return l.spoilt(errNoToken)
			}
			return nil
		}
		if l.sql.look != "" {
			if n, err := l.query(ctx, scan, l.sql.look, c.row, c.owner); n > 0 || err != nil {
				return a, err
			}
		}
		began := time.Now()
		_, err = l.query(ctx, scan, l.sql.acquire, c.row, c.owner, l.sql.lasting(lease))
		a.until = began.Add(lease)
		return a, err
	})
	return c.heard(ctx, a, err)
}

// heard is what became of a request that may have acquired the lock.
func (c *claim) heard(ctx context.Context, a answer, err error) (answer, error) {
	switch {
	case err == nil:
		return a, nil
	case ctx.Err() != nil:
		err = tenure.Why(ctx)
	}
	c.unsure.Store(true)
	return answer{}, err
}

// want sees to it that there will be a notification when another gives the lock back, if
// notifications arrive. again says that the lock may be free by now.
func (c *claim) want(ctx context.Context, a answer) (again, notified bool) {
	switch {
	case c.l.sql.want == "" || !c.l.ear.standing.Load() || a.left == 0:
		return false, false
	case a.wanted:
		return false, true
	}
	n, err := call(ctx, c.l, nil, func(ctx context.Context, _ error) (int, error) {
		return c.l.query(ctx, nil, c.l.sql.want, c.row)
	})
	return n == 0 && err == nil, err == nil
}

// held begins the tenure of a lock that was acquired.
func (c *claim) held(a answer) *tenure.Hold {
	return c.l.keeper.Begin(tenure.Terms{
		Name: c.name, Token: a.token, Until: a.until,
		Renew: c.renew, Every: c.l.opts.Lease / 3, Most: c.l.opts.MaxHold,
		Release: c.release,
	})
}

func (c *claim) renew(ctx context.Context) (until time.Time, held bool, err error) {
	until, err = call(ctx, c.l, nil, func(ctx context.Context, _ error) (time.Time, error) {
		began := time.Now()
		n, err := c.l.query(ctx, nil, c.l.sql.renew, c.row, c.owner, c.l.sql.lasting(c.l.opts.Lease))
		if n == 0 {
			return time.Time{}, err
		}
		return began.Add(c.l.opts.Lease), err
	})
	return until, !until.IsZero(), err
}

// release gives the lock back, wakes who waits for it in this process, and has old rows be removed
// now and then.
func (c *claim) release(ctx context.Context) error {
	mine, err := c.free(ctx)
	switch {
	case err != nil:
		return wrapped(c.name, err)
	case !mine:
		return wrapped(c.name, tenure.ErrLost)
	}
	c.l.cleanSometimes()
	return nil
}

// free ends the owner's right, and reports whether there was one.
func (c *claim) free(ctx context.Context) (mine bool, err error) {
	args := []any{c.row, c.owner}
	if c.l.sql.want != "" {
		args = append(args, c.l.channel())
	}
	type freed struct {
		mine, told bool
		doubt      error // whether it was mine
	}
	f, err := call(ctx, c.l, nil, func(ctx context.Context, doubt error) (f freed, err error) {
		n, err := c.l.query(ctx, func(rows *sql.Rows) error { return rows.Scan(&f.told, new(any)) }, c.l.sql.release, args...)
		if f.mine = n > 0; !f.mine && doubt != nil {
			// A request before may have given it back, and another may have it by now.
			f.doubt = fmt.Errorf("it is unknown when the lock ended, for no answer came to a first request: %w", doubt)
		}
		return f, err
	})
	c.l.waiting.released(string(c.row), f.told && c.l.ear.standing.Load())
	return f.mine, cmp.Or(err, f.doubt)
}

// giveUp ends an acquisition that has failed for a reason, which it returns. What may have been
// acquired without being heard of is given back, once requests are over that are still under way.
// One that is carried out even later acquires for nobody; that lasts for one lease. Close waits for
// that, too, but not for a driver that doesn't look at contexts.
func (c *claim) giveUp(reason error) error {
	if c.unsure.Load() {
		c.l.keeper.Go(func() {
			over := make(chan struct{})
			c.l.asides.Go(func() {
				defer close(over)
				c.asking.Wait()
			})
			timer := time.NewTimer(c.l.opts.Lease)
			defer timer.Stop()
			select {
			case <-over:
			case <-timer.C:
			case <-c.l.keeper.Closed():
				timer.Reset(c.l.opts.OpTimeout / 2) // no try has longer
				select {
				case <-over:
				case <-timer.C:
				}
			}
			_, _ = c.free(context.Background()) // or it ends by itself
		})
	}
	return reason
}
