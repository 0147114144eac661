package main

import (
	"context"
	"database/sql"
	"sync/atomic"
	"time"
)

// categoryMap is what the shop's menu is drawn from: for each level-1 id its level-2 categories, in the shop's order,
// each with its level-3 children.
type categoryMap map[int][]category

type category struct {
	ID       int        `json:"id"`
	ParentID int        `json:"parentId"`
	Name     string     `json:"name"`
	Children []category `json:"children,omitempty"` // none at level 3
}

// arrange makes the category map of rows that are in the order of their levels, then of their places.
func arrange(rows []row) categoryMap {
	m := categoryMap{}
	children := map[int][]category{}
	for _, r := range rows {
		if r.Level == 1 {
			m[r.ID] = []category{}
			continue
		}
		children[r.ParentID] = append(children[r.ParentID], category{ID: r.ID, ParentID: r.ParentID, Name: r.Name})
	}
	for id := range m {
		for _, level2 := range children[id] {
			level2.Children = children[level2.ID]
			m[id] = append(m[id], level2)
		}
	}
	return m
}

// origin is where the category map comes from: one SQL query, slowed down to what such a query takes in a shop with
// a busy database. It counts its loads, whichever replica they are for. It is safe for concurrent use.
type origin struct {
	db    *sql.DB
	delay time.Duration
	loads atomic.Int64
}

// load reads the category map. It ends early when ctx does.
func (o *origin) load(ctx context.Context) (categoryMap, error) {
	o.loads.Add(1)
	if err := wait(ctx, o.delay); err != nil {
		return nil, err
	}
	rows, err := readCategories(ctx, o.db)
	if err != nil {
		return nil, err
	}
	return arrange(rows), nil
}

func readCategories(ctx context.Context, db *sql.DB) ([]row, error) {
	found, err := db.QueryContext(ctx, `SELECT id, COALESCE(parent_id, 0), level, name, sort FROM category ORDER BY level, sort, id`)
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
