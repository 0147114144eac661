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
//   - At most one holder of a name at a time, within the guarantees of sessions. A restart, a new
//     leader or the loss of a minority of the servers loses no locks.
//   - A holder learns when it loses the lock. Lost is closed when the node is removed, when the
//     session ends or may have ended, or when the connection is closed. If a connection breaks and
//     is back within a third of Lease, the lock stays held.
//   - Fencing tokens grow with each holder of a name.
//   - Waiting calls of all processes get the lock in their order.
//   - Calls with the lock's own context (lock.Context) get the lock at once.
//
// # What is not promised
//
//   - Exclusion when a holder is stopped. It can go on for a moment after its session is over. If
//     two holders at the same time would do harm, let the protected resource check the Token.
//   - Exclusion with a Lease that is longer than the servers grant (maxSessionTimeout, by default
//     20 ticks or 40 s).
//   - Anything on a single server whose disk is lost. In this case tokens start again.
//   - Quick recovery from a server that accepts connections but never replies.
//
// In the repository, docs/locks.md has these promises in detail, the costs, the nodes in ZooKeeper,
// the least rights, and the sources of the algorithm.
package zklock
