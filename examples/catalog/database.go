package main

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"

	_ "modernc.org/sqlite" // the driver "sqlite"
)

const schema = `
CREATE TABLE category (
	id        INTEGER PRIMARY KEY,
	parent_id INTEGER REFERENCES category (id), -- null at level 1
	level     INTEGER NOT NULL CHECK (level BETWEEN 1 AND 3),
	name      TEXT    NOT NULL,
	sort      INTEGER NOT NULL                  -- place among the children of its parent
) STRICT;
CREATE INDEX category_parent ON category (parent_id);
CREATE UNIQUE INDEX category_name ON category (COALESCE(parent_id, 0), name)`

// database is the shop's SQL database: SQLite in the memory of this process, shared by all its replicas and safe for
// any number of them. It is gone when it is closed.
type database struct {
	*sql.DB
	keeper *sql.Conn // SQLite drops a database in memory with its last connection: this one stays open
}

// openDatabase makes the database and puts the seed's categories into it. Its name is drawn at random, so that several
// databases can live in one process.
func openDatabase(ctx context.Context) (*database, error) {
	db, err := sql.Open("sqlite", "file:/catalog-"+rand.Text()+"?vfs=memdb&_pragma=busy_timeout(5000)&_pragma=foreign_keys(1)")
	if err != nil {
		return nil, err
	}
	keeper, err := db.Conn(ctx)
	if err != nil {
		return nil, fmt.Errorf("open the database: %w", errors.Join(err, db.Close()))
	}
	d := &database{DB: db, keeper: keeper}
	if err := d.seed(ctx, seedText); err != nil {
		return nil, fmt.Errorf("fill the database: %w", errors.Join(err, d.Close()))
	}
	return d, nil
}

// seed makes the category table and inserts the seed's categories, all of them or none.
func (d *database) seed(ctx context.Context, text string) error {
	rows, err := parseSeed(text)
	if err != nil {
		return err
	}
	tx, err := d.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback() // does nothing after the commit

	if _, err := tx.ExecContext(ctx, schema); err != nil {
		return err
	}
	insert, err := tx.PrepareContext(ctx, `INSERT INTO category (id, parent_id, level, name, sort) VALUES (?, NULLIF(?, 0), ?, ?, ?)`)
	if err != nil {
		return err
	}
	defer insert.Close()
	for _, r := range rows {
		if _, err := insert.ExecContext(ctx, r.ID, r.ParentID, r.Level, r.Name, r.Sort); err != nil {
			return fmt.Errorf("category %q: %w", r.Name, err)
		}
	}
	return tx.Commit()
}

// Close drops the database.
func (d *database) Close() error {
	return errors.Join(d.keeper.Close(), d.DB.Close())
}
