// Package redlock implements distributed locks on several independent Redis servers (masters), with
// the algorithm that Redis' documentation calls Redlock: the holder of a lock is the process that
// has set its token on a majority of the masters. The lock stays usable while a minority of the
// masters is down, cut off or slow. With a single server, no lock can be used after the loss of
// that server. With replicas, locks can be used again after a failover, but the failover can lose
// locks.
//
// A request for a lock goes to all masters at the same time, and each has NodeTimeout to reply. The
// lock is valid for the Lease, less the time that the replies took and less the drift that the
// clocks may have. While a holder lives, a majority renews its lock. When the holder dies, the lock
// expires by itself.
//
//	masters := []redis.UniversalClient{
//		redis.NewClient(&redis.Options{Addr: "redis-a:6379", ContextTimeoutEnabled: true, DialerRetries: 1, MaxRetries: -1}),
//		redis.NewClient(&redis.Options{Addr: "redis-b:6379", ContextTimeoutEnabled: true, DialerRetries: 1, MaxRetries: -1}),
//		redis.NewClient(&redis.Options{Addr: "redis-c:6379", ContextTimeoutEnabled: true, DialerRetries: 1, MaxRetries: -1}),
//	}
//	locker, err := redlock.New(masters, redlock.Options{})
//	defer locker.Close()
//
//	held, err := locker.Lock(ctx, "invoices/2026-11")
//	if err != nil {
//		return err
//	}
//	defer held.Unlock(ctx)
//
// # The algorithm
//
// The validity of a lock is Lease - elapsed - drift. elapsed is measured on the monotonic clock
// from before the first request was sent, and drift is Lease * Drift + 2 ms. If the majority's
// replies come after the end of this validity, the lock is given back. After a failed try the
// locker sends a release to all masters that may have granted the lock, also to masters whose reply
// was lost. It repeats the release until each master replies or the lease is over. Each try has its
// own token. A token is not used again after its release, because a late copy of that release would
// otherwise remove a lock that the next try has got.
//
// A renewal counts a master only if the lock is still there when the renewal arrives. If a master
// doesn't have the lock, for example after a restart, the renewal sets the lock there again, and
// that master counts from the next renewal on. So a lock that is held for long survives when each
// master is away for a while, one after another. If these masters were counted immediately,
// exclusion would not suffer, because while the lock is valid nobody else can have a majority. But
// a loss would be hidden: if a majority had lost the lock, and another holder had had it in the
// meantime, nobody would ever notice. Lost is closed when the validity of the lock is over. It is
// also closed when too many masters reply that the holder doesn't have the lock, so that a renewal
// can't reach a majority any more. With five masters, three such replies are enough. If only a
// minority has lost the lock or given it to another holder, the lock stays held.
//
// # Those who wait
//
// When a lock is released on a master, the master sends a message to the waiting processes. When a
// majority of the masters may be free, the waiting processes send their requests one after another,
// in the order in which they came. If all sent them at the same time, the votes would be split and
// nobody would have a majority. If the votes are split nevertheless, each process gives its votes
// back and tries again after a random time. A process that unlocks a lock and locks it again at
// once lets the waiting processes go first. Within one process the calls that wait for a name take
// turns, and only one of them sends requests. These rules make waiting fair most of the time, but
// they don't guarantee fairness.
//
// If there are no messages (because the user lacks the right to subscribe, or because a majority
// has no subscription), a waiting call polls: after 5 ms, then after twice as long each time, up to
// 100 ms. With messages it also asks once a second (because a message may have been lost) and when
// the lock of a dead holder expires.
//
// # What it can promise
//
// This is a lock for efficiency: it keeps most of the work from being done twice. Use it if two
// simultaneous holders now and then only waste work. It has no fencing tokens (Token is always 0),
// because no part of the algorithm produces growing numbers. A counter on each master would not
// help, because majorities differ. So the protected resource can't tell a late holder from the
// present one, and nothing can make up for the cases below (Kleppmann: How to do distributed
// locking, 2016; Sanfilippo: Is Redlock safe?, 2016; and Distributed Locks with Redis on redis.io).
// If correctness depends on the lock, use a lock with fencing tokens, and let the protected
// resource check them.
//
// At most one holder has the lock while all of these conditions are met:
//
//   - No master loses data. A master that is restarted without its data, or loses some by eviction,
//     can vote twice. For example, holder A has its lock on masters 1, 2 and 3 of five. If master 3
//     restarts empty, holder B can get the lock on 3, 4 and 5 at the same time. There are two
//     remedies. The first: each master persists its data (appendonly yes, appendfsync always),
//     which costs a disk write for each lock. The second is a delayed restart: a master that was
//     down stays unused for longer than the largest Lease, because by then the locks that it has
//     lost have expired. With either remedy, set maxmemory-policy noeviction, and have no replicas
//     that are promoted automatically, because a failover has the effect of a restart that loses
//     the last writes, without the delay. In the example above, A learns of its loss at its next
//     renewal, a third of Lease later.
//   - The clocks run at the same rate. Redis expires keys by its wall clock. A clock that jumps
//     forward, because of an operator, ntpd -g or a migrated machine, ends locks early. Let clocks
//     be slewed, not set. Wall clocks of clients don't matter. If a monotonic clock stops while its
//     machine is suspended, as Linux' does, its holders believe for that much longer that they have
//     the lock.
//   - No holder is stopped. If a process is stopped (by a garbage collector, a hypervisor,
//     swapping) after it has checked Err and before it acts, it can act after its lease. No lock
//     can prevent that.
//   - All lockers have the same masters. Add or remove one master at a time, and change all
//     processes before the next one: any majority of n masters overlaps with any majority of n+1,
//     but not with every majority of n+2. To replace a master, add the new one and remove the old
//     one, as two separate changes. An even number of masters is allowed for this purpose.
//
// If a command is carried out late, for example because a master was stopped with the command in
// its socket, the lock can stay on that master for one lease although it was given back. This is
// called a ghost. One master is no majority, so other callers get the lock without this master.
// With five masters, if two more of them are away at the same time, other callers wait until the
// ghost expires.
//
// # What to configure
//
// Use three or five servers on machines that don't fail together. Set NodeTimeout well above the
// time that a reply takes, and to at most a tenth of Lease. (A reply on a new connection takes
// several times as long. Warm dials the connections in advance.) Give the clients
// ContextTimeoutEnabled, MaxRetries -1, and a large enough PoolSize. Each acquisition, renewal or
// release uses one connection to each master until the reply arrives. So choose PoolSize by the
// number of these steps that run at the same moment.
//
// Each lock is a key <prefix>:<name>. Its value is the holder's token and the ids of the waiting
// processes. Messages are sent on the channel <prefix>:released of each master. With an ACL these
// are the least rights that work:
//
//	ACL SETUSER locks on >secret ~cgredlock:* &cgredlock:released +evalsha +eval +script|load +get +set +append +del +pexpire +pttl +publish +subscribe +ping +hello
//
// Without the channel, +publish, +subscribe and +ping, waiting calls poll. The error of Warm names
// the rights that a user lacks, except for +publish. Any client that can write to a majority of the
// masters is trusted with the locks.
//
// If the key of a lock on a master has no expiry, or an expiry more than 1000 leases and an hour
// away, no locker has set this expiry. If a majority of the masters have such a key for a lock,
// calls don't wait for it: the error wraps lock.ErrHeld and names the key. To free the lock, delete
// the key, or take the lock with SeizeUnsafely.
//
// If two masters are one server with two names, Warm returns an error, and so does each Lock or
// TryLock to which both names reply. This server has only one vote, even before the error and while
// one of its names doesn't respond. The reason is that the locker uses a separate token for each
// master, and the server refuses the second token while it has the first one. The locker doesn't
// detect one server with two databases, or servers that fail together. If one of the masters is a
// replica of another, it may receive a lock by replication before the locker's own request arrives.
// Then the locker takes both for the same server. The error of Warm names a replica that can't be
// written to. Such a replica has no vote. A writable replica votes, and loses its votes when its
// master overwrites them.
//
// # What it costs
//
// Lock, renewal and Unlock run one script on all masters at the same time, and take as long as the
// third quickest of five masters. A waiting process sends each master one request when it begins to
// wait, one at each hand-over, and one a second. While a majority responds, a master that is away
// costs only dials: at most one for each request, and one or two a second in the background.
package redlock
