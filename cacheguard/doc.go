// Package cacheguard is a read-through cache that protects an expensive origin from stampedes.
//
// When a cached value is missing, the callers of one process share one flight. The flights of all
// processes ask a [Store] for one lease per key, and only the holder of the lease loads. A message
// brings its result to all who wait: a value, "does not exist", or an error.
//
//	rdb := redis.NewClient(&redis.Options{Addr: "localhost:6379", ContextTimeoutEnabled: true})
//	store, err := redisstore.New(rdb, redisstore.Options{})
//	products, err := cacheguard.New(store, cacheguard.Options[Product]{Name: "product", TTL: 10 * time.Minute})
//
//	p, err := products.Get(ctx, "42", func(ctx context.Context) (Product, error) { return db.Product(ctx, 42) })
//
// [Cache.Get] loads what is missing, [Cache.GetMany] many keys at once. [Cache.Invalidate] and
// [Cache.InvalidateTags] remove values after a change, [Cache.Update] changes origin and cache in
// one call. [Options] has all settings with their defaults.
//
// In the repository, docs/guide.md shows each feature with its code, docs/concepts.md explains how
// each one works and what it costs, and docs/behaviour.md says what happens in each case.
//
// # What is promised
//
//   - One load. Among the processes that reach the store, one load of a key runs at a time while
//     its lease lives. The leader renews the lease. If the leader dies, the next load begins within
//     LeaseTTL.
//   - One result for all. Everyone who waits for a load gets its result by message. A failed load
//     is not repeated by each waiting caller.
//   - A late load overwrites nothing. A result is stored only under the lease that its load began
//     with. Invalidate, Set and Update end leases.
//   - A value that was loaded before InvalidateTags or InvalidateAll is not served afterwards,
//     whichever process stores it, and whenever.
//   - With StrongReads, a call gets nothing older than the changes that had returned, in any
//     process, before the call began.
//   - "Does not exist" is a result. It is remembered for NegativeTTL, in a form that no value can
//     imitate.
//   - A caller's context bounds that caller only. The last caller to leave cancels the load.
//   - A load releases its lease and tells waiting callers however it ends: return, error, panic,
//     runtime.Goexit, LoadTimeout, cancellation, or a result that can't be stored.
//   - Expiry need not be felt. With a stale window nobody waits for a refresh. With early refresh a
//     hot key does not become stale while loads succeed.
//   - Trouble with the store is never worse than no store. Callers still share flights, at most
//     MaxLoads loads run, after a few failures nobody waits for the store, and service resumes by
//     itself.
//   - The local tier tells the truth. A change removes the value in every process when its message
//     arrives. While messages don't arrive, the local tier is not used.
//   - Everything has a bound: loads (MaxLoads) and their queue, callers of one key (MaxWaiters),
//     the size of values (MaxValueSize), and time (LoadTimeout, LeaseTTL, the store's timeout).
//   - Any bytes in the store are a value or a miss.
//
// # What is not promised
//
//   - One load during a partition. A process that can't reach the store loads for itself (FailOpen)
//     or not at all (FailClosed), and stores nothing. If a failover of Redis loses a lease, a key
//     is loaded once more at most. If it loses an invalidation, the process that made the change
//     notices and repeats it. If that process has ended, the old value stays until its TTL and its
//     stale windows are over.
//   - Without StrongReads: that a call gets nothing older than an Invalidate, InvalidateTags or
//     InvalidateAll that has returned in another process. Until the message arrives, usually within
//     a fraction of a millisecond, the call may join an older flight of its own process. Inside a
//     load, cache reads made with the load's context always go to the store: they join no older
//     flight and don't use the local tier. So a value made of other cached values can be
//     invalidated after them.
//   - In a Redis cluster, or with a local tier: that a process knows of an invalidation by tag
//     before its message has arrived.
//   - StrongReads does not cover tag invalidations in a cluster until their message arrives, nor
//     changes that a failover has lost. While the store is unavailable it is not in force. While a
//     change is under way, two calls may see it in either order.
//   - A lock. The lease makes loads rare and fills safe. It does not protect what a load does at
//     the origin.
//   - Secrecy. Whoever can write to the store decides what callers get.
//
// # Waiting and cancelling
//
// A load runs on its own goroutine, with a context of its own. The context has the values of the
// caller that started the load. It ends after LoadTimeout, when no caller waits any more, when the
// cache is closed, or, with the cause [ErrLeaseLost], when another process has taken the lease. The
// last case happens only to a process that stood still for longer than LeaseTTL; its callers then
// wait for the new leader. If a load ignores its context, its callers leave, but it keeps its slot
// of MaxLoads.
//
// If a key is invalidated more than twice while a call waits for it, the process loads it without a
// lease and doesn't store the result. So even a key that is invalidated faster than it loads gets
// an answer.
//
// # Changing what is stored
//
// If a release renames a field of the cached struct, it finds nothing in that field of older
// values. So raise Options.Version by one in each release in which stored values mean something
// else:
//
//	cacheguard.Options[Product]{Name: "product", Version: 5} // 4 until now
//
// During a rolling deployment each of the two releases has values and loads of its own; neither
// reads or removes values of the other. A change reaches both: Invalidate and MarkStale, by key or
// by tag, and Set and Update, which remove the other release's value. Every key is loaded once per
// release, so the new release starts with an empty cache. Rolling back works the same way. Old
// values end with their TTL.
//
// Only neighbouring versions, one even and one odd, can run side by side. Releases 4 and 6 don't
// read each other's values, but overwrite them, and share null sentinels and remembered errors. A
// value that replaces one of its own release keeps the tags; the other release must name them
// again. A new codec needs no new version if it has a Name of its own.
//
// What stands in Redis is described in package redisstore.
package cacheguard
