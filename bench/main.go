// Command bench measures what the protections of an origin are worth.
//
//	go run ./bench            the standard scenarios, with the usual protections beside each other and a scoreboard; in about two minutes
//	go run ./bench cold       one of them, with a fleet of any size and any contenders; also missing, failing, avalanche, killed,
//	                          redis-gone, slow, race-same and race-other
//	go run ./bench hits       the way to a value that is cached, beside a plain GET
//	go run ./bench growth     what of its cost grows with processes, and with callers
//	go run ./bench stampede   a cold key in detail: what comes before the first load, and what after it
//	go run ./bench expiry     a hot key expires again and again under steady load
//	go run ./bench outage     the origin of a hot key fails for a while, under the same load
//	go run ./bench handover   many contenders in many processes want one lock, which goes from one to the next
//	go run ./bench locks      the lockers, while processes and servers are stopped, continued, killed and emptied at random
//	go run ./bench compare    two runs of hits or a scenario, printed with -json: fails if something got slower beside its floor
//	go run ./bench simulate   a fleet's day in virtual time: thousands of replicas, millions of keys
//
// Each has -json for machines and -help for the rest. Replicas load from an origin in the program
// that conducts them, which records every load, whoever makes it and whether or not that process
// lives to see its end; behind a contender's row stands what it did that it must not. A
// stampede counts how long callers wait beyond the load itself; expiry and outage issue requests at
// fixed times, whether or not earlier ones have been answered, and count latency from those times
// on. handover counts from just before Unlock is called to when another contender's Lock has
// returned, and what crosses the wire meanwhile. locks measures nothing: it counts what lockers
// must not do, and what they can't prevent, and its exit code is 1 if two believed to have one
// lock. The simulation needs no Redis and no time of its own; what it assumes is in its package's
// documentation, and with -validate it is compared with real stampedes.
//
// Callers of a burst are goroutines that stand at a gate, each with a context of its own that can
// be cancelled and a stack as large as that of a server's request (8 KiB). Without the latter the
// growth of thousands of new stacks would be measured.
//
// Replicas are real processes: the command starts itself again for each. Redis is a redis-server
// from the PATH, started for the run on a free port, or the one named with -redis. Where there is
// neither, the scenarios and hits embed one (miniredis), and say so, the standard run without an
// avalanche, for which that is too slow; and simulate, without -validate, needs none; the other
// commands can't do without. All contestants run one after another in each repetition, so that what
// else the machine does hits all of them alike; compare ratios, not times of different runs.
//
// # JSON
//
// What -json prints is one object. Times are integers of nanoseconds in members whose names end in
// Nanos; new members may come, and those that are here stay. Its members:
//
//   - about: go, os, arch, cpus, redis (its version), redisFrom, date. Not of simulate without
//     -validate.
//   - plan: the flags as they were understood, named like these: sizes in bytes, rate in requests a
//     second.
//   - contenders, of scenarios: what is to be known of each, by name.
//   - ratios, of scenarios and hits, what compare reads: name, floor and each, with one for each
//     repetition: time to the floor's. Of scenarios: those of a cold key, where singleflight is
//     among the contenders.
//   - scenarios, a list: scenario, what (happens), processes, callers, failed (what a contender did
//     that it must not, by its name; not there: nothing) and results, by contender, with one for
//     each repetition. Such a result has requests, errors, error (one of them), stuck (callers
//     without an answer when the patience was over), lost (callers whose process was killed), loads
//     and commands (lists, with one for each round; commands is null where nobody counts), need
//     (loads that a round can't do without), atOnce, stale, left, trips (-1: nobody counts),
//     p50Nanos, p99Nanos and maxNanos.
//   - rows, of hits: contender, goroutines, keys, size, ratio (not there without the floor), and
//     lists with one for each repetition: perSecond, p50Nanos, p99Nanos.
//   - byProcesses and byCallers, of growth: processes, callers, loads, errors, commands,
//     mostCommands; took, and floor for the contender that all are compared with, with lists of one
//     for each repetition: p99Nanos, firstLoadNanos, wakeUpP99Nanos. commandsPerProcess and
//     commandsFixed, where there is more than one row by processes.
//   - results, of stampede, expiry and outage: by protection, with one for each repetition.
//     stampede: loads, errors, error, p50Nanos, p99Nanos, firstLoadNanos, tailNanos, trips,
//     commands, pings. expiry: requests, errors, error, loads, lifetimes (versions that these
//     replaced), most (of one), perTTL, stale, oldestNanos, p50Nanos, p99Nanos, p999Nanos,
//     maxNanos, late, lateP999Nanos. outage: requests, errors, stale, error, attempts,
//     mostPerBackoff, p50Nanos, p99Nanos, p999Nanos, maxNanos, errorP50Nanos, errorP99Nanos,
//     atOnce, recovered, firstFreshNanos, lastBadNanos, late, lateP999Nanos.
//   - results, of handover: handovers and growth, by locker: p50Nanos, p90Nanos, p99Nanos,
//     maxNanos, trips, commands, messages; alone, by locker: p50Nanos, p99Nanos, trips, commands,
//     overFloor.
//   - results, of locks: a list with one for each locker: locker, acquisitions, handovers (of
//     these, after a holder in another process), stops (of processes), masters (stopped, or killed
//     and begun again), emptied (of those, back at once), lost (holders that were told), overlaps
//     and excused (two believed to have one lock; the latter when a master had forgotten), first
//     (one of them), lateStopped and lateRunning (acted when the next one had begun, having been
//     stopped, or not), refused (of those, by their tokens), deaths (of processes) and death (one
//     of them), troubles (other errors) and trouble (one of them).
//   - results, of simulate: a list with one for each policy, whose members are the columns of the
//     tables, described in package simulate. With -validate: calibrations, and results with
//     processes, protection, loads and simulatedLoads (least, most), and lists of one for each run:
//     p99Nanos, simulatedP99Nanos, overheadP99Nanos, simulatedOverheadP99Nanos; p99Deviation and
//     overheadP99Deviation, of the medians; errors.
//
// # Other libraries
//
//	go run -C bench/peers . handover
//
// is the same program with libraries of others besides, in a module of its own.
//
// # A proxy
//
// One more command measures nothing by itself:
//
//	go run ./bench proxy -origin http://127.0.0.1:8000
//
// puts package middleware in front of a server, prints the address and serves until SIGINT, SIGTERM
// or the end of -time. It is the way to run a public test-suite for HTTP caches against the
// middleware: have its server be the origin and its client ask the address. Suites that expect
// heuristic freshness want -heuristic 0.1; -help has the other options.
package main

import "github.com/cacheguard/cacheguard/bench/internal/program"

func main() { program.Main(program.Peers{}) }
