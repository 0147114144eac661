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
// # What it can promise
//
// This is a lock for efficiency: it keeps most of the work from being done twice. It has no fencing
// tokens (Token is always 0), because no part of the algorithm produces growing numbers. If
// correctness depends on the lock, use a lock with fencing tokens, and let the protected resource
// check them.
//
// At most one holder has the lock while all of these conditions are met:
//
//   - No master loses data. A master that is restarted without its data, or loses some by eviction,
//     can vote twice. Either each master persists its data (appendonly yes, appendfsync always), or
//     a master that was down stays unused for longer than the largest Lease.
//   - The clocks run at the same rate, and no master's clock jumps.
//   - No holder is stopped after it has checked Err and before it acts.
//   - All lockers have the same masters. Add or remove one master at a time.
//
// Waiting is fair most of the time, but this is not guaranteed. Use three or five servers on
// machines that don't fail together, and set NodeTimeout to at most a tenth of Lease.
//
// In the repository, docs/locks.md has the algorithm, these conditions in detail, the
// configuration, the least rights for an ACL, and the costs.
package redlock
