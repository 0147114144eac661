// Package redisstore shares cached values and leases through Redis: a single server, Sentinel or a
// cluster. It is tested on Redis 7.0 and on miniredis.
//
// # In Redis
//
// The names of a key lie in one slot of a cluster:
//
//	<prefix>:<cache>:{<key>}          its value, a frame
//	<prefix>:<cache>:{<key>}:lease    the right to load it, or the outcome of a load that left no value
//	<prefix>:<cache>:{<key>}:waiters  the processes that wait for the end of the lease; not in a cluster
//	<prefix>:<cache>:{<key>}:odd      the value of caches with an odd Options.Version; its lease has :odd:lease, and so on
//
// and each cache has one, <prefix>:{<cache>}:tags, a sorted set: when which tag was invalidated
// last, see below.
//
// An empty key and keys that begin with "}" or "\" get a backslash in front; keys over 512 bytes,
// and keys that begin with "#sha256:", stand as "#sha256:" and the hexadecimal SHA-256 of the key.
//
// Two different prefixes, caches or keys never share a name, whatever they are made of. A prefix
// may have colons and stands as it is. If a cache's name has a colon, then in the names of values
// and leases each colon stands as "%3A" and each "%" as "%25", and one more colon ends the name:
// key 42 of the cache "eu:user" is <prefix>:eu%3Auser::{42}. Every other cache's name stands as it
// is. New doesn't refuse colons instead, because many prefixes and names in use have some, and
// because one process can't know the prefixes of the others.
//
// Prefixes keep caches apart, but not users of Redis: an access rule like ~shop:* also covers the
// prefix "shop:eu". Lockers on the same Redis need prefixes of their own.
//
// # Messages
//
// Each process has one connection on which messages arrive. On a single server, with or without
// Sentinel, they have three kinds of channels:
//
//	<prefix>:messages:<inbox>    one for each process, which is told there of the ends of loads that it waits for
//	<prefix>:messages:{<cache>}  changes of a cache's keys and tags, for all processes that have the cache open
//	<prefix>:messages            the common channel, for programs that know no other
//
// A process that asks for a lease and must wait leaves the name of its inbox, in the same script.
// The script that ends the load publishes to each of these inboxes once. The list lives a second
// longer than the lease and is renewed with it. If the leader dies, the load that takes its place
// finds the list. If the list is evicted, those who wait ask when the lease is over.
//
// One message on the cache's channel takes the place of the list where that is cheaper: in a cache
// that is open in at most four processes, once half of its processes wait for the load, and once
// more than 64 do.
//
// Every process also listens to the common channel, by a pattern. Programs that know no other
// channel subscribe to it by its name. A script asks PUBSUB NUMSUB whether there are any, and only
// then publishes a change there, too.
//
// In a cluster, and through a client of your own type, all messages go to the common channel and
// each process gets all of them. A PUBLISH there goes to every node, so one for each inbox would
// cost the nodes more than it saves.
//
// # Generations
//
// Each cache has one sorted set, <prefix>:{<cache>}:tags. Its members are the tags that were
// invalidated and, as the empty string, the cache as a whole; the score is when that was, in
// microseconds since 1970 on the clock of the server that has the set. The first lease of a cache
// makes it, as old as the moment before its own grant. A value counts if its stamp is later than
// the score of the whole and of each of its tags; without the set none does, so what an eviction or
// a restart forgets can't come back as fresh. The score of the whole stands once more by itself, in
// <prefix>:{<cache>}:all: a value without tags is read along with that one, by one MGET. Each of
// the two is made anew from the other, or as of now, when it has been evicted. They are read with
// the values that they are about, so policies of eviction by use keep them; volatile policies never
// evict them, for they have no TTL.
//
// On a single server the stamp is the number of the lease's grant. In a cluster it is read from the
// set's node once the lease is granted, which costs the load one trip. While that node is away the
// stamp is an estimate of its clock, 250 ms early, and what is known of generations last counts; a
// process that knows nothing yet serves values without tags. Clocks of a master and the replica
// that takes its place should not differ by more than a failover takes.
//
// # The frame
//
// All integers are big-endian.
//
//	offset size
//	     0    1  version, 1
//	     1    1  flags: bit 0 null sentinel (body is empty), bit 1 not to be shared; all others must be zero
//	     2   16  id of the load that made the value
//	    18    8  created-at, microseconds since 1970 on the store's clock
//	    26    8  soft TTL in microseconds: fresh until created-at plus this
//	    34    8  stale-while-revalidate in microseconds: after the soft TTL, served at once while it is refreshed
//	    42    8  stale-if-error in microseconds: after the soft TTL, served when a load fails
//	    50    4  how long the load took, in microseconds (saturating)
//	    54    4  fingerprint of the codec that wrote the body, 0 for one without a name
//	    58    8  stamp: what the clock of the cache's generations said before the load began, in microseconds since 1970
//	    66    2  size of the extension
//	    68    4  CRC-32C (Castagnoli) of the whole frame without these four bytes and the eight after them
//	    72    8  when it was marked stale, microseconds since 1970 on the store's clock; 0: it was not
//	    80       extension
//	             body
//
// The extension is nothing, or a note with its length in one byte before it, then tags, each with
// its length likewise. The fingerprint is the FNV-1a hash of the codec's name. A frame that breaks
// any of this is a miss: counted, logged once, overwritten by the next fill.
//
// A writer that claims the key of a value with tags leaves a remnant of it, until the new value is
// stored or the old one's time is over: 80 bytes of zeros but for the id, whose highest bit is
// turned, and the tags. Its version, 0, is that of no frame: it is a miss, which isn't counted.
//
// # Upgrading
//
// Programs with the same frame version can run side by side. A later version n will keep its values
// under <prefix>:<cache>:{<key>}:v<n>, so that old and new programs don't overwrite each other's
// values in turn; leases and messages stay common to both, and a change made by either removes the
// values of both. A codec with another name than the one that wrote a value takes the value for a
// miss.
//
// How to change the type of what is stored is another matter: see cacheguard.Options.Version.
// Programs from before there was one don't know the names that end in :odd, and what they change is
// not changed there: use a version above 0 when none of them runs any more.
//
// Two things have changed in version 1. First, earlier programs know the common channel alone. They
// can run beside new ones. Each kind hears of the other's changes and wakes the other's waiters: a
// token in capital letters says that the holder of a lease reads the list of those who wait, and
// the mark "+" says that somebody waits on the common channel. An earlier program that is
// subscribed at a replica isn't counted: after a failover it may miss changes until it has noticed
// that. Give the Redis user the channels and commands below before the first new program starts.
//
// Second, if a cache's name has a colon, its values and leases had other names before. Old and new
// programs then don't share them, and Invalidate in an old program doesn't reach a new one's
// values. Stop the old programs first, or call InvalidateAll when the last of them has ended. All
// other names are what they were.
//
// # Steps
//
// Every step is one command or one Lua script (the .lua files of this package), bounded by
// Options.OpTimeout, sent a second time when no answer came to the first, and recognised by its
// token when it is applied twice. A copy of a command that is applied late does no harm: the server
// numbers each grant of a lease, and a fill must carry the number. A write without a load,
// Cache.Set, claims the key first, and so takes two steps. In a burst on a cold key a process needs
// two round trips and four commands, whatever the number of its callers, and a trip and a command
// more if it expected a value and read first.
//
// Reads run on the caller's goroutine while up to four do so at a time; beyond that they are
// collected into one MGET, or one pipeline on a cluster. go-redis has an AutoPipeline for that,
// too; it is marked experimental, its blocking form ignores the caller's context, and one command
// for a batch costs the server less than a batch of commands.
//
// The clock by which values age is Redis' own (in a cluster, of the node that has <prefix>:clock,
// or of any other while that one is away), measured at the first call, once a minute and after each
// reconnection.
//
// # Tags
//
// An invalidation by tag finds no values. It writes one member of a sorted set, whose score is the
// time in microseconds by the clock of the node that has it; the empty member is the whole cache.
// The script that grants a lease reads that clock before the load begins, and the frame carries
// what it said. A value counts if that is later than the scores of its tags and of the whole cache,
// which are read in the same trip as the value, once the process has seen which tags it has. When
// the set was lost, evicted or overwritten, all values with tags are from before that moment, and
// the others, too, if the score of the whole that stands by itself was lost with it. When the clock
// was set back, what is written and loaded counts on from the last score, unless that is more than
// a day ahead.
//
// The set remembers the last 100,000 tags, about 10 MB. Beyond that a tenth of them is forgotten,
// with every value that is older than those.
//
// In a cluster the set is one node's, so what it says is kept in each process while messages
// arrive; a grant costs one trip more. While that node is away, what was known last counts.
//
// # Failovers
//
// A replica that takes its master's place has what it was told before: a lease that it wasn't told
// of costs at most one more load, and a change of the last 30 seconds before the master was gone
// that it wasn't told of is repeated by the process that made it, when that has noticed: at once
// with Sentinel, within 3 seconds in a cluster, where nothing else breaks than the connections to
// that node. So a process that only writes is subscribed, too. Until then, or if that process has
// ended, other processes may serve the old value. Sentinels that are asked for a failover by hand
// let the old master go on for a moment, so that changes get lost then, too; CLUSTER FAILOVER loses
// nothing.
//
// If as many connections as the client's PoolSize have been refused in a row, go-redis tries again
// once a second only: changes that wait for Redis can arrive that much later.
//
// A cluster client is told to look for the new master as soon as a step gets no answer; by itself
// it would do so within a minute. A node that hangs can keep it from finding out for twice its
// ReadTimeout, 5 seconds unless you say otherwise: one second is plenty. A node that is away costs
// its own keys only.
//
// While a slot is moved from one node to another, a value in it is read and can be invalidated,
// name by name; leases can't be had there and Set fails, for their two names are not both found:
// what is missing is loaded by each process.
//
// # Permissions
//
// The least that works: the commands GET, MGET, SET, DEL, GETRANGE, SETRANGE, PTTL, PEXPIRE, TIME,
// ZADD, ZSCORE, ZMSCORE, ZRANGE, ZCARD, ZREMRANGEBYSCORE, EVAL, EVALSHA, SCRIPT LOAD, PUBLISH,
// SUBSCRIBE, PSUBSCRIBE, UNSUBSCRIBE, PUBSUB NUMSUB and PING on the keys <prefix>:* and the
// channels <prefix>:messages and <prefix>:messages:*:
//
//	ACL SETUSER cacheguard on >secret ~cg:* resetchannels &cg:messages &cg:messages:* +get +mget +set +del +getrange +setrange +pttl +pexpire +time +zadd +zscore +zmscore +zrange +zcard +zremrangebyscore +eval +evalsha +script|load +publish +subscribe +psubscribe +unsubscribe +pubsub|numsub +ping +hello
//
// With Sentinel add +info: the messages' connection is compared with the master that commands go
// to, which go-redis doesn't do, and an old master that is alive is left at once. Without it
// messages may not arrive for some ten seconds after a failover by hand.
//
// A budget of the whole fleet (cacheguard.NewFleetLimiter) stands under
// <prefix>:{<budget>}:permits, with a mark for those who wait under
// <prefix>:{<budget>}:permits:wanted, and needs
//
//	+type +zrem
//
// Whoever can write to that Redis is trusted with what callers get. Numbers are not trusted for
// longer than they can be true, so that nothing forged or damaged keeps a cache empty until
// somebody restarts it:
//
//   - A message about tags whose generation is later than the clock, or much earlier than what is
//     known, makes the processes of a cluster read that generation again. What they read counts,
//     also if it is smaller.
//   - Scores more than a day ahead of the clock are replaced by one of a day: everything loaded
//     before is a miss, what is loaded from then on counts and can be invalidated. The stamp of a
//     value must not be further ahead either. If the clock was set back by less than a day,
//     generations and stamps go on from where they were.
//   - A lease that lasts for more than an hour, and for more than 1,000 times the asker's LeaseTTL,
//     is overwritten. So is the record of a load with numbers of 16 digits or more.
//   - A permit that lasts 100 times as long as it can be taken for is removed.
//
// # Servers
//
// Warm refuses a server that the store can't work with and says which client to make.
// Store.Diagnose tries everything that a store does and says what works, what doesn't and why, as a
// struct and as text:
//
//	fmt.Print(store.Diagnose(ctx))
//
//	Redis 7.0.15                works; every test runs on it
//	Valkey 8.0.1                works; the suites of the store, the lockers on Redis and the middleware pass
//	Redis 6.2.16                works; so do these, but for tests that need options of later servers
//	Redis before 6.2            refused
//	a replica                   refused: it takes no writes
//	a node of a cluster         refused behind the client of a single server, as redis.NewUniversalClient makes one of one
//	                            address; with redis.NewClusterClient, or IsClusterMode, a cluster works
//	no rights to SUBSCRIBE, or  works: waiters ask from time to time, and local tiers are not used
//	  a proxy without Pub/Sub
//	no scripts, or no TIME in   doesn't work: each process loads for itself, and the log says so
//	  scripts
//	noeviction, memory full     what is stored is served, nothing new is stored, and the log says so
//
// # Inspecting
//
// Store.Inspect says what stands under a key of a cache and what a caller would get, and Store.Scan
// what stands there of a cache. A command does both:
//
//	go run github.com/cacheguard/cacheguard/cacheguard/redisstore/inspect@latest -redis localhost:6379 product 42
//	go run github.com/cacheguard/cacheguard/cacheguard/redisstore/inspect@latest -redis localhost:6379 -scan product
//	go run github.com/cacheguard/cacheguard/cacheguard/redisstore/inspect@latest -redis localhost:6379 -find a1b2c3d4e5f60718 product
//
// With -diagnose it runs Store.Diagnose. The others run no script and write nothing, so a replica
// can be asked, too. A user of Redis 7 for whom this holds whatever they do:
//
//	ACL SETUSER inspector on >secret %R~cg:* resetchannels +get +pttl +zmscore +time +multi +exec +scan +getrange +strlen +hello
//
// Redis 6.2 knows no %R: ~cg:* there. In a cluster add +cluster|slots, for another database than 0
// +select, with Sentinel nothing.
//
// # Limits
//
// A Ring is refused: it moves keys to other shards while one is down. So is a cluster client that
// reads from replicas. Use maxmemory-policy with care: an evicted value is a miss, an evicted lease
// at most one more load, and its first load's result is not stored.
package redisstore
