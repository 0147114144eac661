// Package simulate is a discrete-event simulation of a fleet of processes with a cache in Redis,
// for what one machine can't show: thousands of replicas, millions of keys, days. It does no I/O,
// and draws the same from the same seed.
//
// # What is simulated
//
// Requests of the whole fleet come as a Poisson process whose rate is a sine between Low and High.
// Each is for a key by Zipf's law and comes to a process at random. The keys that are asked for
// most are simulated one by one. Between a value and its expiry there is nothing to simulate: hits
// are counted second by second as a Poisson draw. When it has expired, the next request is drawn,
// by thinning where the rate changes, and from then until there is a value again each request that
// does something of its own is an event: with a flight for each process the first of each process,
// without one every request. Who joins a flight is counted and timed when it ends.
//
// The other keys, so many that each is asked for seldom, are counted in bulk: classes of about
// equal popularity, of which each slot (a second, or a twentieth of a short TTL) draws how many of
// those without a value are asked for, how many requests more come during such a load, and when the
// values expire. That is exact but for three things: values expire at the ends of slots, the ranks
// of a class count as equally popular though the first is asked for up to a fifth more often than
// the last, and what comes during a load is as often as during a load of average length that
// doesn't wait. Result.Overlap says how many requests come during a load of the most popular of
// these keys: what is said about their stampedes is good as long as it is well below 1.
//
// Redis is one server with a queue. Commands of what is simulated one by one have their place in
// it; the rest is a stream of which a command finds as much waiting as the formula of Pollaczek and
// Khinchin says. A message costs the server time for each process that listens, and all listen to
// one channel, as in a cluster; on a single server redisstore tells those alone who wait. A command
// that isn't answered within Timeout is given up, and its process loads without Redis. The origin
// runs Capacity loads at a time, and Queue wait.
//
// A replica that restarts takes its flights with it, their callers get an error, its leases run
// out; deploys restart one after another. In a failover Redis can't be reached for whole slots:
// each process loads for itself, one load for each key at a time if it has flights, and stores
// nothing. All that is counted in bulk.
//
// # What is left out
//
//   - The network: round trips are all alike, bandwidth and the size of values cost nothing.
//   - What a process does besides. Its processor is free when a caller is woken, up to Noise; only
//     a Burst has cores that are contended for. What it costs a process to hear messages that are
//     for others is not counted.
//   - Reads of one key in one process at the same moment, which share a command: each hit is one.
//   - Process-local tiers, errors of the origin, invalidations, tags, MaxLoads of a process,
//     evictions, hot slots of a cluster, clients that leave.
//   - In the seldom keys: early refresh, and what loads that wait at the origin delay but
//     themselves. They share the places of the origin and of the budget as a fluid, and always
//     leave one to the others.
//   - Leases are not renewed by commands: they live while their process does. Locks are never
//     renewed.
//   - A process that was restarted is cold in no way but that its flights are gone.
//   - Stale values are not served for want of Redis: they are in it.
//   - Maxima of hits and of seldom keys are those of a sample of each second.
package simulate
