// Command bench measures what the protections of an origin are worth.
//
//	go run ./bench            the standard scenarios, with the usual protections beside each other; in about two minutes
//	go run ./bench cold       one of them, with a fleet of any size and any contenders; also missing, failing, killed, slow,
//	                          race-same and race-other
//	go run ./bench hits       the way to a value that is cached, beside a plain GET
//	go run ./bench growth     what of its cost grows with processes, and with callers
//	go run ./bench stampede   a cold key in detail: what comes before the first load, and what after it
//	go run ./bench expiry     a hot key expires again and again under steady load
//	go run ./bench outage     the origin of a hot key fails for a while, under the same load
//	go run ./bench handover   many contenders in many processes want one lock, which goes from one to the next
//	go run ./bench simulate   a fleet's day in virtual time: thousands of replicas, millions of keys
//
// Each has -json for machines and -help for the rest. The scenarios load from an origin in the program that conducts them, which
// records every load, whoever makes it and whether or not that process lives to see its end; behind a contender's row stands
// what it did that it must not. Without a redis-server they embed one (miniredis), and say so. A stampede counts how long
// callers wait beyond the load itself; expiry and outage issue requests at fixed times, whether or not earlier ones have been
// answered, and count latency from those times on. handover counts from just before Unlock is called to when another contender's
// Lock has returned, and what crosses the wire meanwhile. The simulation needs no Redis and no time of its own;
// what it assumes is in its package's documentation, and with -validate it is compared with real stampedes.
//
// Replicas are real processes: the command starts itself again for each. Redis is a redis-server from the PATH, started
// for the run on a free port, or the one named with -redis. All contestants run one after another in each repetition,
// so that what else the machine does hits all of them alike; compare ratios, not times of different runs.
//
//	go run -C bench/peers . handover
//
// is the same program with libraries of others besides, in a module of its own.
//
// One more command measures nothing by itself:
//
//	go run ./bench proxy -origin http://127.0.0.1:8000
//
// puts package middleware in front of a server, prints the address and serves until SIGINT, SIGTERM or the end of -time.
// It is the way to run a public test-suite for HTTP caches against the middleware: have its server be the origin and its
// client ask the address. Suites that expect heuristic freshness want -heuristic 0.1; -help has the other options.
package main

import "github.com/cacheguard/cacheguard/bench/internal/program"

func main() { program.Main(program.Peers{}) }
