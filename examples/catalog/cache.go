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

// A shop would keep the defaults, which are far shorter. Here all replicas, often the clients and
// even Redis compete for the processors of one machine: an answer that comes late must not pass for
// a Redis that is down, nor a renewal that comes late for a leader that died.
const (
	redisTimeout = 4 * time.Second
	leaseTTL     = 12 * time.Second
)

// The outbox's relay. Its database is on this machine, so it can look often; another process' relay
// takes over when its lease is over.
const (
	relayLease = 2 * time.Second
	relayPoll  = 20 * time.Millisecond
)

// tellTimeout is how long who renames waits until all caches are told.
const tellTimeout = 2 * redisTimeout

// notFoundTTL is how long it is kept that there is no category of an id, at most.
const notFoundTTL = 30 * time.Second

// loadTimeout is how long a load may take.
func loadTimeout(o options) time.Duration { return o.originDelay + leaseTTL }

// The names of the caches.
const (
	treeCache     = "catalog"
	categoryCache = "category"
	pageCache     = "pages"
)

// caches are one replica's: of the tree, of single categories, and of the page that is made of the
// tree. The outbox tells them, and those of the other replicas, what is not so any more.
type caches struct {
	origin     *origin
	box        *outbox.Box
	stopRelay  func()  // of the outbox, and waits until it has
	staged     *staged // if the tree is cached by a stage, which knows no outbox
	pageTags   []string
	rdb        *redis.Client
	store      *redisstore.Store
	trees      trees
	categories *cacheguard.Cache[category]
	pages      *middleware.Cache
}

// openCaches dials Redis, so that a wrong address is found at the start. It ends early when ctx
// does. What the caches do is told to the observer, and what is asked of the tree's also counted in
// t.
func openCaches(ctx context.Context, f *fleet, observer cacheguard.Observer, t *tally) (*caches, error) {
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

func (c *caches) open(ctx context.Context, f *fleet, observer cacheguard.Observer, t *tally) (err error) {
	if err := c.store.Warm(ctx); err != nil {
		return fmt.Errorf("redis at %s: %w", f.redisAddr, err)
	}
	loadTimeout, audit := loadTimeout(f.opts), cacheguard.Audit{PerSecond: f.opts.audit}
	if audit.PerSecond > 0 {
		observer = cacheguard.Observers(observer, slogobserver.New(slogobserver.Options{Logger: f.log, Keys: true}))
	}
	if f.opts.stage == ownStage {
		c.trees, err = openGuarded(c.store, c.origin, cacheguard.Options[tree]{
			Name: treeCache, TTL: f.opts.ttl, StrongReads: true, LeaseTTL: leaseTTL, LoadTimeout: loadTimeout,
			Audit: audit, Observer: cacheguard.Observers(observer, t), Logger: f.log,
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
		StrongReads: true, LeaseTTL: leaseTTL, LoadTimeout: loadTimeout, Audit: audit, Observer: observer, Logger: f.log,
	})
	if err != nil {
		return err
	}
	c.pages, err = middleware.New(c.store, middleware.Options{
		Name: pageCache, StrongReads: true, LeaseTTL: leaseTTL, LoadTimeout: 2 * loadTimeout, Observer: observer, Logger: f.log,
	})
	if err != nil {
		return err
	}
	if c.pageTags, err = c.pages.URLTags(pagePath); err != nil {
		return err
	}
	return c.openBox(ctx, f)
}

// openBox begins to deliver what is in the outbox, whichever process has put it there.
func (c *caches) openBox(ctx context.Context, f *fleet) (err error) {
	c.box, err = outbox.New(f.db.DB, c.store, outbox.Options{Dialect: f.db.dialect, Lease: relayLease, Poll: relayPoll, Logger: f.log})
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

// category returns one category with its children. That there is none is kept, too, so that the
// database isn't asked each time for what it doesn't have.
func (c *caches) category(ctx context.Context, id int) (category, error) {
	r, err := c.categories.GetEntry(ctx, strconv.Itoa(id), func(ctx context.Context, _ cacheguard.Result[category]) (cacheguard.Entry[category], error) {
		own, err := c.origin.category(ctx, id)
		tags := []string{tagOf(id)}
		for _, child := range own.Children {
			tags = append(tags, tagOf(child.ID))
		}
		return cacheguard.Entry[category]{Value: own, Tags: tags}, err
	})
	return r.Value, err
}

// tagOf is the tag of what has the name of that category in it.
func tagOf(id int) string { return "category:" + strconv.Itoa(id) }

// rename renames a category, and has the caches forget the old name, in one transaction of the
// database. When it returns without an error no replica answers with the old name any more (see
// StrongReads). After an untoldError the category is renamed, and the caches will be told, by this
// process or another. A client that leaves doesn't stop it halfway.
func (c *caches) rename(ctx context.Context, id int, name string) error {
	ctx = context.WithoutCancel(ctx)
	err := c.origin.rename(ctx, id, name, func(ctx context.Context, tx *sql.Tx) error { return c.forget(ctx, tx, id) })
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

// forget has the caches forget what has the name of that category in it, once tx is committed. The
// page goes last: it is made of the tree, and must not be made of the old one once more.
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

// forgetStaged has the tree of a stage forgotten, after the commit: if the process dies before, or
// this fails, the old one stays until its time is over.
func (c *caches) forgetStaged(ctx context.Context) error {
	if c.staged == nil {
		return nil
	}
	if err := c.staged.changed(ctx); err != nil {
		return err
	}
	return c.pages.Purge(ctx, pagePath)
}

// untoldError says that something was changed in the database, and that caches could not be told
// yet.
type untoldError struct{ cause error }

func (e *untoldError) Error() string { return "the caches could not be told yet: " + e.cause.Error() }

func (e *untoldError) Unwrap() error { return e.cause }

// close lets loads finish and store until ctx ends.
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
