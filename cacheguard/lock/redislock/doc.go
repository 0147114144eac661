// Package redislock is a distributed lock on one Redis: a key that is set if nobody has it, with an
// end (SET NX PX), in its owner's name, and deleted only in that name.
//
// While a holder lives its lock is renewed; when it dies the lock ends by itself, one Lease later
// at most. Those who wait stand in line in Redis, and whoever gives a lock back gives it to the
// first of them, so a hand-over costs one message and two steps, however many wait.
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
//   - At most one holder of a name at a time, while Redis keeps what it was told and its clock runs
//     like those of its clients: a lease counts from before it was asked for on the client's
//     monotonic clock, so no wall clock of a client matters. What ends this all the same is listed
//     below.
//   - A holder hears of it: Lost is closed when the lock could not be renewed in time, was taken
//     away, or was held for longer than MaxHold.
//   - Only the owner gives a lock back. Each call of Lock is an owner of its own; one whose answer
//     was lost asks again and recognises its lock, and one that is given up takes back what it may
//     have been given. If Redis doesn't answer to that, or to Unlock, it is told again until it
//     does, for up to one Lease.
//   - Fencing tokens grow with each holder of a name: each is the server's clock in microseconds,
//     or the last one and one. They grow also after some or all of what is in Redis was lost,
//     unless the clock has been set back.
//   - A lock that is given back is the next one's who waits, in the order of their calls, and of no
//     newcomer. (In a cluster, and after a lock that ended by itself, those who wait have to be
//     quick, unless Options.Fair keeps the order.) A message that was lost costs a third of Lease,
//     a third of a second at worst while none arrive.
//   - Calls with the lock's own context (lock.Context) get it at once.
//
// # What is not
//
//   - Exclusion when Redis forgets. A master that dies takes along what its replica had not been
//     told: after a failover by Sentinel or in a cluster, or a restart, the same name can be had
//     twice, until the first holder's next renewal tells it that it has lost: a third of Lease.
//     Eviction does the same: give locks a Redis with noeviction. The same goes for a server whose
//     clock jumps forward. One whose clock is set back keeps what the dead have left, locks and
//     places, for longer by as much.
//   - Exclusion in a holder that stands still. One that was paused (by a garbage collector, a
//     hypervisor, SIGSTOP) can go on for a moment after its lease is over. Where that is harm and
//     not only wasted work, have what the lock protects check the Token (Kleppmann: How to do
//     distributed locking, 2016).
//   - A monotonic clock that stands still while a machine is suspended, as Linux' does, makes its
//     holders believe for as long that they have the lock.
//
// So it is a lock for efficiency, and with tokens that are checked one for correctness.
//
// # What it costs
//
// When nobody else wants the lock, Lock and Unlock are one round trip each, and ten commands:
//
//	EVALSHA, EVALSHA    one step each, so that nothing can come between its parts
//	TIME                the fencing token, which is larger than what Redis may have forgotten
//	SET NX PX           the lock, with its end and its token, if nobody has it
//	SET PX GET          the last token is remembered, and the one before counts if the clock was set back
//	ZREM                the owner's place in line, which a copy of the question may have taken
//	GET                 is the lock still this owner's?
//	SET PX              note that it gives the lock back, for an Unlock whose answer is lost
//	ZPOPMIN             who is next?
//	DEL                 nobody: the lock is free
//
// Options.Fair adds GET and ZRANGE, which look whether somebody waits. Until a call of this locker
// has waited, no place in line is possible, and there is no ZREM.
//
// Both steps run on the caller's goroutine while Redis answers, for another one costs more than the
// step. So if Redis stops answering just then, a call notices the end of its context after
// OpTimeout at the latest. A call whose deadline is nearer than OpTimeout does pay for another
// goroutine: it takes about half as long again.
//
// A call that waits asks once for its place, and again every third of Lease. A hand-over is the
// step of Unlock, in which the next one gets the lock, and one message on the channel of its
// process, however many others wait: a message in a channel that all listen to would reach every
// process each time. The lease of one that was given the lock so counts from its last question. The
// message has the fencing token, and each answer has the last one that was given before it: a
// message that isn't newer than the last answer is not believed. So a process that stood still
// believes nothing that has ended meanwhile. In a cluster, where Redis carries each message to all
// nodes and can't say whom it has reached, the message wakes the next one, which asks.
//
// Redis keeps the last fencing token of each name that was locked within a day, in some 130 bytes:
// mind that where names are many, as under the loads of a cache.
//
// # What is in Redis
//
// Of the lock of a name there are
//
//	<prefix>:{<name>}                who has it and the fencing token; it ends with the lease
//	<prefix>:{<name>}:line and :seen who waits, and until when each of them counts as there
//	<prefix>:{<name>}:fence          the last fencing token, for a day
//	<prefix>:{<name>}:given:<owner>  that the owner gave it back, for two OpTimeouts, in case Unlock has to ask twice
//
// with a backslash in front of a name that begins with "}" or a backslash. To end a lock by hand,
// delete the first of these: its holder hears of it at the next renewal, and those who wait find
// out when they ask again.
//
// Redis has to be 6.2 or later. With an ACL the least that works is ~<prefix>:* &<prefix>:* and
// +get +set +del +pexpire +pttl +time +zadd +zrem +zpopmin +zrange +hset +hget +hdel +publish
// +subscribe +ping +evalsha +eval +script|load, and +info for a client of sentinels, +cluster|slots
// for a cluster's. Without SUBSCRIBE those who wait ask from time to time. When rights are missing,
// the error of a call names the first that it needs, and Warm names all of them. In a cluster Warm
// asks one node for that.
//
// If the key of a lock has no end, or one more than 1000 leases and an hour away, no locker has
// left it like that. Nobody waits for it: the error wraps lock.ErrHeld and names the key. (If the
// key has an owner and a token, Lock first gives its holder one Lease to renew it.) To free such a
// lock delete the key, or take the lock by SeizeUnsafely. Something else than a lock's own types at
// its keys is an error that names the key. If the last fencing token is 2^53-1, the largest number
// that scripts can tell from the next, there is no larger one: calls fail until the key of the
// fence is deleted. A larger number there was never given: it is ignored.
//
// Whoever can write these keys, or publish to the channels, is trusted with the locks: the message
// of a hand-over is believed without asking, if its token is larger. Keep other subscriptions off
// the channels, also by a pattern (PSUBSCRIBE *): Redis counts them as somebody who hears the
// message, so that a process that died while it waited costs up to one Lease.
package redislock
