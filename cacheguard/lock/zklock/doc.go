// Package zklock implements distributed locks on ZooKeeper. Each call that wants the lock of a name
// creates a node below the node of the name. ZooKeeper numbers these nodes, and the call with the
// lowest number has the lock. The nodes are ephemeral, so all locks of a session are given back
// when the session ends. The package is a separate module:
//
//	go get github.com/cacheguard/cacheguard/cacheguard/lock/zklock
//
// A call that isn't first watches only the node directly before its own node. So a release wakes
// one call, however many wait, and the calls get the lock in the order in which they came. The name
// of a node contains an id of the call that created it. If the reply to the creation is lost, the
// call finds its node again by this id, or removes it when it gives up.
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
// Connect with the addresses of all servers, and set Options.Lease to the session timeout that you
// pass to zk.Connect, because the connection doesn't tell its timeout. You may also use the
// connection for other purposes, but Close of the connection ends all locks.
//
// # What is promised
//
//   - At most one holder of a name at a time, within the guarantees of sessions. ZooKeeper decides
//     by majority which node is first, and it removes a node only when a call requests that or when
//     the node's session has ended. A restart, a new leader or the loss of a minority of the
//     servers loses no locks.
//   - A holder learns when it loses the lock. Lost is closed at once when the node is removed, when
//     the session ends or when the connection is closed. Lost is also closed when ZooKeeper's
//     leader could not be reached for so long that the leader may have ended the session. If a
//     connection breaks and is back within a third of Lease, the lock stays held.
//   - Fencing tokens grow with each holder of a name. A token is the number of the transaction that
//     created the holder's node (czxid), which ZooKeeper counts over all its nodes.
//   - Waiting calls of all processes get the lock in their order. A call whose session ends goes to
//     the end of the queue.
//   - No ghosts. A ghost is a node whose creator doesn't know that the node exists. The locker
//     removes it, however long this takes, even if the context of the creating call ended long ago.
//     Otherwise another call on the same session would wait for this node for ever.
//   - Calls with the lock's own context (lock.Context) get the lock at once.
//
// # What is not
//
//   - Exclusion when a holder is stopped. The end of a session depends on two clocks that have to
//     run at the same rate: the holder's monotonic clock, which counts from before a request, and
//     the clock of ZooKeeper's leader. A process that was paused (by a garbage collector, a
//     hypervisor, SIGSTOP) can go on for a moment after its session is over. If a clock stops while
//     its machine sleeps, the holder believes for that much longer that it has the lock. If two
//     holders at the same time would do harm, and not only waste work, let the protected resource
//     check the Token. With this check the lock is good enough for correctness, not only for
//     efficiency.
//   - Exclusion with a Lease that is longer than the servers grant. The servers limit the session
//     timeout to maxSessionTimeout, which is 20 ticks, or 40 s by default. When the locker notices
//     a shorter session, it logs a warning, but by then it is too late.
//   - Anything on a single server whose disk is lost. In this case tokens start again from the
//     beginning.
//   - Quick recovery from a server that accepts connections but never replies. go-zookeeper v1.0.4
//     waits for this server for up to seven session timeouts, and doesn't try another server in the
//     meantime. The Lost channel of a held lock is closed in time, and calls return errors.
//
// # What it costs
//
// Lock and Unlock together take two writes and two reads, and two more writes if the node of the
// name doesn't exist. Lock creates the node, and then reads the queue and watches the node at the
// same time. Unlock removes the node. A waiting call watches one more node, and reads the queue
// once more when it is woken. A read of the queue returns all its nodes. So if thousands of calls
// wait for one name, these reads take most of the time. A TryLock that finds the lock held writes
// nothing. Every quarter of Lease a held lock is verified, with a sync and a read.
//
// # What is in ZooKeeper
//
// Options.Prefix has a child node for each name. Characters other than letters, digits and a few
// more are written as %XX. The node of a name is a container (ZooKeeper 3.5.3 or newer), which
// ZooKeeper removes when it has been empty for about a minute. Calls that want the lock have nodes
// below it. The names of these nodes have the form of zk.Lock and of Curator's InterProcessMutex,
// so these locks share the queue if they use the same node. If Options.ACL restricts other clients,
// lockers need at least these rights on the prefix and everything below it: create, delete, read.
//
// # Sources
//
// The algorithm comes from ZooKeeper's documentation (Recipes and Solutions: Locks, "Recoverable
// Errors and the GUID"), and from Hunt, Konar, Junqueira, Reed: ZooKeeper: Wait-free coordination
// for Internet-scale systems (USENIX ATC 2010), section 2.4. Kleppmann: How to do distributed
// locking (2016) describes tokens, and explains why a time limit isn't enough.
package zklock
