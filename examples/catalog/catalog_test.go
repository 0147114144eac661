package main

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"reflect"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func openTestDatabase(t *testing.T, where string) *database {
	t.Helper()
	db, err := openDatabase(t.Context(), where)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	return db
}

func testOrigin(db *database) *origin {
	return &origin{db: db.DB, log: slog.New(slog.DiscardHandler)}
}

func TestMapHasEveryCategoryOnce(t *testing.T) {
	o := testOrigin(openTestDatabase(t, ""))
	loaded, err := o.load(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	m := loaded.byID()
	rows, err := parseSeed(seedText)
	if err != nil {
		t.Fatal(err)
	}
	byID := map[int]row{}
	for _, r := range rows {
		byID[r.ID] = r
	}

	found := map[int]int{} // how often, by id
	check := func(c category, level, parentID int) {
		t.Helper()
		found[c.ID]++
		if want := byID[c.ID]; want.Level != level || want.ParentID != parentID ||
			c.ParentID != parentID || want.Name != c.Name {
			t.Errorf("%+v at level %d below %d, the seed has %+v", c, level, parentID, want)
		}
	}
	for id, level2s := range m {
		found[id]++
		for _, level2 := range level2s {
			check(level2, 2, id)
			for _, level3 := range level2.Children {
				check(level3, 3, level2.ID)
				if level3.Children != nil {
					t.Errorf("%q has children below level 3", level3.Name)
				}
			}
		}
	}
	for _, r := range rows {
		if found[r.ID] != 1 {
			t.Errorf("%+v is in the map %d times, want once", r, found[r.ID])
		}
	}
}

func TestMapKeepsTheShopsOrder(t *testing.T) {
	o := testOrigin(openTestDatabase(t, ""))
	loaded, err := o.load(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	m := loaded.byID()
	first := m[1][0]
	if first.Name != "Audio" || first.Children[0].Name != "Over-ear headphones" ||
		m[1][1].Name != "Televisions" {
		t.Errorf("the map begins with %q, %q; then %q", first.Name, first.Children[0].Name,
			m[1][1].Name)
	}
}

func TestMapAsJSON(t *testing.T) {
	m := arrange([]row{
		{ID: 1, Level: 1, Name: "Electronics"},
		{ID: 2, Level: 1, Name: "Garden"},
		{ID: 3, ParentID: 1, Level: 2, Name: "Audio"},
		{ID: 4, ParentID: 3, Level: 3, Name: "Over-ear headphones"},
	}).byID()
	got, err := json.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	want := `{"1":[{"id":3,"parentId":1,"name":"Audio","children":[{"id":4,"parentId":3,"name":"Over-ear headphones"}]}],"2":[]}`
	if string(got) != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	var back categoryMap
	if err := json.Unmarshal(got, &back); err != nil || !reflect.DeepEqual(back, m) {
		t.Errorf("read back: %v (%v), want %v", back, err, m)
	}
}

func TestDatabaseRefusesASecondCategoryOfTheSameName(t *testing.T) {
	db := openTestDatabase(t, "")
	_, err := db.ExecContext(t.Context(),
		`INSERT INTO category (level, name, sort) VALUES (1, 'Electronics', 21)`)
	if err == nil || !strings.Contains(err.Error(), "UNIQUE") {
		t.Errorf("error %v, want one about uniqueness", err)
	}
}

func TestDatabasesAreApart(t *testing.T) {
	one, other := openTestDatabase(t, ""), openTestDatabase(t, "")
	if _, err := one.ExecContext(t.Context(), `DELETE FROM category WHERE level = 3`); err != nil {
		t.Fatal(err)
	}
	var count int
	if err := other.QueryRowContext(t.Context(),
		`SELECT count(*) FROM category WHERE level = 3`).Scan(&count); err != nil || count != 1359 {
		t.Errorf("%d level-3 categories (%v), want 1359", count, err)
	}
}

func TestDatabaseServesReadersBesideAWriter(t *testing.T) {
	db := openTestDatabase(t, "")
	o := testOrigin(db)
	var group sync.WaitGroup
	for range 4 {
		group.Go(func() {
			for range 5 {
				if m, err := o.load(t.Context()); err != nil || len(m) != 20 {
					t.Errorf("%d level-1 categories (%v), want 20", len(m), err)
				}
			}
		})
	}
	group.Go(func() {
		for range 20 {
			if _, err := db.ExecContext(t.Context(),
				`UPDATE category SET name = 'Hi-fi' WHERE id = 21`); err != nil {
				t.Error(err)
			}
		}
	})
	group.Wait()
	if got := o.loads.Load(); got != 20 {
		t.Errorf("%d loads counted, want 20", got)
	}
}

func TestLoadEndsWithItsContext(t *testing.T) {
	o := testOrigin(openTestDatabase(t, ""))
	o.delay = time.Hour
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := o.load(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v, want context.Canceled", err)
	}
}

func TestWaitTakesItsTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		if err := wait(t.Context(), 200*time.Millisecond); err != nil ||
			time.Since(begin) != 200*time.Millisecond {
			t.Errorf("waited %v (%v), want 200ms", time.Since(begin), err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := wait(ctx, time.Hour); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("error %v, want context.DeadlineExceeded", err)
		}
	})
}
