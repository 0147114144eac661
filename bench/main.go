// Command bench measures what the protections of an origin are worth, in three scenarios:
//
//	go run ./bench            a stampede: many callers of many processes ask for one cold key at the same moment
//	go run ./bench expiry     a hot key expires again and again under steady load
//	go run ./bench outage     the origin of a hot key fails for a while, under the same load
//
// Each has -json for machines and -help for the rest. A stampede counts what reaches the origin, and how long callers
// wait beyond the load itself; the other two issue requests at fixed times, whether or not earlier ones have been
// answered, and count latency from those times on.
//
// Replicas are real processes: the command starts itself again for each. Redis is a redis-server from the PATH, started
// for the run on a free port, or the one named with -redis. All protections run one after another in each repetition,
// so that what else the machine does hits all of them alike; compare ratios, not times of different runs.
//
// One more command measures nothing by itself:
//
//	go run ./bench proxy -origin http://127.0.0.1:8000
//
// puts package middleware in front of a server, prints the address and serves until SIGINT, SIGTERM or the end of -time.
// It is the way to run a public test-suite for HTTP caches against the middleware: have its server be the origin and its
// client ask the address. Suites that expect heuristic freshness want -heuristic 0.1; -help has the other options.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	os.Exit(run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

// run is main for tests too. It returns 2 for a wrong command line.
func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	command := "stampede"
	if len(args) > 0 && args[0] != "" && args[0][0] != '-' {
		command, args = args[0], args[1:]
	}
	var err error
	switch command {
	case "stampede":
		err = stampede(ctx, args, stdout, stderr)
	case "replica": // what stampede starts
		err = replica(ctx, args, stdin, stdout)
	case "expiry":
		err = expiry(ctx, args, stdout, stderr)
	case "outage":
		err = outage(ctx, args, stdout, stderr)
	case "proxy":
		err = proxy(ctx, args, stdout, stderr)
	case "steady-replica": // what expiry and outage start
		err = steadyReplica(ctx, stdin, stdout)
	default:
		err = usageError(fmt.Sprintf("there is no command %q; there are: stampede, expiry, outage, proxy", command))
	}
	var usage usageError
	switch {
	case err == nil, errors.Is(err, flag.ErrHelp):
		return 0
	case errors.As(err, &usage):
		fmt.Fprintln(stderr, "bench:", err)
		return 2
	}
	fmt.Fprintln(stderr, "bench:", err)
	return 1
}
