// Package redisstore stores cached values and leases in Redis, where all processes of a fleet share
// them. Redis can be a single server, Sentinel or a cluster. The package is tested on Redis 7.0 and
// 6.2, on Valkey 8.0 and on miniredis.
//
// # In Redis
//
// All names of a key are in one slot of a cluster:
//
//	<prefix>:<cache>:{<key>}          its value, a frame
//	<prefix>:<cache>:{<key>}:lease    the right to load it, or the outcome of a load that left no value
//	<prefix>:<cache>:{<key>}:waiters  the processes that wait for the end of the lease; not in a cluster
//	<prefix>:<cache>:{<key>}:odd      the value of caches with an odd Options.Version; its lease has :odd:lease, and so on
//
// Each cache also has the sorted set <prefix>:{<cache>}:tags. It records when each tag was last
// invalidated; see "Generations" below.
//
// An empty key, and a key that begins with "}" or "\", gets a backslash in front. A key of more
// than 512 bytes, and a key that begins with "#sha256:", is replaced in the name by "#sha256:" and
// the hexadecimal SHA-256 of the key.
//
// If the prefixes, caches or keys of two values differ, their names in Redis differ, whatever
// characters the prefixes, caches and keys contain. A prefix may have colons and is not escaped. If
// a cache's name has a colon, the names of its values and leases have "%3A" for each colon of the
// cache's name and "%25" for each "%", and one more colon at its end: key 42 of the cache "eu:user"
// is <prefix>:eu%3Auser::{42}. The names of all other caches are not escaped. New doesn't refuse
// colons, because many prefixes and names in use have some, and because one process can't know the
// prefixes of the others.
//
// Prefixes separate caches, but they don't separate Redis users: an access rule like ~shop:* also
// covers the prefix "shop:eu". Lockers on the same Redis need prefixes of their own.
//
// # Messages
//
// Each process receives messages on one connection; message.go has their bytes. On a single server,
// with or without Sentinel, there are three kinds of channels:
//
//	<prefix>:messages:<inbox>    one for each process, which is told there of the ends of loads that it waits for
//	<prefix>:messages:{<cache>}  changes of a cache's keys and tags, for all processes that have the cache open
//	<prefix>:messages            the common channel, for programs that know no other
//
// If a process asks for a lease and must wait, the same script adds the process's inbox to the list
// of waiters. The script that ends the load publishes one message to each inbox in this list. The
// list lives a second longer than the lease and is renewed with it. If the leader dies, the next
// leader's load finds the list. If the list is evicted, the waiting processes ask again when the
// lease has expired.
//
// In three cases one message on the cache's channel is cheaper and replaces the messages to the
// inboxes: if the cache is open in at most four processes, if at least half of the cache's
// processes wait for the load, or if more than 256 processes wait.
//
// Every process also listens to the common channel, through a pattern. Earlier programs (see
// "Upgrading") know no other channel and subscribe to the common channel by its name. A script uses
// PUBSUB NUMSUB to find out whether any program does, and publishes a change on the common channel
// only then.
//
// In a cluster, and with a client of your own type, all messages go to the common channel and each
// process gets all of them. In a cluster a PUBLISH is sent to every node, so one PUBLISH for each
// inbox would cost the nodes more than it saves.
//
// # Generations
//
// Each cache has one sorted set, <prefix>:{<cache>}:tags. Its members are the invalidated tags,
// and the empty string for the whole cache. A member's score is the time of its last invalidation
// (its generation), in microseconds since 1970 on the clock of the server that has the set. One
// more member, a zero byte, has the stamp of the last grant as its score. A generation is later
// than all scores before it. So if the clock is set back, an invalidation is still later than the
// stamps of the values that were loaded before it, unless a failover or an eviction has lost the
// set. The first lease of a cache creates the set, with a score just before the lease's own grant.
// A value is valid only if its stamp is later than the score of the whole cache and of each of its
// tags. Without the set no value is valid, except for values without tags on a single server, for
// which the separate score below counts. So values whose invalidation was lost by an eviction or a
// restart can't come back as fresh.
//
// The score of the whole cache is also stored by itself, in <prefix>:{<cache>}:all, so that one
// MGET can read it together with a value without tags. If one of these two keys is evicted, it is
// created again, from the other key or with the current time. Policies that evict by use keep both
// keys, because they are read together with values. The volatile policies never evict them, because
// they have no TTL.
//
// On a single server a value's stamp is the number of its lease's grant. In a cluster the load
// reads its stamp, after the grant of its lease, from the node that has the set. This costs the
// load one trip. While that node is away, the stamp is an estimate of its clock, 250 ms early.
// Values are then checked with the last known generations. If a process knows none yet, it serves
// only values without tags. The clocks of a master and of its replicas should not differ by more
// than the duration of a failover.
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
// The extension is empty, or it is a note followed by tags. Before the note and before each tag
// there is one byte with its length. The fingerprint is the FNV-1a hash of the codec's name. If
// Options.Version is above 0, a zero byte and the version in decimal digits follow the name. A
// frame that breaks any of these rules is a miss: it is counted, logged once, and overwritten by
// the next fill.
//
// When a writer claims the key of a value with tags, a remnant of the value stays until the new
// value is stored or the old value's time is over. The remnant is 80 bytes, followed by the tags.
// The bytes are zeros except for the id, whose highest bit is flipped. Its version is 0, which no
// frame has, so it is a miss. This miss isn't counted.
//
// # Upgrading
//
// Programs with the same frame version can run side by side. A later version n will store its
// values under <prefix>:<cache>:{<key>}:v<n>, so that old and new programs don't overwrite each
// other's values in turn. Both versions share leases and messages, and a change made by either
// removes the values of both. If a value was written by a codec with another name, it is a miss.
//
// To change the type of the stored values, see cacheguard.Options.Version. Programs that were built
// before Options.Version existed don't know the names that end in :odd, and their changes don't
// reach the values stored there. So use a version above 0 only when none of these programs runs any
// longer.
//
// Two things changed shortly before v0.1.0, the first release, without a new frame version.
// Programs that were built before these changes are called earlier programs here. First, earlier
// programs know only the common channel. They can run beside new programs. Both kinds learn of each
// other's changes and wake each other's waiters. A token in capital letters means that the lease's
// holder reads the list of waiters, and the mark "+" means that a process waits on the common
// channel. If an earlier program is subscribed at a replica, PUBSUB NUMSUB doesn't count it. So
// after a failover this program may miss changes until it notices the failover. Give the Redis user
// the channels and commands below before the first new program starts.
//
// Second, if a cache's name has a colon, its values and leases have other names in earlier
// programs. For such a cache earlier and new programs don't share values, and Invalidate in an
// earlier program doesn't reach a new program's values. Stop the earlier programs first, or call
// InvalidateAll when the last of them has ended. All other names are unchanged.
//
// # Steps
//
// Every step is one command, one Lua script (the .lua files of this package) or one pipeline of
// them, and takes at most Options.OpTimeout. If the first try gets no answer, the step is sent a
// second time. If Redis has already carried out the first try of a load's step, it recognises the
// second try by the load's token. Other steps, such as invalidations, can be repeated without harm.
// A copy of a command that is applied late does no harm: the server numbers each grant of a lease,
// and a fill must carry the number. A write without a load, Cache.Set, claims the key first, so it
// takes two steps. In a burst on a cold key, the process that loads needs two trips of one command
// each (in a cluster three), for any number of callers. A process that waits needs one trip, and a
// second one to read a value of more than 4 KiB. A process that expected a value and read first
// needs one more trip and command.
//
// On a single server up to four reads at a time run on their callers' goroutines, and further reads
// are collected into batches of one MGET each. In a cluster, and with a client of your own type,
// all reads are collected into pipelines. The store doesn't use the AutoPipeline of go-redis for
// this: it is marked experimental, its blocking form ignores the caller's context, and one command
// for a batch costs the server less than a batch of commands.
//
// Values age by Redis' own clock. In a cluster it is the clock of the node that has the name
// <prefix>:clock, or of any other node while that node is away. The store measures this clock at
// the first call, after each reconnection, and once a minute while messages arrive.
//
// # Tags
//
// An invalidation by tag doesn't look for values. It writes one member of a sorted set, whose score
// is the time in microseconds by the clock of the node that has the set; the empty member is the
// whole cache. Before a load begins, the same clock is read (on a single server by the script that
// grants the lease), and the frame stores this time as the value's stamp. A value is valid only if
// its stamp is later than the scores of its tags and of the whole cache. On a single server, if the
// process knows which tags the value has, these scores are read in the same trip as the value.
//
// If the set was lost, evicted or overwritten, all values with tags from before that moment are
// invalid. If the separate score of the whole cache was lost with the set, the values without tags
// are invalid, too. If the clock was set back, new invalidations and loads get times that continue
// from the last invalidation or load, unless that is more than a day ahead.
//
// The set remembers the last 100,000 tags, about 10 MB. If there are more, the oldest tenth is
// forgotten. Then all values with tags (in a cluster, all values) that are older than the newest
// forgotten invalidation are invalid.
//
// In a cluster one node has the set. So as long as messages arrive, each process remembers the
// scores that it has read. A grant costs one trip more. While that node is away, the last known
// scores are used.
//
// # Failovers
//
// A replica that takes over has only what its master had replicated to it. A lease that wasn't
// replicated costs at most one more load. If a change from the last 30 seconds before the loss of
// the master wasn't replicated, the process that made the change repeats it. The process does this
// when it has noticed the failover: at once with Sentinel, within about 4 seconds in a cluster,
// where only the connections to that node break. To notice a failover, a process that only writes
// is subscribed, too. Until the change is repeated, or if that process has ended, other processes
// may serve the old value. In a failover by hand with Sentinel, the old master goes on for a
// moment, so changes get lost then, too. CLUSTER FAILOVER loses nothing.
//
// If the number of refused connections in a row reaches the client's PoolSize, go-redis tries again
// only once a second. So changes that wait for Redis can arrive up to a second later.
//
// As soon as a step gets no answer, the store tells a cluster client to look for the new master. By
// itself the client would look within a minute. A node that hangs can delay this by twice the
// client's ReadTimeout. The default of ReadTimeout is 5 seconds; one second is enough. A node that
// is away makes its own keys unavailable. At times it does so with keys of other nodes, too, in
// slots next to its own: the store stops asking for 256 neighbouring slots at once.
//
// While a slot moves from one node to another, values in it can be read and invalidated, one name
// at a time. In that slot Redis can't grant leases, and Set fails, because a lease and its value
// may be on different nodes. Each process loads missing values for itself.
//
// # Permissions
//
// The store needs at least the commands GET, MGET, SET, DEL, GETRANGE, SETRANGE, PTTL, PEXPIRE,
// TIME, ZADD, ZSCORE, ZMSCORE, ZRANGE, ZCARD, ZREMRANGEBYSCORE, EVAL, EVALSHA, SCRIPT LOAD,
// PUBLISH, SUBSCRIBE, PSUBSCRIBE, UNSUBSCRIBE, PUBSUB NUMSUB and PING on the keys <prefix>:* and
// the channels <prefix>:messages and <prefix>:messages:*:
//
//	ACL SETUSER cacheguard on >secret ~cg:* resetchannels &cg:messages &cg:messages:* +get +mget +set +del +getrange +setrange +pttl +pexpire +time +zadd +zscore +zmscore +zrange +zcard +zremrangebyscore +eval +evalsha +script|load +publish +subscribe +psubscribe +unsubscribe +pubsub|numsub +ping +hello
//
// In a cluster add +cluster|slots, and for another database than 0 add +select. With Sentinel add
// +info. Then the store can check that the connection for messages is to the same master as the
// connection for commands, which go-redis doesn't check. So the store leaves an old master within
// two seconds, even if the old master is still alive. Without +info messages may not arrive for
// some ten seconds after a failover by hand.
//
// The permits of a fleet-wide limiter (cacheguard.NewFleetLimiter) are kept in the key
// <prefix>:{<budget>}:permits, and a mark that processes are waiting in
// <prefix>:{<budget>}:permits:wanted. The permits need two more ACL rights:
//
//	+type +zrem
//
// The store trusts the values of every client that can write to this Redis. It trusts numbers only
// within bounds, so that a forged or damaged number can't keep a cache empty until a restart:
//
//   - If a message about tags has a generation that is later than the clock, or much earlier than
//     the known one, the processes of a cluster read that generation again. They use the result,
//     even if it is smaller.
//   - Scores more than a day ahead of the clock are replaced by a score one day ahead: everything
//     loaded before is a miss, and everything loaded from then on is valid and can be invalidated.
//     A value's stamp must not be further ahead either. If the clock was set back by less than a
//     day, generations and stamps continue from where they were.
//   - A lease is overwritten if it lasts for more than an hour and for more than 1,000 times the
//     LeaseTTL of the process that asks. The record of a load is overwritten if it has numbers of
//     16 digits or more.
//   - A permit is removed if it lasts more than 100 times as long as the permit that is asked for.
//
// # Servers
//
// Warm returns an error for a server that the store can't work with, and the error says which
// client or server is needed. Store.Diagnose tries each step of a store in Redis. The result says
// which steps work, which fail and why. It can be printed as text:
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
// Store.Inspect returns the entries in Redis under a key of a cache, and the answer that a caller
// would get. Store.Scan counts the entries of a whole cache. A command runs both:
//
//	go run github.com/cacheguard/cacheguard/cacheguard/redisstore/inspect@latest -redis localhost:6379 product 42
//	go run github.com/cacheguard/cacheguard/cacheguard/redisstore/inspect@latest -redis localhost:6379 -scan product
//	go run github.com/cacheguard/cacheguard/cacheguard/redisstore/inspect@latest -redis localhost:6379 -find a1b2c3d4e5f60718 product
//
// With -diagnose the command runs Store.Diagnose. The other modes run no script and write nothing,
// so they also work on a replica. This user of Redis 7 can't write, whatever is run with its
// rights:
//
//	ACL SETUSER inspector on >secret %R~cg:* resetchannels +get +pttl +zmscore +time +multi +exec +scan +getrange +strlen +hello
//
// Redis 6.2 knows no %R: use ~cg:* there. In a cluster add +cluster|slots, and for another database
// than 0 add +select. Sentinel needs no further rights.
//
// # Limits
//
// New refuses a Ring, because a Ring moves keys to other shards while a shard is down. It also
// refuses a cluster client that reads from replicas. Choose maxmemory-policy with care. An evicted
// value is a miss. An evicted lease costs at most one more load, and the result of its first load
// is not stored.
package redisstore
