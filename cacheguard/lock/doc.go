// Package lock defines the interface of distributed locks. A [Locker] hands out locks by name, and
// at any time only one holder in all processes has the lock of a name. The packages redislock,
// redlock, zklock and sqllock implement Locker. Each of them can be used without a cache. To use a
// Locker for the loads of a cache, see package lockstore.
//
//	err := lock.Do(ctx, locker, "invoices/2026-11", func(ctx context.Context, held lock.Lock) error {
//		return writeInvoices(ctx, held.Token()) // ctx ends if the lock is lost
//	})
//
// # What is promised
//
// All lockers of this module renew a lock while it is held, tell the holder when its lock is lost,
// and end the lock when its holder dies. Only the owner of a lock can give it back. Calls made with
// the context of a lock are recognised as calls of its holder (see [Context]). When a call returns
// a [Lock], the lock is held at that moment.
//
// # What is not promised
//
// A lock that expires when its holder dies can also expire while its holder lives, because the
// holder was stopped or cut off from the server. A lock that can end while its holder lives is good
// enough for efficiency, because work is rarely done twice. For correctness, the protected resource
// must check the holder's fencing token and refuse a token that is smaller than the largest it has
// seen. [Lock.Lost] and [Lock.Err] tell a holder early that its lock is lost. They can't help if
// the holder is stopped after it has checked them and before it acts.
//
// The lockers store the lock in different systems, so different failures can give one lock to two
// holders:
//
//   - redislock, on one Redis: a failover, a restart, an eviction, a clock that jumps.
//   - redlock, on most of N independent masters: a master that loses data, clocks that jump. It has
//     no fencing tokens.
//   - zklock, on ZooKeeper: a single server that loses its disk.
//   - sqllock, in a row of a database: a replica that lags takes over, a clock that jumps.
//
// With every locker there can be two holders if a holder is stopped for longer than its lease and
// goes on.
//
// In the repository, docs/locks.md compares the lockers and other schemes, and says for each locker
// what it promises, costs and stores. docs/moving.md says what replaces the functions of other
// libraries.
//
// # Writing a Locker
//
// Implement the two methods of [Locker] and the six of [Lock], and run the tests of package
// locktest.
package lock
