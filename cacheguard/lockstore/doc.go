// Package lockstore puts a distributed lock under the loads of a cache: a store whose loads need a
// lock of a Locker besides the lease that the store itself gives.
//
//	locker, err := redislock.New(otherRedis, redislock.Options{Lease: 3 * time.Second})
//	guarded := lockstore.Wrap(store, locker)
//	defer guarded.Close()
//	products, err := cacheguard.New(guarded, cacheguard.Options[Product]{Name: "product"})
//
// The lease stays what it is: it is asked for first, it says who asks for the lock, it is what
// those who wait are told of, and a fill counts only while it stands. The lock comes on top, so of
// all that the lease is asked for by only the leader touches it: one trip more before a load, and
// one aside after it. A load is alone if either of the two is sound.
//
// # Who needs it
//
// Few: a lease makes loads rare, and fills are safe without it being perfect. With locks in a
// system that doesn't forget (ZooKeeper, a database, other Redis servers than the values') a lease
// that is lost in a failover or evicted doesn't begin a second load beside the first: the first one
// goes on to its end under its lock, its result goes to those who wait for it and is not stored,
// and then the next one may load. And a lock that is had twice, as with Redlock after a node came
// back empty, doesn't begin one either, for the lease is there.
//
// # The promises
//
// Those of cacheguard, P1 to P6, with the store's own lease and with each locker besides it:
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
//	P6 every exit releases  yes                 yes, the lock too, aside
//
// A fill is fenced by the number of its grant, which the store itself gives and compares: that is a
// fencing token of the very thing that is written, stronger than one of another system that the
// store could only be told. A locker's tokens are for those who write elsewhere under its locks.
//
// # When there is trouble
//
// A locker that can't be used is logged once and not asked again for a second at a time; the
// store's leases go alone. A key whose lock is held although its lease is free (its load has lost
// the lease, or its process has been stopped) counts as held, and is asked for again every Patience
// or so. Give the locker a lease like the cache's LeaseTTL, so that a leader that dies isn't waited
// for longer because of its lock.
//
// Set, Update and Invalidate take no lock: they end the lease of a load under way, and with it its
// lock, by message if it is of another process. Budgets (cacheguard.NewFleetLimiter) are of the
// wrapped store.
package lockstore
