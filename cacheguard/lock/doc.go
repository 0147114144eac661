// Package lock is the port to distributed locks: a Locker hands out locks by name, to one holder at
// a time whatever the process, and the packages below implement it. Each is usable alone; under a
// cache's loads they go through package lockstore, and package locktest is the suite that any
// Locker can be held to.
//
//	err := lock.Do(ctx, locker, "invoices/2026-11", func(ctx context.Context, held lock.Lock) error {
//		return writeInvoices(ctx, held.Token()) // ctx ends if the lock is lost
//	})
//
// # Efficiency or correctness
//
// A lock that ends by itself when its holder dies can end while its holder lives: it was stopped,
// or cut off. Such a lock is for efficiency: work is rarely done twice. For correctness, what the
// lock protects has to check the holder's fencing token and refuse one that is smaller than the
// largest it has seen, and the tokens have to come from a system that forgets nothing (Kleppmann:
// How to do distributed locking, 2016). Lost and Err tell a holder early, as a rule before another
// one has the lock; they can't help one that is stopped between looking and acting.
//
// # The lockers of this module
//
// They differ in where the lock is kept, and so in what has to fail for two to have it:
//
//	           where                   two holders when                                   token    who waits is
//	redislock  one Redis               a failover, a restart or an eviction loses it (2)  (1)      woken in order (3)
//	redlock    most of N masters       a master forgets, clocks jump (2)                  none     woken, in order as a rule
//	zklock     ZooKeeper               (2)                                                czxid    woken, and has it in order
//	sqllock    a row in a database     a failover to a replica that lags (2)              (1)      asking, or woken by NOTIFY
//
//	(1) the last one and one, or the server's clock in microseconds: also after a loss, unless that clock is set back
//	(2) as with all: a holder stands still past its lease and goes on
//	(3) and has it in order with Options.Fair
//
// All of them renew a lock while it is held, tell a holder that has lost it, end it when its holder
// dies, give it back in the owner's name only, and know a holder again by its context (see
// Context).
//
// # A process that stands still
//
// A process can stand still for longer than a lease: SIGSTOP, a long garbage collection, a virtual
// machine that is moved. What it hears after that is old. The lockers of this module believe
// nothing that is older than their own last question: an answer counts from before its question was
// sent, and a message only wakes, or has to be newer than the last answer. So a Lock that returns
// is held at that moment, and Err of a holder that stood still is ErrLost before it does anything
// else. package locktest holds each locker to it, with processes that are stopped while they wait,
// acquire, hold and unlock; go run ./bench locks does it at random.
//
// # Coming from another library
//
// What takes the place of what others offer:
//
//	redsync        Extend                       renewal, as long as the lock is held; Options.MaxHold bounds it
//	               Until                        Lock.Until
//	               WithValue, SetValue          Continuer: a lock is continued by its fencing token
//	               WithTries, WithRetryDelay    the ctx of Lock; TryLock tries once; nobody polls
//	bsm/redislock  TTL                          time.Until(Lock.Until())
//	               Refresh                      renewal
//	               Token, Options.Token         Lock.Token with Continuer, in another process too
//	               Metadata                     nothing; keep it under a key of your own
//	               ObtainMulti                  LockAll, TryLockAll: no circle of those who wait for each other
//	rueidislock    WithContext's context        Context: it ends when the lock is lost
//	               TryWithContext               TryLock
//	               ForceWithContext             Seizer.SeizeUnsafely
//
// A lock that is continued, or seized, gets a larger fencing token. The holder before hears of it
// at its next renewal.
//
// # What clients log
//
// While a server can't be reached go-redis logs a line for each connection that it fails to dial.
// It stops after PoolSize of them, until the server is back. So one outage costs a client about
// PoolSize lines, 10 for each processor by default; a PoolSize of 1,000 and five masters that come
// and go make thousands. Keep PoolSize as small as serves, and have a failure be one at once:
//
//	rdb := redis.NewClient(&redis.Options{
//		Addr:                  addr,
//		ContextTimeoutEnabled: true,
//		PoolSize:              20, // connections, and lines of an outage
//		DialerRetries:         1,  // instead of 5, with 100 ms in between
//		MaxRetries:            -1, // a locker asks again by itself
//	})
//
// redis.SetLogger says where these lines go, for the whole program. The lockers log by themselves:
// one line when the trouble begins and one when it ends.
//
// # Five properties
//
// What distributed locks are usually asked for, and which scheme has it. The stages are those of
// the example in examples/catalog, in the order in which the literature mends them:
//
//	                             mutual      release on  re-       performance and        release by
//	                             exclusion   timeout     entrancy  availability           the owner only
//	mutex in the process         1 process   no          no        at once; one process   no (a)
//	SETNX, spin                  yes         no          no        polls, 100 ms          no
//	SETNX, then EXPIRE           yes         mostly (b)  no        polls                  no
//	timestamp, GETSET            no (g)      yes         no        polls                  no
//	SET NX EX, plain DEL         no (c)      yes         no        polls                  no
//	unique value, GET then DEL   no (c)      yes         no        polls                  mostly (d)
//	unique value, WATCH or Lua   no (c)      yes         no        polls                  yes
//	Lua and watchdog             yes (e)     yes         no        polls                  yes
//	unique row without expiry    yes         no          no        polls                  as written
//	redislock                    yes (e)     yes         yes       pushed; one server     yes
//	redlock                      yes (e)     yes         yes       pushed; N/2+1 of N     yes
//	ZooKeeper, all watch all     yes (e)     yes         no        a herd wakes up        yes
//	zklock                       yes (e)     yes         yes       pushed; a quorum       yes
//	sqllock                      yes (e)     yes         yes       polls or NOTIFY; one   yes
//	cacheguard's lease           yes (e)     yes         no (f)    pushed with the value  yes
//
//	(a) Go's can be unlocked by whoever reaches it
//	(b) not when the holder dies between the two commands
//	(c) a holder slower than the time doesn't know that it has ended; with plain DEL it also ends the next one's
//	(d) not when the lock ends between the two commands
//	(e) within what the table above says
//	(f) a load that asks for its own key is an error that says so
//	(g) by the clocks of the clients, and the loser moves the winner's deadline
//
// # Writing a Locker
//
// Implement the two methods of Locker and the five of Lock, and run locktest.
package lock
