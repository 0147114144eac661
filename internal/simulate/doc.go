// Package simulate is a discrete-event simulation of a fleet of processes with a cache in Redis. It
// shows cases that one machine can't run: thousands of replicas, millions of keys, days. It does no
// I/O, and gives the same result for the same seed.
//
// # What is simulated
//
// Requests of the whole fleet come as a Poisson process whose rate is a sine between Low and High.
// Each request is for a key by Zipf's law, and comes to a process at random. The most popular keys
// are simulated one by one. Until a value expires there are no events: hits are counted second by
// second as a Poisson draw. When the value has expired, the next request is drawn, by thinning
// because the rate changes. From then until there is a value again, each request that sends its own
// commands is an event. If processes have flights, this is the first request of each process.
// Without flights it is every request. Requests that join a flight are counted, and their latency
// is drawn, when the flight ends.
//
// The other keys are so many that each of them is requested seldom. They are counted in bulk, in
// classes of about equal popularity. Each slot (a second, or a twentieth of a short TTL) draws how
// many keys without a value are requested, how many further requests come during these loads, and
// when the values expire. This is exact with three exceptions. Values expire at the ends of slots.
// The ranks of a class are treated as equally popular, although the first is requested up to a
// fifth more often than the last. The number of requests during a load is drawn as if every load
// had the average length and didn't wait. Result.Overlap is the number of requests that come during
// a load of the most popular rare key. The results about stampedes on rare keys are reliable as
// long as Overlap is well below 1.
//
// Redis is one server with a queue. Commands of keys that are simulated one by one have their place
// in the queue. The other commands are a stream. How much of the stream waits in front of a command
// is drawn by the formula of Pollaczek and Khinchin. A message costs the server time for each
// process that listens, and all processes listen to one channel, as in a cluster. On a single
// server, redisstore tells only the waiting processes. If a command isn't answered within Timeout,
// it is given up, and its process loads without Redis. The origin runs Capacity loads at a time,
// and Queue further loads wait.
//
// When a replica restarts, its flights are lost, their callers get an error, and its leases expire.
// Deploys restart one replica after another. During a failover Redis can't be reached for whole
// slots. Each process then loads for itself, with one load for each key at a time if it has
// flights, and stores nothing. These requests are counted in bulk.
//
// # What is left out
//
//   - The network: all round trips take the same time, and bandwidth and the size of values cost
//     nothing.
//   - Other work of a process. Its processor is free when a caller is woken, except for Noise. Only
//     a Burst has a limited number of cores. The cost of receiving messages for other processes is
//     not counted.
//   - Shared commands for reads of one key in one process at the same moment: each hit is one
//     command.
//   - Process-local tiers, errors of the origin, invalidations, tags, MaxLoads of a process,
//     evictions, hot slots of a cluster, and clients that leave.
//   - For the rare keys: early refresh, and the delay that their waiting loads cause to other
//     loads. Loads of rare keys share the places of the origin and of the budget as a fluid, and
//     always leave one place to the other keys.
//   - Commands for the renewal of leases: a lease lives as long as its process. Locks are never
//     renewed.
//   - Cold processes: a restarted process has lost its flights, but nothing else.
//   - Stale values while Redis is unavailable: they are in Redis, so they can't be served.
//   - Exact maxima: the maxima of hits and of rare keys are maxima of a sample of each second.
package simulate
