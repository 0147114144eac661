// Package lockstore adds a distributed lock to the loads of a cache. It wraps a store, so that each
// load needs the lock of a Locker in addition to the lease of the store itself.
//
//	locker, err := redislock.New(otherRedis, redislock.Options{Lease: 3 * time.Second})
//	guarded := lockstore.Wrap(store, locker)
//	defer guarded.Close()
//	products, err := cacheguard.New(guarded, cacheguard.Options[Product]{Name: "product"})
//
// The lease works as before: calls request it first, waiting calls get messages about it, and a
// fill is accepted only while it is valid. The call that gets the lease then requests the lock. The
// other calls don't use the lock. The lock costs one more round trip before a load (with zklock at
// least three), and one in the background after the load. If the lease or the lock works as
// promised, only one load that has got the lease runs at a time for each key, with one exception: a
// change ends the lease and the lock of a running load, so the next load may begin beside it.
//
// # Who needs it
//
// Few programs need it, because a lease makes loads rare, and fills are safe even if a lease is
// lost. It helps if the locks are in a system that doesn't lose data: ZooKeeper, a database, or
// Redis servers that don't store the values. In that case, if a lease is evicted or lost in a
// failover, no second load starts beside the first one. The first load runs to its end under its
// lock. Its result goes to the callers that wait for it and is not stored. After that the next load
// may start. The lease also makes up for a fault of the lock. With Redlock, for example, a lock can
// be held twice after a master came back without its data. Then the lease keeps a second load from
// starting.
//
// # The promises
//
// The table shows the promises of cacheguard, P1 to P6, for the store's own lease alone and with
// each locker in addition:
//
//	                        lease alone         + redislock          + redlock            + zklock           + sqllock
//	P1 one load             while the store     unless both Redis    unless the store     while ZooKeeper    while the database
//	                        keeps the lease     forget               and a node forget    keeps a session    keeps a row
//	   its leader died      LeaseTTL            the longer of LeaseTTL and the lock's lease, or session
//	   its leader was       LeaseTTL            the same; on Invalidate the next load waits for the lock
//	   stopped              (at once after Invalidate)
//	P2 one result, pushed   yes                 yes: messages are the store's
//	P3 late fills           refused             refused: by the store's grant, which each load gets anew
//	P4 "does not exist"     yes                 yes
//	P5 contexts             yes                 yes; a step waits for a lock for Patience at most
//	P6 every exit releases  yes                 yes, the lock too, in the background
//
// A fill is fenced by the number of its grant. The store gives out this number and compares it
// itself, so the number is a fencing token of the value that is written. It is stronger than a
// token from another system, which the store couldn't check on its own. A locker's tokens are for
// programs that write to other places under its locks.
//
// # When there is trouble
//
// If a locker can't be used, the Store logs this, and again every five minutes. After each failure
// it doesn't use the locker for a second, and loads need only the store's leases. If a load has
// lost its lease, or its process was stopped, the lock of a key may be held although the lease of
// the key is free. Then the Store waits for the lock for Patience, treats the key as held for
// another Patience, and requests the lock again. Set the Lease of the locker to about the cache's
// LeaseTTL, so that callers don't wait longer for a dead leader because of its lock.
//
// Set, Update and Invalidate take no lock. They end the lease of a running load, and with it the
// load's lock. If the load is in another process, a message tells that process to release the lock.
// A lockstore.Store has no permits, so pass the store that you gave to Wrap, not the result of
// Wrap, to cacheguard.NewFleetLimiter.
package lockstore
