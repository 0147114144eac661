// Package slogobserver logs the events of caches that matter to an operator. It limits the number
// of records, so that a person can read them.
//
// Each kind of event, and each of its levels, has its own limit in each cache. In each interval the
// first Burst events are logged, and after them every Every-th event. If events were left out, the
// next record of the same kind and level has their number, as "left_out". If no further record
// follows, in this interval or a later one, the events that were left out are not reported. So to
// count events, use promobserver or otelobserver.
//
//	logs := slogobserver.New(slogobserver.Options{})
//	products, err := cacheguard.New(store, cacheguard.Options[Product]{Name: "product", Observer: logs})
//
// What is written, and at what level:
//
//	store error, fill unknown                    error
//	corrupt, lease lost, overloaded              warning
//	a load that failed, or returned late         warning, unless it failed because the cache had cancelled it
//	a load that took SlowLoad, each one          warning
//	a stale value because a load failed          warning
//	a result that can't be stored                warning
//	compared, and still different                warning
//	fill refused                                 info
//	all others but hits                          Options.Trace, if that is given
//
// # What it costs
//
// The table compares the time of a hit with the observer to the time without it, as a ratio. The
// numbers are medians of 41 alternating rounds, with 1 and 2 processors and with 1 and 256
// goroutines; measured in the same way, the ratio of two caches without an observer is 0.97 to
// 1.07. The observer allocates nothing more for a hit.
//
//	hit of the process-local tier, 35 to 70 ns    1.01 to 1.05
//	hit in Redis                                  0.98 to 1.08
//
//	go test -run '^$' -bench 'BenchmarkObserved/(local|redis)/(none|slog)' -benchtime 1x -cpu 1,2 ./internal/alltest
//
// Memory is limited: one small entry for each cache, kind of event and level that had something to
// log, and for wrong answers one for each cause.
//
// # What is not guaranteed
//
// Not every event has a record. Records have no key, because a key may be personal data. If
// Options.Keys is set, records have the key, quoted and cut to 64 bytes. Otherwise records of slow
// loads and of wrong answers have a hash of the key, from which a short key can be guessed. The
// text of an error may contain personal data, because it is the text of the load's own error.
package slogobserver
