package sqllock_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log"

	_ "modernc.org/sqlite" // the driver "sqlite"

	"github.com/cacheguard/cacheguard/cacheguard/lock"
	"github.com/cacheguard/cacheguard/cacheguard/lock/sqllock"
)

func Example() {
	db, err := sql.Open("sqlite", "file:/example?vfs=memdb&_pragma=busy_timeout(500)")
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()
	locks, err := sqllock.New(db, sqllock.Options{Dialect: sqllock.SQLite})
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close()
	ctx := context.Background()
	if err := locks.Create(ctx); err != nil {
		log.Fatal(err)
	}

	err = lock.Do(ctx, locks, "invoice 42", func(under context.Context, held lock.Lock) error {
		fmt.Println("alone with", held.Name())
		_, err := locks.TryLock(ctx, "invoice 42")
		fmt.Println("another one:", errors.Is(err, lock.ErrHeld))
		return nil
	})
	fmt.Println("in the end:", err)
	// Output:
	// alone with invoice 42
	// another one: true
	// in the end: <nil>
}

// A row stores the largest token it has seen. So if a holder has lost the lock without noticing, it
// can't change the row.
func Example_fencing() {
	db, err := sql.Open("sqlite", "file:/fencing?vfs=memdb&_pragma=busy_timeout(500)")
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()
	locks, err := sqllock.New(db, sqllock.Options{Dialect: sqllock.SQLite})
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close()
	ctx := context.Background()
	if err := locks.Create(ctx); err != nil {
		log.Fatal(err)
	}
	if _, err := db.ExecContext(ctx, `
		CREATE TABLE invoices (id INTEGER PRIMARY KEY, state TEXT NOT NULL, fence INTEGER NOT NULL DEFAULT 0);
		INSERT INTO invoices (id, state) VALUES (42, 'new')`); err != nil {
		log.Fatal(err)
	}
	change := func(held lock.Lock, state string) {
		result, err := db.ExecContext(ctx,
			`UPDATE invoices SET state = ?, fence = ? WHERE id = 42 AND fence <= ?`,
			state, held.Token(), held.Token())
		if err != nil {
			log.Fatal(err)
		}
		changed, _ := result.RowsAffected()
		fmt.Println(state, changed)
	}

	before, err := locks.Lock(ctx, "invoice 42")
	if err != nil {
		log.Fatal(err)
	}
	change(before, "printed")
	_ = before.Unlock(ctx)
	after, err := locks.Lock(ctx, "invoice 42")
	if err != nil {
		log.Fatal(err)
	}
	change(after, "sent")
	change(before, "printed again") // the first holder was asleep and hasn't noticed the loss
	_ = after.Unlock(ctx)
	// Output:
	// printed 1
	// sent 1
	// printed again 0
}
