package main

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	_ "github.com/jackc/pgx/v5/stdlib" // the driver "pgx"
	"modernc.org/sqlite"               // and the driver "sqlite"

	"github.com/cacheguard/cacheguard/cacheguard/lock/sqllock"
)

// schema works in SQLite and in PostgreSQL.
const schema = `
CREATE TABLE category (
	id        INTEGER PRIMARY KEY,
	parent_id INTEGER REFERENCES category (id), -- null at level 1
	level     INTEGER NOT NULL CHECK (level BETWEEN 1 AND 3),
	name      TEXT    NOT NULL,
	sort      INTEGER NOT NULL                  -- place among the children of its parent
);
CREATE INDEX category_parent ON category (parent_id);
CREATE UNIQUE INDEX category_name ON category (COALESCE(parent_id, 0), name)`

const (
	postgresConns = 16          // the most connections to PostgreSQL, of all replicas together
	openTimeout   = time.Minute // the time limit for a database that others may use, too
	busyPause     = 5 * time.Millisecond
)

// database is the shop's SQL database, shared by all its replicas and safe for any number of them.
type database struct {
	*sql.DB
	what    string // kind and place of the database, for people
	dialect sqllock.Dialect
	// A connection that stays open, because SQLite drops a database in memory with its last
	// connection; nil for other databases.
	keeper *sql.Conn
}

// openDatabase opens a database, and fills it with the seed's categories if it has none. where is a
// URL of PostgreSQL, or the file of an SQLite database. If where is empty, the database is an
// SQLite in the memory of this process, which is lost when it is closed. Its name is random, so
// that one process can have several such databases.
func openDatabase(ctx context.Context, where string) (_ *database, err error) {
	d := &database{dialect: sqllock.SQLite}
	switch {
	case where == "":
		d.what = "SQLite in memory"
		d.DB, err = sql.Open("sqlite", "file:/catalog-"+rand.Text()+"?vfs=memdb&"+pragmas)
	case isPostgres(where):
		d.what, d.dialect = "PostgreSQL: "+place(where), sqllock.PostgreSQL
		if d.DB, err = sql.Open("pgx", where); err == nil {
			d.SetMaxOpenConns(postgresConns)
		}
	default:
		d.what = "SQLite: " + where
		d.DB, err = sql.Open("sqlite", fileURI(where)+"?_pragma=journal_mode(WAL)&"+pragmas)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", d.what, err)
	}
	if where == "" {
		if d.keeper, err = d.Conn(ctx); err != nil {
			return nil, fmt.Errorf("%s: %w", d.what, errors.Join(err, d.DB.Close()))
		}
	}
	if where != "" { // in memory there is nobody to wait for
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, openTimeout)
		defer cancel()
	}
	err = d.fill(ctx)
	for isBusy(err) && ctx.Err() == nil {
		time.Sleep(busyPause)
		err = d.fill(ctx)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", d.what, errors.Join(err, d.Close()))
	}
	return d, nil
}

// pragmas are the settings of each connection to SQLite. With them a transaction asks for the right
// to write when it begins. Otherwise two transactions could both read, and then both could be
// refused.
const pragmas = "_pragma=busy_timeout(5000)&_pragma=foreign_keys(1)&_txlock=immediate"

func isPostgres(where string) bool {
	return strings.HasPrefix(where, "postgres://") || strings.HasPrefix(where, "postgresql://")
}

// place returns only the scheme, the host and the database of a URL, because the rest of the URL
// may contain passwords in several places.
func place(where string) string {
	u, err := url.Parse(where)
	if err != nil {
		return "?"
	}
	return u.Scheme + "://" + u.Host + u.EscapedPath()
}

// fileURI returns the URI of a file in SQLite's form (sqlite.org/uri.html). It works for any
// characters in the file's name.
func fileURI(name string) string {
	path := filepath.ToSlash(name)
	if filepath.VolumeName(name) != "" {
		path = "/" + path
	}
	return "file:" + (&url.URL{Path: path}).EscapedPath()
}

// fill creates the category table with the seed's categories, unless the table exists. It adds all
// categories or none.
func (d *database) fill(ctx context.Context) error {
	tx, err := d.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback() // does nothing after the commit

	there, err := d.claimTable(ctx, tx)
	if err != nil || there {
		return err
	}
	if _, err := tx.ExecContext(ctx, schema); err != nil {
		return err
	}
	if err := insertSeed(ctx, tx, seedText); err != nil {
		return err
	}
	return tx.Commit()
}

// claimTable reports whether there is a category table. If there is none, other processes that look
// for the table wait until tx ends.
func (d *database) claimTable(ctx context.Context, tx *sql.Tx) (there bool, err error) {
	look := `SELECT count(*) FROM sqlite_master WHERE type = 'table' AND name = 'category'`
	if d.dialect == sqllock.PostgreSQL {
		if _, err := tx.ExecContext(ctx,
			`SELECT pg_advisory_xact_lock(hashtext('category'))`); err != nil {
			return false, err
		}
		look = `SELECT count(*) FROM pg_tables WHERE tablename = 'category' AND schemaname = current_schema()`
	}
	var tables int
	if err := tx.QueryRowContext(ctx, look).Scan(&tables); err != nil || tables == 0 {
		return false, err
	}
	if _, err := readCategories(ctx, tx, `WHERE id < 0`); err != nil {
		return true, fmt.Errorf("its table category is not this shop's: %w", err)
	}
	return true, nil
}

func insertSeed(ctx context.Context, tx *sql.Tx, text string) error {
	rows, err := parseSeed(text)
	if err != nil {
		return err
	}
	// Rows in one statement. One statement for each takes long if the database is far away.
	const together = 100
	for some := range slices.Chunk(rows, together) {
		var values []string
		var args []any
		for _, r := range some {
			n := len(args)
			values = append(values, fmt.Sprintf("($%d, NULLIF($%d, 0), $%d, $%d, $%d)",
				n+1, n+2, n+3, n+4, n+5))
			args = append(args, r.ID, r.ParentID, r.Level, r.Name, r.Sort)
		}
		if _, err := tx.ExecContext(ctx,
			`INSERT INTO category (id, parent_id, level, name, sort) VALUES `+
				strings.Join(values, ", "), args...); err != nil {
			return fmt.Errorf("categories %q to %q: %w", some[0].Name, some[len(some)-1].Name, err)
		}
	}
	return nil
}

// isTaken reports whether a statement failed because it would have violated a unique constraint.
func isTaken(err error) bool {
	var lite *sqlite.Error
	var postgres *pgconn.PgError
	const sqliteConstraintUnique, uniqueViolation = 2067, "23505"
	return errors.As(err, &lite) && lite.Code() == sqliteConstraintUnique ||
		errors.As(err, &postgres) && postgres.Code == uniqueViolation
}

// isBusy reports whether a statement failed because SQLite didn't wait for another program.
// busy_timeout doesn't apply to the change of a file to journal_mode=WAL. Two programs that open a
// new file at once may both want this change.
func isBusy(err error) bool {
	var lite *sqlite.Error
	const sqliteBusy = 5
	return errors.As(err, &lite) && lite.Code()&0xff == sqliteBusy
}

// Close closes the database. A database in memory is lost.
func (d *database) Close() error {
	var err error
	if d.keeper != nil {
		err = d.keeper.Close()
	}
	return errors.Join(err, d.DB.Close())
}
