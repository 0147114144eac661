// Command bench measures the effect of protections of an origin.
//
//	go run ./bench            the standard scenarios, with the usual protections beside each other and a scoreboard; in about two minutes
//	go run ./bench cold       one of them, with a fleet of any size and any contenders; also missing, failing, avalanche, killed,
//	                          redis-gone, slow, race-same and race-other
//	go run ./bench hits       the way to a value that is cached, beside a plain GET
//	go run ./bench growth     which costs of a cold key grow with processes, and with callers
//	go run ./bench stampede   a cold key in detail: what comes before the first load, and what after it
//	go run ./bench expiry     a hot key expires again and again under steady load
//	go run ./bench outage     the origin of a hot key fails for a while, under the same load
//	go run ./bench handover   many contenders in many processes want one lock, which goes from one to the next
//	go run ./bench locks      the lockers, while processes and servers are stopped, continued, killed and emptied at random
//	go run ./bench page       a page in Markdown that compares all contenders; docs/comparison.md is the one of bench/peers
//	go run ./bench results    the measured parts of bench/RESULTS.md and README.md, made again
//	go run ./bench compare    two runs of hits or a scenario, printed with -json: fails if something got slower beside its floor
//	go run ./bench simulate   a fleet's day in virtual time: thousands of replicas, millions of keys
//
// Each of these commands except page, results and compare prints JSON with -json. Each lists its
// options with -help.
// Replicas load from an origin in the program that conducts them. The origin records every load,
// even if the loading process dies before the load ends. If a contender does something that it must
// not do, its row in the table says so. stampede counts how long callers wait beyond the load
// itself. expiry and outage issue requests at fixed times, whether or not earlier requests have
// been answered, and count latency from these times. handover counts the time from just before
// Unlock is called until another contender's Lock has returned. It also counts the network traffic
// for each hand-over, including the traffic of waiting contenders while the lock is held. locks
// measures no times. It counts forbidden behaviour of lockers, and problems that lockers can't
// prevent. The exit code of locks is 1 if two holders believed at the same time that they had the
// same lock, if a process died, or if a locker gave nobody a lock. The simulation needs no Redis
// and no real time. The documentation of its package lists its assumptions. With -validate, the
// command compares the simulation with real stampedes.
//
// Callers of a burst are goroutines that wait at a gate. Each has its own context, which can be
// cancelled, and a stack as large as the stack of a server's request (8 KiB). With smaller stacks
// the benchmark would measure the growth of thousands of new stacks.
//
// Replicas are real processes: the command starts itself again for each. Redis is either the server
// named with -redis, or a redis-server from the PATH, which is started for the run on a free port.
// If there is neither, what happens depends on the command. The scenarios and hits embed a Redis
// (miniredis), and say so. The standard run then leaves the avalanche out, because miniredis is too
// slow for it. compare needs no Redis, and simulate needs one only with -validate. The other
// commands need a Redis. In each repetition all contenders run one after another, so other work of
// the machine affects all of them in the same way. Compare ratios within a run, not times of
// different runs.
//
// # JSON
//
// -json prints one object. Times are integers of nanoseconds, in members whose names end in Nanos.
// New members may be added, but these members stay:
//
//   - about: go, os, arch, cpus, redis (its version), redisFrom, date. simulate prints it only with
//     -validate.
//   - plan: the values of the flags, with the flags' names: sizes in bytes, rate in requests a
//     second.
//   - contenders, of scenarios: a description of each contender, by name.
//   - ratios, of scenarios and hits: name, floor and each. each has one value for each repetition:
//     the ratio of the contender's time to the floor's time. compare reads these ratios. Scenarios
//     have them only for a cold key, and only if singleflight is among the contenders.
//   - scenarios, a list: scenario, what (a sentence about it), processes, callers, failed
//     (forbidden behaviour, by the contender's name; a contender without an entry did nothing
//     forbidden) and results, by contender, with one result for each repetition. A result has
//     requests, errors, error (one of the errors), stuck (callers without an answer when the
//     patience was over), lost (callers whose process was killed), loads and commands (lists with
//     one value for each round; commands is null if they aren't counted), need (the least number of
//     loads of a round), atOnce, stale, left, trips (-1: not counted), p50Nanos, p99Nanos and
//     maxNanos.
//   - rows, of hits: contender, goroutines, keys, size, ratio (absent without the floor), and lists
//     with one value for each repetition: perSecond, p50Nanos, p99Nanos.
//   - byProcesses and byCallers, of growth: processes, callers, loads, errors, commands,
//     mostCommands; took has lists with one value for each repetition: p99Nanos, firstLoadNanos,
//     wakeUpP99Nanos. floor has the same lists for the contender with which all are compared. If
//     there is more than one row in byProcesses: commandsPerProcess and commandsFixed.
//   - results, of stampede, expiry and outage: by protection, with one result for each repetition.
//     stampede: loads, errors, error, p50Nanos, p99Nanos, firstLoadNanos, tailNanos, trips,
//     commands, pings. expiry: requests, errors, error, loads, lifetimes (the number of versions
//     that these loads replaced), most (the most loads for one version), perTTL, stale,
//     oldestNanos, p50Nanos, p99Nanos, p999Nanos, maxNanos, late, lateP999Nanos. outage: requests,
//     errors, stale, error, attempts, mostPerBackoff, p50Nanos, p99Nanos, p999Nanos, maxNanos,
//     errorP50Nanos, errorP99Nanos, atOnce, recovered, firstFreshNanos, lastBadNanos, late,
//     lateP999Nanos.
//   - results, of handover: handovers and growth, by locker: p50Nanos, p90Nanos, p99Nanos,
//     maxNanos, trips, commands, messages; alone, by locker: p50Nanos, p99Nanos, trips, commands,
//     overFloor.
//   - results, of locks: a list with one result for each locker. A result has locker, acquisitions,
//     and handovers (acquisitions after a holder in another process). Faults: stops (of processes),
//     masters (the number of times that a master was stopped, or killed and restarted), and emptied
//     (the number of these restarts without data and without the delay). Effects on holders: lost
//     (holders that learned of a loss); overlaps (two holders believed to have one lock), and first
//     (one of these overlaps); excused (the same, after a master had lost its data or the machine's
//     clock was set forward); lateStopped (a holder was stopped, and acted after the next hold had
//     begun); lateRunning (the same without a stop); and refused (late actions that were refused
//     because of their tokens). Errors: deaths (of processes) and death (one of these deaths),
//     troubles (other errors) and trouble (one of these errors).
//   - results, of simulate: a list with one result for each policy. Its members are the columns of
//     the tables, which package simulate describes. With -validate: calibrations, and results with
//     processes, protection, loads and simulatedLoads (least, most), and lists with one value for
//     each run: p99Nanos, simulatedP99Nanos, overheadP99Nanos, simulatedOverheadP99Nanos;
//     p99Deviation and overheadP99Deviation, of the medians; errors.
//
// # Other libraries
//
//	go run -C bench/peers . handover
//
// This command is the same program with other libraries in addition. It is a separate module.
//
// # A proxy
//
// One more command measures nothing:
//
//	go run ./bench proxy -origin http://127.0.0.1:8000
//
// This command puts package middleware in front of a server, prints the address and serves until
// SIGINT, SIGTERM or the end of -time. Use it to run a public test-suite for HTTP caches against
// the middleware: the suite's server is the origin, and the suite's client sends its requests to
// the printed address. For suites that expect heuristic freshness, set -heuristic 0.1. -help lists
// the other options.
package main

import "github.com/cacheguard/cacheguard/bench/internal/program"

func main() { program.Main(program.Peers{}) }
