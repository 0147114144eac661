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
//   - What was loaded before InvalidateTags or InvalidateAll is not served after it, whenever it is stored, and by
//     whatever process.
//   - With StrongReads, no call gets what is older than the changes that had returned anywhere when it was begun.
//   - "Does not exist" is a result, remembered for NegativeTTL in a form that no value can imitate.
//   - A caller's context bounds that caller only. The last caller to leave cancels the load.
//   - Every way out of a load releases its lease and tells those who wait: return, error, panic, runtime.Goexit,
//     LoadTimeout, cancellation, a result that can't be stored.
//   - Expiry need not be felt: with a stale window nobody waits for a refresh, and one process of the fleet does it;
//     with early refresh a hot key that was loaded doesn't go stale at all while loads succeed.
//   - Trouble with the store is not made worse: calls still share a flight in each process, at most MaxLoads loads run,
//     after a few failures nobody waits for a store that doesn't answer, and service resumes by itself.
//   - A local tier that tells the truth: a change removes the value from every process as soon as its message arrives,
//     what is changed while it is being read is not kept, and while messages don't arrive nothing in it is trusted.
//   - Bounds everywhere: loads (MaxLoads) and their queue, callers of one key (MaxWaiters), values (MaxValueSize),
//     time (LoadTimeout, LeaseTTL, the store's operation timeout). What is over a bound is a clear error.
//   - Whatever bytes the store has under a key, they are a value or a miss.
//
// # What is not promised
//
//   - At most one load in a partition. When the store can't be reached, each process loads for itself (FailOpen) or
//     not at all (FailClosed); what is loaded without a lease is never stored. A failover of Redis that loses a lease
//     costs at most one more load; one that loses an invalidation leaves the old value until the process that made it has
//     noticed and repeats it (see Deliveries), and if that one has ended, until its TTL and its stale windows are over.
//   - In a cluster of Redis, and with a local tier anywhere, that a process knows of an invalidation by tag before its
//     message has arrived: a fraction of a millisecond as a rule.
//   - Without StrongReads, that a call which begins after Invalidate, InvalidateTags or InvalidateAll has returned in
//     another process gets nothing older: it may join a flight of its own process that began before, a look-up or a load,
//     until the message has arrived: a fraction of a millisecond as a rule. A load is on the safe side: what it asks of
//     caches, with its own context, is read after it has begun, past flights and the local tier. So what is made of other
//     cached values can be invalidated after them, and is not made of the old ones again (but see above for tags in a
//     cluster).
//   - StrongReads in three cases: tags in a cluster before the message, as above; changes that a failover of Redis has lost; and
//     while the store can't be used, when calls share what they can. While a change is on its way, two calls may see it in
//     either order: one may get the new value of a load whose lease was lost, and the next one the old value.
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
// # Stale values
//
// A value is fresh for its TTL, and then, if the options say so, good for two more things (RFC 5861):
//
//   - Within StaleWhileRevalidate it is answered with at once, while one process refreshes it: each process that reads
//     it asks for the lease without waiting for it, and the one that gets it loads in the background, on a context that
//     no caller ends. Close ends it, Shutdown waits for it.
//   - Within StaleIfError callers wait for the load and get the stale value, with Result.Err, if it fails, if it can't
//     be begun because too many wait, or if the store can't be used. With SoftTimeout they wait no longer than that, and
//     the load goes on.
//
// A failed load leaves a record in the place of its lease. As long as it stands, nobody in the fleet repeats the load:
// for Backoff where there is a value to serve, growing with each failure in a row, and for ErrorTTL where there is
// none. It is remembered in each process, so that a stale answer costs one read of the store and no more. The process
// whose load has failed leaves the next try to others for a moment, lest one sick process win every turn.
//
// What a load finds to be out of date is not served any more, whether or not there is something to store in its place:
// "does not exist" replaces a stale value, and has no stale windows unless its Entry says so.
//
// MarkStale makes values stale before their time: the windows begin with the mark. Without windows the next read loads,
// and sees the old value, so that it can say Entry.NotModified.
//
// # The first trip
//
// A Get asks the store for the value, or, if the process expects none, at once for the lease, which saves a trip before the load. It
// expects no value in three cases: it has changed the key, it has seen the value end, or it knows nothing of the key. Each case
// counts only while the last look-ups of that kind mostly found nothing. A value that is there all the same comes as the answer, as a read would have
// brought it, and costs the store a script in the place of a read. This is done while at most half of MaxLoads run, and not with
// a limiter for the whole fleet.
//
// # Results that are nobody else's
//
// A load can find out that its result is for its own caller only: Entry.NoShare. By then others may wait for it, in this
// process and elsewhere; they load for themselves, all at the same time. With a TTL this is remembered in the store
// (hit-for-miss): calls in that time wait for nobody. Each asks for the lease all the same; one has it, and if its load
// brings something to be shared, that is stored, and coalescing begins again. A call without the lease stores nothing.
//
// # Many keys
//
// GetMany reads many keys in one trip, asks for all leases that it needs in another one, and has one load get what it was
// granted, before it waits for what others load. The results are stored in one trip. Each key has a flight and a lease
// of its own all the same: a Get of one of them joins, an Invalidate of one of them concerns that one, and callers that
// leave end the load only when nobody waits for any of its keys. The load takes one slot of MaxLoads and one LoadTimeout,
// whatever the number of keys. What is stale is refreshed by one load in the background. Flights of a batch whose loads
// elsewhere come to nothing go on together, too. A batch's one trip has to come within the store's operation timeout (250
// ms): split one that is many megabytes. Observers are told of each key that was waited for. GetMany can't give tags or
// lifetimes; for the KeyErrors of GetManyBy, see there.
//
// # Tags
//
// Entry.Tags says what a result depends on; InvalidateTags invalidates all that depends on something, in one step and
// without finding it. The store keeps the time of each tag's last invalidation, by its own clock, and each value has the
// time from before its load. A value counts if that is later than the last invalidation of each of its tags and of the
// whole cache; a tie is a miss. So a tag may be known only after the load, and an old result is refused whenever it
// arrives. What this costs a read of Redis: on a single server the times are read in the same trip as the value: without
// tags in the same command, with tags in one more, once this process has seen which they are (a value with tags that is met
// for the first time costs a trip more). In a cluster they lie on another node than the value; a process reads them once, and then
// hears of changes. If Redis loses them, all values of the cache are misses.
//
// MarkStaleTags is to Entry.SoftTags what InvalidateTags is to Tags: the values are stale then, and not gone. In the store
// both are one kind, the soft ones begin with a zero byte.
//
// A value that says nothing about tags (of Get, GetMany, Refresh, Update or Set, or an Entry whose lists are nil) keeps the tags
// of the value that it replaces. A caller that comes after an invalidation while a load is under way waits for that load, and
// loads anew if the result has the tag.
//
// Tags are of one cache. An invalidated tag is remembered for as long as the store likes (of 100,000 in a cache the
// oldest tenth is forgotten, together with the values that are older than its newest one). The values stay where they are
// until their TTL is over: for memory, give them one.
//
// # Deliveries
//
// A change (Invalidate, MarkStale, their kin for tags, Set, Update) that can't reach the store returns an error which wraps
// ErrPending. It is repeated, at least twice a second, until the store has it. Meanwhile this process takes what was loaded
// before it for invalidated or stale, whatever the store says. There is one entry for a key or a tag, and a later change that
// arrives stands for the earlier ones. Beyond 16,384 entries they become one InvalidateAll. A process that ends loses what it
// could not deliver: Shutdown waits for it, and package outbox makes it part of the user's transaction.
//
// A server that takes another's place may not know the last changes which that one has acknowledged. When messages arrive
// again, or another node of a cluster has become a master, the process that made the changes looks at the values once more: a
// value that was loaded or written since stays, and any other is invalidated again. These are the changes, Set and Update
// included, of the 30 seconds before messages broke off, and at most the last 8,192 keys and tags. If there were more, the log
// says how many are left out.
//
// # Early refresh
//
// With EarlyRefresh a reader may refresh a fresh value in the background. When is decided by XFetch (Vattani,
// Chierichetti, Lowenstein: Optimal Probabilistic Cache Stampede Prevention, VLDB 2015): each reader draws a number u
// between 0 and 1 and refreshes if
//
//	-took * beta * ln(u) >= what is left of the TTL
//
// where took is how long the load of the value took, which is stored with it (nothing for a value that was Set, whose
// first expiry is therefore felt). Of callers that share a look-up one draws. The more readers there are and the slower
// the load, the earlier; with beta 1 and n reads during a load the first refresh comes, on average, about ln(n) loads
// before the end; a larger beta moves it forward. Alone, XFetch begins about e^(1/beta) loads for each expiry, 2.7 with
// beta 1, whatever the number of readers: all who win their lot while the first load runs. Here the lease, asked for
// without waiting, picks one of them. The README has both measured.
//
// # The local tier
//
// With Local a process keeps decoded values, shared by all who get them (or copied by Local.Clone). They are answered
// with for Local.TTL, never beyond their own TTL. The rules that keep it true are checked by a model: a value is kept
// only if nothing was heard of a change since before the store was asked; a change in this process drops it before and
// after the store is told; when messages may have been lost, which is noticed within two seconds, nothing is answered
// with until they arrive again, and then everything is forgotten first. A value that can't be trusted any more, for that
// reason, is served only as stale, within its stale windows, and only while the store can't be used.
//
// A refresh in another process is no change: the tier goes on with the value it has until Local.TTL is over. Only Set,
// Update, Invalidate and their kin are.
//
// # Budgets
//
// MaxLoads bounds the loads of one cache in one process, a Limiter those of several caches, and one of NewFleetLimiter
// those of the whole fleet. Whoever waits for its turn does so in a queue that has an end: beyond it, or when LoadTimeout
// is over, ErrOverloaded, or the stale value. A load that asks for other keys does so on its own slot. A refresh in the
// background takes only half of the queue.
//
// # Sizing
//
// In Redis a value takes its encoded bytes, a header of 80, the tags, and what Redis needs for two names of which the
// second is there during loads only. A process needs one connection for messages, four for reads that come alone, one for
// batches of reads, and one for each load that asks for a lease, renews or fills at a time; go-redis' default pool (10 for
// each processor) is enough unless more loads than that begin at once. Every process gets every message: a load that
// somebody waits for is one of up to 4 KiB, a change is one of about 50 bytes.
//
// # Observing
//
// Options.Observer is told what happens: packages promobserver, otelobserver and slogobserver have observers for
// Prometheus, OpenTelemetry and logs, and Observers makes one of several. An Observer may implement more: LoadTracer, to
// follow loads and leave a note that reaches all who wait for them, in any process; Attacher, to read gauges (Stats);
// HitsUntold, to have hits of the local tier counted instead of told, for telling them takes as long as finding them.
//
// # Taking a cache out of the path
//
// A Switch takes caches out of the path of their calls while the program runs: off, where every call loads, and shadow, where every
// call loads and the cache is read, filled and compared beside it, for the days before it is trusted. What is changed meanwhile is
// told to the store all the same, so that the cache can be switched on again at any time.
//
// # How true it is
//
// A cache can't know of a change that nobody tells it of: that is a call of Invalidate which somebody has forgotten, and no error
// anywhere. An Audit finds it. It has a hit now and then compared with what the origin has, behind its caller's back and within a
// budget of loads. Where they differ it looks again, and says which of the possible causes it is (Difference). Stats.Nines says how
// many of the answers were right.
//
// # Changing what is stored
//
// A release that renames a field of the cached struct reads what the release before it has stored, and finds nothing in that field.
// So raise Options.Version by one in each release in which stored values mean something else:
//
//	cacheguard.Options[Product]{Name: "product", Version: 5} // 4 until now
//
// While both releases run, as in a rolling deployment, each has values and loads of its own: neither reads what the other has
// stored, nor removes it. A change that one of them makes is made for both: Invalidate and MarkStale, by key or by tag, and Set
// and Update, which remove the other's value. A key is loaded once for each release, so the origin has the loads of an empty cache
// for the new one. Rolling back is the same, in the other direction. What a release leaves behind ends with its TTL.
//
// It is neighbouring versions that go side by side, one of them even and the other odd. Releases 4 and 6 don't read one another's
// values either, but take turns in overwriting them. Null sentinels and remembered errors are common to 4 and 6. Tags are kept by what
// takes a value's place in the same release; the other one has to say them again. A new codec needs no new version, if it has a
// Name of its own.
//
// # How it is stored
//
// What stands in Redis, and how to run two versions side by side, is described in package redisstore.
package cacheguard
