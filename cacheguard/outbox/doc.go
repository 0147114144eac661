// Package outbox makes the invalidation of cached values part of the database transaction that
// changes them. A process that dies after its commit and before it has told the cache leaves the
// old value there until its TTL is over; with an outbox it leaves a row in a table, and any process
// of the fleet delivers what the row says. It is a module of its own:
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
// The first name is that of the cache, Options.Name of cacheguard.New. The caches need not be in
// the same process: the store is all that a relay needs of them.
//
// # What is promised
//
// An invalidation is delivered if and only if its transaction is committed. It is delivered at
// least once: a relay that dies between delivery and removal leaves the row, and the next one
// delivers it again, which costs a load at most. While the store can't be reached the rows stay,
// and are delivered when it can be.
//
// An invalidation is delivered after all whose transactions had been committed when its own wrote
// it. Transactions that overlapped have no such order: PostgreSQL gives out ids before the commit.
// It doesn't matter to the values, since each delivery comes after its commit, and what is loaded
// after a delivery is at least as new as that commit.
//
// Between a commit and the delivery readers may be answered with the value from before. That is
// about as long as a notification, a read of the table and a command to Redis take, or up to
// Options.Poll where nobody wakes the relay. Whoever has made the change needn't see that: in the
// place of Wake, Committed returns a token, by which later reads demand what is not older than the
// commit, in any process and through package middleware:
//
//	token, err := box.Committed(ctx, "product")
//	...
//	p, err := products.Get(cacheguard.NotOlderThan(ctx, token), id, load)
//
// A read replica that lags is behind an outbox as it is behind any invalidation: loads have to read
// the primary, or a replica that has the commit.
//
// # Pages
//
// Responses that package middleware has stored are invalidated by tag, with the name of their
// cache. URLTags of the middleware's Cache returns the tags that stand for URLs:
//
//	tags, err := pages.URLTags("/products/42")
//	...
//	err = box.InvalidateTags(ctx, tx, "pages", tags...)
//
// Rows are delivered in the order in which they were written, so write those of pages after those
// of what the pages are made of.
//
// # The relay
//
// Run is the relay of a process. Of all processes that run one, one works at a time: the one that
// has the lock named after the table (package sqllock, in Options.LockTable of the same database).
// It reads the table in the order of ids, delivers, and removes what is delivered. If it dies,
// another one takes over when its lease is over; if it ends in order, within a second. Two that
// work at once, because one of them was stopped and goes on, deliver some rows twice.
//
// It looks each Options.Poll, at once when Wake is called in its process, and with Options.Listen
// when a transaction with invalidations is committed anywhere. PostgreSQL commits transactions with
// notifications one after the other; where that is too slow, leave Options.Listen out and have the
// relay poll.
//
// A row that can never be delivered is kept out of the others' way: the reason is put into its
// column refused, and a line is logged. To have it tried once more, set the column to NULL; to give
// it up, delete the row.
//
// # The table
//
// Schema has the statements; no other code of this package changes the schema. Rows can be written
// by anything, also by a trigger of the database, so that changes by hand are not forgotten:
//
//	INSERT INTO cacheguard_outbox (kind, cache, name) VALUES ('key', 'product', NEW.id)
//
// The kinds are key and stale-key, tag and stale-tag, and all, for which name is empty. A name that
// isn't UTF-8 without zero bytes, or begins with \x, is written as \x and hexadecimal digits.
//
// A relay needs SELECT, UPDATE and DELETE on the table, a writer INSERT, and both of them the
// rights that sqllock names. The table should stay small, for rows are removed as soon as they are
// delivered; let autovacuum run. [Box.Backlog] is for a gauge.
package outbox
