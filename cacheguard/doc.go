// Package cacheguard is a read-through cache loader that protects an expensive origin from stampedes.
//
// When a cached value is missing, the callers of one process share one flight, the flights of all processes ask a
// store for one lease, and only the holder of the lease loads. Everybody else is woken by a message with its result,
// be it a value, "does not exist" or an error.
//
//	rdb := redis.NewClient(&redis.Options{Addr: "localhost:6379"})
//	store, err := redisstore.New(rdb, redisstore.Options{})
//	products, err := cacheguard.New(store, cacheguard.Options[Product]{Name: "product", TTL: 10 * time.Minute})
//
//	p, err := products.Get(ctx, "42", func(ctx context.Context) (Product, error) { return db.Product(ctx, 42) })
//
// # What is promised
//
//   - One load: among the processes that get an answer from the store, one load of a key at a time, as long as its
//     lease lives. A leader renews its lease while it loads. When it dies, the next load begins within LeaseTTL.
//   - One result for all: whoever waits for a load gets its result, by message. A load that fails is not repeated by
//     each of those who wait.
//   - A late load can't overwrite: a result is stored only under the very lease its load began with. Invalidate, Set
//     and Update end leases.
//   - "Does not exist" is a result, remembered for NegativeTTL in a form that no value can imitate.
//   - A caller's context bounds that caller only. The last caller to leave cancels the load.
//   - Every way out of a load releases its lease and tells those who wait: return, error, panic, runtime.Goexit,
//     LoadTimeout, cancellation, a result that can't be stored.
//   - Bounds everywhere: loads (MaxLoads) and their queue, callers of one key (MaxWaiters), values (MaxValueSize),
//     time (LoadTimeout, LeaseTTL, the store's operation timeout). What is over a bound is a clear error.
//   - Whatever bytes the store has under a key, they are a value or a miss.
//
// # What is not promised
//
//   - At most one load in a partition. When the store can't be reached, each process loads for itself (FailOpen) or
//     not at all (FailClosed); what is loaded without a lease is never stored. A failover of Redis that loses a lease
//     costs at most one more load; one that loses an invalidation leaves the old value until its TTL is over.
//   - Linearizable reads across processes. A call that begins after Invalidate has returned in another process may
//     join a flight of its own process that began before, until the message has arrived: a fraction of a millisecond
//     as a rule.
//   - A lock. The lease makes loads rare and fills safe. It doesn't protect what a load does at the origin.
//   - Secrets. Whoever can write to the store is trusted with what callers get.
//
// # Waiting and cancelling
//
// A load runs on its own goroutine and on a context of its own: the values of the caller that started it, LoadTimeout,
// and an end when nobody waits any more, when the cache is closed, or, with the cause ErrLeaseLost, when another
// process has taken the lease, which happens only to a process that was stopped for longer than LeaseTTL. Its callers
// then follow the new leader. A load that ignores its context loses its callers, not its slot of MaxLoads.
//
// A key that is changed or lost under a waiting call more than twice is loaded by its process without the lease, so
// that a key which is invalidated faster than it loads still answers.
//
// # How it is stored
//
// What stands in Redis, and how to run two versions side by side, is described in package redisstore.
package cacheguard
