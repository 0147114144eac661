package main

import (
	"bytes"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/internal/pgtest"
)

// somewhere returns the address of a persistent database for one test.
func somewhere(t *testing.T, kind string) string {
	t.Helper()
	if kind == "file" {
		return filepath.Join(t.TempDir(), "shop 100%?#.db")
	}
	where := pgtest.Shared(t).URL()
	admin, err := sql.Open("pgx", where)
	if err != nil {
		t.Fatal(err)
	}
	defer admin.Close()
	name := strings.ToLower(t.Name()[strings.LastIndex(t.Name(), "/")+1:] +
		t.Name()[:strings.Index(t.Name(), "/")])
	if _, err := admin.ExecContext(t.Context(), `CREATE DATABASE `+name); err != nil {
		t.Fatal(err)
	}
	u, err := url.Parse(where)
	if err != nil {
		t.Fatal(err)
	}
	u.Path = "/" + name
	return u.String()
}

// The shop works the same on every database, and finds its data again after a restart.
func TestDatabasesThatStay(t *testing.T) {
	for _, kind := range []string{"file", "postgresql"} {
		t.Run(kind, func(t *testing.T) {
			where := somewhere(t, kind)
			var filled sync.WaitGroup // several programs may start at once
			for range 4 {
				filled.Go(func() {
					db, err := openDatabase(t.Context(), where)
					if err != nil {
						t.Error(err)
						return
					}
					if err := db.Close(); err != nil {
						t.Error(err)
					}
				})
			}
			filled.Wait()
			if t.Failed() {
				return
			}

			o := testOrigin(openTestDatabase(t, where))
			if err := o.rename(t.Context(), audio, "Hi-fi", nothingElse); err != nil {
				t.Fatal(err)
			}
			if err := o.rename(t.Context(), audio, "Televisions", nothingElse); !errors.Is(err,
				errTaken) {
				t.Errorf("a name that is taken: %v", err)
			}
			if err := o.rename(t.Context(), 4711, "Hi-fi", nothingElse); !errors.Is(err,
				cacheguard.ErrNotFound) {
				t.Errorf("a category that there is not: %v", err)
			}

			again := testOrigin(openTestDatabase(t, where))
			loaded, err := again.load(t.Context())
			if err != nil || len(loaded) != 20 || loaded[0].Children[0].Name != "Hi-fi" ||
				len(loaded[0].Children[0].Children) != 9 {
				t.Errorf("%d categories at level 1 (%v), the first has %+v", len(loaded), err,
					loaded[0].Children[0])
			}
			own, err := again.category(t.Context(), audio)
			if err != nil || own.Name != "Hi-fi" || own.ParentID != 1 || len(own.Children) != 9 {
				t.Errorf("%+v (%v)", own, err)
			}
			if _, err := again.category(t.Context(), 4711); !errors.Is(err,
				cacheguard.ErrNotFound) {
				t.Errorf("a category that there is not: %v", err)
			}

			c := start(t, 2, "-origin-delay", "0s", "-db", where)
			client := newClient(t)
			if status, said := rename(t, client, c.urls[0], audio,
				`{"name": "Audio 7"}`); status != http.StatusOK {
				t.Errorf("status %d, %s", status, said)
			}
			if told := toldVersion(t, get(t, client, c.urls[1]+"/catalog.json")); told != 7 {
				t.Errorf("told name %d", told)
			}
		})
	}
}

func TestDatabasesThatAreNot(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "notes.txt")
	if err := os.WriteFile(file, []byte(strings.Repeat("no database. ", 100)), 0o600); err != nil {
		t.Fatal(err)
	}
	foreign := filepath.Join(dir, "foreign.db")
	db, err := sql.Open("sqlite", fileURI(foreign))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := db.ExecContext(t.Context(), `CREATE TABLE category (title TEXT)`); err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	nobody, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	nobody.Close()
	for _, c := range []struct{ where, want string }{
		{dir, "SQLite: " + dir},
		{filepath.Join(dir, "missing", "shop.db"), "missing"},
		{file, "not a database"},
		{foreign, "category is not this shop's"},
		{
			fmt.Sprintf("postgres://shop:secret@%s/shop?sslmode=disable", nobody.Addr()),
			"PostgreSQL: postgres://" + nobody.Addr().String() + "/shop:",
		},
	} {
		var stdout, stderr bytes.Buffer
		if code := run(t.Context(), []string{"-addr", "127.0.0.1:0", "-db", c.where}, &stdout,
			&stderr); code != 1 {
			t.Errorf("%s: exit code %d", c.where, code)
		}
		if said := stderr.String(); !strings.Contains(said, c.want) ||
			strings.Contains(said, "secret") || stdout.Len() > 0 {
			t.Errorf("%s: on stderr %q, want %q in it; on stdout %q", c.where, said, c.want,
				&stdout)
		}
	}
}
