package sqllock_test

import (
	"context"
	"database/sql"
	"errors"
	"log"
	"time"

	"github.com/jackc/pgx/v5"
	_ "github.com/jackc/pgx/v5/stdlib" // the driver "pgx"

	"github.com/cacheguard/cacheguard/cacheguard/lock/sqllock"
)

// NOTIFY wakes the waiting calls. pgx can receive notifications.
func ExampleOptions_listen() {
	const url = "postgres://app@localhost/app"
	db, err := sql.Open("pgx", url)
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()
	locks, err := sqllock.New(db, sqllock.Options{Dialect: sqllock.PostgreSQL, Listen: listen(url)})
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close()
}

// listen returns an Options.Listen with pgx. It uses a separate connection, which has to reach the
// server directly: through a pooler that shares connections between transactions, no notifications
// arrive.
func listen(url string) sqllock.Listen {
	// After this time without data, check that the server is reachable.
	const silence = 2 * time.Second
	return func(
		ctx context.Context, channel string, standing func(), heard func(payload string),
	) error {
		conn, err := pgx.Connect(ctx, url)
		if err != nil {
			return err
		}
		defer func() {
			closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), silence)
			defer cancel()
			_ = conn.Close(closing)
		}()
		if _, err := conn.Exec(ctx, "LISTEN "+pgx.Identifier{channel}.Sanitize()); err != nil {
			return err
		}
		standing()
		for {
			waiting, cancel := context.WithTimeout(ctx, silence)
			n, err := conn.WaitForNotification(waiting)
			cancel()
			switch {
			case err == nil:
				heard(n.Payload)
			case ctx.Err() != nil:
				return nil
			case !errors.Is(err, context.DeadlineExceeded):
				return err
			default:
				answering, cancel := context.WithTimeout(ctx, silence)
				err := conn.Ping(answering)
				cancel()
				if err != nil && ctx.Err() == nil {
					return err
				}
			}
		}
	}
}
