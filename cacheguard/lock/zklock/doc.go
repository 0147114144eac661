// Package zklock is a distributed lock on ZooKeeper: those who want a name create a node each below
// the node of the name, ZooKeeper numbers them, and the lowest number has the lock. The nodes are
// ephemeral, so the end of a session gives back what it had. It is a module of its own:
//
//	go get github.com/cacheguard/cacheguard/cacheguard/lock/zklock
//
// Who isn't first watches the node directly before its own and nobody else's, so a release wakes
// one, however many wait, and they have it in the order in which they came. A node bears the name
// of the call that created it: when the answer to its creation was lost, the call finds it again,
// or removes it when it is given up.
//
//	conn, _, err := zk.Connect(servers, 10*time.Second)
//	defer conn.Close()
//
//	locker, err := zklock.New(conn, zklock.Options{Lease: 10 * time.Second})
//	defer locker.Close()
//
//	held, err := locker.Lock(ctx, "invoices/2026-11")
//	if err != nil {
//		return err
//	}
//	defer held.Unlock(ctx)
//
// Connect with the address of each server, and give Options.Lease the same session timeout: the
// connection doesn't tell which one it has. Where the connection is also used for other things,
// mind that its Close ends all locks.
//
// # What is promised
//
//   - At most one holder of a name at a time, as far as sessions can tell: ZooKeeper decides by
//     majority who is first, and takes a node away only when its call did so or its session has
//     ended. A restart, a new leader or the loss of a minority of the servers forgets nothing.
//   - A holder hears of the end of it. Lost is closed at once when the node is removed, when the
//     session ends or when the connection is closed; and when ZooKeeper's leader could not be asked
//     for so long that it may have ended the session. A connection that breaks and is back within a
//     third of Lease keeps the lock.
//   - Fencing tokens grow with each holder of a name: they are the number of the transaction that
//     created the holder's node (czxid), which ZooKeeper counts over all its nodes.
//   - Who waits has the lock in the order of the calls, over all processes; a call whose session
//     ends gets in line again.
//   - No ghosts: a node that nobody knows to have is removed, however long that takes, also when
//     the call's context has ended long ago. Another call on the same session would wait for it for
//     ever.
//   - Calls with the lock's own context (lock.Context) have it at once.
//
// # What is not
//
//   - Exclusion in a holder that stands still. The end of a session is a matter of time, and of two
//     clocks that run at the same rate: that of the holder, monotonic and counted from before a
//     request, and that of ZooKeeper's leader. A process that was paused (by a garbage collector, a
//     hypervisor, SIGSTOP) can go on for a moment after its session is over, and a clock that
//     stands still while its machine sleeps believes in it for as long. Where that is harm and not
//     only wasted work have what the lock protects check the Token: then this is a lock for
//     correctness, not only for efficiency.
//   - The same with a Lease that is more than the servers grant. They cut the session timeout down
//     to maxSessionTimeout, which is 20 ticks, 40 s if nothing is configured. A warning is logged
//     when that is noticed, which is too late.
//   - Anything on a single server whose disk is lost. Tokens begin anew then.
//   - Quick recovery from a server that accepts connections and says nothing. go-zookeeper v1.0.4
//     waits for it up to seven session timeouts, and not for another one meanwhile: the lock is
//     Lost in time, calls return errors.
//
// # What it costs
//
// Lock is two writes and two reads on the way in and out: the node is created, the line read and
// the node watched at the same time, and the node removed. Who waits watches one more node, and
// reads the line once more when it is woken. The line is read whole, so with thousands who wait for
// one name the list of their nodes is what takes time. A refused TryLock writes nothing. A lock
// that is held is verified every quarter of Lease, by two reads.
//
// # What is in ZooKeeper
//
// Below Options.Prefix is a node for each name, with what isn't letters, digits or a few other
// characters as %XX; it is a container (ZooKeeper 3.5.3 or newer), which ZooKeeper removes when it
// has been empty for about a minute. Those who want the lock are its children. Their names have the
// form of zk.Lock and of Curator's InterProcessMutex, so such a lock on that node stands in the
// same line. Least rights on the prefix and what is below, if Options.ACL is to give others less:
// create, delete, read.
//
// # Sources
//
// The recipe is that of ZooKeeper's documentation (Recipes and Solutions: Locks, "Recoverable
// Errors and the GUID"), and of Hunt, Konar, Junqueira, Reed: ZooKeeper: Wait-free coordination for
// Internet-scale systems (USENIX ATC 2010), section 2.4. On tokens and why time isn't enough:
// Kleppmann: How to do distributed locking (2016).
package zklock
