package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/cacheguard/outbox"
	"github.com/cacheguard/cacheguard/cacheguard/redisstore"
	"github.com/cacheguard/cacheguard/cacheguard/slogobserver"
	"github.com/cacheguard/cacheguard/middleware"
)

// A shop would keep the defaults, which are far shorter. In this example all replicas, often the
// clients and even Redis compete for the processors of one machine. So a late answer must not look
// like a Redis that is down, and a late renewal must not look like a leader that died.
const (
	redisTimeout = 4 * time.Second
	leaseTTL     = 12 * time.Second
)

// These are settings of the outbox's relay. The relay's database is on this machine, so the relay
// can look often. When the lease of a relay is over, the relay of another process takes over.
const (
	relayLease = 6 * time.Second
	relayPoll  = 20 * time.Millisecond
)

// tellTimeout is the longest time that a rename waits until all caches are told.
const tellTimeout = 2 * redisTimeout

// notFoundTTL is the longest time for which the cache remembers that there is no category with an
// id.
const notFoundTTL = 30 * time.Second

// loadTimeout returns the time limit of a load.
func loadTimeout(o options) time.Duration { return o.originDelay + leaseTTL }

// These are the names of the caches.
const (
	treeCache     = "catalog"
	categoryCache = "category"
	pageCache     = "pages"
)

// caches are the caches of one replica: of the tree, of single categories, and of the page that is
// made from the tree. The outbox tells these caches, and the caches of the other replicas, which
// values are out of date.
type caches struct {
	origin     *origin
	box        *outbox.Box
	stopRelay  func()  // stops the outbox's relay, and waits until it has stopped
	staged     *staged // set if a stage caches the tree; stages don't use the outbox
	pageTags   []string
	rdb        *redis.Client
	store      *redisstore.Store
	trees      trees
	categories *cacheguard.Cache[category]
	pages      *middleware.Cache
}

// openCaches opens the caches. It dials Redis, so that a wrong address is found at the start. If
// ctx ends, it returns early. The observer gets the events of all caches. t counts the events of
// the tree's cache.
func openCaches(
	ctx context.Context, f *fleet, observer cacheguard.Observer, t *tally,
) (*caches, error) {
	rdb := redis.NewClient(&redis.Options{Addr: f.redisAddr})
	store, err := redisstore.New(rdb, redisstore.Options{OpTimeout: redisTimeout, Logger: f.log})
	if err != nil {
		return nil, errors.Join(err, rdb.Close())
	}
	c := &caches{origin: f.origin, rdb: rdb, store: store}
	if err := c.open(ctx, f, observer, t); err != nil {
		return nil, errors.Join(err, c.close(ctx))
	}
	return c, nil
}

func (c *caches) open(
	ctx context.Context, f *fleet, observer cacheguard.Observer, t *tally,
) (err error) {
	if err := c.store.Warm(ctx); err != nil {
		return fmt.Errorf("redis at %s: %w", f.redisAddr, err)
	}
	loadTimeout, audit := loadTimeout(f.opts), cacheguard.Audit{PerSecond: f.opts.audit}
	if audit.PerSecond > 0 {
		observer = cacheguard.Observers(observer,
			slogobserver.New(slogobserver.Options{Logger: f.log, Keys: true}))
	}
	if f.opts.stage == ownStage {
		c.trees, err = openGuarded(c.store, c.origin, cacheguard.Options[tree]{
			Name: treeCache, TTL: f.opts.ttl, StrongReads: true, LeaseTTL: leaseTTL,
			LoadTimeout: loadTimeout,
			Audit:       audit, Observer: cacheguard.Observers(observer, t), Logger: f.log,
		})
	} else {
		if c.staged, err = openStaged(c.rdb, f, t); err == nil {
			c.trees = c.staged
		}
	}
	if err != nil {
		return err
	}
	c.categories, err = cacheguard.New(c.store, cacheguard.Options[category]{
		Name: categoryCache, TTL: f.opts.ttl, NegativeTTL: min(f.opts.ttl, notFoundTTL),
		StrongReads: true, LeaseTTL: leaseTTL, LoadTimeout: loadTimeout, Audit: audit,
		Observer: observer, Logger: f.log,
	})
	if err != nil {
		return err
	}
	c.pages, err = middleware.New(c.store, middleware.Options{
		Name: pageCache, StrongReads: true, LeaseTTL: leaseTTL, LoadTimeout: 2 * loadTimeout,
		Observer: observer, Logger: f.log,
	})
	if err != nil {
		return err
	}
	if c.pageTags, err = c.pages.URLTags(pagePath); err != nil {
		return err
	}
	return c.openBox(ctx, f)
}

// openBox begins to deliver the messages in the outbox, including messages of other processes.
func (c *caches) openBox(ctx context.Context, f *fleet) (err error) {
	c.box, err = outbox.New(f.db.DB, c.store,
		outbox.Options{Dialect: f.db.dialect, Lease: relayLease, Poll: relayPoll, Logger: f.log})
	if err != nil {
		return err
	}
	if err := c.box.Create(ctx); err != nil {
		return err
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(ctx))
	done := make(chan error, 1)
	go func() { done <- c.box.Run(ctx) }()
	c.stopRelay = func() {
		stop()
		if err := <-done; err != nil {
			f.log.Error("the outbox has no relay", "error", err)
		}
	}
	return nil
}

// category returns one category with its children. The cache also remembers that a category doesn't
// exist, so that the database isn't asked for it each time.
func (c *caches) category(ctx context.Context, id int) (category, error) {
	r, err := c.categories.GetEntry(ctx, strconv.Itoa(id), func(
		ctx context.Context, _ cacheguard.Result[category],
	) (cacheguard.Entry[category], error) {
		own, err := c.origin.category(ctx, id)
		tags := []string{tagOf(id)}
		for _, child := range own.Children {
			tags = append(tags, tagOf(child.ID))
		}
		return cacheguard.Entry[category]{Value: own, Tags: tags}, err
	})
	return r.Value, err
}

// tagOf returns the tag of all values that contain the name of this category.
func tagOf(id int) string { return "category:" + strconv.Itoa(id) }

// rename renames a category, and makes the caches forget the old name, in one transaction of the
// database. After it has returned without an error, no replica answers with the old name any more
// (see StrongReads). After an untoldError the category is renamed, and this process or another one
// will tell the caches. If the client leaves, rename still finishes its work.
func (c *caches) rename(ctx context.Context, id int, name string) error {
	ctx = context.WithoutCancel(ctx)
	err := c.origin.rename(ctx, id, name, func(ctx context.Context, tx *sql.Tx) error {
		return c.forget(ctx, tx, id)
	})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, tellTimeout)
	defer cancel()
	if err := c.box.Flush(ctx); err != nil {
		return &untoldError{err}
	}
	return c.forgetStaged(ctx)
}

// forget makes the caches forget all values that contain the name of this category, as soon as tx
// is committed. The page is last. It is made from the tree, and must not be made from the old tree
// again.
func (c *caches) forget(ctx context.Context, tx *sql.Tx, id int) error {
	err := c.box.InvalidateTags(ctx, tx, categoryCache, tagOf(id))
	if err == nil && c.staged == nil {
		err = c.box.Invalidate(ctx, tx, treeCache, treeKey)
	}
	if err == nil && c.staged == nil {
		err = c.box.InvalidateTags(ctx, tx, pageCache, c.pageTags...)
	}
	return err
}

// forgetStaged makes a stage forget the tree, after the commit. If the process dies before that, or
// if forgetStaged fails, the old tree stays until its time is over.
func (c *caches) forgetStaged(ctx context.Context) error {
	if c.staged == nil {
		return nil
	}
	if err := c.staged.changed(ctx); err != nil {
		return err
	}
	return c.pages.Purge(ctx, pagePath)
}

// untoldError is the error if the database was changed but the invalidation has not reached the
// caches yet.
type untoldError struct{ cause error }

func (e *untoldError) Error() string {
	return "the caches could not be told yet: " + e.cause.Error()
}

func (e *untoldError) Unwrap() error { return e.cause }

// close closes the caches. Until ctx ends, running loads may finish and store their values.
func (c *caches) close(ctx context.Context) error {
	if c.stopRelay != nil {
		c.stopRelay()
	}
	var errs []error
	if c.pages != nil {
		errs = append(errs, c.pages.Shutdown(ctx))
	}
	if c.categories != nil {
		errs = append(errs, c.categories.Shutdown(ctx))
	}
	if c.trees != nil {
		errs = append(errs, c.trees.close(ctx))
	}
	return errors.Join(append(errs, c.store.Close(), c.rdb.Close())...)
}
