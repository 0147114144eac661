// Package slogobserver writes what an operator wants to see of caches to a log, and not more of it
// than he can read.
//
// Each kind of event has a level of its own in each cache, and so many records in each interval:
// the first Burst of them, then every Every-th. The next record says how many were left out, as
// "left_out". What is left out and followed by no other record, in that interval or a later one, is
// not told: count events with promobserver or otelobserver.
//
//	logs := slogobserver.New(slogobserver.Options{})
//	products, err := cacheguard.New(store, cacheguard.Options[Product]{Name: "product", Observer: logs})
//
// What is written, and at what level:
//
//	store error, fill unknown                    error
//	corrupt, lease lost, load late, overloaded   warning
//	a load that failed                           warning
//	a load that took SlowLoad, each one          warning
//	a stale value because a load failed          warning
//	a result that can't be stored                warning
//	compared, and still different                warning
//	fill refused                                 info
//	all others but hits                          Options.Trace, if that is given
//
// # What it costs
//
// A hit takes so many times as long as without (medians of 41 rounds in turn, 1 and 2 processors, 1
// and 256 goroutines; two caches without an observer differ by 0.97 to 1.07), and allocates nothing
// more:
//
//	hit of the process-local tier, 35 to 70 ns    1.01 to 1.05
//	hit in Redis                                  0.98 to 1.08
//
//	go test -run '^$' -bench 'BenchmarkObserved/(local|redis)/(none|slog)' -benchtime 1x -cpu 1,2 ./internal/alltest
//
// Its memory is bounded: one small entry for each cache and kind that had something to write.
//
// # What is not guaranteed
//
// A record for each event; the key, which may be personal and is left out unless Options.Keys is
// set, and then is quoted and cut to 64 bytes, or of slow loads is hashed, from which a short one
// can be guessed; and that the error's text has nothing personal: it is the load's own.
package slogobserver
