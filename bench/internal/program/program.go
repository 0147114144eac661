// Package program is the benchmark. It is used by the command bench, and by the command
// bench/peers, which adds other libraries.
//
// A command starts a Redis, the origin (package slowdb) and replicas. It gives the replicas jobs,
// judges the results and prints them. These are the parts:
//
//   - A contender is a [contender.Contender] in every command. Features of only some contenders,
//     such as asking for many keys at once or reporting that a value is stale, are separate
//     interfaces. Locks are no contenders: handover compares each [Locker], and locks tests each
//     lock.Locker.
//   - A replica is a second run of this program, with the command "replica". Jobs arrive on its
//     stdin. It does each job on a separate goroutine, and answers on its stdout (package wire). A
//     job is a type with a method do. Only the job's fields are sent to the replica. See job. The
//     first job opens a contender or a locker, and later jobs use it.
//   - A run of a contender is a contest: a fleet, an origin, and a scenario. hits, stampede, expiry
//     and outage are scenarios, too.
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

// Main runs the program's command line, with these peers in addition to the program's own
// contenders and lockers, and ends the process.
func Main(peers Peers) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM,
		syscall.SIGHUP)
	defer stop()
	// Otherwise a pager that ends would end this process before it has cleaned up.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	os.Exit(run(ctx, peers, os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

// commandNames returns the names of the commands for users.
func commandNames() []string {
	return append(scenarioNames(), "hits", "growth", "stampede", "expiry", "outage", "handover",
		"locks", "simulate", "compare", "proxy", "page", "results")
}

// run is the part of Main that tests can use. It returns 2 for a wrong command line.
func run(
	ctx context.Context, peers Peers, args []string, stdin io.Reader, stdout, stderr io.Writer,
) int {
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
	case "results":
		err = results(ctx, args, stderr)
	default:
		if command == "" || slices.Contains(scenarioNames(), command) {
			err = contests(ctx, peers, command, args, stdout, stderr)
			break
		}
		err = usageError(fmt.Sprintf("there is no command %q; there are: %s", command,
			strings.Join(commandNames(), ", ")))
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

// Peers are a program's contenders in addition to those of this module. A program that compares
// other libraries is a separate module, so that these libraries are no dependencies of this module.
type Peers struct {
	Lockers    []Locker              // for handover
	Contenders []contender.Contender // for the scenarios
}

// contenders returns the program's own contenders and the peers'.
func (p Peers) contenders() []contender.Contender {
	return slices.Concat(contender.All(), lockContenders(), p.Contenders)
}

// known returns all contenders that a replica can open.
func (p Peers) known() []contender.Contender { return append(p.contenders(), contender.Special...) }

// among reports whether some of the peers' contenders are chosen.
func (p Peers) among(chosen []contender.Contender) bool {
	theirs := contender.Names(p.Contenders)
	return slices.ContainsFunc(chosen, func(c contender.Contender) bool {
		return slices.Contains(theirs, c.Name)
	})
}

// standardContenders returns the contenders that are compared unless others are named.
func (p Peers) standardContenders() []string {
	return slices.Concat(standardContenders, contender.Names(p.Contenders))
}

// lockers returns the program's own lockers and the peers'.
func (p Peers) lockers() []Locker { return slices.Concat(lockers, p.Lockers) }
