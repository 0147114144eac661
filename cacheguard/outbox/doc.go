// Package outbox makes the invalidation of cached values part of the database transaction that
// changes them. Without an outbox, if a process dies between its commit and the invalidation, the
// old value stays in the cache until its TTL is over. With an outbox the process leaves a row in a
// table, and any process of the fleet delivers the invalidation in that row. The package is a
// module of its own:
//
//	go get github.com/cacheguard/cacheguard/cacheguard/outbox
//
//	box, err := outbox.New(db, store, outbox.Options{Dialect: sqllock.PostgreSQL})
//	if err != nil { ... }
//	if err := box.Create(ctx); err != nil { ... } // once, or put box.Schema() where your migrations are
//	go box.Run(ctx)                               // in each process, or in one
//
//	tx, err := db.BeginTx(ctx, nil)
//	...
//	_, err = tx.ExecContext(ctx, "UPDATE products SET price = $1 WHERE id = $2", price, id)
//	...
//	err = box.Invalidate(ctx, tx, "product", strconv.Itoa(id))
//	...
//	err = tx.Commit()
//	box.Wake()
//
// The argument "product" is the name of the cache, Options.Name of cacheguard.New. The caches
// needn't be in the same process: a relay needs only their store.
//
// # What is promised
//
// An invalidation is delivered if and only if its transaction is committed. It is delivered at
// least once: if a relay dies after it has delivered a row and before it removes the row, the next
// relay delivers the row again, which costs at most one more load of each key. While the store
// can't be reached the rows stay in the table. They are delivered when the store can be reached
// again. A relay that could not reach it may deliver these rows a second time as soon as it can,
// even if another relay has delivered them meanwhile. If a failover
// of Redis loses invalidations that were acknowledged in the last half minute before it, the
// process that has delivered them repeats them, if its Run hasn't ended.
//
// An invalidation is delivered after all invalidations whose transactions had been committed before
// it was written. Transactions that overlapped have no fixed order, because PostgreSQL gives out
// ids before the commit. That order doesn't matter to the values: each delivery comes after its
// commit, and a value loaded after a delivery is at least as new as that commit.
//
// Between a commit and its delivery readers may get the old value. If the relay is woken, the
// delivery takes about as long as a notification, a read of the table and a command to Redis. If
// nothing wakes the relay, it reads the table up to Options.Poll later. The program that made the
// change can avoid old values for its own reads. Call Committed instead of Wake: it returns a
// token, and a later read with this token gets no value older than the commit, in any process and
// through package middleware:
//
//	token, err := box.Committed(ctx, "product")
//	...
//	p, err := products.Get(cacheguard.NotOlderThan(ctx, token), id, load)
//
// As with any other invalidation, a read replica that lags may get the commit only after the
// invalidation was delivered. So loads have to read from the primary, or from a replica that has
// the commit.
//
// # Pages
//
// Responses that package middleware has stored are invalidated by tag, with the name of their
// cache. URLTags of the middleware's Cache returns the tags for URLs:
//
//	tags, err := pages.URLTags("/products/42")
//	...
//	err = box.InvalidateTags(ctx, tx, "pages", tags...)
//
// The rows of a transaction are delivered in the order in which they were written. So if a page is
// made of values, write the invalidations of the values before the invalidation of the page.
//
// # The relay
//
// Run is the relay of a process. Only one relay of all processes works at a time: the relay of the
// process that has the lock named after the table (package sqllock, in Options.LockTable of the
// same database). It reads the table in the order of ids, delivers the rows, and removes delivered
// rows. If this process dies, another one takes over when the lease of the lock is over. If its Run
// ends normally, another process takes over within a second, or within Options.Poll if that is
// longer. If two relays work at the same time, because one of them was stopped and goes on, some
// rows are delivered twice.
//
// The relay reads the table every Options.Poll. It also reads the table when Wake is called in its
// process. With Options.Listen it also reads the table when a transaction with invalidations is
// committed in any process. PostgreSQL commits transactions with notifications one after another.
// If that is too slow, don't set Options.Listen: the relay then polls.
//
// A row that can never be delivered doesn't block other rows: the relay writes the reason to the
// row's column refused, and logs a line. To try the row once more, set the column to NULL. To give
// up, delete the row.
//
// # The table
//
// Schema returns the statements that create the tables, and Create runs them. No other code of this
// package changes the schema. Any program can write rows. A trigger of the database can write them,
// too, so that manual changes are not forgotten:
//
//	INSERT INTO cacheguard_outbox (kind, cache, name) VALUES ('key', 'product', NEW.id)
//
// The kinds are key and stale-key, tag and stale-tag, and all. For all, name is empty. A name that
// is not valid UTF-8, contains a zero byte or begins with \x is written as \x and hexadecimal
// digits.
//
// A writer needs INSERT on the table. A relay needs SELECT, UPDATE and DELETE on the table, and the
// rights that sqllock names. The table should stay small, because rows are removed as soon as they
// are delivered. Leave autovacuum on. Use [Box.Backlog] for a gauge.
package outbox
