package outbox_test

import (
	"context"
	"database/sql"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/cacheguard/lock/sqllock"
	"github.com/cacheguard/cacheguard/cacheguard/outbox"
	"github.com/cacheguard/cacheguard/cacheguard/redisstore"
	"github.com/cacheguard/cacheguard/internal/redistest"
	"github.com/cacheguard/cacheguard/internal/waittest"
)

// delivered is a store that reports each change when it has been made.
type delivered struct {
	cacheguard.Store
	keys chan int
}

func (d *delivered) Invalidate(ctx context.Context, keys []cacheguard.Key) error {
	err := d.Store.Invalidate(ctx, keys)
	d.keys <- len(keys)
	return err
}

// shop is a database with one product, an outbox, and a Redis.
type shop struct {
	system
	db  *sql.DB
	box *outbox.Box
	*delivered
}

func onEachShop(b *testing.B, bench func(b *testing.B, s shop)) {
	for name, open := range map[string]func(testing.TB) system{
		"SQLite": onSQLite, "PostgreSQL": onPostgreSQL,
	} {
		b.Run(name, func(b *testing.B) {
			s := shop{system: open(b)}
			rdb := redis.NewClient(&redis.Options{
				Addr: redistest.Shared(b).Addr(), ContextTimeoutEnabled: true,
			})
			b.Cleanup(func() { _ = rdb.Close() })
			store, err := redisstore.New(rdb, redisstore.Options{Prefix: s.Table})
			if err != nil {
				b.Fatal(err)
			}
			b.Cleanup(func() { _ = store.Close() })
			s.delivered = &delivered{Store: store, keys: make(chan int, 1<<20)}
			s.db = s.system.db(b)
			s.exec(b, s.db,
				"CREATE TABLE OUTBOX_products (id BIGINT NOT NULL PRIMARY KEY, sold BIGINT NOT NULL DEFAULT 0)")
			s.exec(b, s.db, "INSERT INTO OUTBOX_products (id) VALUES (1)")
			s.box = s.system.box(b, s.delivered, func(o *outbox.Options) {
				o.Poll = 0 // the default
				if s.Dialect == sqllock.PostgreSQL {
					o.Listen = listen(s.Source, make(chan struct{}, 1))
				}
			})
			bench(b, s)
		})
	}
}

func (s shop) sell(b *testing.B, with bool) {
	in(b, s.db, func(tx *sql.Tx) error {
		_, err := tx.ExecContext(b.Context(),
			"UPDATE "+s.Table+"_products SET sold = sold + 1 WHERE id = 1")
		if err == nil && with {
			err = s.box.Invalidate(b.Context(), tx, "product", "1")
		}
		return err
	})
}

// BenchmarkTransaction measures a transaction of one UPDATE, without and with an invalidation.
func BenchmarkTransaction(b *testing.B) {
	onEachShop(b, func(b *testing.B, s shop) {
		for name, with := range map[string]bool{"without": false, "with": true} {
			b.Run(name, func(b *testing.B) {
				for b.Loop() {
					s.sell(b, with)
				}
			})
		}
	})
}

// BenchmarkCommitToFresh measures the time from the return of the commit until Redis has deleted
// the value.
func BenchmarkCommitToFresh(b *testing.B) {
	onEachShop(b, func(b *testing.B, s shop) {
		run(b, s.box)
		s.sell(b, true)
		s.box.Wake()
		waittest.Next(b, "the first", s.keys)
		var took []time.Duration
		for b.Loop() {
			s.sell(b, true)
			committed := time.Now()
			s.box.Wake()
			waittest.Next(b, "the delivery", s.keys)
			took = append(took, time.Since(committed))
		}
		slices.Sort(took)
		b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, "p50-ms")
		b.ReportMetric(float64(took[len(took)*99/100].Microseconds())/1000, "p99-ms")
	})
}

// BenchmarkBacklog measures the delivery of 10,000 rows that wait.
func BenchmarkBacklog(b *testing.B) {
	const rows = 10_000
	names := make([]string, rows)
	for i := range names {
		names[i] = "product " + time.Duration(i).String()
	}
	onEachShop(b, func(b *testing.B, s shop) {
		for b.Loop() {
			b.StopTimer()
			in(b, s.db, func(tx *sql.Tx) error {
				return s.box.Invalidate(b.Context(), tx, "product", names...)
			})
			b.StartTimer()
			stop := run(b, s.box)
			for left := rows; left > 0; {
				left -= waittest.Next(b, "the rest", s.keys)
			}
			stop()
		}
	})
}
