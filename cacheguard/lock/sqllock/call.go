package sqllock

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"math/rand/v2"
	"sync"
	"time"
)

const (
	firstAgain = 2 * time.Millisecond // the first pause before a statement is sent again
	mostAgain  = 50 * time.Millisecond
)

// call calls try until it succeeds, within OpTimeout. It tries again if the database was busy, if a
// connection was broken, or if no reply came within half of OpTimeout. try has to recognise what an
// earlier try did. doubt is the error of an earlier try that may have been carried out. A try has
// its own time limit and doesn't end with ctx, because drivers close a connection whose statement
// was cancelled. call itself returns when ctx ends. If asking isn't nil, it counts the tries that
// are running.
func call[T any](
	ctx context.Context, l *Locker, asking *sync.WaitGroup,
	try func(ctx context.Context, doubt error) (T, error),
) (v T, err error) {
	var doubt, said error
	began := time.Now()
	end := began.Add(l.opts.OpTimeout)
	for pause := firstAgain; ; pause = min(2*pause, mostAgain) {
		before := doubt
		v, err = aside(ctx, l, min(l.opts.OpTimeout/2, time.Until(end)), asking, func(
			ctx context.Context,
		) (T, error) {
			return try(ctx, before)
		})
		switch {
		case err == nil || ctx.Err() != nil:
			return v, err
		case !refused(err):
			doubt = cmp.Or(doubt, err)
		}
		if !unanswered(err) {
			said = err
		}
		if !l.passing(err) || time.Until(end) <= 2*pause {
			return v, l.explained(cmp.Or(said, sinceThen(began, err)))
		}
		timer := time.NewTimer(pause/2 + rand.N(pause/2))
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return v, ctx.Err()
		}
	}
}

// aside runs a try on another goroutine. It stops waiting for the try when ctx ends or the time of
// the try is over, because some drivers ignore contexts, always or in some places.
func aside[T any](
	ctx context.Context, l *Locker, most time.Duration, asking *sync.WaitGroup,
	try func(context.Context) (T, error),
) (T, error) {
	type result struct {
		v   T
		err error
	}
	own, cancel := context.WithTimeout(context.WithoutCancel(ctx), most)
	done := make(chan result, 1)
	if asking != nil {
		asking.Add(1)
	}
	l.asides.Go(func() {
		if asking != nil {
			defer asking.Done()
		}
		defer cancel()
		v, err := try(own)
		if err != nil && own.Err() != nil {
			err = &noAnswer{most, err}
		}
		done <- result{v, err}
	})
	select {
	case r := <-done:
		return r.v, r.err
	case <-own.Done():
	case <-ctx.Done():
	}
	var none T
	select {
	case r := <-done: // both happened at once: prefer the result
		return r.v, r.err
	default:
	}
	if ctx.Err() != nil {
		return none, ctx.Err()
	}
	return none, &noAnswer{most, own.Err()}
}

// query runs a statement and returns the number of rows that it gave. It reads to the end, because
// the database reports only at the end whether the statement's transaction was committed.
func (l *Locker) query(
	ctx context.Context, scan func(*sql.Rows) error, statement string, args ...any,
) (n int, err error) {
	if statement != l.sql.look {
		done, err := l.writes.begin(ctx)
		if err != nil {
			return 0, err
		}
		defer done()
	}
	rows, err := l.db.QueryContext(ctx, statement, args...)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for ; rows.Next(); n++ {
		if scan == nil {
			continue
		}
		if err := scan(rows); err != nil {
			return n, err
		}
	}
	return n, rows.Err()
}

// exec runs a statement and returns the number of rows that it has changed.
func (l *Locker) exec(ctx context.Context, statement string, args ...any) (int64, error) {
	done, err := l.writes.begin(ctx)
	if err != nil {
		return 0, err
	}
	defer done()
	result, err := l.db.ExecContext(ctx, statement, args...)
	if err != nil {
		return 0, err
	}
	return result.RowsAffected()
}

// writes lets only one writing statement run at a time. SQLite has one writer. Without writes, a
// statement that finds this writer busy would sleep for a while, and statements would not run in
// the order in which they came. The channel has room for one. A nil channel lets all statements run
// at once.
type writes chan struct{}

func (w writes) begin(ctx context.Context) (done func(), err error) {
	if w == nil {
		return func() {}, nil
	}
	select {
	case w <- struct{}{}:
		return func() { <-w }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}
