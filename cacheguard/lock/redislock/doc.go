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
//     same rate as those of its clients. A lease is counted from before its request was sent, on
//     the client's monotonic clock, so wall clocks of clients don't matter. The next section lists
//     the cases in which there can be two holders.
//   - A holder learns when it loses the lock. Lost is closed when the lock could not be renewed in
//     time, was taken away, or was held for longer than MaxHold.
//   - Only the owner gives a lock back. Each call of Lock is a different owner. If the reply to a
//     call is lost, the call sends its request again and recognises its lock. If a call gives up,
//     it releases the lock, because Redis may have granted it in the meantime. If Redis doesn't
//     reply to that release, or to Unlock, the locker repeats the release until Redis replies, for
//     up to one Lease.
//   - Fencing tokens grow with each holder of a name. A token is the server's clock in
//     microseconds, or the last token plus one if that is larger. Tokens grow even if Redis has
//     lost some or all of its data, unless its clock has been set back.
//   - A lock that is given back goes to the waiting calls in their order, not to a new call. (In a
//     cluster, and after a lock has expired, a new call can be quicker than the waiting calls,
//     unless Options.Fair keeps the order.) If a message is lost, the hand-over takes up to about a
//     third of Lease longer. While no messages arrive, it takes at most 0.4 seconds longer.
//   - Calls with the lock's own context (lock.Context) get the lock at once.
//
// # What is not
//
//   - Exclusion when Redis loses data. A master that dies loses what its replica hadn't received
//     yet. So after a failover by Sentinel or in a cluster, or after a restart, two holders can
//     have the same lock. The first holder learns at its next renewal, up to a third of Lease
//     later, that its lock is lost. Eviction has the same effect: use a Redis with noeviction for
//     locks. A forward jump of the server's clock has the same effect, too. If a server's clock is
//     set back, the locks and queue places of dead processes last longer by that time.
//   - Exclusion when a holder is stopped. A process that was paused (by a garbage collector, a
//     hypervisor, SIGSTOP) can go on for a moment after its lease is over. If two holders at the
//     same time would do harm, and not only waste work, let the protected resource check the Token
//     (Kleppmann: How to do distributed locking, 2016).
//   - Exclusion across a suspend. If a machine's monotonic clock stops while the machine is
//     suspended, as Linux' does, its holders believe for that much longer that they have their
//     locks.
//
// So this is a lock for efficiency. If tokens are checked, it is a lock for correctness too.
//
// # What it costs
//
// If no other call wants the lock, Lock and Unlock take one round trip each, and ten commands in
// total:
//
//	EVALSHA, EVALSHA    one step each, so that nothing can come between its parts
//	TIME                the fencing token, which is larger than what Redis may have forgotten
//	SET NX PX           the lock, with its end and its token, if nobody has it
//	SET PX GET          the last token is remembered, and the one before counts if the clock was set back
//	ZREM                the owner's place in line, if a late copy of the request has taken one
//	GET                 is the lock still this owner's?
//	SET PX              note that it gives the lock back, for an Unlock whose answer is lost
//	ZPOPMIN             who is next?
//	DEL                 nobody: the lock is free
//
// Options.Fair adds GET and ZRANGE, which check whether a call waits. ZREM is left out until Warm
// or the first waiting call has subscribed to messages, because before that the first request of a
// call takes no place in the queue.
//
// Except with a cluster client, both steps run on the caller's goroutine while Redis responds,
// because another goroutine costs more than the step. So if Redis stops responding during a step,
// the call may notice the end of its context as late as OpTimeout. If the call's deadline is nearer
// than OpTimeout, the step runs on another goroutine and takes about 1.5 times as long.
//
// A waiting call requests its place in the queue once, and again every third of Lease. For a
// hand-over, the step of Unlock gives the lock to the next call and sends one message on the
// channel of this call's process, however many other calls wait. (With one channel for all
// processes, each message would reach every process.) The lease of a lock that is handed to a
// waiting call starts at the time when this call last sent its request, not at the hand-over. The
// message contains the fencing token, and each reply to a waiting call contains the last token
// given before it. A message whose token isn't larger than the token of the last reply only makes
// the call send its request again. So a process that was stopped never trusts a lock that has ended
// in the meantime. In a cluster, Redis sends each message to all nodes and doesn't know whether a
// subscriber received it. There the message only wakes the next call, which then sends its request.
//
// Redis keeps the last fencing token of each name that was locked within a day, in some 130 bytes.
// With many names, plan for this memory, for example if the locks are for the loads of a cache.
//
// # What is in Redis
//
// The lock of a name consists of
//
//	<prefix>:{<name>}                who has it and the fencing token; it ends with the lease
//	<prefix>:{<name>}:line and :seen who waits, and until when each of them counts as there
//	<prefix>:{<name>}:fence          the last fencing token, for a day
//	<prefix>:{<name>}:given:<owner>  that the owner gave it back, for two OpTimeouts, in case Unlock has to ask twice
//
// A name that begins with "}" or a backslash gets a backslash in front. To end a lock by hand,
// delete the first of these keys. The holder learns of the deletion at the next renewal. Waiting
// calls notice it when they send their requests again.
//
// Redis has to be 6.2 or later. With an ACL the least that works is ~<prefix>:* &<prefix>:* and
// +get +set +del +pexpire +pttl +time +zadd +zrem +zpopmin +zrange +hset +hget +hdel +publish
// +subscribe +ping +evalsha +eval +script|load, and +info for a client of sentinels, +cluster|slots
// for a client of a cluster. Without SUBSCRIBE waiting calls poll. When rights are missing, the
// error of a call names the first missing right that it needs, and the error of Warm names all of
// them. In a cluster Warm checks the rights on one node only.
//
// If the key of a lock has no expiry, or an expiry more than 1000 leases and an hour away, no
// locker has set this expiry. Calls don't wait for this lock: the error wraps lock.ErrHeld and
// names the key. (If the value of the key has an owner and a token, Lock first gives the holder one
// Lease to renew it.) To free the lock, delete the key, or take the lock with SeizeUnsafely. If one
// of the keys has the wrong type, the error names that key. Scripts can't tell integers above
// 2^53-1 from their neighbours. So if the last fencing token is 2^53-1, there is no larger token,
// and calls fail until the fence key is deleted. A larger number in the fence key can't be a token,
// and is ignored.
//
// Any client that can write these keys or publish on the channels is trusted with the locks: a
// hand-over message is believed without a check in Redis if its token is larger than the last token
// that the waiting call knows. Don't let other clients subscribe to the channels, not even by a
// pattern (PSUBSCRIBE *). Redis counts these clients as receivers of a message. So Unlock may hand
// the lock to a process that died while it waited, and then nobody has the lock for up to one
// Lease.
package redislock
