// Package cacheguard is a read-through cache that protects an expensive origin from stampedes.
//
// When a cached value is missing, the callers of one process share one flight. A flight is the
// look-up and load of one key. The flights of all processes ask a [Store] for one lease per key,
// and only the holder of the lease loads. A message brings the result to all waiting processes: a
// value, "does not exist", or an error.
//
//	rdb := redis.NewClient(&redis.Options{Addr: "localhost:6379", ContextTimeoutEnabled: true})
//	store, err := redisstore.New(rdb, redisstore.Options{})
//	products, err := cacheguard.New(store, cacheguard.Options[Product]{
//		Name: "product", TTL: 10 * time.Minute,
//	})
//
//	p, err := products.Get(ctx, "42", func(ctx context.Context) (Product, error) {
//		return db.Product(ctx, 42)
//	})
//
// [Cache.Get] returns a value and loads it if it is missing; [Cache.GetMany] does that for many
// keys in one call. [Cache.Invalidate] and [Cache.InvalidateTags] remove values after a change;
// [Cache.Update] changes origin and cache in one call. [Options] has all settings with their
// defaults.
//
// # What is promised
//
//   - One load. Among the processes that reach the store, one load of a key runs at a time while
//     its lease lives. The leader renews the lease. If the leader dies, the next load begins when
//     its lease ends, a few milliseconds after LeaseTTL at the latest.
//   - One result for all. Every process that waits for a load gets a message with its result. If a
//     stored value has more than 4 KiB, the process reads it from the store, once. If a result of
//     more than 4 KiB is not stored, each other process loads for itself. A failed load is not
//     repeated by each waiting caller.
//   - A late load overwrites nothing. A result is stored only if the lease with which its load
//     began is still alive. Invalidate, Set and Update end leases.
//   - A value that was loaded before InvalidateTags or InvalidateAll is not served afterwards, even
//     if a process stores it later.
//   - With StrongReads, a call gets nothing older than the changes that had returned, in any
//     process, before the call began. A change is a call of Invalidate, Set, Update or a variant of
//     them.
//   - "Does not exist" is a result. The cache remembers it for NegativeTTL, in a form that no
//     stored value can have.
//   - A caller's context bounds that caller only. The last caller to leave cancels the load.
//   - When a load ends, it releases its lease and tells waiting callers, whatever the end is:
//     return, error, panic, runtime.Goexit, LoadTimeout, cancellation, or a result that can't be
//     stored.
//   - Callers need not notice expiry. Within StaleWhileRevalidate no caller waits for a refresh,
//     unless SoftTimeout is set. With EarlyRefresh a hot key does not become stale while loads
//     succeed.
//   - Trouble with the store is never worse than no store. Callers still share flights, and at most
//     MaxLoads loads run. After a few failures no read or load waits for the store. When the store
//     works again, the cache uses it again.
//   - The local tier tells the truth. A change removes the value from the local tier of every
//     process when the message about it arrives. While messages don't arrive, its values are used
//     only as stale values, and only if the store is unavailable, too.
//   - Everything has a bound: loads (MaxLoads) and their queue, callers of one key (MaxWaiters),
//     the size of values (MaxValueSize), and time (LoadTimeout, LeaseTTL, the store's timeout).
//   - Bytes in the store that are not a value are a miss, and never an error for callers.
//
// # What is not promised
//
//   - One load during a partition. A process that can't reach the store loads for itself (FailOpen)
//     or not at all (FailClosed), and stores nothing. If a failover of Redis loses a lease, the key
//     is loaded at most once more. If a failover loses an invalidation, the process that made the
//     change repeats it, if it still runs. If that process has ended, the old value stays until its
//     TTL and its stale windows are over.
//   - Up-to-date values without StrongReads. After an Invalidate, InvalidateTags or InvalidateAll
//     has returned in another process, a call may still get an older value. Until the message about
//     the change arrives, usually within a fraction of a millisecond, the call may join an older
//     flight of its own process. If a value is made of other cached values, invalidate the other
//     values first and this value last.
//   - Immediate invalidation by tag in a Redis cluster or with a local tier. Until the message
//     about the invalidation arrives, other processes may serve old values: in a cluster all that
//     are stored, otherwise only those in their local tiers.
//   - StrongReads does not cover tag invalidations in a cluster until their message arrives, nor
//     changes that a failover has lost. While the store is unavailable, StrongReads is not in
//     force. While a change is under way, two calls may see it in either order.
//   - A lock. The lease keeps loads rare, and keeps the results of late loads out of the store. It
//     does not make a load exclusive at the origin.
//   - Secrecy or authenticity. Values are not encrypted, and a client that can write to the store
//     decides what callers get.
//
// # Contexts of loads
//
// A load runs on its own goroutine, with a context of its own, which has the values of the caller
// that started the load. docs/concepts.md in the repository says when this context ends.
//
// # New releases
//
// Raise [Options].Version by one in each release that changes the meaning of stored values.
//
// # More documentation
//
// In the repository, docs/guide.md shows each feature with its code, docs/concepts.md explains how
// each one works and what it costs, docs/behaviour.md says what happens in each case, and
// docs/deploying.md how to change what is stored. docs/format.md describes what is in Redis.
package cacheguard
