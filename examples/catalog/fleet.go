package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/alicebob/miniredis/v2"
	"golang.org/x/sync/errgroup"
)

// fleet contains the replicas and the systems that they share. In a shop each replica is a separate
// process. In this example all replicas are in one process, but they share only the database and
// Redis, as separate processes would.
type fleet struct {
	opts      options
	log       *slog.Logger
	db        *database
	origin    *origin
	embedded  *miniredis.Miniredis // nil if -redis names a real Redis
	redisAddr string
	world     *world
	lab       *laboratory
	replicas  []*replica
	pageRuns  atomic.Int64
}

// openFleet opens the database, connects to Redis and makes every replica listen. If ctx ends, it
// returns early.
func openFleet(ctx context.Context, opts options, log *slog.Logger) (*fleet, error) {
	f := &fleet{opts: opts, log: log, redisAddr: opts.redis}
	if err := f.open(ctx); err != nil {
		return nil, errors.Join(err, f.close())
	}
	return f, nil
}

func (f *fleet) open(ctx context.Context) (err error) {
	if f.db, err = openDatabase(ctx, f.opts.db); err != nil {
		return err
	}
	f.origin = &origin{db: f.db.DB, delay: f.opts.originDelay, log: f.log}
	if f.redisAddr == "" {
		if f.embedded, err = miniredis.Run(); err != nil {
			return fmt.Errorf("start the embedded Redis: %w", err)
		}
		f.embedded.ClockTTL(true) // otherwise no key in it would ever expire
		f.redisAddr = f.embedded.Addr()
	}
	if f.world, err = openWorld(ctx, f.redisAddr, f.db, f.opts.zookeeper); err != nil {
		return err
	}
	f.lab = newLaboratory(f.world.World, f.log)
	for i := range f.opts.replicas {
		r, err := openReplica(ctx, f, f.opts.listenAddr(i))
		if err != nil {
			return fmt.Errorf("replica %d: %w", i+1, err)
		}
		f.replicas = append(f.replicas, r)
	}
	return nil
}

// announce prints which database and which Redis are used, where the replicas listen and where the
// lab is. If a stage of the lab protects the category map, it also prints which one.
func (f *fleet) announce(stdout io.Writer) {
	fmt.Fprintf(stdout, "database: %s\n", f.db.what)
	kind := "Redis"
	if f.embedded != nil {
		kind = "embedded Redis"
	}
	fmt.Fprintf(stdout, "%s: %s\n", kind, f.redisAddr)
	for i, r := range f.replicas {
		fmt.Fprintf(stdout, "replica %d of %d: %s\n", i+1, len(f.replicas), r.url)
	}
	if f.opts.stage != ownStage {
		fmt.Fprintf(stdout, "the category map is protected by stage %q, with locks of %v\n",
			f.opts.stage, f.opts.lockTTL)
	}
	fmt.Fprintf(stdout, "the lock lab: %s/\n", f.replicas[0].url)
}

// serve answers requests until ctx ends. Requests that are running then may finish.
func (f *fleet) serve(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	for _, r := range f.replicas {
		group.Go(func() error { return r.serve(ctx, f.grace()) })
	}
	return group.Wait()
}

// close closes the caches first, and then Redis and the database, which the caches need.
func (f *fleet) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), f.grace())
	defer cancel()
	var errs []error
	for _, r := range f.replicas {
		errs = append(errs, r.close(ctx))
	}
	if f.world != nil {
		f.world.close()
	}
	if f.embedded != nil {
		f.embedded.Close()
	}
	if f.db != nil {
		errs = append(errs, f.db.Close())
	}
	return errors.Join(errs...)
}

// grace returns the time for which requests and loads may go on after the fleet stops.
func (f *fleet) grace() time.Duration {
	return f.opts.originDelay + 5*time.Second
}

// stats returns the counts of the fleet so far.
func (f *fleet) stats() stats {
	s := stats{
		Loads: f.origin.loads.Load(), CategoryLoads: f.origin.categoryLoads.Load(),
		PageRuns: f.pageRuns.Load(), Renames: f.origin.renames.Load(),
	}
	for _, r := range f.replicas {
		s.Replicas = append(s.Replicas, r.tally.stats(r.url))
	}
	return s
}
