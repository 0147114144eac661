// Package redisstore stores cached values and leases in Redis, where all processes of a fleet share
// them. Redis can be a single server, Sentinel or a cluster. The package is tested on Redis 7.0 and
// 6.2, on Valkey 8.0 and on miniredis.
//
//	rdb := redis.NewClient(&redis.Options{Addr: "localhost:6379", ContextTimeoutEnabled: true})
//	store, err := redisstore.New(rdb, redisstore.Options{Prefix: "shop"}) // one for each process
//	if err := store.Warm(ctx); err != nil { ... }                         // can this server work?
//
// # What is in Redis
//
// The value of a key is stored under <prefix>:<cache>:{<key>}, and its lease under the same name
// with :lease. Each cache also has the sorted set <prefix>:{<cache>}:tags, which records when each
// tag was last invalidated. If the prefixes, caches or keys of two values differ, their names in
// Redis differ, whatever characters the prefixes, caches and keys contain. Messages between
// processes go through Pub/Sub, on channels that begin with <prefix>:messages.
//
// Programs with the same frame version can run side by side. docs/format.md in the repository has
// all names, the bytes of a value, the channels, and what to do before an upgrade.
//
// # What is promised
//
//   - Each step takes at most [Options.OpTimeout]. Every step is one command, one Lua script or one
//     pipeline of them. If the first try gets no answer, the step is sent a second time. A read in
//     a crowd may have to wait for its turn before.
//   - A step that is applied late or twice does no harm. The server numbers each grant of a lease,
//     and a fill must carry the number.
//   - Values age by Redis' own clock.
//   - Values whose invalidation was lost by an eviction or a restart can't come back as fresh.
//   - A change that a failover has lost is repeated by the process that made it, within the limits
//     below.
//
// # Limits
//
//   - A failover of Redis can lose the writes that the new master has not received. A lost lease
//     costs at most one more load. A lost change from the last 30 seconds before the loss of the
//     master is repeated, if the process that made it still runs. Until then other processes may
//     serve the old value.
//   - While a node of a cluster is away, its keys are unavailable: each process loads for itself.
//   - An evicted value is a miss. An evicted lease costs at most one more load, and the result of
//     the load that had the lease is not stored. With noeviction and full memory, nothing new is
//     stored.
//   - [New] refuses a Ring, and a cluster client that reads from replicas. [Store.Warm] returns an
//     error for a replica, for a node of a cluster behind the client of a single server, and for
//     Redis before 6.2.
//   - The server must allow scripts. Without Pub/Sub waiting calls poll, and local tiers are not
//     used.
//   - The store trusts the values of every client that can write to this Redis. Prefixes separate
//     caches, but not Redis users. Lockers on the same Redis need prefixes of their own.
//
// [Store.Diagnose] tries each step of a store, and says which steps work, which fail and why.
// [Store.Inspect] and [Store.Scan] show what Redis has, and so does the command inspect:
//
//	go run github.com/cacheguard/cacheguard/cacheguard/redisstore/inspect@latest -redis localhost:6379 product 42
//
// In the repository, docs/redis.md has servers, sizes, the least rights for an ACL, eviction,
// clusters, failovers and managed services.
package redisstore
