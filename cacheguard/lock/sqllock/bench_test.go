package sqllock_test

import (
	"context"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/cacheguard/cacheguard/cacheguard/lock/sqllock"
	"github.com/cacheguard/cacheguard/internal/pgtest"
)

// BenchmarkLockUnlock measures a lock that no other caller wants. For comparison it measures two
// statements that change one row each.
func BenchmarkLockUnlock(b *testing.B) {
	systems := map[string]func(b *testing.B) system{
		"SQLite": func(b *testing.B) system {
			file := filepath.ToSlash(filepath.Join(b.TempDir(), "locks.db"))
			return system{
				Dialect: sqllock.SQLite,
				Source:  "file:" + file + "?_pragma=journal_mode(wal)&_pragma=synchronous(normal)",
			}
		},
		"PostgreSQL": func(b *testing.B) system {
			return system{
				Dialect: sqllock.PostgreSQL, Source: pgtest.Shared(b).URL(),
				Table: fmt.Sprintf("locks_%d", tables.Add(1)),
			}
		},
	}
	for name, open := range systems {
		b.Run(name, func(b *testing.B) {
			s, ctx := open(b), context.Background()
			db := (&spy{open: s.connect}).db()
			defer db.Close()
			l, err := sqllock.New(db, sqllock.Options{
				Dialect: s.Dialect, Table: s.Table, Lease: time.Minute, OpTimeout: 20 * time.Second,
			})
			if err != nil {
				b.Fatal(err)
			}
			defer l.Close()
			if err := l.Create(ctx); err != nil {
				b.Fatal(err)
			}
			b.Run("floor", func(b *testing.B) {
				held, err := l.Lock(ctx, "row")
				if err != nil {
					b.Fatal(err)
				}
				defer held.Unlock(ctx)
				for b.Loop() {
					for range 2 {
						if _, err := db.ExecContext(ctx,
							"UPDATE "+s.table()+" SET token = token + $1 WHERE name = $2", 1,
							[]byte("row")); err != nil {
							b.Fatal(err)
						}
					}
				}
			})
			b.Run("lock", func(b *testing.B) {
				for b.Loop() {
					held, err := l.Lock(ctx, "n")
					if err != nil {
						b.Fatal(err)
					}
					if err := held.Unlock(ctx); err != nil {
						b.Fatal(err)
					}
				}
			})
		})
	}
}
