// Command catalog serves a shop's category map from a SQL database through cacheguard. It also has
// a lab. The lab is a page that runs each stage of the well-known way to a distributed lock, with
// the fault that shows the stage's flaw.
//
// It starts any number of replicas that share one database and one Redis, as they would in a shop.
// If many clients ask all replicas for the map at the same time and it isn't in Redis, one replica
// loads it and the others wait for it. /stats.json of any replica shows this.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/redis/go-redis/v9/logging"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	// The cache reports and logs in its own words what go-redis would print.
	logging.Disable()
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// run runs the command until ctx ends. It returns the exit code: 2 for a wrong command line.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	stdout, stderr = hide(stdout, args), hide(stderr, args)
	opts, err := parseOptions(args, stdout)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		fmt.Fprintf(stderr, "catalog: %v\nFor the flags: catalog -help\n", err)
		return 2
	}
	log := slog.New(slog.NewTextHandler(stderr, &slog.HandlerOptions{Level: opts.logLevel}))
	if err := serve(ctx, opts, stdout, log); err != nil {
		fmt.Fprintf(stderr, "catalog: %v\n", err)
		return 1
	}
	return 0
}

func serve(ctx context.Context, opts options, stdout io.Writer, log *slog.Logger) error {
	f, err := openFleet(ctx, opts, log)
	if err != nil {
		if ctx.Err() != nil {
			return nil // a stop during the start isn't a failure
		}
		return err
	}
	f.announce(stdout)
	return errors.Join(f.serve(ctx), f.close())
}
