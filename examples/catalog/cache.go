package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/cacheguard/redisstore"
	"github.com/cacheguard/cacheguard/middleware"
)

// A shop would keep the defaults, which are far shorter. Here all replicas, often the clients and even Redis compete
// for the processors of one machine: an answer that comes late must not pass for a Redis that is down, nor a renewal
// that comes late for a leader that died.
const (
	redisTimeout = 4 * time.Second
	leaseTTL     = 12 * time.Second
)

// notFoundTTL is how long it is kept that there is no category of an id, at most.
const notFoundTTL = 30 * time.Second

// loadTimeout is how long a load may take.
func loadTimeout(o options) time.Duration { return o.originDelay + leaseTTL }

// caches are one replica's: of the tree, of single categories, and of the page that is made of the tree.
type caches struct {
	origin     *origin
	rdb        *redis.Client
	store      *redisstore.Store
	trees      trees
	categories *cacheguard.Cache[category]
	pages      *middleware.Cache
}

// openCaches dials Redis, so that a wrong address is found at the start. It ends early when ctx does. What the caches do is
// told to the observer, and what is asked of the tree's also counted in t.
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
	loadTimeout := loadTimeout(f.opts)
	if f.opts.stage == ownStage {
		c.trees, err = openGuarded(c.store, c.origin, cacheguard.Options[tree]{
			Name: "catalog", TTL: f.opts.ttl, StrongReads: true, LeaseTTL: leaseTTL, LoadTimeout: loadTimeout,
			Observer: cacheguard.Observers(observer, t), Logger: f.log,
		})
	} else {
		c.trees, err = openStaged(c.rdb, f, t)
	}
	if err != nil {
		return err
	}
	c.categories, err = cacheguard.New(c.store, cacheguard.Options[category]{
		Name: "category", TTL: f.opts.ttl, NegativeTTL: min(f.opts.ttl, notFoundTTL),
		StrongReads: true, LeaseTTL: leaseTTL, LoadTimeout: loadTimeout, Observer: observer, Logger: f.log,
	})
	if err != nil {
		return err
	}
	c.pages, err = middleware.New(c.store, middleware.Options{
		Name: "pages", StrongReads: true, LeaseTTL: leaseTTL, LoadTimeout: 2 * loadTimeout, Observer: observer, Logger: f.log,
	})
	return err
}

// category returns one category with its children. That there is none is kept, too, so that the database isn't asked each
// time for what it doesn't have.
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

// rename renames a category, first in the database and then, by having them forget it, in the caches. When it returns without
// an error no replica answers with the old name any more (see StrongReads). It may be called again after an error.
//
// A client that leaves doesn't stop it halfway. The caches are told also after an error of the database, which may have
// committed all the same, and the page goes last: it is made of the tree, and must not be made of the old one once more.
func (c *caches) rename(ctx context.Context, id int, name string) error {
	ctx = context.WithoutCancel(ctx)
	err := c.origin.rename(ctx, id, name)
	if errors.Is(err, cacheguard.ErrNotFound) || errors.Is(err, errTaken) {
		return err
	}
	return errors.Join(err, c.forget(ctx, id))
}

// forget has the caches forget what has the name of that category in it.
func (c *caches) forget(ctx context.Context, id int) error {
	err := c.categories.InvalidateTags(ctx, tagOf(id))
	if err == nil {
		err = c.trees.changed(ctx)
	}
	if err == nil {
		err = c.pages.Purge(ctx, pagePath)
	}
	if err != nil {
		return &untoldError{err}
	}
	return nil
}

// untoldError says that something was changed in the database, and that caches may go on with what was before until its time
// is over.
type untoldError struct{ cause error }

func (e *untoldError) Error() string { return "the caches could not be told: " + e.cause.Error() }

func (e *untoldError) Unwrap() error { return e.cause }

// close lets loads finish and store until ctx ends.
func (c *caches) close(ctx context.Context) error {
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
