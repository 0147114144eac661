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

// What the origin logs.
const (
	sayLoads   = "the category map is loaded"
	sayLoaded  = "the category map was loaded"
	sayRenamed = "a category is renamed"
)

// origin is where categories come from: SQL queries, slowed down to what they take in a shop with a
// busy database. It counts what it is asked for, whichever replica that is for. It is safe for
// concurrent use.
type origin struct {
	db    *sql.DB
	delay time.Duration // of each query
	log   *slog.Logger

	loads         atomic.Int64 // of the tree
	categoryLoads atomic.Int64
	renames       atomic.Int64
}

// load reads the tree. It ends early when ctx does.
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

// category reads one category and its children, but not theirs. If there is none of that id, the
// error is cacheguard.ErrNotFound.
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

// errTaken says that a name can't be given to two children of one category.
var errTaken = errors.New("another category beside it has that name")

// renameTimeout is how long the database may take to rename: longer than SQLite waits for its turn.
const renameTimeout = 8 * time.Second

// rename gives a category a name, and does what else is part of the same transaction. It is
// committed when rename returns without an error, which may be cacheguard.ErrNotFound or errTaken.
// It gives up after renameTimeout, for nobody else ends it.
func (o *origin) rename(ctx context.Context, id int, name string, also func(context.Context, *sql.Tx) error) error {
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
	o.log.Info(sayRenamed, "id", id, "name", name) // before anybody can load it
	if err := tx.Commit(); err != nil {
		return err
	}
	o.renames.Add(1)
	return nil
}

type queryer interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// readCategories reads what a condition says, parents before their children, children in the shop's
// order.
func readCategories(ctx context.Context, db queryer, condition string, args ...any) ([]row, error) {
	found, err := db.QueryContext(ctx,
		fmt.Sprintf(`SELECT id, COALESCE(parent_id, 0), level, name, sort FROM category %s ORDER BY level, sort, id`, condition), args...)
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

// wait returns after d, or with the context's error when that ends first.
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
