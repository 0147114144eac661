// Package otelobserver traces loads and the waits for them with OpenTelemetry, and measures what
// caches do. It uses the API only; which SDK and which exporter there are is the program's to
// choose. It is a module of its own:
//
//	go get github.com/cacheguard/cacheguard/cacheguard/otelobserver
//
//	observer, err := otelobserver.New(otelobserver.Options{})
//	products, err := cacheguard.New(store, cacheguard.Options[Product]{Name: "product", Observer: observer})
//
// # Traces
//
// A load has a span, cacheguard.load, below that of the caller who began it, and the load's context
// carries it: what the origin is asked for is below it in turn. A caller that waited for a load
// that was not its own has a span of that time, cacheguard.wait, in its own trace, linked to the
// load's span, in whatever process that ran: the result of a load, a failure too, takes the span's
// identity along, in 26 bytes. So of a stampede on a fleet one span shows the load and each of the
// others a link to it.
//
// Spans have the attribute cacheguard.cache; cacheguard.not_found if there was nothing;
// cacheguard.stale if the wait ended with a stale value; and cacheguard.key with Options.Keys only.
// A load or a wait that failed has the error as its status and, the load, as an event.
//
// # Metrics
//
// All have the attribute cacheguard.cache. A cache is one series of each, whatever the number of
// its keys.
//
//	cacheguard.requests             {request}  by cacheguard.result: hit, negative_hit, local_hit, local_negative_hit,
//	                                           stale, coalesced, loaded, failed
//	cacheguard.misses               {miss}
//	cacheguard.load.duration        s          by cacheguard.outcome: value, not_found, error, audit
//	cacheguard.wait.duration        s          of callers
//	cacheguard.fleet_wait.duration  s          of a process for another one
//	cacheguard.loads.late           {load}
//	cacheguard.fills                {fill}     by cacheguard.result: stored, refused, unknown, not_stored
//	cacheguard.leases.asked, .granted, .renewed, .lost
//	cacheguard.unstored             {response} of package middleware, by cacheguard.result: the words of cacheguard.Reason
//	cacheguard.compared             {comparison} of answers with the origin, by cacheguard.result: the words of
//	                                           cacheguard.Difference
//	cacheguard.consistency          {nine}     of caches that have compared some: see cacheguard.Stats.Nines
//	cacheguard.values.corrupt, cacheguard.store.errors, cacheguard.overloads
//	cacheguard.changes.late         {change}   invalidations and the like that the store was told of late
//	cacheguard.local.entries, cacheguard.loads.running, cacheguard.loads.queued, cacheguard.flights,
//	cacheguard.callers, cacheguard.breakers.open, cacheguard.breakers, cacheguard.changes.unsent: gauges
//
// # What it costs
//
// A hit takes so many times as long as without (medians of 41 rounds in turn, 1 and 2 processors, 1
// and 256 goroutines; two caches without an observer differ by 0.97 to 1.07), and allocates nothing
// more:
//
//	hit of the process-local tier, 35 to 70 ns    1.00 to 1.06
//	hit in Redis                                  0.97 to 1.07
//
//	go test -run '^$' -bench 'BenchmarkObserved/(local|redis)/(none|otel)' -benchtime 1x -cpu 1,2 ./internal/alltest
//
// A load costs one span, its metrics and, if it is sampled, 27 bytes in the store; a wait one span.
//
// # What is not guaranteed
//
// A link where the load was not sampled: then there is nothing to link to. The caller whose load it
// was, and callers who left before its end, have no span of a wait. Callers who are led to a
// failure that was remembered, without a wait, have none either. A value that is found later
// doesn't lead to its load.
package otelobserver
