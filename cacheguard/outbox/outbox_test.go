package outbox_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/cacheguard/lock/sqllock"
	"github.com/cacheguard/cacheguard/cacheguard/outbox"
	"github.com/cacheguard/cacheguard/internal/logtest"
	"github.com/cacheguard/cacheguard/internal/waittest"
)

// Each kind of invalidation has the same effect on a value as the cache's own method, and has no
// effect before the commit.
func TestDelivery(t *testing.T) {
	type change func(ctx context.Context, b *outbox.Box, tx outbox.Tx) error
	for name, do := range map[string]change{
		"Invalidate": func(ctx context.Context, b *outbox.Box, tx outbox.Tx) error {
			return b.Invalidate(ctx, tx, "product", "41", "42")
		},
		"MarkStale": func(ctx context.Context, b *outbox.Box, tx outbox.Tx) error {
			return b.MarkStale(ctx, tx, "product", "42")
		},
		"InvalidateTags": func(ctx context.Context, b *outbox.Box, tx outbox.Tx) error {
			return b.InvalidateTags(ctx, tx, "product", "brand:7", "brand:8")
		},
		"MarkStaleTags": func(ctx context.Context, b *outbox.Box, tx outbox.Tx) error {
			return b.MarkStaleTags(ctx, tx, "product", "shelf:1")
		},
		"InvalidateAll": func(ctx context.Context, b *outbox.Box, tx outbox.Tx) error {
			return b.InvalidateAll(ctx, tx, "product")
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			onEach(t, func(t *testing.T, s system) {
				store := memoryStore(t)
				b, db := s.box(t, store), s.db(t)
				run(t, b)
				products, err := cacheguard.New(store, cacheguard.Options[string]{Name: "product"})
				if err != nil {
					t.Fatal(err)
				}
				defer products.Close()
				price := "old"
				get := func() string {
					t.Helper()
					r, err := products.GetEntry(soon(t), "42", func(
						context.Context, cacheguard.Result[string],
					) (cacheguard.Entry[string], error) {
						return cacheguard.Entry[string]{
							Value: price, Tags: []string{"brand:7"}, SoftTags: []string{"shelf:1"},
						}, nil
					})
					if err != nil {
						t.Fatal(err)
					}
					return r.Value
				}
				get()
				price = "new"
				in(t, db, func(tx *sql.Tx) error {
					if err := do(soon(t), b, tx); err != nil {
						return err
					}
					if got := get(); got != "old" {
						t.Errorf("before the commit: %q", got)
					}
					return nil
				})
				b.Wake()
				if err := b.Flush(soon(t)); err != nil {
					t.Fatal(err)
				}
				if got := get(); got != "new" {
					t.Errorf("after the commit: %q", got)
				}
			})
		})
	}
}

func TestRollback(t *testing.T) {
	onEach(t, func(t *testing.T, s system) {
		l := newLedger(t)
		b, db := s.box(t, l), s.db(t)
		tx, err := db.BeginTx(soon(t), nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(b.Invalidate(soon(t), tx, "product", "1"),
			tx.Rollback()); err != nil {
			t.Fatal(err)
		}
		in(t, db, func(tx *sql.Tx) error { return b.Invalidate(soon(t), tx, "product", "2") })
		run(t, b)
		if err := b.Flush(soon(t)); err != nil {
			t.Fatal(err)
		}
		if got := l.all(); !slices.Equal(got, []string{`key product "2"`}) {
			t.Errorf("delivered: %q", got)
		}
	})
}

// Rows are delivered in the order of their ids. Rows of the same kind and cache are delivered
// together. Any name is delivered unchanged.
func TestOrderAndNames(t *testing.T) {
	names := []string{
		"", "a", "b\x00c", "\xff\xfe", `\x61`, `\xzz`, "日本", `"quoted" <&> ` + "\u2028",
		strings.Repeat("long", 1000),
	}
	onEach(t, func(t *testing.T, s system) {
		l := newLedger(t)
		b, db := s.box(t, l), s.db(t)
		var want []string
		for range 3 {
			in(t, db, func(tx *sql.Tx) error {
				return errors.Join(b.Invalidate(soon(t), tx, "one", names...),
					b.InvalidateTags(soon(t), tx, "one", "x", "\xffy"),
					b.Invalidate(soon(t), tx, "two"), b.Invalidate(soon(t), tx, "a\xffb", "1"),
					b.InvalidateAll(soon(t), tx, "two"))
			})
			for _, name := range names[:len(names)-1] {
				want = append(want, fmt.Sprintf("key one %q", name))
			}
			want = append(want, "a long one", `tags one ["x" "\xffy"]`, "key a\xffb \"1\"",
				`tags two []`)
		}
		run(t, b)
		if err := b.Flush(soon(t)); err != nil {
			t.Fatal(err)
		}
		got := l.all()
		for i, said := range got {
			if strings.HasPrefix(said, `key one "#sha256:`) {
				got[i] = "a long one"
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("delivered: %q\nwant:      %q", got, want)
		}
	})
}

// A transaction may write first and commit while later rows are being delivered. It has the smaller
// id. The removal of the later rows doesn't remove its row.
func TestLateCommit(t *testing.T) {
	s := onPostgreSQL(t)
	l := newLedger(t)
	b, db := s.box(t, l), s.db(t)
	tx, err := db.BeginTx(soon(t), nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Invalidate(soon(t), tx, "product", "first"); err != nil {
		t.Fatal(err)
	}
	in(t, db, func(tx *sql.Tx) error { return b.Invalidate(soon(t), tx, "product", "second") })
	l.during = sync.OnceFunc(func() {
		if err := tx.Commit(); err != nil {
			t.Error(err)
		}
	})
	run(t, b)
	l.await(t, "both", func(told []string) bool {
		return slices.Equal(told, []string{`key product "second"`, `key product "first"`})
	})
}

// If the store can't be reached, invalidations are delivered later, in order. One line of the log
// reports the beginning, and one the end.
func TestStoreIsAway(t *testing.T) {
	onEach(t, func(t *testing.T, s system) {
		l := newLedger(t)
		var log logtest.Lines
		b, db := s.box(t, l, func(o *outbox.Options) { o.Logger = log.Logger() }), s.db(t)
		run(t, b)
		in(t, db, func(tx *sql.Tx) error { return b.Invalidate(soon(t), tx, "product", "1") })
		l.await(t, "the first", func(told []string) bool { return len(told) == 1 })
		l.be(errors.New("gone fishing"))
		in(t, db, func(tx *sql.Tx) error { return b.Invalidate(soon(t), tx, "product", "2") })
		in(t, db, func(tx *sql.Tx) error { return b.InvalidateTags(soon(t), tx, "product", "t") })
		for range 3 { // the relay tries again and again
			<-l.news
		}
		hourEarlier := "written - interval '1 hour'"
		if s.Dialect == sqllock.SQLite {
			hourEarlier = "written - 3600000000"
		}
		s.exec(t, db, "UPDATE OUTBOX SET written = "+hourEarlier)
		backlog, err := b.Backlog(soon(t))
		if err != nil || backlog.Rows != 2 || backlog.Refused != 0 ||
			backlog.Oldest < time.Hour-time.Minute || backlog.Oldest > 2*time.Hour {
			t.Errorf("%+v, %v", backlog, err)
		}
		l.be(nil)
		if err := b.Flush(soon(t)); err != nil {
			t.Fatal(err)
		}
		// The cache of the relay also repeats the failed change, so the second key may come twice.
		if got := firsts(l.all()); !slices.Equal(got,
			[]string{`key product "1"`, `key product "2"`, `tags product ["t"]`}) {
			t.Errorf("delivered: %q", got)
		}
		// A busy machine may add trouble of its own, which ends, too.
		log.AwaitSome(t, "delivered again")
		if n := log.Count("gone fishing"); n != 1 {
			t.Errorf("%d lines about the store:\n%s", n, &log)
		}
	})
}

// firsts removes repetitions.
func firsts(all []string) (some []string) {
	for _, s := range all {
		if !slices.Contains(some, s) {
			some = append(some, s)
		}
	}
	return some
}

// A row that another program wrote and that can't be delivered doesn't block other rows.
func TestRefused(t *testing.T) {
	onEach(t, func(t *testing.T, s system) {
		l := newLedger(t)
		var log logtest.Lines
		b, db := s.box(t, l, func(o *outbox.Options) { o.Logger = log.Logger() }), s.db(t)
		for _, r := range [][3]string{
			{"tag", "product", ""}, {"tag", "product", strings.Repeat("x", 5000)}, {"key", "", "1"},
			{"key", "a{b}", "1"},
			{"key", "product", `\xnothex`}, {"stale-tag", "product", `\x00`},
			{"key", "product", "good"},
		} {
			s.exec(t, db, "INSERT INTO OUTBOX (kind, cache, name) VALUES ($1, $2, $3)", r[0], r[1],
				r[2])
		}
		run(t, b)
		if err := b.Flush(soon(t)); err != nil {
			t.Fatal(err)
		}
		if got := l.all(); !slices.Equal(got, []string{`key product "good"`}) {
			t.Errorf("delivered: %q", got)
		}
		if backlog, err := b.Backlog(soon(t)); err != nil ||
			backlog != (outbox.Backlog{Refused: 6}) {
			t.Errorf("%+v, %v", backlog, err)
		}
		if n := log.Count("can't be delivered and is kept"); n != 6 {
			t.Errorf("%d lines:\n%s", n, &log)
		}
		if _, err := db.ExecContext(soon(t),
			"INSERT INTO "+s.Table+
				" (kind, cache, name) VALUES ('nothing', 'product', '1')"); err == nil {
			t.Error("the table takes any kind")
		}
	})
}

// A refused row delays no row of a later batch: the relay rests only if no rows are left.
func TestRefusedInAFullBatch(t *testing.T) {
	onEach(t, func(t *testing.T, s system) {
		l := newLedger(t)
		b, db := s.box(t, l, func(o *outbox.Options) { o.Poll = never }), s.db(t)
		s.exec(t, db, "INSERT INTO OUTBOX (kind, cache, name) VALUES ('key', '', 'refused')")
		keys := make([]string, 1000) // more than one batch
		for i := range keys {
			keys[i] = fmt.Sprint(i)
		}
		in(t, db, func(tx *sql.Tx) error { return b.Invalidate(soon(t), tx, "product", keys...) })
		run(t, b) // which reads the table at once
		l.await(t, "the last", func(told []string) bool {
			return slices.Contains(told, `key product "999"`)
		})
	})
}

// If an invalidation can't be delivered, the writer gets an error while its transaction can still
// be rolled back.
func TestWrongNames(t *testing.T) {
	s := onSQLite(t)
	b, db := s.box(t, nil), s.db(t)
	for _, cache := range []string{
		"", "a{", "}b", strings.Repeat("c", 129), strings.Repeat("c", 128), "a b", "\x00",
		"{permits}",
	} {
		err := b.Invalidate(soon(t), db, cache, "1")
		other, wrong := cacheguard.New(memoryStore(t), cacheguard.Options[string]{Name: cache})
		if wrong == nil {
			other.Close()
		}
		if (err == nil) != (wrong == nil) {
			t.Errorf("cache %q: %v, and New says: %v", cache, err, wrong)
		}
	}
	for _, tag := range []string{"", "\x00soft", strings.Repeat("t", 256)} {
		if err := b.InvalidateTags(soon(t), db, "product", "good", tag); err == nil {
			t.Errorf("the tag %.10q is taken", tag)
		}
		if err := b.MarkStaleTags(soon(t), db, "product", tag); err == nil {
			t.Errorf("the soft tag %.10q is taken", tag)
		}
	}
	if err := b.Invalidate(soon(t), nil, "product", "1"); err == nil {
		t.Error("without a transaction: no error")
	}
}

// One relay works at a time. When it ends, or when it can't reach the store any more, another relay
// takes over.
func TestTakeover(t *testing.T) {
	t.Parallel() // it waits for a lease
	onEach(t, func(t *testing.T, s system) {
		first, second := newLedger(t), newLedger(t)
		one, two, db := s.box(t, first), s.box(t, second), s.db(t)
		stop := run(t, one)
		write := func(key string) {
			t.Helper()
			in(t, db, func(tx *sql.Tx) error { return one.Invalidate(soon(t), tx, "product", key) })
		}
		write("a")
		first.await(t, "a", func(told []string) bool { return len(told) == 1 })
		run(t, two)
		write("b")
		first.await(t, "b", func(told []string) bool { return len(told) == 2 })
		first.be(errors.New("no route to the store"))
		write("c")
		second.await(t, "c", func(told []string) bool {
			return slices.Equal(told, []string{`key product "c"`})
		})
		first.be(nil)
		stop()
		write("d")
		second.await(t, "d", func(told []string) bool { return len(told) == 2 })
	})
}

// An invalidation that the store has acknowledged and a failover has lost is repeated by the relay
// that has delivered it, even if another relay works by then.
func TestFailoverLongerThanTheLease(t *testing.T) {
	t.Parallel() // it waits for a lease
	onEach(t, func(t *testing.T, s system) {
		first, second := newLedger(t), newLedger(t)
		one, db := s.box(t, first, func(o *outbox.Options) { o.Lease = 5 * time.Second }), s.db(t)
		run(t, one)
		write := func(key string) {
			t.Helper()
			in(t, db, func(tx *sql.Tx) error { return one.Invalidate(soon(t), tx, "product", key) })
		}
		write("a")
		first.await(t, "a", func(told []string) bool { return len(told) == 1 })
		first.says(cacheguard.MessageLost)
		first.be(errors.New("no master"))
		run(t, s.box(t, second))
		write("b")
		second.await(t, "b", func(told []string) bool { return len(told) == 1 })
		first.be(nil)
		first.says(cacheguard.MessageRestored)
		first.await(t, "a once more", func(told []string) bool {
			return slices.Contains(told[1:], `key product "a"`)
		})
	})
}

// slow is a database whose connections are ready after a while, if their users are still there.
type slow struct{ driver.Connector }

func (s slow) Connect(ctx context.Context) (driver.Conn, error) {
	select {
	case <-time.After(1500 * time.Millisecond):
		return s.Connector.Connect(ctx)
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// A relay waits for a connection for longer than the default of sqllock.
func TestSlowConnections(t *testing.T) {
	t.Parallel() // it waits for connections
	s := onPostgreSQL(t)
	connector, err := stdlib.GetDefaultDriver().(driver.DriverContext).OpenConnector(s.Source)
	if err != nil {
		t.Fatal(err)
	}
	db := sql.OpenDB(slow{connector})
	t.Cleanup(func() { _ = db.Close() })
	l := newLedger(t)
	b, err := outbox.New(db, l, s.options())
	if err != nil {
		t.Fatal(err)
	}
	run(t, b)
	in(t, s.db(t), func(tx *sql.Tx) error { return b.Invalidate(soon(t), tx, "product", "1") })
	l.await(t, "it", func(told []string) bool { return len(told) == 1 })
}

// The relay reads the table only because of Wake and notifications.
func TestWaking(t *testing.T) {
	slowly := func(o *outbox.Options) { o.Poll = never }
	t.Run("by its own process", func(t *testing.T) {
		t.Parallel()
		onEach(t, func(t *testing.T, s system) {
			l := newLedger(t)
			b, db := s.box(t, l, slowly), s.db(t)
			run(t, b)
			for i := range 10 {
				in(t, db, func(tx *sql.Tx) error {
					return b.Invalidate(soon(t), tx, "product", fmt.Sprint(i))
				})
				b.Wake()
				l.await(t, "the next", func(told []string) bool { return len(told) == i+1 })
			}
		})
	})
	t.Run("by another process", func(t *testing.T) {
		t.Parallel()
		s := onPostgreSQL(t)
		l := newLedger(t)
		standing := make(chan struct{}, 100)
		listening := func(o *outbox.Options) { o.Listen = listen(s.Source, standing) }
		b, other, db := s.box(t, l, slowly, listening), s.box(t, nil, slowly, listening), s.db(t)
		run(t, b)
		waittest.Next(t, "LISTEN", standing)
		for i := range 10 {
			in(t, db, func(tx *sql.Tx) error {
				return other.Invalidate(soon(t), tx, "product", fmt.Sprint(i))
			})
			l.await(t, "the next", func(told []string) bool { return len(told) == i+1 })
		}
		s.exec(t, db,
			"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE 'LISTEN%"+
				s.Table+"%'")
		in(t, db, func(tx *sql.Tx) error {
			return other.Invalidate(soon(t), tx, "product", "meanwhile")
		})
		l.await(t, "what was said to nobody", func(told []string) bool { return len(told) == 11 })
	})
}

func TestPgx(t *testing.T) {
	s := onPostgreSQL(t)
	l := newLedger(t)
	b := s.box(t, l)
	run(t, b)
	conn, err := pgx.Connect(soon(t), s.Source)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	tx, err := conn.Begin(soon(t))
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(b.Invalidate(soon(t), outbox.Pgx(tx), "product", "1", "\xff"),
		tx.Commit(soon(t))); err != nil {
		t.Fatal(err)
	}
	l.await(t, "it", func(told []string) bool {
		return slices.Equal(told, []string{`key product "1"`, `key product "\xff"`})
	})
}

// Many processes may create the tables at the same time, and again later, also while a relay works.
func TestCreate(t *testing.T) {
	onEach(t, func(t *testing.T, s system) {
		s.Table, s.LockTable = s.Table+"_new", s.LockTable+"_new"
		var all sync.WaitGroup
		for range 8 {
			b := s.box(t, nil)
			all.Go(func() {
				if err := b.Create(soon(t)); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		ledger, b := newLedger(t), s.box(t, nil)
		relay := s.box(t, ledger)
		run(t, relay)
		in(t, s.db(t), func(tx *sql.Tx) error {
			return relay.Invalidate(soon(t), tx, "product", "a")
		})
		ledger.await(t, "a", func(told []string) bool { return len(told) == 1 })
		if err := b.Create(soon(t)); err != nil { // this process starts while another one relays
			t.Error(err)
		}
		if schema := s.box(t, nil).Schema(); len(schema) != 2 ||
			!strings.Contains(schema[0], s.Table) || !strings.Contains(schema[1], s.LockTable) {
			t.Errorf("%q", schema)
		}
	})
}

func TestNoTable(t *testing.T) {
	onEach(t, func(t *testing.T, s system) {
		s.Table = "nowhere"
		b, db := s.box(t, nil), s.db(t)
		_, backlog := b.Backlog(soon(t))
		for what, err := range map[string]error{
			"Invalidate": b.Invalidate(soon(t), db, "product", "1"), "Flush": b.Flush(soon(t)),
			"Backlog": backlog,
		} {
			if err == nil ||
				!strings.Contains(err.Error(),
					"there is no table nowhere; make it with Box.Create") {
				t.Errorf("%s: %v", what, err)
			}
		}
	})
}

func TestOptions(t *testing.T) {
	s := onSQLite(t)
	db := s.db(t)
	for want, change := range map[string]func(*outbox.Options){
		"Options.Dialect is not set": func(o *outbox.Options) { o.Dialect = 0 },
		"Options.Table is \"drop table\"": func(o *outbox.Options) {
			o.Table = "drop table"
		},
		"Options.Table has 64 bytes": func(o *outbox.Options) {
			o.Table = strings.Repeat("t", 64)
		},
		"Options.Table and Options.LockTable are both": func(o *outbox.Options) {
			o.Table = o.LockTable
		},
		"Options.Lease is 1ms": func(o *outbox.Options) { o.Lease = 1e6 },
		"Options.Poll is -1s":  func(o *outbox.Options) { o.Poll = -1e9 },
		"Options.Listen is set, and SQLite": func(o *outbox.Options) {
			o.Listen = listen("", nil)
		},
		"Options.Table is \"a;b\"; it has to be a name": func(o *outbox.Options) {
			o.LockTable = "a;b"
		},
	} {
		if _, err := outbox.New(db, memoryStore(t), s.options(change)); err == nil ||
			!strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "OpTimeout") {
			t.Errorf("%v; want %q", err, want)
		}
	}
	if _, err := outbox.New(nil, memoryStore(t), s.options()); err == nil {
		t.Error("without a db: no error")
	}
	if _, err := outbox.New(db, nil, s.options()); err == nil {
		t.Error("without a store: no error")
	}
	if _, err := outbox.New(db, memoryStore(t),
		outbox.Options{Dialect: sqllock.SQLite}); err != nil {
		t.Error(err)
	}
}

// listen is an Options.Listen that uses pgx.
func listen(source string, standing chan<- struct{}) sqllock.Listen {
	return func(ctx context.Context, channel string, stands func(), heard func(string)) error {
		conn, err := pgx.Connect(ctx, source)
		if err != nil {
			return err
		}
		defer conn.Close(context.WithoutCancel(ctx))
		if _, err := conn.Exec(ctx, "LISTEN "+pgx.Identifier{channel}.Sanitize()); err != nil {
			return err
		}
		stands()
		select {
		case standing <- struct{}{}:
		default:
		}
		for {
			n, err := conn.WaitForNotification(ctx)
			if err != nil {
				return err
			}
			heard(n.Payload)
		}
	}
}
