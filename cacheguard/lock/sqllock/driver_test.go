package sqllock_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"strings"
	"sync"
)

// spy is a database/sql driver around another driver. It sees each statement, and can make the
// statement fail. Set its fields before the first use. Its methods are safe for concurrent use.
type spy struct {
	open func() (driver.Conn, error)

	mu     sync.Mutex // guards the fields below
	seen   []seen
	before func(s seen) error // instead of the statement, if it returns an error
	after  func(s seen) error // instead of the statement's result, likewise
}

// seen is a statement that was sent.
type seen struct {
	query string
	args  []driver.NamedValue
	ctx   context.Context
}

// is reports whether the statement contains these words, for example "INSERT".
func (s seen) is(words string) bool { return strings.Contains(s.query, words) }

func (p *spy) db() *sql.DB { return sql.OpenDB(p) }

func (p *spy) Connect(context.Context) (driver.Conn, error) {
	c, err := p.open()
	if err != nil {
		return nil, err
	}
	return &spiedConn{c, p}, nil
}

func (p *spy) Driver() driver.Driver { return nil }

// statements returns the statements that were sent since the last call.
func (p *spy) statements() []seen {
	p.mu.Lock()
	defer p.mu.Unlock()
	was := p.seen
	p.seen = nil
	return was
}

func (p *spy) count(words string) (n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, s := range p.seen {
		if s.is(words) {
			n++
		}
	}
	return n
}

func (p *spy) onBefore(f func(seen) error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.before = f
}

func (p *spy) onAfter(f func(seen) error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.after = f
}

func (p *spy) begins(s seen) error {
	p.mu.Lock()
	p.seen = append(p.seen, s)
	f := p.before
	p.mu.Unlock()
	if f == nil {
		return nil
	}
	return f(s)
}

func (p *spy) ends(s seen) error {
	p.mu.Lock()
	f := p.after
	p.mu.Unlock()
	if f == nil {
		return nil
	}
	return f(s)
}

// spiedConn is a connection with all optional interfaces of database/sql.
type spiedConn struct {
	driver.Conn
	p *spy
}

func (c *spiedConn) QueryContext(
	ctx context.Context, query string, args []driver.NamedValue,
) (driver.Rows, error) {
	s := seen{query, args, ctx}
	if err := c.p.begins(s); err != nil {
		return nil, err
	}
	rows, err := c.Conn.(driver.QueryerContext).QueryContext(ctx, query, args)
	if err != nil {
		return nil, err
	}
	if err := c.p.ends(s); err != nil {
		// Read all rows, so that the statement is carried out.
		for values := make([]driver.Value, len(rows.Columns())); rows.Next(values) == nil; {
		}
		_ = rows.Close()
		return nil, err
	}
	return rows, nil
}

func (c *spiedConn) ExecContext(
	ctx context.Context, query string, args []driver.NamedValue,
) (driver.Result, error) {
	s := seen{query, args, ctx}
	if err := c.p.begins(s); err != nil {
		return nil, err
	}
	result, err := c.Conn.(driver.ExecerContext).ExecContext(ctx, query, args)
	if lost := c.p.ends(s); err == nil && lost != nil {
		return nil, lost
	}
	return result, err
}

func (c *spiedConn) BeginTx(ctx context.Context, opts driver.TxOptions) (driver.Tx, error) {
	return c.Conn.(driver.ConnBeginTx).BeginTx(ctx, opts)
}

func (c *spiedConn) ResetSession(ctx context.Context) error {
	if r, ok := c.Conn.(driver.SessionResetter); ok {
		return r.ResetSession(ctx)
	}
	return nil
}

func (c *spiedConn) IsValid() bool {
	v, ok := c.Conn.(driver.Validator)
	return !ok || v.IsValid()
}

func (c *spiedConn) CheckNamedValue(v *driver.NamedValue) error {
	if n, ok := c.Conn.(driver.NamedValueChecker); ok {
		return n.CheckNamedValue(v)
	}
	return driver.ErrSkip
}
