// Package redlock is a distributed lock on several independent Redis servers, by the algorithm that
// Redis' documentation calls Redlock: a holder is who has set its token on a majority of them. It
// goes on when a minority of the masters is down, cut off or slow, which a lock on one server
// doesn't, and one with replicas only at the price of locks that its failover forgets.
//
// All masters are asked at once, each for NodeTimeout at most, and the lock counts for the Lease
// less the time that took and less the drift that the clocks may have. While a holder lives its
// lock is renewed by a majority; when it dies the lock ends by itself.
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
// The validity of a lock is Lease - elapsed - drift, where elapsed counts on the monotonic clock
// from before the first request was sent, and drift is Lease * Drift + 2 ms. A majority that
// answers too late for that is refused and given back. Whatever was not enough is given back on all
// masters, also on those whose answer was lost: they are told again until they answer or the lease
// is over. Each try has a token of its own, which is not used again after its release: a copy of a
// release that arrives late would otherwise take away what the next try has been given.
//
// A renewal counts the masters that have had the lock until now. Where nobody has it, as on a
// master that was restarted, it is set again, and there it counts from the next renewal on. So a
// lock that is held for long outlives that each master is away for a while, one after another. It
// would not be wrong to count these at once, for while the lock is valid nobody else can have a
// majority; but if it had been lost on a majority, and another had held it meanwhile, nobody would
// ever notice. A lock is Lost when so many masters say that it is not theirs that no majority can
// have it, or when its validity is over. A minority that has lost it, or that another has, changes
// nothing.
//
// # Those who wait
//
// A master on which a lock is released tells those who wait for it, by a message. When a majority
// may be free they ask, one after another in the order in which they came, because if all asked at
// once the votes would be split and nobody would have a majority. When that happens all the same
// they give back what they have and ask again after a random time. A process that unlocks and locks
// again at once lets those go first that wait. In one process those who wait for a name take turns,
// and one of them asks. All this makes waiting fair most of the time; nothing guarantees it.
//
// Without messages (a user without the right to, or no subscription on a majority) those who wait
// ask again after 5 ms, then after twice as long each time up to 100 ms. With messages they ask
// once a second, in case one was lost, and when the lock of a dead holder is over.
//
// # What it can promise
//
// It is a lock for efficiency: to keep most of the work from being done twice. Use it where two
// holders at once, now and then, cost money and not data. It has no fencing tokens (Token is always
// 0): nothing in the algorithm gives out numbers that grow, and a number from each master's counter
// would not be one, because majorities differ. So what the lock protects can't tell a late holder
// from the present one, and there is no way to make up for the cases below (Kleppmann: How to do
// distributed locking, 2016; Sanfilippo: Is Redlock safe?, 2016; and Distributed Locks with Redis
// on redis.io). Where correctness depends on the lock use one with tokens, and have them checked.
//
// At most one holder has the lock while all of these hold:
//
//   - No master forgets. One that is restarted without its data, or loses some by eviction, can
//     give its vote twice: with holder A on masters 1, 2 and 3 of five, a restart of 3 lets B have
//     3, 4 and 5, at the same time. Either have each master keep what it says (appendonly yes,
//     appendfsync always, which costs a disk write for each lock), or leave a master that was down
//     off for longer than the largest Lease before it is used again (a delayed restart: then what
//     it has forgotten is over). Both, maxmemory-policy noeviction, and no replicas that are
//     promoted by themselves: a failover is a restart that forgets the last writes, without the
//     delay. A is told at its next renewal, a third of Lease later.
//   - The clocks run alike. Redis ends keys by its wall clock: one that jumps forward, by an
//     operator, by ntpd -g or in a migrated machine, ends locks early. Have clocks slewed, not set.
//     Wall clocks of clients don't matter. A monotonic clock that stands still while a machine is
//     suspended, as Linux' does, has its holders believe for as long that they have the lock.
//   - Nobody stands still. A process that is stopped (by a garbage collector, a hypervisor,
//     swapping) between the moment in which it looks at Err and the moment in which it acts can act
//     after its lease. No lock can prevent that.
//   - All lockers have the same masters. To add one or take one away go one at a time, and change
//     all processes before the next one: any majority of n masters meets any of n+1, which is not
//     so with n+2. To replace one is two such steps. That is what an even number is for.
//
// A command that is carried out late, as when a master was stopped with it in its socket, can leave
// the lock on that master although it was given back: a ghost, for one lease. It is no majority, so
// others get the lock without that master; with two more masters away at the same time they wait
// until it is over.
//
// # What to configure
//
// Three or five servers on machines that don't fail together. NodeTimeout well above the time an
// answer takes (a cold connection takes several times as long; Warm has them ready) and at most a
// tenth of Lease. Clients with ContextTimeoutEnabled and MaxRetries -1, PoolSize for as many locks
// as are acquired, renewed and released in the same moment: each takes one connection to each
// master for the time of an answer.
//
// Each lock is a key <prefix>:<name>, the holder's token and those who wait. Messages go over the
// channel <prefix>:released of each master. With an ACL the least that works is
//
//	ACL SETUSER locks on >secret ~cgredlock:* &cgredlock:released +evalsha +eval +script|load +get +set +append +del +pexpire +pttl +publish +subscribe +ping +hello
//
// Without the channel, +publish, +subscribe and +ping those who wait ask from time to time. Warm
// names all rights that a user lacks. Whoever can write to a majority of the masters is trusted
// with the locks.
//
// If a master's key has no end, or one more than 1000 leases and an hour away, no locker has left
// it like that. One on a majority is not waited for: the error wraps lock.ErrHeld and names the
// key. To free such a lock delete the key, or take the lock by SeizeUnsafely.
//
// If two masters turn out to be one server, by two names of it, that is an error of Warm and of the
// first calls. Such a server has one vote in any case, also while one of its names is silent: each
// master is given a token of its own, and a second token is refused where the first one is. Not
// detected are one server with two databases and servers that share their fate. A replica of
// another master is taken for the same server if it has heard of a lock before it is asked. Warm
// names a replica that can't be written to, which has no vote. One that can be written to votes,
// and forgets what it was told when its master tells it otherwise.
//
// # What it costs
//
// Lock, renewal and Unlock are one script on each master, all at once, and take as long as the
// third quickest of five. A process that waits asks each master once when it begins and once at
// each hand-over. Masters that are away cost nothing while a majority answers, except for one
// connection that is dialled again for each request.
package redlock
