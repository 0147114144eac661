// Package sqllock implements distributed locks in a table of a database that a program already
// uses: PostgreSQL, or SQLite for the processes of one machine. It uses only database/sql, so you
// choose the driver. The package is a separate module:
//
//	go get github.com/cacheguard/cacheguard/cacheguard/lock/sqllock
//
// A lock is a row: the name, a random token of its owner, the time of its expiry, and a fencing
// token. One statement takes the lock: INSERT ... ON CONFLICT DO UPDATE ... WHERE the lock is free
// or has expired. So if several processes try at the same time, exactly one gets the lock, even in
// PostgreSQL's READ COMMITTED, because statements that want to change the same row run one after
// another, and each sees the result of the previous statement. Expiry is judged by the clock of the
// database at the moment of the decision (clock_timestamp(); now() would be the time when the
// transaction began). Programs send durations, and measure them on their monotonic clock from
// before they send the request. A holder renews its lock every third of Options.Lease, for as
// long as Options.MaxHold allows. Waiting calls are woken by NOTIFY if Options.Listen is set.
// Otherwise they poll.
//
//	locks, err := sqllock.New(db, sqllock.Options{Dialect: sqllock.PostgreSQL})
//	if err != nil { ... }
//	defer locks.Close()
//	if err := locks.Create(ctx); err != nil { ... } // once, or put locks.Schema() where your migrations are
//
//	err = lock.Do(ctx, locks, "invoice 42", func(ctx context.Context, held lock.Lock) error {
//		return send(ctx, 42, held.Token())
//	})
//
// # What is promised
//
// At most one holder has the lock at a time, as long as three conditions are met: the database
// keeps its committed data, its clock doesn't jump forward by more than a hundredth of a lease, and
// each holder has stopped its work when the lock's Until has passed. For efficiency (to do work
// once, not twice) this is good enough. For correctness, the protected resource must check the
// lock's Token. The tokens of a name grow.
//
// The lock of a holder that has died is free one lease later, plus a hundredth of the lease. There
// is no queue over all processes: the first process that asks after the lock becomes free gets it.
// Within one process the waiting calls get it in their order.
//
// # Limits
//
//   - PostgreSQL: use the primary server. If the replicas are asynchronous, a failover loses the
//     last locks. Poolers like PgBouncer in transaction mode don't support LISTEN.
//   - SQLite: version 3.35 or later, with a file on a local disk, journal_mode WAL, and a
//     busy_timeout well below OpTimeout. Don't use ":memory:".
//   - The db must not hand out connections with an open transaction. Set a limit for its
//     connections (SetMaxOpenConns), and leave some for the locks.
//   - Any client that can write to the table is trusted with the locks.
//
// In the repository, docs/locks.md has these promises in detail, the costs, the rights, and how to
// end a lock by hand.
package sqllock
