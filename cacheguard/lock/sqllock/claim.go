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

// claim is one acquisition, running or successful.
type claim struct {
	l     *Locker
	name  string
	row   []byte // the name in the table
	owner []byte // unique for this claim

	asking sync.WaitGroup // running requests for the lock
	unsure atomic.Bool    // a request may have acquired the lock, but its reply was lost
}

func (l *Locker) claim(name string) *claim {
	c := &claim{l: l, name: name, row: []byte(l.opts.Prefix + name), owner: make([]byte, 16)}
	_, _ = rand.Read(c.owner) // rand.Read never fails
	return c
}

// answer is the database's reply about a lock.
type answer struct {
	mine   bool
	token  int64
	until  time.Time     // the end of the lease, if mine
	left   time.Duration // the rest of another holder's lease; 0 if it is not known
	wanted bool          // another holder's release will send a notification
}

// try sends one request.
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

// lock sends requests until it has the lock. If other calls of this process already wait for the
// same lock, it joins their line.
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
			a = answer{} // the reply will be out of date when it is this call's turn
		}
	}
	defer place.leave()
	held, err := c.wait(ctx, place, a)
	if err != nil {
		return nil, c.giveUp(err)
	}
	return held, nil
}

// wait sends requests again and again while the claim is the first in its line. last is the last
// reply, if there is one.
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
	sleep := newSleep(c.l.firstSleep, c.l.opts.Poll, c.l.drowsy)
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

// ask tries to acquire the lock. If another holder's lock ends later than any lease, ask returns an
// error, because waiting is useless.
func (c *claim) ask(ctx context.Context) (answer, error) {
	a, err := c.askFor(ctx, c.l.opts.Lease)
	if err == nil && !a.mine && tenure.Endless(max(a.left, 0), c.l.opts.Lease) {
		err = fmt.Errorf(
			"%w: its row in the table %s ends in %v, which no locker writes; delete the row to free the lock, or take the lock by SeizeUnsafely",
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

// heard handles the result of a request that may have acquired the lock.
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

// If notifications arrive, want makes sure that there will be a notification when another holder
// gives the lock back. again means that the lock may be free by now.
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
		n, err := c.l.query(ctx, nil, c.l.sql.renew, c.row, c.owner,
			c.l.sql.lasting(c.l.opts.Lease))
		if n == 0 {
			return time.Time{}, err
		}
		return began.Add(c.l.opts.Lease), err
	})
	return until, !until.IsZero(), err
}

// release gives the lock back, wakes a waiting call of this process, and sometimes starts the
// removal of old rows.
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

// free gives the lock back, and reports whether the owner had it.
func (c *claim) free(ctx context.Context) (mine bool, err error) {
	args := []any{c.row, c.owner}
	if c.l.sql.want != "" {
		args = append(args, c.l.channel())
	}
	type freed struct {
		mine, told bool
		doubt      error // set if it is unknown whether this claim had the lock
	}
	f, err := call(ctx, c.l, nil, func(ctx context.Context, doubt error) (f freed, err error) {
		n, err := c.l.query(ctx, func(rows *sql.Rows) error {
			return rows.Scan(&f.told, new(any))
		}, c.l.sql.release, args...)
		if f.mine = n > 0; !f.mine && doubt != nil {
			// An earlier request may have given the lock back, and another holder may have it by
			// now.
			f.doubt = fmt.Errorf(
				"it is unknown when the lock ended, for no answer came to a first request: %w",
				doubt)
		}
		return f, err
	})
	c.l.waiting.released(string(c.row), f.told && c.l.ear.standing.Load())
	return f.mine, cmp.Or(err, f.doubt)
}

// giveUp ends an acquisition that has failed, and returns the given reason. If the lock may have
// been acquired although the reply was lost, giveUp gives it back as soon as the running requests
// are over. A request that is carried out even later acquires the lock for nobody, for one lease.
// Close waits for this release, too, but not for a driver that ignores contexts.
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
				timer.Reset(c.l.opts.OpTimeout / 2) // no try takes longer
				select {
				case <-over:
				case <-timer.C:
				}
			}
			_, _ = c.free(context.Background()) // if this fails, the lock expires by itself
		})
	}
	return reason
}
