// Package otelobserver traces loads and the waits for them with OpenTelemetry, and exports metrics
// of caches. It uses only the API, and the program chooses the SDK and the exporter. It is a
// separate module:
//
//	go get github.com/cacheguard/cacheguard/cacheguard/otelobserver
//
//	observer, err := otelobserver.New(otelobserver.Options{})
//	products, err := cacheguard.New(store, cacheguard.Options[Product]{Name: "product", Observer: observer})
//
// # Traces
//
// Each load has a span, cacheguard.load. Its parent is the span of the caller that began the load.
// The load's context carries the load's span, so requests to the origin are below it. If a caller
// waited for the load of another caller, it has a span for this wait, cacheguard.wait, in its own
// trace. This span is linked to the load's span, even if the load ran in another process. For this
// link, the result of a load, also a failure, carries the identity of the load's span, in 26 bytes.
// So for a stampede on a fleet one span shows the load, and the spans of all other callers link to
// it.
//
// Spans have the attribute cacheguard.cache. If the load found that the value does not exist, they
// have cacheguard.not_found. If the wait ended with a stale value, they have cacheguard.stale. They
// have cacheguard.key only if Options.Keys is set. The span of a failed load or wait has the error
// as its status and as an event. After a panic the status is "load panicked".
//
// # Metrics
//
// All metrics have the attribute cacheguard.cache. The number of a cache's series doesn't depend on
// the number of its keys.
//
//	cacheguard.requests             {request}  by cacheguard.result: hit, negative_hit, local_hit, local_negative_hit,
//	                                           stale, coalesced, loaded, failed
//	cacheguard.misses               {miss}
//	cacheguard.load.duration        s          by cacheguard.outcome: value, not_found, error,
//	                                           cancelled (failed, because the cache had cancelled it), audit
//	cacheguard.wait.duration        s          how long callers waited for a load
//	cacheguard.fleet_wait.duration  s          how long this process waited for a load in another one
//	cacheguard.loads.late           {load}
//	cacheguard.fills                {fill}     by cacheguard.result: stored, refused, unknown, not_stored
//	cacheguard.leases.asked, cacheguard.leases.granted, cacheguard.leases.renewed, cacheguard.leases.lost
//	cacheguard.unstored             {response} of package middleware, by cacheguard.result: the words of cacheguard.Reason
//	cacheguard.compared             {comparison} of answers with the origin, by cacheguard.result: the words of
//	                                           cacheguard.Difference
//	cacheguard.consistency          {nine}     of caches that have compared some: see cacheguard.Stats.Nines
//	cacheguard.store.errors         {error}    by cacheguard.cause: unreachable, no_answer, closed, connections, auth,
//	                                           rights, memory, read_only, busy, cluster, foreign, other
//	cacheguard.values.corrupt, cacheguard.overloads
//	cacheguard.changes              {change}   of keys, tags and whole caches that this process has made
//	cacheguard.changes.late         {change}   invalidations and other changes that the store was told of late
//	cacheguard.local.entries, cacheguard.loads.running, cacheguard.loads.queued, cacheguard.flights,
//	cacheguard.callers, cacheguard.switched_off, cacheguard.in_shadow, cacheguard.breakers.open,
//	cacheguard.breakers, cacheguard.changes.unsent: gauges
//
// # What it costs
//
// The table compares the time of a hit with the observer to the time without it, as a ratio. The
// numbers are medians of 41 alternating rounds, with 1 and 2 processors and with 1 and 256
// goroutines; measured in the same way, the ratio of two caches without an observer is 0.97 to
// 1.07. The observer allocates nothing more for a hit.
//
//	hit of the process-local tier, 35 to 70 ns    1.00 to 1.06
//	hit in Redis                                  0.97 to 1.07
//
//	go test -run '^$' -bench 'BenchmarkObserved/(local|redis)/(none|otel)' -benchtime 1x -cpu 1,2 ./internal/alltest
//
// A load costs one span, its metrics and, if the span is sampled, 27 bytes in the store (26 for the
// span's identity, 1 for their length). A wait costs one span.
//
// # What is not guaranteed
//
// If the load was not sampled, there is no link, because there is no span to link to. The caller
// that ran the load, and callers that left before its end, have no span of a wait. Callers that got
// a remembered failure without waiting have no such span either. A value that is found later has no
// link to its load.
package otelobserver
