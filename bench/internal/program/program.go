// Package program is the benchmark: the command bench, and the command bench/peers, which has
// libraries of others besides.
//
// A command conducts: it starts a Redis, the origin (package slowdb) and replicas, has these do
// things, judges and prints. There is one of each part:
//
//   - A contender is a [contender.Contender], whatever command compares it. What only some can do,
//     asking for many keys at once or saying that a value is stale, is an interface of its own.
//     Locks are no contenders: handover compares each [Locker], and locks each lock.Locker.
//   - A replica is this program once more, with the command "replica". It does jobs, which arrive
//     on its stdin, each on a goroutine of its own, and answers on its stdout (package wire). A job
//     is a type with a method do, and its fields are all that crosses the wire; see job. The first
//     job opens a contender or a locker, which the later ones use.
//   - A run of a contender is a contest: a fleet, an origin, and a scenario that is played on them.
//     hits, stampede, expiry and outage are scenarios, too.
//   - A sheet prints for people, with all tables; printJSON prints for machines.
package program

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"github.com/cacheguard/cacheguard/bench/internal/contender"
)

// Main runs the program's command line, with these peers besides what it has itself, and ends the
// process.
func Main(peers Peers) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE) // or a pager that ends would end this before it has cleaned up
	os.Exit(run(ctx, peers, os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

// commandNames are those that a user can give.
func commandNames() []string {
	return append(scenarioNames(), "hits", "growth", "stampede", "expiry", "outage", "handover", "locks", "simulate", "compare", "proxy", "page")
}

// run is Main for tests too. It returns 2 for a wrong command line.
func run(ctx context.Context, peers Peers, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	command := ""
	if len(args) > 0 && args[0] != "" && args[0][0] != '-' {
		command, args = args[0], args[1:]
	}
	var err error
	switch command {
	case "hits":
		err = hits(ctx, peers, args, stdout, stderr)
	case "growth":
		err = growth(ctx, peers, args, stdout, stderr)
	case "stampede":
		err = stampede(ctx, args, stdout, stderr)
	case replicaCommand:
		err = work(ctx, peers, stdin, stdout)
	case "expiry":
		err = expiry(ctx, args, stdout, stderr)
	case "outage":
		err = outage(ctx, args, stdout, stderr)
	case "handover":
		err = handover(ctx, peers, args, stdout, stderr)
	case "locks":
		err = locks(ctx, args, stdout, stderr)
	case "simulate":
		err = simulation(ctx, args, stdout, stderr)
	case "compare":
		err = compare(args, stdout, stderr)
	case "proxy":
		err = proxy(ctx, args, stdout, stderr)
	case "page":
		err = pageOf(ctx, peers, args, stdout, stderr)
	default:
		if command == "" || slices.Contains(scenarioNames(), command) {
			err = contests(ctx, peers, command, args, stdout, stderr)
			break
		}
		err = usageError(fmt.Sprintf("there is no command %q; there are: %s", command, strings.Join(commandNames(), ", ")))
	}
	var usage usageError
	switch {
	case err == nil, errors.Is(err, flag.ErrHelp):
		return 0
	case errors.As(err, &usage):
		fmt.Fprintln(stderr, "bench:", err)
		return 2
	case ctx.Err() != nil:
		fmt.Fprintln(stderr, "bench: interrupted; what it started is stopped")
		return 1
	}
	fmt.Fprintln(stderr, "bench:", err)
	return 1
}

// Peers are the contenders that a program has besides those of this module. Whoever has libraries
// of others to show lives in a module of its own, so that they are no dependencies of this one.
type Peers struct {
	Lockers    []Locker              // for handover
	Contenders []contender.Contender // for the scenarios
}

// contenders are the program's own and the peers'.
func (p Peers) contenders() []contender.Contender {
	return slices.Concat(contender.All(), lockContenders(), p.Contenders)
}

// known are all that a replica can be told of.
func (p Peers) known() []contender.Contender { return append(p.contenders(), contender.Special...) }

// among says whether some of the peers' contenders are chosen.
func (p Peers) among(chosen []contender.Contender) bool {
	theirs := contender.Names(p.Contenders)
	return slices.ContainsFunc(chosen, func(c contender.Contender) bool { return slices.Contains(theirs, c.Name) })
}

// standardContenders are those that are compared unless others are named.
func (p Peers) standardContenders() []string {
	return slices.Concat(standardContenders, contender.Names(p.Contenders))
}

// lockers are the program's own and the peers'.
func (p Peers) lockers() []Locker { return slices.Concat(lockers, p.Lockers) }
