package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/cacheguard/cacheguard/cacheguard"
)

// These are the log messages of the origin.
const (
	sayLoads   = "the category map is loaded"
	sayLoaded  = "the category map was loaded"
	sayRenamed = "a category is renamed"
)

// origin reads categories with SQL queries. It slows the queries down to the time that they take in
// a shop with a busy database. It counts the loads for all replicas together. It is safe for
// concurrent use.
type origin struct {
	db    *sql.DB
	delay time.Duration // of each query
	log   *slog.Logger

	loads         atomic.Int64 // of the tree
	categoryLoads atomic.Int64
	renames       atomic.Int64
}

// load reads the tree. If ctx ends, it returns early.
func (o *origin) load(ctx context.Context) (tree, error) {
	o.log.Info(sayLoads, "number", o.loads.Add(1))
	if err := wait(ctx, o.delay); err != nil {
		return nil, err
	}
	rows, err := readCategories(ctx, o.db, "")
	if err != nil {
		return nil, err
	}
	o.log.Info(sayLoaded, "categories", len(rows))
	return arrange(rows), nil
}

// category reads one category and its children, but not the children's children. If there is no
// category with this id, the error is cacheguard.ErrNotFound.
func (o *origin) category(ctx context.Context, id int) (category, error) {
	o.categoryLoads.Add(1)
	if err := wait(ctx, o.delay); err != nil {
		return category{}, err
	}
	rows, err := readCategories(ctx, o.db, `WHERE id = $1 OR parent_id = $1`, id)
	if err != nil {
		return category{}, err
	}
	if len(rows) == 0 || rows[0].ID != id {
		return category{}, cacheguard.ErrNotFound
	}
	own := category{ID: id, ParentID: rows[0].ParentID, Name: rows[0].Name}
	for _, r := range rows[1:] {
		own.Children = append(own.Children, category{ID: r.ID, ParentID: id, Name: r.Name})
	}
	return own, nil
}

// errTaken is the error if another child of the same category has the name.
var errTaken = errors.New("another category beside it has that name")

// renameTimeout is the time limit for a rename in the database. It is longer than SQLite waits for
// its turn.
const renameTimeout = 8 * time.Second

// rename gives a category a new name, and calls the function also in the same transaction. If
// rename returns without an error, the transaction is committed. The error can be
// cacheguard.ErrNotFound or errTaken. rename gives up after renameTimeout, because nothing else
// ends it.
func (o *origin) rename(
	ctx context.Context, id int, name string, also func(context.Context, *sql.Tx) error,
) error {
	ctx, cancel := context.WithTimeout(ctx, renameTimeout)
	defer cancel()
	tx, err := o.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback() // does nothing after the commit
	done, err := tx.ExecContext(ctx, `UPDATE category SET name = $1 WHERE id = $2`, name, id)
	if isTaken(err) {
		return errTaken
	}
	if err != nil {
		return err
	}
	renamed, err := done.RowsAffected()
	if err != nil {
		return err
	}
	if renamed == 0 {
		return cacheguard.ErrNotFound
	}
	if err := also(ctx, tx); err != nil {
		return err
	}
	o.log.Info(sayRenamed, "id", id, "name", name) // before any load can read the new name
	if err := tx.Commit(); err != nil {
		return err
	}
	o.renames.Add(1)
	return nil
}

type queryer interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// readCategories reads the categories that meet a condition, parents before their children, and
// children in the shop's order.
func readCategories(ctx context.Context, db queryer, condition string, args ...any) ([]row, error) {
	found, err := db.QueryContext(ctx,
		fmt.Sprintf(
			`SELECT id, COALESCE(parent_id, 0), level, name, sort FROM category %s ORDER BY level, sort, id`,
			condition), args...)
	if err != nil {
		return nil, err
	}
	defer found.Close()
	var rows []row
	for found.Next() {
		var r row
		if err := found.Scan(&r.ID, &r.ParentID, &r.Level, &r.Name, &r.Sort); err != nil {
			return nil, err
		}
		rows = append(rows, r)
	}
	return rows, found.Err()
}

// wait waits for d. If ctx ends first, it returns the error of ctx.
func wait(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
