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
// before they send the request. A holder renews its lock every third of Options.Lease. Waiting
// calls are woken by NOTIFY if Options.Listen is set. Otherwise they poll.
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
// keeps its committed data, its clock doesn't jump forward by about a lease, and a holder stops
// within its lease when it learns that its lock is lost. A process that is stopped doesn't learn of
// the loss before it goes on, and a write that is still on its way can't be called back. For
// efficiency (to do work once, not twice) this is good enough. For correctness, the protected
// resource must check the lock's Token (Kleppmann, "How to do distributed locking", 2016). The
// tokens of a name grow: each is the database's clock in microseconds since 1970, or the previous
// token plus one if that is larger. If the protected resource is a row in the same database, the
// check is one more condition in the statement that changes the row, and the row stores the largest
// token it has seen:
//
//	UPDATE invoices SET sent = true, fence = $1 WHERE id = 42 AND fence <= $1
//
// The lock of a holder that has died is free one lease later, plus a hundredth of the lease for
// clocks that run at different rates. If the database's clock is set back in this time, the lock is
// free later by as much. If a lock was acquired and its caller didn't learn of it, the lock is
// given back in the background. There is no queue over all processes: the first process that asks
// after the lock becomes free gets it. Within one process the waiting calls get it in their order.
// After a process has handed the lock on among its own calls for a second, it leaves the lock to
// other processes.
//
// # What it costs
//
// A release and a renewal are one statement each. In PostgreSQL an acquisition is one statement,
// too. In SQLite it is two: one looks whether the lock is free, and one takes it. But SQLite runs
// in your process, so neither is a round trip. Each statement is a separate transaction. If several
// calls of a process wait for one name, only the first sends requests. If several calls come at the
// same moment and no call waits yet, each of them sends one request. The first waiting call polls
// after 5 ms, then at longer and longer pauses up to Options.Poll, and when the holder's lease
// ends. In PostgreSQL these requests don't write or lock anything.
//
// With Options.Listen the first waiting call also asks for a notification of the lock's release,
// with one more statement for each holder. The release then sends the notification in its own
// transaction. All listening processes receive it, the first waiting call for this name in each
// process sends a request, and one of these calls gets the lock. If n processes wait for the same
// name, a release costs n statements. If no call waits, the release sends no notification, because
// PostgreSQL commits transactions with notifications one after another. A lost notification costs
// at most two seconds, because waiting calls also poll. Each Locker uses a connection to listen,
// from its first waiting call on. Poolers like PgBouncer in transaction mode don't support LISTEN.
// ExampleOptions_listen shows Listen for pgx.
//
// Once a minute, in the background after a release, one process of the fleet removes the rows of
// names that nobody has locked for an hour. The removal needs the right to DELETE. If this right is
// missing, each try logs a line. For everything else SELECT, INSERT and UPDATE on the table are
// enough.
//
// To end a lock by hand, clear its owner with one of the statements below. The owner learns of the
// loss at its next renewal, or when it unlocks. If you delete the row instead, its token is lost,
// and the next token is larger only because of the clock. Names are stored as bytes, which SQLite
// distinguishes from text, and begin with Options.Prefix.
//
// Any client that can write to the table is trusted with the locks. If the token of a row is the
// largest 64-bit number, no larger token can be given: calls fail with an error that says so. If
// the expiry of a lock is more than 1000 leases and an hour away, calls don't wait for the lock:
// their error wraps lock.ErrHeld. In both cases delete the row.
//
//	UPDATE cacheguard_locks SET owner = '', expires = 'epoch' WHERE name = 'invoice 42' -- PostgreSQL
//	UPDATE cacheguard_locks SET owner = x'', expires = 0 WHERE name = CAST('invoice 42' AS BLOB) -- SQLite
//
// # PostgreSQL
//
// Use the primary server. If the replicas are asynchronous, a failover loses the last locks, and
// two holders may have one lock. So use synchronous replication, or check tokens. The tokens of the
// new primary are larger unless its clock is behind by more than the failover takes. A crash also
// loses locks if synchronous_commit is off or the table is UNLOGGED. Any other restart or crash
// loses nothing, and holders renew their locks as soon as the server is back.
//
// Any default isolation level works. At levels above READ COMMITTED the database tells colliding
// transactions to try again, and the locker tries again within Options.OpTimeout. Rows are updated
// in place. Leave autovacuum on.
//
// PostgreSQL's advisory locks last as long as a session. A holder whose network is gone keeps them
// until TCP gives up. A holder whose session has ended isn't told of the end. Each holder needs its
// own connection and can't use a pooler. Names have 64 bits, and there is no fencing token.
// Advisory locks are cheaper, and they are the better choice inside one transaction
// (pg_advisory_xact_lock).
//
// # SQLite
//
// Version 3.35 or later, with a file on a local disk. SQLite has one writer: use journal_mode WAL,
// synchronous NORMAL (no lock needs to survive a crash of the machine) and a busy_timeout well
// below OpTimeout. Its clock is the machine's clock, in milliseconds. A process that is stopped in
// the middle of a write blocks all others until it goes on: their calls fail with "database is
// locked" after OpTimeout. Don't use ":memory:", because each connection to it has a separate
// database.
//
// # The db
//
// Statements have to be committed one by one, so the pool must not hand out connections with an
// open transaction. pgx never hands out such a connection, but SQLite drivers may. If the
// application can use up all connections of its db, give the locks a separate db with two or three
// connections. Otherwise a renewal may get no connection for two thirds of a lease, and then the
// lock is lost. Set a limit in any case (SetMaxOpenConns). A sql.DB has no limit by default, so
// each of hundreds of calls at the same time dials a connection. These dials take longer than
// OpTimeout, although a few connections would be enough for all calls.
//
// Sources: M. Kleppmann, "How to do distributed locking", 2016; PostgreSQL's documentation of "Read
// Committed Isolation Level", of INSERT ("ON CONFLICT Clause") and of NOTIFY.
package sqllock
