// Package redislock implements distributed locks on one Redis. A lock is a key with an expiry. Its
// value names the owner. The key is set only if nobody has the lock (SET NX PX), and only the owner
// deletes it.
//
// While a holder lives, its lock is renewed. When the holder dies, the lock expires by itself, at
// most one Lease later. Waiting calls form a queue in Redis (the line). Unlock gives the lock
// directly to the first call in the queue, so a hand-over costs one message and one step (one
// script), however many calls wait.
//
//	locker, err := redislock.New(rdb, redislock.Options{})
//	defer locker.Close()
//
//	held, err := locker.Lock(ctx, "invoices/2026-11")
//	if err != nil {
//		return err
//	}
//	defer held.Unlock(ctx)
//
// # What is promised
//
//   - At most one holder of a name at a time, while Redis keeps its data and its clock runs at the
//     same rate as those of its clients. The wall clocks of clients don't matter.
//   - A holder learns when it loses the lock. Lost is closed when the lock could not be renewed in
//     time, was taken away, or was held for longer than MaxHold.
//   - Only the owner gives a lock back.
//   - Fencing tokens grow with each holder of a name, even if Redis has lost data, unless Redis'
//     clock has been set back.
//   - A lock that is given back goes to the waiting calls in their order. (In a cluster, and after
//     a lock has expired, only with [Options.Fair].)
//   - Calls with the lock's own context (lock.Context) get the lock at once.
//
// # What is not promised
//
//   - Exclusion when Redis loses data. After a failover, a restart or an eviction, or when the
//     server's clock jumps forward, two holders can have the same lock. Use a Redis with
//     noeviction for locks.
//   - Exclusion when a holder is stopped, or when its machine is suspended. It can go on for a
//     moment after its lease is over.
//
// So this is a lock for efficiency. If two holders at the same time would do harm, and not only
// waste work, let the protected resource check the Token.
//
// Redis has to be 6.2 or later. Any client that can write the keys <prefix>:* or publish on the
// channels <prefix>:* is trusted with the locks, and other clients must not subscribe to the
// channels, not even by a pattern. Redis keeps the last fencing token of each name for a day, in
// some 130 bytes.
//
// In the repository, docs/locks.md has these promises in detail, the costs, the keys, the least
// rights for an ACL, and how to end a lock by hand.
package redislock
