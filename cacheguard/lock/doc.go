// Package lock defines the interface of distributed locks. A [Locker] hands out locks by name, and
// at any time only one holder in all processes has the lock of a name. The packages redislock,
// redlock, zklock and sqllock implement Locker. Each of them can be used without a cache. To use a
// Locker for the loads of a cache, see package lockstore. To test a Locker, run the test suite in
// package locktest.
//
//	err := lock.Do(ctx, locker, "invoices/2026-11", func(ctx context.Context, held lock.Lock) error {
//		return writeInvoices(ctx, held.Token()) // ctx ends if the lock is lost
//	})
//
// # Efficiency or correctness
//
// A lock that expires when its holder dies can also expire while its holder lives, because the
// holder was stopped or cut off from the server. A lock that can end while its holder lives is good
// enough for efficiency, because work is rarely done twice. For correctness, the protected resource
// must check the holder's fencing token and refuse a token that is smaller than the largest it has
// seen. The tokens must come from a system that never loses data (Kleppmann: How to do distributed
// locking, 2016). [Lock.Lost] and [Lock.Err] tell a holder early that its lock is lost, usually
// before another holder has the lock. They can't help if the holder is stopped after it has checked
// them and before it acts.
//
// # The lockers of this module
//
// They store the lock in different systems. So different failures can give one lock to two holders:
//
//	           where                   two holders when                                   token    a waiting call is
//	redislock  one Redis               failover, restart, eviction, the clock jumps (2)   (1)      woken in order (3)
//	redlock    most of N masters       a master forgets, clocks jump (2)                  none     woken, in order as a rule
//	zklock     ZooKeeper               (2)                                                czxid    woken, and has it in order
//	sqllock    a row in a database     a replica that lags takes over, clock jumps (2)    (1)      asking, or woken by NOTIFY
//
//	(1) the last token plus one, or the server's clock in microseconds if that is larger: grows also after a loss, unless that clock is set back
//	(2) with every locker: a holder is stopped for longer than its lease and goes on
//	(3) with Options.Fair, waiting calls also get the lock in order
//
// All of them renew a lock while it is held, tell the holder when its lock is lost, and end the
// lock when its holder dies. Only the owner of a lock can give it back. Calls made with the context
// of a lock are recognised as calls of its holder (see [Context]).
//
// # A process that stands still
//
// A process can be stopped for longer than a lease: by SIGSTOP, by a long garbage collection, or
// while its virtual machine is moved. Replies and messages that the process reads afterwards are
// old. So the lockers of this module follow three rules. The lease in a reply is counted from
// before the request was sent. A message can hand over a lock only if it is newer than the last
// reply. Any other message only wakes a waiting call. So when a call returns a [Lock], the lock is
// held at that moment, and a holder that was stopped for too long gets ErrLost from its next call
// of [Lock.Err]. Package locktest checks this for each locker with processes that are stopped while
// they wait, acquire, hold and unlock. The command go run ./bench locks checks it with random
// stops.
//
// # Coming from another library
//
// These functions replace functions of other libraries:
//
//	redsync        Extend                       renewal, as long as the lock is held; Options.MaxHold bounds it
//	               Until                        Lock.Until
//	               WithValue, SetValue          Continuer: a lock is continued by its fencing token
//	               WithTries, WithRetryDelay    the ctx of Lock; TryLock doesn't wait
//	bsm/redislock  TTL                          time.Until(Lock.Until())
//	               Refresh                      renewal
//	               Token, Options.Token         Lock.Token with Continuer, in another process too
//	               Metadata                     nothing; keep it under a key of your own
//	               ObtainMulti                  LockAll, TryLockAll: their callers never wait for each other in a circle
//	rueidislock    WithContext's context        Context: it ends when the lock is lost
//	               TryWithContext               TryLock
//	               ForceWithContext             Seizer.SeizeUnsafely
//
// When a lock is continued or seized, its new holder gets a larger fencing token (redlock has
// none). The previous holder learns of the loss at its next renewal at the latest, if it can reach
// the system.
//
// # What clients log
//
// While a server can't be reached, go-redis logs a line for each connection that it fails to dial.
// It stops after PoolSize failed dials until the server is back. So one outage costs a client about
// PoolSize lines. The default PoolSize is 10 for each processor. With a PoolSize of 1,000 and five
// masters that fail and recover repeatedly, the log gets thousands of lines. Keep PoolSize as small
// as your load allows, and let a failed dial return its error at once:
//
//	rdb := redis.NewClient(&redis.Options{
//		Addr:                  addr,
//		ContextTimeoutEnabled: true,
//		PoolSize:              20, // connections, and lines of an outage
//		DialerRetries:         1,  // instead of 5, with 100 ms in between
//		MaxRetries:            -1, // a locker asks again by itself
//	})
//
// redis.SetLogger sets where these lines go, for the whole program. The lockers log on their own,
// too: one line when a problem begins, one every five minutes, and one when it ends.
//
// # Five properties
//
// Distributed locks are usually expected to have five properties. This table shows which scheme has
// which of them. The stages are those of the example in examples/catalog, in the order in which the
// literature improves them:
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
//	(a) any goroutine that reaches the mutex can unlock it
//	(b) not when the holder dies between the two commands
//	(c) a holder that works longer than the expiry isn't told that its lock has ended; with plain DEL it also deletes the next holder's lock
//	(d) not when the lock ends between the two commands
//	(e) within what the table above says
//	(f) a load that asks for its own key gets an error that says so
//	(g) by the clocks of the clients, and the loser moves the winner's deadline
//
// # Writing a Locker
//
// Implement the two methods of [Locker] and the six of [Lock], and run the tests of locktest.
package lock
