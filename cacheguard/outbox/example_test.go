package outbox_test

import (
	"context"
	"database/sql"
	"fmt"
	"log"

	_ "modernc.org/sqlite" // the driver "sqlite"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/cacheguard/lock/sqllock"
	"github.com/cacheguard/cacheguard/cacheguard/memstore"
	"github.com/cacheguard/cacheguard/cacheguard/outbox"
)

func Example() {
	ctx, stop := context.WithCancel(context.Background())
	db, err := sql.Open("sqlite", "file:/outbox?vfs=memdb&_pragma=busy_timeout(10000)")
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()
	store := memstore.New(memstore.Options{}) // with several processes use redisstore.New
	defer store.Close()
	box, err := outbox.New(db, store, outbox.Options{Dialect: sqllock.SQLite})
	if err != nil {
		log.Fatal(err)
	}
	if err := box.Create(ctx); err != nil {
		log.Fatal(err)
	}
	relay := make(chan error)
	go func() { relay <- box.Run(ctx) }()

	prices, err := cacheguard.New(store, cacheguard.Options[int]{Name: "price"})
	if err != nil {
		log.Fatal(err)
	}
	defer prices.Close()
	if _, err := db.ExecContext(ctx,
		`CREATE TABLE prices (id TEXT PRIMARY KEY, cents INTEGER NOT NULL);
		INSERT INTO prices VALUES ('42', 100)`); err != nil {
		log.Fatal(err)
	}
	price := func() int {
		cents, err := prices.Get(ctx, "42", func(ctx context.Context) (cents int, err error) {
			err = db.QueryRowContext(ctx, "SELECT cents FROM prices WHERE id = '42'").Scan(&cents)
			return cents, err
		})
		if err != nil {
			log.Fatal(err)
		}
		return cents
	}
	fmt.Println("before:", price())

	// The change and the invalidation are committed together, or not at all.
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = tx.Rollback() }()
	if _, err := tx.ExecContext(ctx, "UPDATE prices SET cents = 120 WHERE id = '42'"); err != nil {
		log.Fatal(err)
	}
	if err := box.Invalidate(ctx, tx, "price", "42"); err != nil {
		log.Fatal(err)
	}
	if err := tx.Commit(); err != nil {
		log.Fatal(err)
	}

	if err := box.Flush(ctx); err != nil { // a program needn't wait
		log.Fatal(err)
	}
	fmt.Println("after:", price())
	stop()
	fmt.Println("the relay:", <-relay)
	// Output:
	// before: 100
	// after: 120
	// the relay: <nil>
}
