// Package sqllock has distributed locks in a table of a database that a program has anyway:
// PostgreSQL, or SQLite for the processes of one machine. It needs database/sql alone, so the
// driver is yours. It is a module of its own:
//
//	go get github.com/cacheguard/cacheguard/cacheguard/lock/sqllock
//
// A lock is a row: the name, a random token of its owner, when it expires, and a fencing token. It
// is taken by one statement, INSERT ... ON CONFLICT DO UPDATE ... WHERE it is free or has expired,
// so of any number who try at once one has it, also in PostgreSQL's READ COMMITTED: those who meet
// in the row decide one after the other, each on what the one before has left. Expiry is judged by
// the clock of the database, at the moment of the decision (clock_timestamp(), not now(), which is
// when a transaction began); programs send durations, and count them on their monotonic clock from
// before they ask. A holder renews at a third of Options.Lease. Who waits is woken by NOTIFY, with
// Options.Listen, or polls.
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
// At most one holder at a time, as long as the database keeps what it has committed, its clock
// doesn't jump forward by about a lease, and a holder stops within its lease when it is told that
// its lock is lost. A process that is stopped and goes on later, or a write that is late on its
// way, can't be told: for efficiency (to do work once, not twice) that is good enough, for
// correctness the lock's Token must be checked where it matters (Kleppmann, "How to do distributed
// locking", 2016). Tokens of a name grow: each is the database's clock in microseconds since 1970,
// or one more than the token before if that is larger. If what is protected is in the same
// database, that is one more condition in its statement, and the row that it changes remembers the
// largest token it has seen:
//
//	UPDATE invoices SET sent = true, fence = $1 WHERE id = 42 AND fence <= $1
//
// A lock of a holder who has died is free one lease later, a hundredth of it added for clocks that
// don't go equally fast, and as much as the database's clock is set back meanwhile. What was
// acquired without being heard of is given back in the background. Nobody is first in line: who
// asks at the right moment has the lock, though the waiters of one process come one after the
// other, and a process leaves the lock to others after a second of handing it on among its own.
//
// # What it costs
//
// An acquisition and a release are one statement each (SQLite: two and one, in the process), a
// renewal is one, and each is a transaction of its own. Of all waiters of a process for one name
// only the first asks; calls that come at the same moment, while nobody waits yet, ask once each.
// The first polls after 5 ms, then ever more seldom up to Options.Poll, and when the holder's lease
// ends; in PostgreSQL such a question neither writes nor locks anything.
//
// With Options.Listen it asks the holder to say when the lock is given back, by one more statement
// for each holder, and the release notifies in its own transaction. All processes that listen hear
// that, the first waiters for this name ask, and one of them has it: with n processes that wait for
// the same name, a release costs n statements. One without waiters notifies nobody, for PostgreSQL
// commits transactions with notifications one after the other. A lost notification costs two
// seconds at most, for waiters look by themselves, too. Listening takes a connection for each
// Locker, from its first waiter on; poolers like PgBouncer in transaction mode can't pass it on.
// ExampleOptions_listen has it for pgx.
//
// Rows of names that nobody has locked for an hour are removed in the background after releases, by
// one process of the fleet each minute. That needs the right to DELETE; without it a line is logged
// each time. Otherwise SELECT, INSERT and UPDATE on the table are enough.
//
// To end a lock by hand, take it from its owner; he hears of it at the next renewal, when he
// unlocks at the latest. A row that is deleted takes its token along: the next one is larger by the
// clock alone. Names are bytes, which SQLite takes for another thing than text, and begin with
// Options.Prefix.
//
// Whoever can write to the table is trusted with the locks. If the token of a row is the largest of
// 64 bits, no larger one can be given, and calls fail with an error that says so. If a lock ends
// only in 1000 leases and more than an hour, calls don't wait for it: their error wraps
// lock.ErrHeld. In both cases delete the row.
//
//	UPDATE cacheguard_locks SET owner = '', expires = 'epoch' WHERE name = 'invoice 42' -- PostgreSQL
//	UPDATE cacheguard_locks SET owner = x'', expires = 0 WHERE name = CAST('invoice 42' AS BLOB) -- SQLite
//
// # PostgreSQL
//
// It has to be the primary. With replicas that follow asynchronously a failover forgets the last
// locks, and two may hold one: use synchronous replication, or check tokens; those of the new
// primary are larger as long as its clock is not behind by more than the failover takes. The same
// goes for synchronous_commit off and a crash, and for a table that is UNLOGGED. A restart or crash
// otherwise loses nothing, and holders renew as soon as the server is back.
//
// Any default isolation will do; where it is above READ COMMITTED those who collide are told to try
// again, which happens within Options.OpTimeout. Rows change in place; let autovacuum run.
//
// Advisory locks of PostgreSQL last as long as a session: a holder whose network is gone keeps them
// for as long as TCP keeps up hope, one whose session has ended is not told, each needs a
// connection for itself and can't go through a pooler, names are 64 bits, and there is no fencing
// token. They are cheaper, and they are the better choice inside one transaction
// (pg_advisory_xact_lock).
//
// # SQLite
//
// Version 3.35 or later, with a file on a local disk. It has one writer: give it journal_mode WAL,
// synchronous NORMAL (no lock needs to outlive the machine) and a busy_timeout well below
// OpTimeout. Its clock is that of the machine, with milliseconds. A process that is stopped in the
// middle of a write keeps all others from the file until it goes on: their calls fail with
// "database is locked" after OpTimeout. Each connection to ":memory:" has a database of its own, so
// that one won't do.
//
// # The db
//
// Statements have to be committed one by one, so connections must not come from the pool with a
// transaction left open: pgx sees to that, SQLite drivers don't. If the application can use up all
// connections of its db, give the locks one of their own with two or three connections, for a
// renewal that gets none for two thirds of a lease loses the lock. Set a limit in any case
// (SetMaxOpenConns): a sql.DB has none, so hundreds of calls at the same time dial a connection
// each, which takes longer than OpTimeout where a few connections would have served them all.
//
// Sources: M. Kleppmann, "How to do distributed locking", 2016; PostgreSQL's documentation of "Read
// Committed Isolation Level", of INSERT ("ON CONFLICT Clause") and of NOTIFY.
package sqllock
